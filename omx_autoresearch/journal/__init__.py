"""The append-only log, its index, where files stand, and files that are either old or new.

Every room that stores something stores it with these modules; only the stores of missions and experiments write a
log. Begin with ``log`` (how nothing acknowledged is lost), then ``reader`` and ``layout``.
"""
