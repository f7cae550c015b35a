"""What judges is found, pinned, compared and put back.

It reads a workspace and writes frozen copies into a state folder. Begin with ``discovery`` (what belongs to an
evaluator), then ``pins`` (frozen copies) and ``comparison`` (how the files stand now).
"""
