"""Measured experiments: trials in a worktree, judged by measurement, kept only where they are truly better.

``judge/`` decides and touches no world; ``worktrees/`` holds the candidates. Begin with ``controller`` (trials and
their ends), then ``trial`` (one trial) and ``judge/decision`` (the verdict).
"""
