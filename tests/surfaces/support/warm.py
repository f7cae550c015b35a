"""The command line in a process of its own that need not import the package anew.

Most of a verb's time is the import of what it uses. One interpreter a test process imports everything, and each command
is a fork of it: with the environment, the folder, the arguments, the standard streams and the exit of a process that
was started afresh. A command whose start itself is looked at (under another process, at a terminal, with variables of
the interpreter) is started afresh.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import socket
import subprocess
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_REQUEST_BYTES = 1 << 20
NOT_IMPORTED = ("mcp", "__main__", "hook", "statusline", "supervisor")
"""Names in the package that the command line does not import, or that are programs."""
IMPORTED_LATE = ("jinja2", "pydantic.dataclasses", "pydantic.type_adapter", "rich.table", "yaml")
"""What some verbs import while they run."""


def run_warm(
    arguments: Sequence[str], cwd: Path, environ: Mapping[str, str], stdin: bytes, timeout_seconds: float
) -> subprocess.CompletedProcess[bytes]:
    """Run one command; as :func:`subprocess.run` with its output captured."""
    request = json.dumps([list(arguments), str(cwd), dict(environ)]).encode()
    connection = _server()
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        socket.send_fds(connection, [request], [given.fileno(), out.fileno(), err.fileno()])
        connection.settimeout(timeout_seconds)
        status = int(connection.recv(64))
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(list(arguments), status, out.read(), err.read())


@cache
def _server() -> socket.socket:
    """The connection to this process's server; it ends when this process does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, str(theirs.fileno())],
        cwd=Path(__file__).resolve().parents[3],
        env={"PATH": os.defpath, "LANG": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
    )
    theirs.close()

    def end() -> None:
        ours.shutdown(
            socket.SHUT_RDWR
        )  # a process that a test left behind may hold a copy, which closing would not end
        process.wait()

    atexit.register(end)
    return ours


def _serve(connection: socket.socket) -> None:
    """Fork for each request; returns in the child, which then is the command, and ends with the connection."""
    while True:
        request, descriptors, _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, 3)
        if not request:
            os._exit(0)
        child = os.fork()
        if not child:
            connection.close()
            _become(request, descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        _, status = os.waitpid(child, 0)
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(request: bytes, descriptors: Sequence[int]) -> None:
    arguments, cwd, environ = json.loads(request)
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(cwd)
    sys.argv = ["omx-autoresearch", *arguments]


def _import_everything() -> None:
    import omx_autoresearch

    for module in pkgutil.walk_packages(omx_autoresearch.__path__, "omx_autoresearch."):
        if not any(part.startswith(NOT_IMPORTED) for part in module.name.split(".")[1:]):
            importlib.import_module(module.name)
    for name in IMPORTED_LATE:
        importlib.import_module(name)


if __name__ == "__main__":
    _import_everything()
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
    from omx_autoresearch.surfaces.cli import main

    try:
        main()
    except SystemExit as end:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(end.code or 0))  # tearing every module down would copy the whole memory of the server
