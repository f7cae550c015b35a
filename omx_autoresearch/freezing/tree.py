"""The content of a work tree at one moment, as one digest: what a verdict was about, and whether it still holds.

Git lists the files; their content is read by us: ``git status``, ``add``, ``checkout`` and ``diff`` would run the
filters and drivers that ``.git/config`` may name.
"""

from __future__ import annotations

import os

from omx_autoresearch.foundation.errors import WorkspaceFault
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.system.files import DISPOSABLE_NAMES, Entries, add, add_below, describe_file, digest
from omx_autoresearch.system.git import cannot_read, find_root, git_dir, head_commit, run_git

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_NESTING_LIMIT = 8
_NOT_COVERED = (".omx",)
_GITLINK = b"160000 "
_MODES = {0o100000: b"100644 ", 0o100100: b"100755 ", 0o120000: b"120000 ", 0o120100: b"120000 "}
_KIND_AND_EXECUTABLE = 0o170100
_ALGORITHMS = {40: "sha1", 64: "sha256"}
_SECOND_NS = 1_000_000_000
_LOW_32_BITS = 0xFFFFFFFF  # the index keeps no more of an inode and a size (gitformat-index(5))


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
    """A work tree that is being read: where it is, where its files go, which names do not count, what is read."""

    root: str
    prefix: bytes
    exclude: tuple[bytes, ...]
    depth: int
    reads_files: bool = False


def tree_state(
    workspace_path: str, *, exclude: tuple[str, ...] = _NOT_COVERED, reads_files: bool = False
) -> TreeState:
    """The content of the work tree that holds the workspace, read anew.

    Covered are tracked files, untracked ones that are not ignored, and those of submodules and nested
    repositories, as they are on disk. The index only spares reading: a file whose inode, size, mtime and ctime
    stand in it, older than the index itself, has the content recorded there. So flags that tell git not to look
    (``assume-unchanged``, ``skip-worktree``), clean filters and a restored mtime hide nothing. A process that
    writes the index file byte by byte, or an ignore rule (``.gitignore``, ``.git/info/exclude``), can hide an edit.

    Where git converts (line ends, LFS), a file that is edited and then committed counts as changed twice.
    Without a repository the folder is walked (see `files.add_below` for what is left out).

    Args:
        workspace_path: a folder.
        exclude: names that do not count, in the workspace and at the root of its repository.
        reads_files: read every file, whatever the index says of its times: a page that a process has mapped changes
            without a new one.

    Raises:
        WorkspaceFault: no such folder; git refuses (dubious ownership, corrupt index) with git's message; too
            many files.
    """
    head, entries, is_git = _read(workspace_path, exclude, reads_files=reads_files)
    return TreeState(head, digest(entries), is_git=is_git, file_count=len(entries))


def whole_tree(workspace_path: str, *, reads_files: bool = False) -> tuple[str, Entries]:
    """The commit, and the files that `tree_state` covers: from the name to mode and id. Raises what that does."""
    return _read(workspace_path, _NOT_COVERED, reads_files=reads_files)[:2]


def tree_files(workspace_path: str) -> Entries:
    """The files of `whole_tree`. Raises what that does."""
    return whole_tree(workspace_path)[1]


def tree_names(workspace_path: str) -> Iterable[bytes]:
    """The names of `tree_files`, which git lists faster than anybody looks at the files. Raises what that does."""
    root = find_root(os.path.realpath(workspace_path))
    listed = _list_files(root, is_debug=False).split(b"\0") if root else []
    described = [line.partition(b"\t")[::2] for line in listed if not line.startswith(b"? ")]
    untracked = [line[2:] for line in listed if line.startswith(b"? ")]
    is_nested = any(b" 160000 " in head for head, _ in described) or any(
        name[-1:] == b"/" for name in untracked
    )
    if not root or is_nested:
        return tree_files(workspace_path)
    folder = os.fsencode(root) + b"/"
    tracked = {name for _, name in described if name and os.path.lexists(folder + name)}
    kept = (name for name in untracked if DISPOSABLE_NAMES.isdisjoint(name.split(b"/")))
    below = os.fsencode(os.path.relpath(os.path.realpath(workspace_path), root))
    exclude = tuple(os.path.normpath(os.path.join(below, os.fsencode(name))) for name in _NOT_COVERED)
    exclude += tuple(map(os.fsencode, _NOT_COVERED))
    return {name for name in (*tracked, *kept) if not _is_excluded(name, exclude)}


def _read(
    workspace_path: str, exclude: tuple[str, ...], *, reads_files: bool = False
) -> tuple[str, Entries, bool]:
    """Head, files, and whether there is a repository."""
    workspace = os.path.realpath(workspace_path)
    if not os.path.isdir(workspace):
        raise WorkspaceFault(f"the workspace {workspace_path} is not a folder")
    entries = Entries()
    root = find_root(workspace)
    names = tuple(os.fsencode(name) for name in exclude)
    if root is None:
        add_below(os.fsencode(workspace), entries, exclude=names)
        return "", entries, False
    below = os.fsencode(os.path.relpath(workspace, root))
    names += tuple(os.path.join(below, name) for name in names if below != b".")
    _read_repository(_Repository(root, b"", names, 0, reads_files), entries)
    return head_commit(root), entries, True


