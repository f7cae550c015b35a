"""How a trial ends early: one value for every reason, raised by the step that found it and caught in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omx_autoresearch.core.experiments import TrialStatus


class TrialEnded(Exception):
    """The trial is over: rejected or failed, with its reason. Never leaves the controller.

    Args:
        status: ``rejected`` where the candidate was found wanting, ``failed`` where it could not be judged.
        code: the reason code of the row.
        reason: one sentence for people.
    """

    def __init__(self, status: TrialStatus, code: str, reason: str) -> None:
        super().__init__(reason)
        self.status: TrialStatus = status
        self.code = code
        self.reason = reason


def rejected(code: str, reason: str) -> TrialEnded:
    """The candidate was found wanting."""
    return TrialEnded("rejected", code, reason)


def failed(code: str, reason: str) -> TrialEnded:
    """The candidate could not be judged."""
    return TrialEnded("failed", code, reason)
