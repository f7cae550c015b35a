"""Storage: the append-only log and its index, the layout of the folders, and atomic replacement of files.

It writes into the state home and into ``.omx`` of a project, and never follows a link there. Every room stores through
these modules; only the stores of missions and experiments write a log. Begin with ``log`` (how no acknowledged record
is lost), then ``reader`` and ``layout``.
"""
