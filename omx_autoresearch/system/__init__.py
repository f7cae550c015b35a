"""The world outside: processes, commands, the supervisor, the sandbox, git, the clock.

It starts and ends processes and reads the process table; it knows nothing of missions. Begin with ``commands`` (run one
command to its end with nothing left behind), then ``supervisor``.
"""
