"""Running a callback within its time: in a thread of its own, so that a deadline and a cancel reach it.

Nobody can end a thread from outside. One that ignores its cancellation is left behind as a *straggler*: its trial has
failed, and no further trial begins in the same worktree before it has ended.
"""

from __future__ import annotations

import contextvars
import threading
from typing import TYPE_CHECKING

from omx_autoresearch.core.experiment_budget import checked_cost
from omx_autoresearch.core.experiments import METADATA_LIMIT, HypothesisOutcome
from omx_autoresearch.errors import UsageError
from omx_autoresearch.runtime.experiments.ending import failed
from omx_autoresearch.storage.strictjson import encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from omx_autoresearch.runtime.experiments.cancellation import AutoresearchCancellation
    from omx_autoresearch.runtime.experiments.workspaces import ExperimentWorkspace

    Callback = Callable[[ExperimentWorkspace], HypothesisOutcome]

CALLBACK_GRACE_SECONDS = 5.0
"""How long a callback may take to end after its cancellation was set."""

METADATA_BYTES = 64 * 1024
_REASON_LENGTH = 500


class CallbackRun:
    """One call of a host's callback.

    Args:
        callback: the host's.
        workspace: what it is given; its cancellation is this call's own.
    """

    def __init__(self, callback: Callback, workspace: ExperimentWorkspace) -> None:
        self._workspace = workspace
        self._settled = threading.Event()
        self._ended = threading.Event()
        self._outcome: object = None
        self._fault: BaseException | None = None
        context = contextvars.copy_context()
        self.thread = threading.Thread(
            target=context.run, args=(self._call, callback), name="experiment-callback", daemon=True
        )

    def straggles(self) -> bool:
        """True while the call goes on."""
        return self.thread.is_alive()

    def wait(self, timeout_seconds: float | None, code: str) -> HypothesisOutcome:
        """Start the call and wait for its outcome.

        Args:
            timeout_seconds: after which it is cancelled; None for no limit.
            code: the reason code of a trial whose time was over.

        Raises:
            TrialEnded: it failed, was cancelled or ran out of time, or gave no outcome that can be recorded.
        """
        handle = self._workspace.cancellation
        unwatch = handle.watch(self._settled.set)
        self.thread.start()
        try:
            self._settled.wait(timeout_seconds)
        except BaseException:
            self._give_up(handle, "cancelled")
            raise
        finally:
            unwatch()
        if not self._ended.is_set():
            self._give_up(handle, code)
        handle.detach()
        if handle.is_cancelled:
            raise failed(handle.reason or code, self._cut_short(handle))
        if self._fault is not None:
            raise failed("callback_failed", _told(self._fault))
        return checked_outcome(self._outcome)

    def _give_up(self, handle: AutoresearchCancellation, code: str) -> None:
        handle.trigger(code)
        self._ended.wait(CALLBACK_GRACE_SECONDS)

    def _cut_short(self, handle: AutoresearchCancellation) -> str:
        told = {
            "cancelled": "the experiment was cancelled while the candidate was made",
            "timed_out": "the candidate was not ready in time",
        }.get(handle.reason, "the wall-clock budget was spent while the candidate was made")
        return f"{told}; its callback goes on in spite of the signal" if self.straggles() else told

    def _call(self, callback: Callback) -> None:
        try:
            self._outcome = callback(self._workspace)
        except BaseException as fault:  # noqa: BLE001  # it is told in the row; nothing else runs in this thread
            self._fault = fault
        finally:
            self._ended.set()
            self._settled.set()


def checked_outcome(outcome: object) -> HypothesisOutcome:
    """What the callback returned, when it can be recorded.

    Raises:
        TrialEnded: it is no `HypothesisOutcome`, its cost is no cost, or its metadata is no JSON.
    """
    if not isinstance(outcome, HypothesisOutcome):
        raise failed(
            "callback_failed", f"the callback returned {type(outcome).__name__}, not a HypothesisOutcome"
        )
    try:
        checked_cost(outcome.cost_usd)
        size_bytes = len(encode(outcome.metadata))
    except (UsageError, TypeError, ValueError, RecursionError) as fault:
        text = fault.message if isinstance(fault, UsageError) else f"metadata: {fault}"
        raise failed("callback_failed", text) from None
    if len(outcome.metadata) > METADATA_LIMIT or size_bytes > METADATA_BYTES:
        raise failed(
            "callback_failed",
            f"metadata: {len(outcome.metadata)} entries of {size_bytes} bytes; "
            f"at most {METADATA_LIMIT} of {METADATA_BYTES} are kept",
        )
    return outcome


def _told(fault: BaseException) -> str:
    text = " ".join(str(fault).split())
    return f"{type(fault).__name__}: {text}"[:_REASON_LENGTH] if text else type(fault).__name__
