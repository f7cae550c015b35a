"""The system: processes, commands, the supervisor, the sandbox, git, files, the clock.

It starts and ends processes, reads the process table, and walks and removes files; it knows nothing of missions. Begin
with ``commands`` (run one command to its end and leave no process behind), then ``supervisor``.
"""
