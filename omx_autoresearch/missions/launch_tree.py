"""The files of a workspace as they were at launch, to tell later what changed.

A mission's folder in the state home has a list of them (mode and content id by name), and the journal has the digest of
that list (``launch_tree_digest``), so a list that was lost or changed is known as such. Names are relative to the root
of the repository, without one to the workspace, so the list holds in every work tree and after the project was moved.

Contents that git keeps are read from git. Of the others (files that were edited or untracked at launch, or a project
without git) copies are kept beside the list, within bounds; an id also proves that a copy is the right one. Git's own
``diff`` would run what a repository's settings name, and would count what was dirty at launch.
"""

from __future__ import annotations

import os
import stat

from omx_autoresearch.foundation.errors import AutoresearchError, WorkspaceFault
from omx_autoresearch.foundation.records import dataclass, sha1, sha256
from omx_autoresearch.freezing.tree import whole_tree
from omx_autoresearch.journal.safe_files import read_bounded, read_inside, replace_file
from omx_autoresearch.missions.rules.evidence import is_code
from omx_autoresearch.system.files import Entries, describe_file, digest
from omx_autoresearch.system.git import find_root, run_git, user_git

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from omx_autoresearch.journal.layout import MissionFolder
    from omx_autoresearch.missions.rules.mission import Mission

UNKNOWN = "(the list of the files at launch is lost, so any of them may have changed)"
CONTENT_LIMIT_BYTES = 512 * 1024
"""No larger content is kept or compared line by line."""
_KEPT_BYTES = 16 * 1024 * 1024
_KEPT_FILES = 2_000
_READ_BYTES = 64 * 1024 * 1024
_LIST_BYTES = 256 * 1024 * 1024
_MODE_LENGTH = 7  # "100644 "
_ID_LENGTHS = (40, 64)


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file that differs from the launch.

    Attributes:
        name: now, or as it was where it is gone; bytes as the file system has them, relative to the root.
        before: mode and id at launch; empty for a file that was not there.
        after: mode and id now; empty for a file that is gone.
        old_name: where the same content stood at launch under another name; empty where it did not.
    """

    name: bytes
    before: bytes
    after: bytes
    old_name: bytes = b""


def root_of(workspace_path: str) -> str:
    """The folder that the names of the list are relative to."""
    workspace = os.path.realpath(workspace_path)
    return find_root(workspace) or workspace


def keep_launch_tree(folder: MissionFolder, workspace_path: str) -> tuple[str, str]:
    """Keep the workspace's files as they are now; returns the commit and the digest, as `tree.tree_state` has them.

    Raises:
        WorkspaceFault: the workspace cannot be read.
        StorageFailed: the state home cannot be written.
    """
    head, files = whole_tree(workspace_path)
    data = b"".join(b"%b\t%b\0" % (described, name) for name, described in sorted(files.items()))
    replace_file(_list_path(folder), data)
    replace_file(_contents_path(folder), _packed(workspace_path, files), is_durable=False)
    return head, sha256(data).hexdigest()


def launch_files(folder: MissionFolder, mission: Mission) -> dict[bytes, bytes] | None:
    """Mode and id by name, as they were at launch; None where no list is kept that the journal vouches for."""
    try:
        data = read_bounded(_list_path(folder), _LIST_BYTES)
    except (OSError, AutoresearchError):
        return None
    if sha256(data).hexdigest() != mission.launch_tree_digest:
        return None
    return {
        name: described for described, _, name in (line.partition(b"\t") for line in data.split(b"\0")[:-1])
    }


def changed_files(
    before: dict[bytes, bytes], workspace_path: str, *, read_digest: str = ""
) -> list[FileChange]:
    """The files that differ from those of `launch_files`, sorted by name.

    A file that git ignores since then is compared like any other; a new one that git ignores is not seen.

    Args:
        before: at launch.
        workspace_path: where they stand now; another work tree of the project will do.
        read_digest: of the tree where every file was just read; git's index is believed only where it gives the same.

    Raises:
        WorkspaceFault: the workspace cannot be read.
    """
    now = whole_tree(workspace_path)[1]
    if read_digest and digest(now) != read_digest:
        now = whole_tree(workspace_path, reads_files=True)[1]
    root = os.fsencode(root_of(workspace_path))
    for name in before.keys() - now.keys():
        if described := _still_there(root, name, before[name]):
            now[name] = described
    changed = [
        FileChange(name, before.get(name, b""), now.get(name, b""))
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]
    return _with_moves(changed)


def changed_code(folder: MissionFolder, mission: Mission, exempt: tuple[str, ...]) -> tuple[str, ...]:
    """Paths of code that differ from the launch, relative to the repository (without one, to the workspace).

    Args:
        folder: of the mission.
        mission: with the digest at launch; without one (a mission of an older version) nothing is known to differ.
        exempt: paths, relative to the workspace, that the mission asks for: the artifact, the files of criteria.

    Raises:
        WorkspaceFault: the workspace cannot be read.
    """
    if not mission.launch_tree_digest:
        return ()
    before = launch_files(folder, mission)
    if before is None:
        return (UNKNOWN,)
    asked_for = {os.fsencode(path) for path in _from_root(mission.workspace_path, exempt)}
    changes = changed_files(before, mission.workspace_path)
    changed = {name for change in changes for name in (change.name, change.old_name) if name}
    paths = (name.decode("utf-8", "replace") for name in sorted(changed - asked_for))
    return tuple(path for path in paths if is_code(path))


def _from_root(workspace_path: str, paths: tuple[str, ...]) -> list[str]:
    """Paths of the workspace as the list names them."""
    below = os.path.relpath(os.path.realpath(workspace_path), root_of(workspace_path))
    return [os.path.normpath(os.path.join(below, path)) for path in paths if path]


def _still_there(root: bytes, name: bytes, before: bytes) -> bytes | None:
    path = os.path.join(root, name)
    try:
        status = os.lstat(path)
    except OSError:
        return None
    algorithm = "sha256" if len(before) - _MODE_LENGTH == _ID_LENGTHS[1] else "sha1"
    return describe_file(path, status, Entries(), algorithm=algorithm)


def _with_moves(changed: list[FileChange]) -> list[FileChange]:
    """The changes; a file that is gone and a new one with its content are one move, where no third one has it."""
    gone: dict[bytes, list[bytes]] = {}
    new: dict[bytes, list[bytes]] = {}
    for change in changed:
        if not change.after and _is_id(change.before[_MODE_LENGTH:]):
            gone.setdefault(change.before, []).append(change.name)
        elif not change.before:
            new.setdefault(change.after, []).append(change.name)
    moved = {
        new[described][0]: names[0]
        for described, names in gone.items()
        if len(names) == 1 and len(new.get(described, ())) == 1
    }
    left = set(moved.values())
    return [
        FileChange(change.name, change.after, change.after, moved[change.name])
        if change.name in moved
        else change
        for change in changed
        if change.name not in left
    ]


# --- contents


def launch_contents(
    folder: MissionFolder, workspace_path: str, described: Iterable[bytes]
) -> dict[bytes, bytes]:
    """The contents that files had at launch, by mode and id; one that is too large, or that nobody keeps, is not there.

    Raises:
        WorkspaceFault: git cannot be started.
    """
    ids = {each[_MODE_LENGTH:]: each for each in described if _is_id(each[_MODE_LENGTH:])}
    found = {ids[each]: content for each, content in _kept_contents(folder, ids)}
    rest = [each for each, whole in ids.items() if whole not in found]
    if rest and find_root(workspace_path):
        found |= {ids[each]: content for each, content in _contents_of_git(workspace_path, rest)}
    return found


def content_now(workspace_path: str, name: bytes) -> bytes | None:
    """What a file holds now, or the text of a link; None where it cannot be read, is too large or is not there."""
    root = root_of(workspace_path)
    path = os.path.join(root, os.fsdecode(name))
    try:
        if stat.S_ISLNK(os.lstat(path).st_mode):
            return os.fsencode(os.readlink(path))
        return read_inside(root, os.fsdecode(name), CONTENT_LIMIT_BYTES)
    except (OSError, WorkspaceFault):
        return None


def _packed(workspace_path: str, files: Entries) -> bytes:
    """A zip file with the contents that git does not keep, by id, within bounds."""
    import io
    import zipfile

    in_git = _ids_in_index(workspace_path)
    stream, left_bytes, kept = io.BytesIO(), _KEPT_BYTES, set()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, described in files.items():
            content_id = described[_MODE_LENGTH:]
            if content_id in in_git or content_id in kept or not _is_id(content_id):
                continue
            content = content_now(workspace_path, name)
            if content is None or not _has_id(content, content_id) or len(content) > left_bytes:
                continue
            archive.writestr(content_id.decode("ascii"), content)
            kept.add(content_id)
            left_bytes -= len(content)
            if len(kept) == _KEPT_FILES:
                break
    return stream.getvalue()


def _ids_in_index(workspace_path: str) -> set[bytes]:
    """The ids of all contents in git's index: git has these."""
    if not find_root(workspace_path):
        return set()
    listed = run_git(["ls-files", "-s", "-z"], cwd=root_of(workspace_path)).stdout
    return {line[_MODE_LENGTH:].partition(b" ")[0] for line in listed.split(b"\0") if line}


