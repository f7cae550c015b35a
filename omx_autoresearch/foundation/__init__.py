"""What every room stands on: records and their codec, JSON, types, text, digests, times, errors.

It touches nothing outside the process, and it knows no other room. Begin with ``errors`` (the tree of what can go
wrong), then ``records`` and ``codec`` (a frozen dataclass, and its way to JSON and back).
"""
