"""The box: walls around a command that the owner has not approved, with no wider rights than an agent's own.

Two kinds of walls make the same box. Bubblewrap is taken where it works. Elsewhere Landlock does it, together with a
filter of system calls that leaves no socket but connected pairs. Landlock without the filter (on other machines than
x86-64 and arm64) is a fence, which stands for no sandbox.

In the box the file system is read-only but for the workspace, the scratch folder and private temporary ones; there is
no network and no service of the machine. Inside the workspace the names of `clients.KEPT_NAMES` can neither be changed
nor made: what stands there is run or believed later, by programs outside of every sandbox.

Limits: the command can read every file that the user can read, unless it is hidden; memory and processor time are not
limited. Where the system grants no mounts (`system.surroundings`) a kept name that is missing can be made under
bubblewrap, and is looked for afterwards; Landlock then lets nothing be made at the top of a workspace that has kept
names, and leaves modes and times of other files open.
"""

from __future__ import annotations

import os

from omx_autoresearch.foundation.clients import KEPT_NAMES, WATCHED_NAMES
from omx_autoresearch.foundation.errors import CommandFault
from omx_autoresearch.foundation.records import dataclass, replace
from omx_autoresearch.system.commands import CommandResult, Isolation, run_command
from omx_autoresearch.system.files import remove
from omx_autoresearch.system.processes import is_alone
from omx_autoresearch.system.supervisor import FILTER_FD, Enclosure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from omx_autoresearch.foundation.types import Backend
    from omx_autoresearch.system.landlock import Rights
    from omx_autoresearch.system.surroundings import Surroundings

_PROGRAM = "bwrap"
_PLACES = ("/usr/bin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin")
_SETUP_FAILED = 1
"""Bubblewrap's exit status when it could not start the command; the command may exit with 1 as well."""
_PROBE_SECONDS = 5.0
_NOTHING_NEW = (
    "this system allows no mounts of its own to a program, so the box lets nothing be made, replaced or deleted at the "
    "top of the workspace"
)
_PRIVATE_PATHS = ("/tmp", "/run", "/dev/shm")  # noqa: S108
_TERMINALS = ("/dev/pts", "/dev/ptmx")
_SHARED_MEMORY = "/dev/shm"  # noqa: S108


@dataclass(frozen=True, slots=True)
class Limits:
    """What a command in the box may do.

    Attributes:
        workspace_path: the folder that it works in.
        scratch_path: a folder of ours that is its own; it must exist.
        network: whether the network stays, and with it the sockets of services.
        is_read_only: nothing of the workspace can be written.
        hidden_paths: folders and files that cannot be read; workspace, scratch and shown paths below them can.
        shown_paths: what can be read inside hidden folders all the same, and inside folders that every box empties.
    """

    workspace_path: str
    scratch_path: str
    network: bool = False
    is_read_only: bool = False
    hidden_paths: tuple[str, ...] = ()
    shown_paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Box:
    """The box that this machine has.

    Attributes:
        backend: what its walls are made of; ``fenced`` and ``none`` stand for no sandbox.
        what: it, for people: what there is, and what is missing.
        cure: how to get a better one; empty where there is none.
    """

    backend: Backend
    what: str
    cure: str = ""

    @property
    def isolates(self) -> bool:
        """Whether it may hold what an agent's own sandbox would hold."""
        return self.backend in ("bubblewrap", "landlock")


_found: list[Box] = []


def box() -> Box:
    """The box that this machine has; tried once a process."""
    if not _found:
        _found.append(_find())
    return _found[0]


def can_isolate() -> bool:
    """Whether there is a box that may hold what an agent's own sandbox would hold."""
    return box().isolates


def told_box() -> str:
    """The box that there is, or why there is none, and the cure, as install and doctor say it."""
    found = box()
    if not found.isolates:
        return no_box()
    return f"a check beside a sandboxed agent runs in a box of {found.what}" + (
        f" ({found.cure})" if found.cure else ""
    )


def no_box() -> str:
    """Why a command cannot run with an agent's rights here, and the cure, as every message says it."""
    return f"there is no box to run it in with the agent's rights: {box().what} ({box().cure})"


