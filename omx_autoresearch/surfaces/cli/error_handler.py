"""The one place where what went wrong becomes an exit status and a text.

    AutoresearchError     stderr ``error: what`` and ``next: ...``, the class's exit status
    a wrong call          the same, 2
    Ctrl-C                130
    a closed pipe         quiet, 141
    anything else         1, and a log file with versions and the traceback

With ``--json`` an error is one object on stdout. The hook never ends with 2: several clients take it for a refusal.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from omx_autoresearch.foundation.errors import AutoresearchError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

INTERRUPTED = 130
PIPE_CLOSED = 141
CHECK_SAID_NO = 9
"""The exit status for a negative outcome, which is a value and no error."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status; never lets a traceback through.

    Args:
        arguments: behind the program's name.
    """
    is_json = "--json" in arguments
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until the end
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a C locale must not turn a goal into a crash
    try:
        status = _attempt(arguments)
        sys.stdout.flush()
    except AutoresearchError as error:
        status = _tell(error, is_json=is_json)
    except BrokenPipeError:
        status = _close_pipe()
    except Exception as error:  # noqa: BLE001 - the boundary: nobody meets a bare traceback
        status = _tell(_unexpected(error, arguments), is_json=is_json)
    _follow()
    return 1 if status == 2 and arguments[:1] == ["hook"] else status


def _follow() -> None:
    """Bring the files under ``.omx`` of the missions that this verb changed up; a warning where that fails."""
    store = sys.modules.get("omx_autoresearch.missions.store")
    if store is None or not store.changed:
        return
    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.missions.claims import write_changed
    from omx_autoresearch.surfaces.cli.display import print_warning

    try:
        for warning in write_changed(Runtime.of_process()):
            print_warning(warning)
    except KeyboardInterrupt:
        return  # the next look brings them up
    except BrokenPipeError:
        _close_pipe()


def _attempt(arguments: Sequence[str]) -> int:
    from omx_autoresearch.surfaces.cli.program import PROGRAM, program

    _check_texts(arguments)
    try:
        result = program.main(list(arguments), prog_name=PROGRAM, standalone_mode=False)
    except click.Abort as stop:
        if isinstance(stop.__cause__ or stop.__context__, EOFError):
            raise UsageError("no answer came", next_step="give the options; see --help") from None
        return INTERRUPTED
    except KeyboardInterrupt:
        return INTERRUPTED
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as fault:
        raise _usage(fault, arguments) from None
    except SystemExit as end:  # click's shell completion, and its own answer to a closed pipe
        if type(sys.stdout).__name__.endswith("PacifyFlushWrapper"):
            return PIPE_CLOSED
        return end.code if isinstance(end.code, int) else 0
    return result if isinstance(result, int) else 0


def _check_texts(arguments: Sequence[str]) -> None:
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            shown = argument.encode("ascii", "backslashreplace").decode()
            raise UsageError(
                f"an argument is not UTF-8: {shown[:80]}", next_step="give it in UTF-8"
            ) from None


def _usage(fault: click.ClickException, arguments: Sequence[str]) -> UsageError:
    from omx_autoresearch.surfaces.cli import program as former
    from omx_autoresearch.surfaces.cli.program import PROGRAM, VERBS

    if isinstance(fault, click.NoSuchOption) and fault.option_name in former.FLAGS:
        return former.gone(fault.option_name)
    first = arguments[0] if arguments else ""
    if first == "--json":
        return UsageError(
            "--json stands behind the verb", next_step=f"{PROGRAM} {' '.join(arguments[1:2])} --json"
        )
    path = f"{PROGRAM} {first}" if first in VERBS else PROGRAM
    context = getattr(fault, "ctx", None)
    if context is not None and first in VERBS:
        path = context.command_path
    if isinstance(fault, click.exceptions.NoArgsIsHelpError):
        return UsageError(f"`{path}` does nothing by itself: name a verb", next_step=f"{path} --help")
    message = " ".join(fault.format_message().split()).rstrip(".")
    if first not in VERBS and (near := _nearest(first, VERBS)):
        message += f". Did you mean {near!r}?"
    return UsageError(message, next_step=f"{path} --help")


def _nearest(word: str, known: Iterable[str]) -> str:
    import difflib

    return next(iter(difflib.get_close_matches(word, list(known), n=1)), "")


def _tell(error: AutoresearchError, *, is_json: bool) -> int:
    from omx_autoresearch.surfaces.cli.display import print_error, print_json

    try:
        if is_json:
            print_json({"error": {"slug": error.slug, "message": error.message, "next": error.next_step}})
            sys.stdout.flush()
        else:
            print_error(error)
    except BrokenPipeError:
        _close_pipe()
    return error.exit_code


def _close_pipe() -> int:
    """Nobody reads any more; keep the interpreter's last flush from complaining."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
    return PIPE_CLOSED


def _unexpected(error: Exception, arguments: Sequence[str]) -> AutoresearchError:
    where = _write_log(error, arguments)
    text = " ".join(str(error).split())[:300]
    return AutoresearchError(
        f"unexpected {type(error).__name__}: {text}" if text else f"unexpected {type(error).__name__}",
        next_step=f"run it again; if it stays, report {where}"
        if where
        else "make the state home or TMPDIR writable and run it again; no report was written, as neither takes a file",
    )


def _write_log(error: Exception, arguments: Sequence[str]) -> str:
    """Versions, verb and traceback in a file that only this user reads; returns its path, empty if none.

    The arguments are left out: they may hold secrets.
    """
    import platform
    import time
    import traceback

    from omx_autoresearch import __version__

    lines = [
        f"omx-autoresearch {__version__}, click {click.__version__ if hasattr(click, '__version__') else '?'}",
        f"python {platform.python_version()} on {platform.platform()}",
        f"verb {arguments[0] if arguments else '(none)'}",
        "".join(traceback.format_exception(error)),
    ]
    name = f"fault-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}.log"
    for folder_path in _log_folders():
        try:
            os.makedirs(folder_path, mode=0o700, exist_ok=True)
            path = os.path.join(folder_path, name)
            with open(
                os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
            ) as log:
                log.write("\n".join(lines))
            return path
        except OSError:
            continue
    return ""


def _log_folders() -> list[str]:
    """Where a log may stand, best first; never in the project that somebody happens to stand in."""
    import contextlib
    import tempfile

    from omx_autoresearch.journal.layout import state_home
    from omx_autoresearch.missions.checkouts import project_root

    folders = []
    with contextlib.suppress(AutoresearchError):
        folders.append(os.path.join(state_home(os.environ), "faults"))
    with contextlib.suppress(
        AutoresearchError, OSError
    ):  # no temporary folder at all, or the current one is gone
        temporary_path = os.path.realpath(
            tempfile.gettempdir()
        )  # the current folder where no other can be written
        here = os.path.realpath(os.getcwd())
        root = project_root(here)
        is_project = any(os.path.lexists(os.path.join(root, name)) for name in (".git", ".omx"))
        is_inside = is_project and os.path.join(temporary_path, "").startswith(os.path.join(root, ""))
        if temporary_path != here and not is_inside:
            folders.append(temporary_path)
    return folders
