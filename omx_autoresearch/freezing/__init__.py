"""What judges is found, pinned, compared and put back.

It reads a workspace and writes frozen copies into a state folder. Begin with ``discovery`` (what belongs to an
evaluator), then ``pins`` (their frozen copies, how the files stand now, and putting them back).
"""