def _find() -> Box:
    path = bubblewrap_path()
    missing = "bubblewrap is missing"
    cure = "install the package bubblewrap"
    if path and _works("bubblewrap"):
        return Box("bubblewrap", f"bubblewrap ({path})")
    if path:
        missing = f"bubblewrap ({path}) does not work, since this system does not allow user namespaces"
        cure = "allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone, or AppArmor's)"
    elif distrusted := _distrusted_path():
        missing = f"bubblewrap ({distrusted}) is not used, since others than root can write it or its folders"
    if _works("landlock"):
        return Box("landlock", f"Landlock with a filter of system calls; {missing}", cure)
    if _works("fenced"):
        return Box("fenced", f"{missing}, and Landlock alone is a fence", cure)
    return Box("none", f"{missing}, and so is Landlock (Linux 6.2 or later)", cure)


def bubblewrap_path() -> str | None:
    """The system's bubblewrap, or one on PATH that just root can write, with its folders; None if there is none."""
    for folder in _PLACES:
        path = os.path.join(folder, _PROGRAM)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return next((path for path in _on_path() if _is_just_roots(path)), None)


def _distrusted_path() -> str:
    return next(_on_path(), "")


def _on_path() -> Iterator[str]:
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        path = os.path.join(folder, _PROGRAM)
        if os.path.isabs(path) and os.access(path, os.X_OK) and os.path.isfile(path):
            yield os.path.realpath(path)


def _is_just_roots(path: str) -> bool:
    while True:
        status = os.lstat(path)
        if status.st_uid or status.st_mode & 0o022:
            return False
        if path == "/":
            return True
        path = os.path.dirname(path)


def _works(backend: Backend) -> bool:
    """Whether a command comes through the box of this kind."""
    import tempfile

    from omx_autoresearch.system import seccomp

    if backend == "landlock" and not seccomp.box_filter(sockets="none"):
        return False
    with tempfile.TemporaryDirectory() as folder:
        scratch_path = os.path.join(folder, "scratch")
        os.mkdir(scratch_path)
        result = _run(
            ("/bin/sh", "-c", "exit 0"),
            Limits("/usr", scratch_path, is_read_only=True),
            backend,
            cwd="/",
            env={"PATH": os.defpath},
            timeout_seconds=_PROBE_SECONDS,
            output_path=os.devnull,
        )
    return result.outcome == "exited" and result.exit_status == 0


def run_limited(argv: Sequence[str], limits: Limits | None, **options: Any) -> CommandResult:
    """Run a command in the box of this machine, as `commands.run_command` would with these options.

    Without limits it runs plainly, with all rights of the user.

    The command's exit status comes through; under bubblewrap a signal that ended it comes as 128 plus its number.

    Returns:
        What became of it; ``isolation`` says what stood around it, ``box_fault`` why the box could not be set up
        (then the command did not run), ``newcomers`` which of the kept and watched names changed meanwhile.

    Raises:
        CommandFault: there is no box, not even a fence.
    """
    if limits is None:
        return run_command(argv, **options)
    if box().backend == "none":
        raise CommandFault(no_box(), next_step=f"{box().cure}, or omx-autoresearch approve")
    return _run(argv, limits, box().backend, **options)


def _run(argv: Sequence[str], limits: Limits, backend: Backend, **options: Any) -> CommandResult:
    limits = _settled(limits)
    mounts = options.get("mounts", ())
    before = _identities(limits.workspace_path)
    makeable = (*KEPT_NAMES, *WATCHED_NAMES)
    for hides_absent_names, covers_home in ((True, True), (True, False), (False, True)):
        # Beside the scratch folder, where the command cannot reach it.
        work_path = os.path.join(os.path.dirname(limits.scratch_path), f"view-{os.urandom(6).hex()}")
        os.mkdir(work_path, 0o700)
        try:
            surroundings = replace(
                _surroundings(limits, backend, work_path, covers_home=covers_home),
                hides_absent_names=hides_absent_names,
                shown_paths=(*limits.shown_paths, *{os.path.dirname(copy) for _, copy in mounts}),
            )
            result = _run_in(argv, limits, backend, surroundings, **options)
        finally:
            remove(work_path)
        if not result.mount_fault:
            if hides_absent_names:  # a link cannot be mounted over
                links = [
                    name for name in KEPT_NAMES if os.path.islink(os.path.join(limits.workspace_path, name))
                ]
                makeable = (*WATCHED_NAMES, *links)
            break
    else:  # the system has no such mounts
        result = _run_in(argv, limits, backend, None, **options)
        if before and backend != "bubblewrap":
            result = replace(result, box_note=_NOTHING_NEW)
    after = _identities(limits.workspace_path)
    newcomers = tuple(name for name in makeable if name in after and after[name] != before.get(name))
    return replace(
        result,
        argv=tuple(argv),
        newcomers=newcomers,
        has_made_newcomers=bool(newcomers) and is_alone(),
    )


