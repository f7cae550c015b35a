"""The world outside: git, child processes, the clock, the process table, sandboxes."""
