"""Git, through its command line, so that nothing in a repository can run a program or send us elsewhere.

The workspace and its ``.git`` may belong to an agent in a sandbox, while we run outside it with the rights of the
user. So no variable ``GIT_*`` of the environment counts, no hook and no file system monitor runs, no transport is
allowed, and the content of files is read by us: ``git status``, ``add``, ``checkout`` and ``diff`` would run the
filters and drivers that ``.git/config`` may name.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time

from omx_autoresearch.core.values import dataclass
from omx_autoresearch.errors import WorkspaceFault
from omx_autoresearch.system.contents import DISPOSABLE_NAMES, Entries, add, describe_file, digest, walk
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
_NESTING_LIMIT = 8
_GITLINK = b"160000"
_ALGORITHMS = {40: "sha1", 64: "sha256"}
_SECOND_NS = 1_000_000_000
_LOW_32_BITS = 0xFFFFFFFF  # the index keeps no more of an inode and a size (gitformat-index(5))


@dataclass(frozen=True, slots=True)
class GitResult:
    """What one git command said."""

    exit_status: int
    stdout: bytes
    stderr: str


@dataclass(frozen=True, slots=True)
class TreeState:
    """The content of a workspace at one moment.

    Attributes:
        head: the commit that is checked out; empty before the first one and without git.
        digest: sha256 over names, modes and contents; the same content has the same digest, committed or not.
        is_git: whether a repository said which files count.
        file_count: how many files the digest covers.
    """

    head: str
    digest: str
    is_git: bool
    file_count: int


@dataclass(frozen=True, slots=True)
class _Repository:
    """A work tree that is being read: where it is, where its files go, which names do not count."""

    root: str
    prefix: bytes
    exclude: tuple[bytes, ...]
    depth: int


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
    args: Sequence[str], *, cwd: str, environ: Mapping[str, str] | None = None, timeout_seconds: float = 60.0
) -> GitResult:
    """Run one git command to its end, with stdin empty. What git refuses is a value.

    Args:
        args: the command and its arguments, without ``git``.
        cwd: the folder it runs in.
        environ: what the environment is made from (`git_environment`); ours where none is given.
        timeout_seconds: after this, git is killed.

    Raises:
        WorkspaceFault: git is not installed, or did not end in time.
    """
    env = git_environment(os.environ if environ is None else environ)
    root = find_root(cwd)
    if root is not None:  # a repository that broke must not make git answer for one further up
        env["GIT_CEILING_DIRECTORIES"] = os.path.dirname(os.path.realpath(root))
    settings = [word for setting in _SETTINGS for word in ("-c", setting)]
    argv = ["git", *settings, "-C", cwd, *args]
    out_fd, out_write = os.pipe()
    error_fd, error_write = os.pipe()
    try:
        pid = _spawn(argv, env, out_write, error_write)
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
        raise _fault(path, result)
    return result.stdout.decode("ascii", "replace").strip()


def tree_state(workspace_path: str, *, exclude: tuple[str, ...] = (".omx",)) -> TreeState:
    """The content of the work tree that holds the workspace, read anew.

    Covered are tracked files, untracked ones that are not ignored, and those of submodules and nested
    repositories, as they are on disk. The index only spares reading: a file whose inode, size, mtime and ctime
    stand in it, older than the index itself, has the content recorded there. So flags that tell git not to look
    (``assume-unchanged``, ``skip-worktree``), clean filters and a restored mtime hide nothing. Whoever writes the
    index file byte by byte, or ignores a file by ``.git/info/exclude``, can hide an edit.

    Where git converts (line ends, LFS), a file that is edited and then committed counts as changed twice.
    Without a repository the folder is walked (see `contents.walk` for what is left out).

    Args:
        workspace_path: a folder.
        exclude: names that do not count, in the workspace and at the root of its repository.

    Raises:
        WorkspaceFault: no such folder; git refuses (dubious ownership, corrupt index) with git's message; too
            many files.
    """
    workspace = os.path.realpath(workspace_path)
    if not os.path.isdir(workspace):
        raise WorkspaceFault(f"the workspace {workspace_path} is no folder")
    entries: Entries = {}
    root = find_root(workspace)
    names = tuple(os.fsencode(name) for name in exclude)
    if root is None:
        walk(os.fsencode(workspace), entries, exclude=names)
        return TreeState("", digest(entries), is_git=False, file_count=len(entries))
    below = os.fsencode(os.path.relpath(workspace, root))
    names += tuple(os.path.join(below, name) for name in names if below != b".")
    _read_repository(_Repository(root, b"", names, 0), entries)
    return TreeState(head_commit(root), digest(entries), is_git=True, file_count=len(entries))


def _read_repository(repository: _Repository, entries: Entries) -> None:
    """Add the files of one work tree to the entries."""
    folder = os.fsencode(repository.root).rstrip(b"/") + b"/"
    index_written_ns = _written_ns(os.path.join(git_dir(repository.root) or "", "index"))
    pending = b""
    algorithm = "sha1"
    for chunk in _list_files(repository.root).split(b"\0"):
        rest = chunk
        if pending:
            *stamps, rest = chunk.split(b"\n", 5)
            head, _, name = pending.partition(b"\t")
            _, mode, recorded, stage = head.split(b" ")
            algorithm = _ALGORITHMS[len(recorded)]
            if mode == _GITLINK:
                _read_below(repository, name, entries)
            elif not _is_excluded(name, repository.exclude):
                is_merged = stage == b"0"
                described = _describe_tracked(
                    folder + name,
                    mode + b" " + recorded if is_merged else b"",
                    stamps,
                    index_written_ns,
                    algorithm,
                )
                add(entries, repository.prefix + name, described)
        pending = b""
        if rest.startswith(b"? "):
            _read_untracked(repository, rest[2:], entries, algorithm)
        else:
            pending = rest


def _describe_tracked(
    path: bytes, recorded: bytes, stamps: list[bytes], index_written_ns: int, algorithm: str
) -> bytes | None:
    """Mode and id of a tracked file: as recorded where the index proves that nothing changed, else read anew."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    changed_ns, modified_ns = status.st_ctime_ns, status.st_mtime_ns
    ctime, mtime, place, _owner, size = stamps
    if (
        recorded
        and ctime == b"  ctime: %d:%d" % divmod(changed_ns, _SECOND_NS)
        and mtime == b"  mtime: %d:%d" % divmod(modified_ns, _SECOND_NS)
        and changed_ns < index_written_ns
        and modified_ns < index_written_ns
        and size.startswith(b"  size: %d\t" % (status.st_size & _LOW_32_BITS))
        and place.endswith(b"\tino: %d" % (status.st_ino & _LOW_32_BITS))
        and recorded.startswith(_mode_of(status.st_mode))
    ):
        return recorded
    return describe_file(path, status, algorithm=algorithm)


