"""Measured experiments: trials in a worktree of their own, judged by measurement, kept only where they are better."""
