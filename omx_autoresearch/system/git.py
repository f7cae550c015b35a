"""Git, through its command line, so that nothing in a repository can run a program or send us elsewhere.

The workspace and its ``.git`` may belong to an agent in a sandbox, while we run outside it with the rights of the
user. So no variable ``GIT_*`` of the environment counts, no hook and no file system monitor runs, and no transport is
allowed. (The content of files is read in ``system/tree.py``.) Git itself is never taken from a folder of the work
tree, though a virtual environment there may stand first on PATH; and nothing there makes us wait: pipes are not opened,
and git has a limit of its own, far below what a client gives its hook.
"""

from __future__ import annotations

import os
import select
import time

from omx_autoresearch.core.values import dataclass
from omx_autoresearch.errors import WorkspaceFault
from omx_autoresearch.system import signals
from omx_autoresearch.system.contents import first_line
from omx_autoresearch.system.supervisor import find_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.quotePath=false",
    "core.sshCommand=false",
    "gc.auto=0",
)
_READ_BYTES = 1 << 20
TIMEOUT_SECONDS = 20.0
"""For one git command: a stop may need three of them, and a hook that is late holds nobody."""
_OBJECT_ID_LENGTHS = (40, 64)  # sha1, sha256


@dataclass(frozen=True, slots=True)
class GitResult:
    """What one git command said."""

    exit_status: int
    stdout: bytes
    stderr: str


def git_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for git: no ``GIT_*`` of whoever called us, no prompt, no lock, no network, C messages.

    The system's and the user's own configuration stay: ``safe.directory`` and ignore rules stand there.
    """
    kept = {name: value for name, value in environ.items() if not name.startswith("GIT_")}
    return kept | {
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_PAGER": "cat",
        "LC_ALL": "C",
    }


def run_git(
    args: Sequence[str],
    *,
    cwd: str,
    environ: Mapping[str, str] | None = None,
    timeout_seconds: float = 0.0,
) -> GitResult:
    """Run one git command to its end, with stdin empty. What git refuses is a value.

    Args:
        args: the command and its arguments, without ``git``.
        cwd: the folder it runs in.
        environ: what the environment is made from (`git_environment`); ours where none is given.
        timeout_seconds: after this, git is killed; 0 for `TIMEOUT_SECONDS`.

    Raises:
        WorkspaceFault: git is not installed, or did not end in time.
    """
    timeout_seconds = timeout_seconds or TIMEOUT_SECONDS
    env = git_environment(os.environ if environ is None else environ)
    root = find_root(cwd)
    program = find_git(root or cwd, env.get("PATH", os.defpath))
    if root is not None:  # a repository that broke must not make git answer for one further up
        env["GIT_CEILING_DIRECTORIES"] = os.path.dirname(os.path.realpath(root))
    settings = [word for setting in _SETTINGS for word in ("-c", setting)]
    argv = ["git", *settings, "-C", cwd, *args]
    out_fd, out_write = os.pipe()
    error_fd, error_write = os.pipe()
    try:
        pid = _spawn(program, argv, env, out_write, error_write)
        os.close(out_write)
        os.close(error_write)
        out_write = error_write = -1
        outputs = _collect(pid, (out_fd, error_fd), timeout_seconds)
    finally:
        for descriptor in (out_fd, error_fd, out_write, error_write):
            if descriptor >= 0:
                os.close(descriptor)
    _, status = os.waitpid(pid, 0)
    if outputs is None:
        raise WorkspaceFault(
            f"`git {' '.join(args)}` did not end within {timeout_seconds:g} seconds in {cwd}",
            next_step=f"git -C {cwd} status",
        )
    return GitResult(
        os.waitstatus_to_exitcode(status), outputs[0], outputs[1].decode("utf-8", "replace").strip()
    )


def find_root(path: str) -> str | None:
    """The top folder of the work tree that holds a path, found by its ``.git``; None outside every one."""
    current = os.path.abspath(path)
    while True:
        if _is_repository(os.path.join(current, ".git")):
            return current
        parent = os.path.dirname(current)
        if parent == current:
            return None
        current = parent


def git_dir(path: str) -> str | None:
    """The git directory of the work tree that holds a path: for a linked work tree its own, not the shared one."""
    root = find_root(path)
    if root is None:
        return None
    entry = os.path.join(root, ".git")
    if os.path.isdir(entry):
        return os.path.realpath(entry)
    target = _first_line(entry).removeprefix("gitdir:").strip()
    return os.path.realpath(os.path.join(root, target))


def common_dir(path: str) -> str | None:
    """The git directory that all work trees of a repository share; None outside every repository."""
    own = git_dir(path)
    if own is None:
        return None
    shared = _first_line(os.path.join(own, "commondir"))
    return os.path.realpath(os.path.join(own, shared)) if shared else own


def main_checkout(path: str) -> str | None:
    """The main work tree of the repository that holds a path; the tree itself where it is the main one.

    None outside every repository and where the main one cannot be told (a bare repository with work trees).
    """
    own, shared = git_dir(path), common_dir(path)
    if own is None or shared is None:
        return None
    if own == shared:
        return find_root(path)
    return os.path.dirname(shared) if os.path.basename(shared) == ".git" else None


def head_commit(path: str) -> str:
    """The commit that is checked out; empty before the first one.

    Raises:
        WorkspaceFault: no repository, or one whose HEAD git cannot read.
    """
    own, shared = git_dir(path), common_dir(path)
    if own is None or shared is None:
        raise WorkspaceFault(f"{path} is in no git repository", next_step=f"git -C {path} init")
    head = _first_line(os.path.join(own, "HEAD"))
    if _is_object_id(head):
        return head
    reference = head.removeprefix("ref:").strip()
    loose = _first_line(os.path.join(shared, reference))
    if reference.startswith("refs/heads/") and _is_object_id(loose):
        return loose
    # Packed, unborn, a reference table, a work tree's own references: git knows.
    result = run_git(["rev-parse", "--quiet", "--verify", "HEAD^{commit}"], cwd=path)
    if result.exit_status not in (0, 1):
        raise cannot_read(path, result)
    return result.stdout.decode("ascii", "replace").strip()


def cannot_read(root: str, result: GitResult) -> WorkspaceFault:
    """The fault for a repository that git would not read, in git's own words."""
    said = result.stderr or f"it ended with status {result.exit_status} and no message"
    return WorkspaceFault(f"git cannot read {root}: {said}", next_step=f"git -C {root} status")


