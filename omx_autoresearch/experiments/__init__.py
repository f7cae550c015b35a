"""Measured experiments: trials in a worktree, judged by measurement, kept only where they are truly better.

The room runs commands in worktrees of its own and writes logs of its own; the user's checkout changes only when its
owner takes a patch over. Begin with ``trial``: one trial, from its change to its record. ``judge.decision.Judge`` alone
decides whether the measurements of a candidate are good enough, and ``judge.decision.guard_failures`` whether it broke
a guard. ``judge/`` touches no world; ``worktrees/`` holds the candidates. ``controller`` has the order of trials and
the end of an experiment.
"""
