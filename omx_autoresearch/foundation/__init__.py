"""What every room stands on: records and their digests, JSON, types, text, times, errors.

It touches nothing outside the process, and it knows no other room. Begin with ``errors`` (the tree of what can go
wrong), then ``records`` (a frozen dataclass, and its way to plain values and back).
"""