def _is_repository(entry: str) -> bool:
    if os.path.isdir(entry):
        return os.path.lexists(os.path.join(entry, "HEAD"))
    return os.path.isfile(entry) and _first_line(entry).startswith("gitdir:")


def _first_line(path: str) -> str:
    """The first line of a small file; empty where it cannot be read, or is a pipe that nobody may ever write to."""
    return os.fsdecode(first_line(path, 4096)).strip()


def _is_object_id(text: str) -> bool:
    return len(text) in _OBJECT_ID_LENGTHS and not text.strip("0123456789abcdef")


def find_git(root_path: str, search_path: str) -> str:
    """The git of this PATH that no agent wrote: folders of the work tree, and relative ones, are left out.

    The hook stands outside the agent's sandbox, and an activated virtual environment puts the workspace on its PATH.

    Raises:
        WorkspaceFault: there is none.
    """
    root = os.path.join(os.path.realpath(root_path), "")
    folders = [
        folder
        for folder in search_path.split(os.pathsep)
        if os.path.isabs(folder) and not os.path.join(os.path.realpath(folder), "").startswith(root)
    ]
    try:
        program = find_program("git", os.pathsep.join(folders)) if folders else ""
    except OSError as fault:
        raise _unstarted(fault.strerror) from fault
    if not program or os.path.realpath(program).startswith(root):
        raise _unstarted("PATH names no folder outside the workspace that has it")
    return program


def _unstarted(why: str | None) -> WorkspaceFault:
    return WorkspaceFault(f"git could not be started: {why}", next_step="install git, then try again")


def _spawn(program: str, argv: list[str], env: dict[str, str], out_write: int, error_write: int) -> int:
    try:
        return os.posix_spawn(
            program,
            argv,
            env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, out_write, 1),
                (os.POSIX_SPAWN_DUP2, error_write, 2),
            ],
            setpgroup=0,
            setsigdef=(signals.SIGPIPE, signals.SIGXFSZ),
        )
    except OSError as fault:
        raise _unstarted(fault.strerror) from fault


def _collect(pid: int, descriptors: tuple[int, int], timeout_seconds: float) -> tuple[bytes, bytes] | None:
    """Both outputs to their end; None where the time was over first, and git has been killed."""
    chunks: dict[int, list[bytes]] = {descriptor: [] for descriptor in descriptors}
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    deadline = time.monotonic() + timeout_seconds
    left = len(descriptors)
    while left:
        ready = poll.poll(max(0, int((deadline - time.monotonic()) * 1000) + 1))
        if not ready and time.monotonic() >= deadline:
            _kill(pid)
            return None
        for descriptor, _ in ready:
            chunk = os.read(descriptor, _READ_BYTES)
            if chunk:
                chunks[descriptor].append(chunk)
            else:
                poll.unregister(descriptor)
                left -= 1
    return b"".join(chunks[descriptors[0]]), b"".join(chunks[descriptors[1]])


def _kill(group: int) -> None:
    try:
        os.killpg(group, signals.SIGKILL)
    except OSError:
        return  # it has ended
