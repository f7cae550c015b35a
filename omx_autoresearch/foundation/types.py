"""The closed sets of words in records, on the wire and in decisions.

Modules of the hook path import them for type checkers only: ``typing`` costs a process 4 ms. The validation of foreign
data resolves the names here (``foundation/input_validation.py``).
"""

from __future__ import annotations

from typing import Literal

PinKind = Literal["file", "symlink", "absent-guard"]

TaskType = Literal["standard", "experiment"]

ValidationMode = Literal["mission-validator-script", "prompt-architect-artifact"]

Operation = Literal["network", "write", "publish"]

Reviewer = Literal["command", "person", "session"]

RunVerdict = Literal["passed", "failed", "error", "tampered"]

PromptVerb = Literal["bind", "yes", "pause", "resume", "status", "cancel"]

Phase = Literal["draft", "running", "blocked", "paused", "complete", "cancelled"]

Step = Literal["launch", "complete", "block", "unblock", "pause", "resume", "cancel", "amend"]

Answer = Literal["allow", "refuse", "release"]

StopScope = Literal["ours", "unbound", "other-session", "subagent", "expired"]

EventKind = Literal[
    "stop",
    "subagent_stop",
    "session_start",
    "prompt",
    "pre_compact",
    "tool",
    "session_end",
    "stop_failure",
    "other",
]
"""``tool`` is the event *after* a tool ran, success or failure. ``other`` is known to the client and nothing to us."""

Standing = Literal["proven", "by_signs", "unproven", "forged", "no_person"]
"""What is known of the sender of a prompt or of a session's start.

``proven``: the adapter's proof holds. ``by_signs``: there is no proof on this system, and nothing speaks against a
person. ``unproven``: there is a proof, and here it cannot be given. ``forged``: the proof fails, so the client did not
send the event. ``no_person``: a client, an agent, or the runtime wrote it.
"""

HostEnd = Literal["", "user_abort", "context_limit", "rate_limit", "auth_failure", "compaction"]
"""Why the host itself ended the turn, from typed host signals only, never from prose. Empty: the agent stopped."""

Progress = Literal["strong", "weak", "none"]

Outcome = Literal["exited", "timed_out", "not_started", "cancelled"]

MetricDirection = Literal["lower", "higher"]
"""Which way a metric, or the score of a validator, gets better."""

MetricSource = Literal["line", "wall", "cpu", "memory", "exit", "json"]

CriterionStatus = Literal["open", "satisfied", "blocked"]

DirectionBy = Literal["agent", "owner", "claim"]

FindingKind = Literal["command", "file", "test", "benchmark", "manual", "review", "verification"]

SessionState = Literal["bound", "pending", "token", "reviewing"]

Backend = Literal["none", "bubblewrap", "landlock", "fenced"]

Confirmation = Literal["", "clean"]
"""Where a pass is asked for once more: nowhere, or in a clean copy of what git tracks."""

ChangeKind = Literal["added", "edited", "removed", "moved", "mode"]
"""How a file differs from the launch; ``mode``: only whether it may be executed, or that it became a link."""

ChangeFlag = Literal[
    "shadows an installed module", "test or data", "new in a loaded folder", "read by the check"
]
"""Why a person should look at a change."""