def _kept_contents(folder: MissionFolder, ids: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    import zipfile

    try:
        with zipfile.ZipFile(_contents_path(folder)) as archive:
            sizes = {each.filename: each.file_size for each in archive.infolist()}
            for content_id in ids:
                name = content_id.decode("ascii")
                if sizes.get(name, CONTENT_LIMIT_BYTES + 1) > CONTENT_LIMIT_BYTES:
                    continue
                content = archive.read(name)
                if _has_id(content, content_id):
                    yield content_id, content
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError):
        return  # it is lost or damaged: git may have them still


def _contents_of_git(workspace_path: str, ids: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    git = user_git(root_of(workspace_path))
    told = git.run("cat-file", "--batch-check", stdin=b"\n".join(ids) + b"\n").stdout
    sizes: dict[bytes, int] = {}
    left_bytes = _READ_BYTES
    for words in map(bytes.split, told.splitlines()):
        if len(words) == 3 and words[1] == b"blob" and int(words[2]) <= min(CONTENT_LIMIT_BYTES, left_bytes):
            sizes[words[0]] = int(words[2])
            left_bytes -= int(words[2])
    data = git.run("cat-file", "--batch", stdin=b"\n".join(sizes) + b"\n").stdout if sizes else b""
    at = 0
    for content_id, size in sizes.items():
        at = data.index(b"\n", at) + 1  # behind the line that names it
        yield content_id, data[at : at + size]
        at += size + 1


def _is_id(text: bytes) -> bool:
    return len(text) in _ID_LENGTHS and text.isalnum()


def _has_id(content: bytes, content_id: bytes) -> bool:
    hashed = (sha1 if len(content_id) == _ID_LENGTHS[0] else sha256)(b"blob %d\0" % len(content))
    hashed.update(content)
    return hashed.hexdigest().encode("ascii") == content_id


def _list_path(folder: MissionFolder) -> str:
    return os.path.join(folder.root_path, "launch-tree")


def _contents_path(folder: MissionFolder) -> str:
    return os.path.join(folder.root_path, "launch-contents.zip")
