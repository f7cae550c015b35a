"""Measured experiments: trials in a worktree, judged by measurement, kept only where they are truly better.

``judge/`` decides and touches no world; ``worktrees/`` holds the candidates. Whether a candidate is kept:
``trial`` (one trial, from its change to its record) asks ``judge/decision`` (the verdict). ``controller`` has the order
of trials and how an experiment ends. Begin with ``trial``.
"""
