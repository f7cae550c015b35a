"""The error tree. Every message says what happened, where, and what to do next.

    AutoresearchError                      1   unexpected
    ├── UsageError                         2   usage                 the arguments of the call are wrong
    ├── MissionInvalid                     3   mission-invalid       the contract or an intake file is wrong
    ├── StateUntrusted                     4   state-untrusted       the journal or a projection cannot be trusted
    │   ├── JournalBroken                  4   journal-broken        a broken line in the middle, named by file and line
    │   └── StorageFailed                  4   storage-failed        disk full, read-only, permission lost
    ├── StepIllegal                        5   step-illegal          the phase or the caller does not allow this verb
    │   └── OwnerOnly                      5   owner-only            an owner verb was run from inside an agent
    ├── WorkspaceFault                     6   workspace             not a repository, path outside, missing folder
    └── CommandFault                       7   command               a validator or reviewer could not be run

A refusal, a failing validator, a rejected trial are values, not exceptions. Exit code 9 (a check said no) therefore
has no class here: the command line gives it for the value. ``slug`` is an anchor in specs/errors.md.
"""

from __future__ import annotations


class AutoresearchError(Exception):
    """The root: an error that a person can act on.

    Args:
        message: what happened and where, one sentence.
        next_step: the command or act that mends it; shown on a line of its own.
    """

    exit_code = 1
    slug = "unexpected"

    def __init__(self, message: str, *, next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.message}\n  next: {self.next_step}" if self.next_step else self.message


class UsageError(AutoresearchError):
    """The arguments of the call are wrong: an unknown option, a missing value, an ambiguous TASK."""

    exit_code = 2
    slug = "usage"


class MissionInvalid(AutoresearchError):
    """The completion contract or an intake file is wrong: placeholders, both modes, unreadable frontmatter."""

    exit_code = 3
    slug = "mission-invalid"


class StateUntrusted(AutoresearchError):
    """Durable state cannot be trusted; nothing is computed from half a file."""

    exit_code = 4
    slug = "state-untrusted"


class JournalBroken(StateUntrusted):
    """A line in the middle of a journal does not parse or does not chain; the message names file and line."""

    slug = "journal-broken"


class StorageFailed(StateUntrusted):
    """The operating system refused a write or read (ENOSPC, EROFS, EACCES); nothing acknowledged was lost."""

    slug = "storage-failed"


class StepIllegal(AutoresearchError):
    """The mission's phase does not allow this verb."""

    exit_code = 5
    slug = "step-illegal"


class OwnerOnly(StepIllegal):
    """A verb of the owner was run from inside an agent's process tree; the message names the mark and the cure."""

    slug = "owner-only"


class WorkspaceFault(AutoresearchError):
    """The workspace is not usable: no project root, a missing folder, a path that leaves it."""

    exit_code = 6
    slug = "workspace"


class CommandFault(AutoresearchError):
    """A command that the mission needs could not be run at all (a failing one is a value)."""

    exit_code = 7
    slug = "command"