def _mode_of(mode: int) -> bytes:
    if mode & 0o170000 == 0o120000:
        return b"120000 "
    return b"100755 " if mode & 0o100 else b"100644 "


def _read_untracked(repository: _Repository, name: bytes, entries: Entries, algorithm: str) -> None:
    if _is_excluded(name, repository.exclude) or not DISPOSABLE_NAMES.isdisjoint(name.split(b"/")):
        return
    if name.endswith(b"/"):
        _read_below(repository, name.rstrip(b"/"), entries)
        return
    path = os.path.join(os.fsencode(repository.root), name)
    with contextlib.suppress(OSError):
        add(entries, repository.prefix + name, describe_file(path, os.lstat(path), algorithm=algorithm))


def _read_below(repository: _Repository, name: bytes, entries: Entries) -> None:
    """Add a submodule or a repository inside this one; walk it where it is none (yet)."""
    path = os.path.join(repository.root, os.fsdecode(name))
    if os.path.islink(path) or not os.path.isdir(path):
        with contextlib.suppress(OSError):
            add(entries, repository.prefix + name, describe_file(os.fsencode(path), os.lstat(path)))
        return
    prefix = repository.prefix + name + b"/"
    if find_root(path) == path and repository.depth < _NESTING_LIMIT:
        _read_repository(_Repository(path, prefix, (), repository.depth + 1), entries)
    else:
        walk(os.fsencode(path), entries, prefix=prefix)


def _list_files(root: str) -> bytes:
    """The files of a work tree: tracked ones with what the index knows of them, untracked ones not ignored.

    The work tree is named, so that ``core.worktree`` or ``core.bare`` in its configuration send git nowhere else.
    """
    args = [f"--work-tree={root}", "ls-files", "-t", "-s", "-o", "--exclude-standard", "-z", "--debug"]
    result = run_git(args, cwd=root)
    if result.exit_status != 0:
        raise _fault(root, result)
    return result.stdout


def _fault(root: str, result: GitResult) -> WorkspaceFault:
    said = result.stderr or f"it ended with status {result.exit_status} and no message"
    return WorkspaceFault(f"git cannot read {root}: {said}", next_step=f"git -C {root} status")


def _is_excluded(name: bytes, exclude: tuple[bytes, ...]) -> bool:
    if not name.startswith(exclude):  # nearly always, and asked for every file
        return False
    return any(name == left_out or name.startswith(left_out + b"/") for left_out in exclude)


def _written_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _is_repository(entry: str) -> bool:
    if os.path.isdir(entry):
        return os.path.lexists(os.path.join(entry, "HEAD"))
    return os.path.isfile(entry) and _first_line(entry).startswith("gitdir:")


def _first_line(path: str) -> str:
    """The first line of a small file; empty where it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as stream:
            return os.fsdecode((stream.read(4096) or b"").split(b"\n", 1)[0]).strip()
    except OSError:
        return ""


def _is_object_id(text: str) -> bool:
    return len(text) in _ALGORITHMS and not text.strip("0123456789abcdef")


def _spawn(argv: list[str], env: dict[str, str], out_write: int, error_write: int) -> int:
    try:
        return os.posix_spawn(
            find_program("git", env.get("PATH", os.defpath)),
            argv,
            env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, out_write, 1),
                (os.POSIX_SPAWN_DUP2, error_write, 2),
            ],
            setpgroup=0,
            setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
        )
    except OSError as fault:
        raise WorkspaceFault(
            f"git could not be started: {fault.strerror}", next_step="install git, then try again"
        ) from fault


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
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
            return None
        for descriptor, _ in ready:
            chunk = os.read(descriptor, _READ_BYTES)
            if chunk:
                chunks[descriptor].append(chunk)
            else:
                poll.unregister(descriptor)
                left -= 1
    return b"".join(chunks[descriptors[0]]), b"".join(chunks[descriptors[1]])
