"""Other layouts: the ``.auto`` tools and logs, and task folders of other runtimes.

It reads other programs' files, begins missions and experiments from them, and writes only the ``.auto`` log that its
session tools keep. Begin with ``adoption``.
"""
