"""The agent CLIs: what each tells us and what it reads, its headless mode, and how our parts get into its settings.

It reads and writes the clients' own settings files and nothing of a mission. Begin with ``registry``, which says what a
client owes, then one client, such as ``clients/claude``; what is installed stands in ``parts``, and ``install`` puts it
in, takes it out, and examines it.
"""
