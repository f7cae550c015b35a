"""The rules of missions: pure functions over records. No I/O, no clock, no randomness: times and ids are arguments.

Begin with ``mission`` (the folded state), then ``gate`` (the only place that can refuse a stop) and ``evidence`` (what
completes a contract). To add a kind of rule for criteria, write one class in a module of its own beside ``rule_kinds``
(which has the others) and add one line to ``criteria.KINDS``; help, checks and completion find it there.
"""
