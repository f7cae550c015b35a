"""The foundation: records and their digests, JSON, types, text, times, errors.

It touches nothing outside the process, and it imports no other room. Begin with ``errors`` (the tree of errors), then
``records`` (a frozen dataclass, and its way to plain values and back).
"""
