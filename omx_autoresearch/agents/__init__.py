"""The agent CLIs: what each tells us and what it reads, its headless mode, and how our parts get into its settings.

It reads and writes the clients' own settings files and nothing of a mission. Begin with ``registry`` (which clients
there are), then one client, such as ``claude``; ``install`` and ``doctor`` serve all of them.
"""