def _read_repository(repository: _Repository, entries: Entries) -> None:
    """Add the files of one work tree to the entries."""
    folder = os.fsencode(repository.root).rstrip(b"/") + b"/"
    index = _Index(_written_ns(os.path.join(git_dir(repository.root) or "", "index")))
    pending = b""
    algorithm = "sha1"
    for chunk in _list_files(repository.root).split(b"\0"):
        rest = chunk
        if pending:
            end = chunk.index(b"\n", chunk.index(b"\tflags: ")) + 1
            stamps, rest = chunk[:end], chunk[end:]
            head, _, name = pending.partition(b"\t")
            recorded, stage = head[2:-2], head[-2:]  # "H 100644 ID 0": tag, mode, id, stage
            algorithm = _ALGORITHMS[len(recorded) - 7]
            if recorded.startswith(_GITLINK):
                _read_below(repository, name, entries)
            elif not _is_excluded(name, repository.exclude):
                is_vouched = stage == b" 0" and not repository.reads_files  # of a conflict, nothing is
                vouched = recorded if is_vouched else b""
                described = _describe_tracked(folder + name, vouched, stamps, index, entries, algorithm)
                add(entries, repository.prefix + name, described)
        pending = b""
        if rest.startswith(b"? "):
            _read_untracked(repository, rest[2:], entries, algorithm)
        else:
            pending = rest


class _Index:
    """The index file as proof that a file is unchanged: asked for every tracked file, so an answer is one comparison.

    Args:
        written_ns: when it was last written; a file as young as that may have changed since.
    """

    __slots__ = ("_device", "_owner", "_written_ns")

    def __init__(self, written_ns: int) -> None:
        self._written_ns = written_ns
        # What an entry says of device and owner does not count (a container numbers them anew); it is mostly the same
        # for all of them.
        self._device = self._owner = b""

    def vouches(self, status: os.stat_result, recorded: bytes, stamps: bytes) -> bool:
        """True when a file as it stands is surely the one that the index recorded."""
        changed_ns, modified_ns = status.st_ctime_ns, status.st_mtime_ns
        if changed_ns >= self._written_ns or modified_ns >= self._written_ns:
            return False
        if _MODES.get(status.st_mode & _KIND_AND_EXECUTABLE) != recorded[:7]:
            return False
        expected = b"  ctime: %d:%d\n  mtime: %d:%d\n  dev: %b\tino: %d\n  uid: %b\n  size: %d\tflags: " % (
            changed_ns // _SECOND_NS,
            changed_ns % _SECOND_NS,
            modified_ns // _SECOND_NS,
            modified_ns % _SECOND_NS,
            self._device,
            status.st_ino & _LOW_32_BITS,
            self._owner,
            status.st_size & _LOW_32_BITS,
        )
        return stamps.startswith(expected) or (
            self._has_learned(stamps) and self.vouches(status, recorded, stamps)
        )

    def _has_learned(self, stamps: bytes) -> bool:
        """Take over device and owner of this entry; False where they were these already."""
        lines = stamps.split(b"\n")
        device, owner = lines[2][7:].partition(b"\tino: ")[0], lines[3][7:]
        if (device, owner) == (self._device, self._owner):
            return False
        self._device, self._owner = device, owner
        return True


def _describe_tracked(  # noqa: PLR0913, PLR0917  # asked for every file: no object is made for it
    path: bytes, recorded: bytes, stamps: bytes, index: _Index, entries: Entries, algorithm: str
) -> bytes | None:
    """Mode and id of a tracked file: as recorded where the index proves that nothing changed, else read anew."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    if recorded and index.vouches(status, recorded, stamps):
        return recorded
    return describe_file(path, status, entries, algorithm=algorithm)


def _read_untracked(repository: _Repository, name: bytes, entries: Entries, algorithm: str) -> None:
    if _is_excluded(name, repository.exclude) or not DISPOSABLE_NAMES.isdisjoint(name.split(b"/")):
        return
    if name.endswith(b"/"):
        _read_below(repository, name.rstrip(b"/"), entries)
        return
    path = os.path.join(os.fsencode(repository.root), name)
    _add_as_it_is(path, repository.prefix + name, entries, algorithm)


def _add_as_it_is(path: bytes, name: bytes, entries: Entries, algorithm: str) -> None:
    try:
        status = os.lstat(path)
    except OSError:
        return
    add(entries, name, describe_file(path, status, entries, algorithm=algorithm))


def _read_below(repository: _Repository, name: bytes, entries: Entries) -> None:
    """Add a submodule or a repository inside this one; a folder that is none (yet) is walked."""
    path = os.path.join(repository.root, os.fsdecode(name))
    if os.path.islink(path) or not os.path.isdir(path):
        _add_as_it_is(os.fsencode(path), repository.prefix + name, entries, "sha1")
        return
    prefix = repository.prefix + name + b"/"
    if find_root(path) == path and repository.depth < _NESTING_LIMIT:
        _read_repository(_Repository(path, prefix, (), repository.depth + 1, repository.reads_files), entries)
    else:
        add_below(os.fsencode(path), entries, prefix=prefix)


def _list_files(root: str, *, is_debug: bool = True) -> bytes:
    """The files of a work tree: tracked ones with what the index knows of them (``is_debug``), and others not ignored.

    The work tree is named, so that ``core.worktree`` or ``core.bare`` in its configuration send git nowhere else.
    """
    args = [f"--work-tree={root}", "ls-files", "-t", "-s", "-o", "--exclude-standard", "-z"]
    args += ["--debug"] if is_debug else []
    result = run_git(args, cwd=root)
    if result.exit_status != 0:
        raise cannot_read(root, result)
    return result.stdout


def _is_excluded(name: bytes, exclude: tuple[bytes, ...]) -> bool:
    if not name.startswith(exclude):  # nearly always, and asked for every file
        return False
    return any(name == left_out or name.startswith(left_out + b"/") for left_out in exclude)


def _written_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
