"""Processes that still work in a folder although whoever started them is gone.

A supervisor whose controller was killed ends its command by itself within moments; it is given that time. What is left
then, by its working folder, is killed. A process with a terminal is a person's and stays, and so does whoever started
this very process: an agent may go on from the folder itself.
"""

from __future__ import annotations

import os
import time

from omx_autoresearch.system import signals
from omx_autoresearch.system.processes import (
    ON_LINUX,
    ProcessIdentity,
    ancestors,
    descendant_pids,
    identify,
    is_alive,
    wait_for,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

GRACE_SECONDS = 6.0
"""How long a supervisor may take to end its command: its grace, and a pass of killing."""
LIMIT_SECONDS = 5.0
"""How long killed processes may take to vanish."""


def end_strays(scratch_path: str, *, grace_seconds: float = GRACE_SECONDS) -> tuple[int, ...]:
    """See everything gone whose environment names a folder below ``scratch_path``; returns what had to be killed.

    Nothing is known on systems without /proc, and nothing is done there. We ourselves and what is above us stay.
    """
    give_up_at = time.monotonic() + grace_seconds
    for process in _marked(scratch_path):
        wait_for(process, max(0.0, give_up_at - time.monotonic()))
    return end_processes(_marked(scratch_path))


def end_tree(process: ProcessIdentity) -> tuple[int, ...]:
    """Kill a process and everything below it; returns what had to be killed, nothing where it is gone already."""
    if not is_alive(process):
        return ()
    below = [identify(pid) for pid in descendant_pids(process.pid)]
    return end_processes([process, *(each for each in below if each is not None)])


def end_processes(processes: Iterable[ProcessIdentity]) -> tuple[int, ...]:
    """Kill processes and see them gone; returns their pids."""
    killed = []
    for process in processes:
        if is_alive(process):
            try:
                os.kill(process.pid, signals.SIGKILL)
            except OSError:
                continue
            killed.append(process)
    give_up_at = time.monotonic() + LIMIT_SECONDS
    for process in killed:
        wait_for(process, max(0.0, give_up_at - time.monotonic()))
    return tuple(process.pid for process in killed)


def _marked(scratch_path: str) -> list[ProcessIdentity]:
    if not ON_LINUX:
        return []
    mark = os.fsencode(os.path.join(scratch_path, ""))
    spared = {os.getpid(), *(process.pid for process in ancestors(os.getpid()))}
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in spared:
            continue
        try:
            with open(f"/proc/{name}/environ", "rb", buffering=0) as stream:
                is_marked = mark in stream.read()
        except OSError:
            continue
        identity = identify(int(name)) if is_marked else None
        if identity is not None:
            found.append(identity)
    return found
