"""What another process asks of an experiment: a small file in its folder, watched by the controller at work."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from omx_autoresearch.errors import StateUntrusted, StorageFailed
from omx_autoresearch.storage.atomic import read_bounded, replace_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from omx_autoresearch.storage.experiments import ExperimentFolder

REQUESTS = ("stop", "cancel")
POLL_SECONDS = 0.2
"""How often a controller looks for requests."""

_LIMIT_BYTES = 100


def put_request(folder: ExperimentFolder, request: str) -> None:
    """Ask the controller at work to ``stop`` after its trial, or to ``cancel`` now; a cancel is never weakened."""
    if request == "stop" and pending_request(folder) == "cancel":
        return
    replace_file(folder.request_path, request.encode())


def pending_request(folder: ExperimentFolder) -> str:
    """What is asked for; empty where nothing is, or nothing that anybody knows."""
    try:
        text = read_bounded(folder.request_path, _LIMIT_BYTES).decode("ascii", "replace").strip()
    except (FileNotFoundError, StateUntrusted):
        return ""
    return text if text in REQUESTS else ""


def clear_request(folder: ExperimentFolder) -> None:
    """Take a request back that was followed, or that a resume overtook."""
    try:
        os.unlink(folder.request_path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageFailed(f"{folder.request_path} cannot be removed: {error.strerror}") from error


class RequestWatch:
    """A thread that tells requests to a controller, for as long as it is at work.

    Args:
        folder: of the experiment.
        follow: what a request does; called at most once for each new content.
        poll_seconds: between two looks.
    """

    def __init__(
        self, folder: ExperimentFolder, follow: Callable[[str], None], *, poll_seconds: float = POLL_SECONDS
    ) -> None:
        self._folder = folder
        self._follow = follow
        self._poll_seconds = poll_seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="experiment-requests", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def end(self) -> None:
        """Look no more; waits for a look under way unless it is this thread's own."""
        self._ended.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _watch(self) -> None:
        told = ""
        while not self._ended.wait(self._poll_seconds):
            request = pending_request(self._folder)
            if request and request != told:
                told = request
                self._follow(request)
