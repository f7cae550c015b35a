"""Other layouts: the ``.auto`` tools and logs, and task folders of other runtimes.

It reads what others wrote and begins missions and experiments from it. Begin with ``adoption``.
"""