def _settled(limits: Limits) -> Limits:
    """The limits with real paths, and of hidden folders only those that no other one hides already."""
    workspace = os.path.realpath(limits.workspace_path)
    hidden = {os.path.realpath(path) for path in limits.hidden_paths if os.path.lexists(path)}

    def is_covered(path: str) -> bool:
        others = (other for other in hidden - {path} if _is_in(path, other))
        return any(not _is_in(path, workspace) or _is_in(other, workspace) for other in others)

    def is_needed(path: str) -> bool:
        """Of the folders around the workspace, those in a folder that the box empties; others are visible anyway."""
        return not _is_in(workspace, path) or any(path.startswith(f"{each}/") for each in _PRIVATE_PATHS)

    shown = map(os.path.realpath, limits.shown_paths)
    return replace(
        limits,
        workspace_path=workspace,
        scratch_path=os.path.realpath(limits.scratch_path),
        hidden_paths=tuple(sorted(path for path in hidden if not is_covered(path))),
        shown_paths=tuple(sorted({path for path in shown if path != workspace and is_needed(path)})),
    )


def _run_in(
    argv: Sequence[str],
    limits: Limits,
    backend: Backend,
    surroundings: Surroundings | None,
    **options: Any,
) -> CommandResult:
    """Run it within this kind of walls; what stood around it is told from how that went."""
    from omx_autoresearch.system import seccomp

    if backend == "bubblewrap":
        has_unix = limits.network or (surroundings is not None and bool(surroundings.home_path))
        call_filter = seccomp.box_filter(sockets="all" if has_unix else "no_unix")
        result = run_command(
            _bubblewrap_argv(argv, limits, has_filter=bool(call_filter)),
            enclosure=Enclosure(surroundings, None, call_filter),
            **options,
        )
        fault = _bubblewrap_fault(result)
    else:
        call_filter = seccomp.box_filter(sockets="all" if limits.network else "none", is_among_others=True)
        rights = _rights(limits, has_surroundings=surroundings is not None)
        enclosure = Enclosure(surroundings, rights, call_filter if backend == "landlock" else b"")
        result = run_command(argv, enclosure=enclosure, **options)
        fault = ""
    if fault or result.outcome == "not_started":
        return replace(result, box_fault=fault)
    has_network = limits.network or backend == "fenced"
    return replace(result, isolation=Isolation(backend, has_network=has_network))


def _surroundings(limits: Limits, backend: Backend, work_path: str, *, covers_home: bool) -> Surroundings:
    from omx_autoresearch.system.surroundings import Surroundings

    home = os.path.realpath(os.path.expanduser("~"))
    is_apart = covers_home and os.path.isdir(home) and home != "/" and not _is_in(home, limits.workspace_path)
    is_native = backend != "bubblewrap"  # which arranges the rest itself
    return Surroundings(
        limits.workspace_path,
        work_path,
        kept_names=tuple(dict.fromkeys((*KEPT_NAMES, *_identities(limits.workspace_path)))),
        is_read_only=limits.is_read_only,
        home_path=home if is_apart else "",
        open_paths=(limits.scratch_path,),
        private_paths=_PRIVATE_PATHS if is_native else (),
        is_rest_read_only=is_native,
    )


