"""A network namespace that holds nothing but ``lo``: what runs in it cannot leave the machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

HOLDER = Path(__file__).with_name("namespace_holder.py")
DEATH_SECONDS = 20
"""More than a killed process needs to be gone on a loaded machine."""
ALREADY_OFFLINE = "CLIENT_TESTS_OFFLINE"
"""Set to 1 where the whole test run already stands in an environment without a route out."""
WAYS_IN: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("unshare", "--net"), ("--net",)),
    (("unshare", "--map-root-user", "--net"), ("--user", "--preserve-credentials", "--net")),
)
"""How to make a namespace and which namespaces to enter afterwards: as root, or through a user namespace."""


class NoNamespace(Exception):
    """The machine lets us make no network namespace; the message says what would."""


class OfflineNetwork:
    """One network namespace with one listening socket in it; a context manager.

    Attributes:
        listener: listens on 127.0.0.1 *inside* the namespace, and is served from this process.
        prefix: put before a command to run it inside; empty where the surrounding run is offline already.
    """

    def __init__(self) -> None:
        self._holder: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        if os.environ.get(ALREADY_OFFLINE) == "1":
            self.prefix: tuple[str, ...] = ()
            self.listener = socket.create_server(("127.0.0.1", 0))
            return
        for make, enter in WAYS_IN:
            opened = _open_namespace(make)
            if opened is not None:
                self._holder, self._control, self.listener = opened
                self.prefix = ("nsenter", "--target", str(self._holder.pid), *enter, "--")
                return
        raise NoNamespace(
            "no network namespace: run as root or allow unprivileged user namespaces; or set"
            f" {ALREADY_OFFLINE}=1 where the whole test run has no route out"
        )

    def processes(self) -> list[int]:
        """The ids of all processes in the namespace but its holder, whatever session or parent they have now."""
        if self._holder is None:
            return []
        wanted = _namespace_of(self._holder.pid)
        ids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
        return [pid for pid in ids if pid != self._holder.pid and _namespace_of(pid) == wanted != ""]

    def clear(self) -> None:
        """Kill everything in the namespace, what left its process group too.

        Raises:
            TimeoutError: something does not die (it hangs in the kernel).
        """
        end = time.monotonic() + DEATH_SECONDS
        while living := self.processes():
            if time.monotonic() > end:
                raise TimeoutError(f"processes {living} do not die")
            for pid in living:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill what is left and let the namespace end."""
        self.clear()
        self.listener.close()
        if self._holder is not None and self._control is not None:
            self._control.close()
            self._holder.wait()

    def __enter__(self) -> OfflineNetwork:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()


def _open_namespace(
    make: tuple[str, ...],
) -> tuple[subprocess.Popen[bytes], socket.socket, socket.socket] | None:
    """Start a holder: its process, the socket that keeps it alive, the listening one; None where it is refused."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            holder = subprocess.Popen(
                [*make, sys.executable, "-I", str(HOLDER), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stderr=subprocess.DEVNULL,
            )
        except FileNotFoundError:
            ours.close()
            return None
    _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    if not descriptors:
        ours.close()
        holder.wait()
        return None
    return holder, ours, socket.socket(fileno=descriptors[0])


def _namespace_of(pid: int) -> str:
    """The network namespace of a process; empty for one that is gone, a zombie, or not ours to look at."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return ""
