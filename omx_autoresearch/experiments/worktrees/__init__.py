"""The two worktrees of an experiment, their checkpoints, and the way back into the user's checkout.

It calls git on repositories of its own and reads the user's; only ``acceptance`` changes the user's
checkout. Begin with ``pair``.
"""