def _rights(limits: Limits, *, has_surroundings: bool) -> Rights:
    """What Landlock leaves.

    Without mounts of its own a command makes no names at the top of a workspace that has kept ones, and shares memory
    by name only where nobody else does.
    """
    from omx_autoresearch.system.landlock import Rights

    workspace = limits.workspace_path
    writable = [limits.scratch_path, *(() if limits.is_read_only else (workspace,))]
    kept: tuple[str, ...] = ()
    if has_surroundings:
        writable += [*_PRIVATE_PATHS, *_TERMINALS]
    else:
        kept = tuple(os.path.join(workspace, name) for name in _identities(workspace))
        if os.path.isdir(_SHARED_MEMORY) and not os.listdir(_SHARED_MEMORY):
            writable.append(_SHARED_MEMORY)
    return Rights(
        tuple(writable),
        kept,
        limits.hidden_paths,
        tuple(
            path for path in limits.shown_paths if path not in _around(limits)
        ),  # which may hold hidden ones
        has_network=limits.network,
    )


def _identities(workspace_path: str) -> dict[str, int]:
    """The kept and watched names that exist, and the inode of each: what is replaced has another one."""
    found = {}
    for name in (*KEPT_NAMES, *WATCHED_NAMES):
        try:
            found[name] = os.lstat(os.path.join(workspace_path, name)).st_ino
        except OSError:
            continue
    return found


def _around(limits: Limits) -> list[str]:
    """Shown folders that hold the workspace."""
    return [path for path in limits.shown_paths if _is_in(limits.workspace_path, path)]


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(os.path.join(folder, ""))


# --- bubblewrap


def _bubblewrap_argv(argv: Sequence[str], limits: Limits, *, has_filter: bool) -> tuple[str, ...]:
    program = bubblewrap_path()
    assert program is not None
    workspace = limits.workspace_path
    words = [program, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]  # noqa: S108
    words += ["--tmpfs", "/run", "--ro-bind-try", "/run/current-system", "/run/current-system"]
    inside = [path for path in limits.hidden_paths if path.startswith(os.path.join(workspace, ""))]
    hidden_folders = [path for path in limits.hidden_paths if os.path.isdir(path)]

    def hide(paths: Sequence[str]) -> list[str]:
        masks = (
            ("--tmpfs", path) if path in hidden_folders else ("--ro-bind", os.devnull, path) for path in paths
        )
        return [word for mask in masks for word in mask]

    def show(paths: Sequence[str]) -> list[str]:
        return [word for path in paths for word in ("--ro-bind", path, path)]

    around = _around(limits)
    words += show(around)  # first, since they would cover the workspace and what is hidden
    words += hide([path for path in limits.hidden_paths if path not in inside])
    words += ["--ro-bind" if limits.is_read_only else "--bind", workspace, workspace]
    words += hide(inside)  # the workspace would cover them
    words += show([path for path in limits.shown_paths if path not in around])
    words += ["--bind", limits.scratch_path, limits.scratch_path]
    for name in _identities(workspace):
        path = os.path.realpath(os.path.join(workspace, name))
        words += ["--ro-bind-try", path, path]
    # The root user owns the kernel's switches below /proc/sys, and needs no capability for some.
    for path in ("/proc", *hidden_folders):
        words += ["--remount-ro", path]
    words += ["--unshare-user-try", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    if not limits.network:
        words.append("--unshare-net")
    if has_filter:
        words += ["--seccomp", str(FILTER_FD)]
    words += ["--cap-drop", "ALL", "--die-with-parent", "--new-session", "--chdir", workspace, "--", *argv]
    return tuple(words)


def _bubblewrap_fault(result: CommandResult) -> str:
    """Bubblewrap's own message if it could not start the command; empty if the command ran.

    Bubblewrap has no exit status of its own; its message is the first and only output. A command that writes such
    a line itself and exits with 1 is taken for one that could not be started, never for one that passed.
    """
    if result.exit_status != _SETUP_FAILED:
        return ""
    try:
        with open(result.output_path, "rb") as stream:
            line = stream.readline(4096).decode("utf-8", "replace").strip()
    except OSError:
        return ""
    return line if line.startswith(f"{_PROGRAM}: ") else ""
