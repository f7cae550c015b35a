"""The rules of missions: pure functions over records. No I/O, no clock, no randomness: times and ids are arguments.

Begin with ``mission`` (the folded state), then ``gate`` (the one place that can refuse a stop) and ``evidence`` (what
completes a contract). The kinds of rule that a criterion can have: the registry in ``criteria``, the classes in
``rule_kinds``.
"""
