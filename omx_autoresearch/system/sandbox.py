"""A sandbox for commands that the owner has not approved: bubblewrap, with no wider rights than an agent has.

The file system is read-only except the workspace, the named folders and a private /tmp. The command sees no network and
no other process of the machine. Inside the workspace, ``.git`` and the configuration of agent CLIs are read-only, as in
the sandboxes of the CLIs themselves: such files can later start programs outside any sandbox. /run is empty: it has the
sockets of Docker, D-Bus and other services, and a socket works in a read-only folder too.

Limits: the command can create one of those folders if it does not exist; it can reach a socket outside /run and /tmp;
it can read every file that the user can read; memory and processor time are not limited.
"""

from __future__ import annotations

import os

from omx_autoresearch.foundation.clients import KNOWN
from omx_autoresearch.foundation.errors import CommandFault
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.system.commands import CommandResult, run_command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from omx_autoresearch.foundation.types import Backend

READ_ONLY_NAMES = (".git", ".agents", ".aws", *(known.folder for known in KNOWN.values() if known.folder))
"""Names that stay read-only in a writable workspace, as in the strictest sandbox of the agent CLIs."""

_PROGRAM = "bwrap"
_SETUP_FAILED = (
    1  # bwrap's exit status when it could not start the command; the command may exit with 1 as well
)
_PROBE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Isolation:
    """The isolation of a command while it ran.

    Attributes:
        backend: ``none`` if the command had all rights of the user.
        has_network: whether it could reach the network.
    """

    backend: Backend
    has_network: bool


NOT_ISOLATED = Isolation("none", has_network=True)


def bubblewrap_path() -> str | None:
    """The system's bubblewrap, from folders that only root can write; None if it is missing."""
    for folder in ("/usr/bin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin"):
        path = os.path.join(folder, _PROGRAM)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


def bubblewrap_argv(  # noqa: PLR0913  # one door each; all but two have a default
    argv: Sequence[str],
    *,
    workspace_path: str,
    writable_paths: Sequence[str] = (),
    network: bool = False,
    is_read_only: bool = False,
    hidden_paths: Sequence[str] = (),
    shown_paths: Sequence[str] = (),
) -> tuple[str, ...]:
    """The command line that runs a command inside bubblewrap, in the workspace.

    The exit status is that of the command, or 128 plus the number of the signal that ended it.

    Args:
        argv: the command; a program without a slash is looked up inside, in the PATH of its environment.
        workspace_path: the folder to run in; writable, except `READ_ONLY_NAMES`.
        writable_paths: further folders that stay writable; they must exist.
        network: whether the command can reach the network.
        is_read_only: the workspace is read-only.
        hidden_paths: folders and files that look empty inside; workspace, writable and shown paths below them stay
            visible.
        shown_paths: paths in hidden folders that the command can read.

    Raises:
        CommandFault: bubblewrap is not installed.
    """
    program = bubblewrap_path()
    if program is None:
        raise CommandFault(
            "bubblewrap is not installed, so the command cannot run in a sandbox",
            next_step="install the package bubblewrap, or approve the command: omx-autoresearch approve",
        )
    workspace = os.path.realpath(workspace_path)
    words = [program, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]  # noqa: S108
    words += ["--tmpfs", "/run", "--ro-bind-try", "/run/current-system", "/run/current-system"]
    hidden = [os.path.realpath(path) for path in hidden_paths if os.path.lexists(path)]
    inside = [path for path in hidden if path.startswith(os.path.join(workspace, ""))]
    hidden_folders = [path for path in hidden if os.path.isdir(path)]

    def hide(paths: Sequence[str]) -> list[str]:
        masks = (
            ("--tmpfs", path) if path in hidden_folders else ("--ro-bind", os.devnull, path) for path in paths
        )
        return [word for mask in masks for word in mask]

    words += hide([path for path in hidden if path not in inside])
    words += ["--ro-bind" if is_read_only else "--bind", workspace, workspace]
    words += hide(inside)  # the workspace would cover them
    for path in map(os.path.realpath, shown_paths):
        words += ["--ro-bind", path, path]
    for path in (os.path.realpath(path) for path in writable_paths):
        words += ["--bind", path, path]
    for name in READ_ONLY_NAMES:
        path = os.path.realpath(os.path.join(workspace, name))
        words += ["--ro-bind-try", path, path]
    for path in hidden_folders:
        words += ["--remount-ro", path]
    words += ["--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    if not network:
        words.append("--unshare-net")
    words += ["--cap-drop", "ALL", "--die-with-parent", "--new-session", "--chdir", workspace, "--", *argv]
    return tuple(words)


_tried: list[bool] = []


def can_isolate() -> bool:
    """Whether bubblewrap is installed and the kernel lets it work; each process tries it once."""
    if not _tried:
        _tried.append(_isolates())
    return _tried[0]


def _isolates() -> bool:
    if bubblewrap_path() is None:
        return False
    result = run_command(
        bubblewrap_argv(("/bin/sh", "-c", "exit 0"), workspace_path="/usr"),
        cwd="/",
        env={"PATH": os.defpath},
        timeout_seconds=_PROBE_SECONDS,
        output_path=os.devnull,
    )
    return result.outcome == "exited" and result.exit_status == 0


def bubblewrap_fault(result: CommandResult) -> str:
    """Bubblewrap's message if it could not start the command; empty if the command ran.

    Bubblewrap has no distinct exit status; its message is the first and only output. A command that prints such a line
    itself and exits with 1 counts as not started, never as passed.
    """
    if os.path.basename(result.argv[0]) != _PROGRAM or result.exit_status != _SETUP_FAILED:
        return ""
    try:
        with open(result.output_path, "rb") as stream:
            line = stream.readline(4096).decode("utf-8", "replace").strip()
    except OSError:
        return ""
    return line if line.startswith(f"{_PROGRAM}: ") else ""


def isolation_of(result: CommandResult) -> Isolation:
    """The real isolation of a command that has run, derived from its arguments and its result, not from a plan."""
    is_wrapped = result.argv[0] == bubblewrap_path() and "--" in result.argv
    if not is_wrapped or result.outcome == "not_started" or bubblewrap_fault(result):
        return NOT_ISOLATED
    options = result.argv[: result.argv.index("--")]
    return Isolation("bubblewrap", has_network="--unshare-net" not in options)
