"""The folder that a reviewer runs in: private copies of what it judges, and nothing that could instruct it.

An agent CLI takes instructions, settings, hooks and servers of tools from the folder that it is started in, from each
folder above, and from the folders that it reads in. The workspace belongs to the agent under review, so a reviewer
never runs there. It gets a new folder outside, in which a file whose name begins with a dot, or is one that
instructs an agent CLI, has another name. Other files that the owner froze keep their names and come from the frozen
copies, so that a reviewer command may be a script of the workspace.

The runtime makes the copies outside every sandbox, from files that an agent wrote: no symbolic link is followed.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager

from omx_autoresearch.foundation.clients import INSTRUCTION_NAMES
from omx_autoresearch.foundation.errors import CommandFault, WorkspaceFault
from omx_autoresearch.foundation.records import sha256
from omx_autoresearch.freezing.manifest import glob_pattern
from omx_autoresearch.journal.safe_files import open_inside, read_chunks
from omx_autoresearch.missions.launch_tree import changed_files, launch_files, root_of
from omx_autoresearch.missions.workspace import ARTIFACT_BYTES, is_within
from omx_autoresearch.system.files import Entries, add_below, walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from omx_autoresearch.journal.layout import MissionFolder
    from omx_autoresearch.missions.rules.mission import Contract, Mission

FILES_LIMIT = 2000
FILES_BYTES = 64 * 1024 * 1024
"""How many further files a reviewer gets beside the artifact, and how many bytes of them in all."""
_INSTRUCTS = frozenset(name.casefold() for name in INSTRUCTION_NAMES)
_PLACES = ("/var/tmp", "/dev/shm")  # noqa: S108  # private folders are made there, as in the folder for temporary files


class ReviewFolder:
    """What a reviewer finds.

    Attributes:
        path: the folder; it stands for the workspace.
        artifact_path: where the artifact stands in it.
        artifact_digest: sha256 of that copy.
        files: further files, by their path in the workspace: where each stands in the folder.
        removed: paths that are gone since the launch.
        left_out: paths that are no regular files, or did not fit.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.artifact_path = ""
        self.artifact_digest = ""
        self.files: dict[str, str] = {}
        self.removed: list[str] = []
        self.left_out: list[str] = []
        self._stamps: dict[str, tuple[int, ...]] = {}

    def settle(self) -> None:
        """Remember what stands in the folder: it is complete."""
        self._stamps = _stamps(self.path)

    @property
    def prompt_path(self) -> str:
        """Where the prompt stands, beside the folder."""
        return os.path.join(os.path.dirname(self.path), "prompt.txt")

    def disturbance(self) -> str:
        """What was done to the folder since it was made, for which no verdict is believed; empty for nothing."""
        now = _stamps(self.path)
        changed = [name for name, stamp in self._stamps.items() if now.get(name) != stamp]
        planted = [name for name in now.keys() - self._stamps.keys() if _instructs(name)]
        if changed or planted:
            return f"{min(changed or planted)} was changed in the reviewer's folder while it ran"
        return f"{above} appeared while it ran" if (above := instructions_above(self.path)) else ""


@contextmanager
def review_folder(
    workspace_path: str,
    contract: Contract,
    copies: tuple[tuple[str, str], ...],
    changed: tuple[str, ...] = (),
    *,
    placeholder: bytes = b"",
) -> Iterator[ReviewFolder]:
    """Make the folder for one review, and remove it afterwards.

    Args:
        workspace_path: with the artifact.
        contract: its ``reviews`` name what is copied beside the artifact; without any, ``changed`` does.
        copies: pinned files of the workspace and their frozen copies.
        changed: paths in the workspace (`changed_since_launch`).
        placeholder: stands for an artifact that is not written yet; empty where there must be one.

    Raises:
        WorkspaceFault: the artifact cannot be read, or the workspace cannot be listed.
        CommandFault: there is no place for the folder, or it cannot be written.
    """
    workspace = os.path.realpath(workspace_path)
    place = clean_place(workspace)
    with tempfile.TemporaryDirectory(prefix="omx-review-", dir=place, ignore_cleanup_errors=True) as root:
        made = ReviewFolder(os.path.join(os.path.realpath(root), "review"))
        try:
            os.mkdir(made.path, 0o700)
            _fill(made, workspace, contract, changed, placeholder)
            for path, frozen_path in copies:
                own_path = os.path.relpath(path, workspace)
                is_kept = not _instructs(own_path) or own_path in contract.reviewer_command
                _put_frozen(made.path, own_path if is_kept else _plain(own_path), frozen_path)
            made.settle()
        except OSError as error:
            raise CommandFault(
                f"the folder for the reviewer could not be made: {error}",
                next_step="see that there is space in the folder for temporary files, then review again",
            ) from error
        yield made


def clean_place(workspace_path: str) -> str:
    """A folder for temporary files outside a workspace, with nothing in it or above that instructs an agent CLI.

    Raises:
        CommandFault: there is none.
    """
    found = ""
    for place in dict.fromkeys((tempfile.gettempdir(), *_PLACES)):
        if not os.access(place, os.W_OK | os.X_OK) or is_within(place, workspace_path):
            continue
        above = instructions_above(os.path.join(os.path.realpath(place), "review"))
        if not above:
            return place
        found = found or above
    why = f"{found} would instruct it" if found else "no folder for temporary files can be written"
    raise CommandFault(
        f"there is no clean folder to run the reviewer in: {why}",
        next_step=f"move {found} away, or set TMPDIR to a folder of your own" if found else "set TMPDIR",
    )


def instructions_above(path: str) -> str:
    """The first file or folder in a folder above ``path`` that instructs an agent CLI; empty for none."""
    above = os.path.dirname(path)
    while True:
        for name in INSTRUCTION_NAMES:
            if os.path.lexists(found := os.path.join(above, name)):
                return found
        if above == os.path.dirname(above):
            return ""
        above = os.path.dirname(above)


def _stamps(folder_path: str) -> dict[str, tuple[int, ...]]:
    """Inode, size and change time of each file below a folder; a folder has none, so that only its name counts."""
    found: dict[str, tuple[int, ...]] = {}
    for name, entry in walk(folder_path):
        status = entry.stat(follow_symlinks=False)
        is_folder = entry.is_dir(follow_symlinks=False)
        found[name] = () if is_folder else (status.st_ino, status.st_size, status.st_ctime_ns)
    return found


def _instructs(path: str) -> bool:
    return any(part.casefold() in _INSTRUCTS for part in path.split("/"))


def _plain(path: str) -> str:
    """The path in the folder of a path of the workspace: no part begins with a dot or instructs an agent CLI."""
    return "/".join(
        f"renamed-{part.lstrip('.')}" if part.startswith(".") or part.casefold() in _INSTRUCTS else part
        for part in path.split("/")
    )


def _fill(
    made: ReviewFolder, workspace: str, contract: Contract, changed: tuple[str, ...], placeholder: bytes
) -> None:
    artifact_path = os.path.normpath(contract.output_artifact_path)
    made.artifact_path = _plain(artifact_path)
    if placeholder and not os.path.lexists(os.path.join(workspace, artifact_path)):
        target = os.path.join(made.path, made.artifact_path)
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        with open(target, "wb") as stream:
            stream.write(placeholder)
    else:
        _, made.artifact_digest = _put(workspace, artifact_path, made, made.artifact_path, ARTIFACT_BYTES)
    left_bytes = FILES_BYTES
    for path in _chosen(workspace, contract.reviews) if contract.reviews else changed:
        if path == artifact_path:
            continue
        if not os.path.lexists(os.path.join(workspace, path)):
            made.removed.append(path)
            continue
        if len(made.files) >= FILES_LIMIT:
            made.left_out.append(path)
            continue
        place = _plain(path)
        try:
            size_bytes, _ = _put(workspace, path, made, place, left_bytes)
        except (WorkspaceFault, OSError):
            made.left_out.append(path)
        else:
            left_bytes -= size_bytes
            made.files[path] = place


def _chosen(workspace: str, reviews: tuple[str, ...]) -> list[str]:
    """The paths of a workspace that the owner's globs match."""
    entries = Entries()
    add_below(os.fsencode(workspace), entries)
    wanted = [glob_pattern(glob) for glob in reviews if not glob.startswith("!")]
    unwanted = [glob_pattern(glob[1:]) for glob in reviews if glob.startswith("!")]
    return [
        path
        for path in sorted(map(os.fsdecode, entries))
        if any(glob.fullmatch(path) for glob in wanted) and not any(glob.fullmatch(path) for glob in unwanted)
    ]


def changed_since_launch(folder: MissionFolder, mission: Mission) -> tuple[str, ...]:
    """The paths in the workspace that differ from the launch; none where the list of that time is lost.

    Raises:
        WorkspaceFault: the workspace cannot be listed.
    """
    before = launch_files(folder, mission) if mission.launch_tree_digest else None
    if before is None:
        return ()
    workspace, root = os.path.realpath(mission.workspace_path), root_of(mission.workspace_path)
    changes = changed_files(before, mission.workspace_path)
    names = sorted({name for change in changes for name in (change.name, change.old_name) if name})
    paths = (os.path.relpath(os.path.join(root, os.fsdecode(name)), workspace) for name in names)
    return tuple(path for path in paths if not path.startswith("../"))


def _put(workspace: str, path: str, made: ReviewFolder, place: str, limit_bytes: int) -> tuple[int, str]:
    """Copy a regular file of the workspace, read-only, and return its size in bytes and its sha256.

    Raises:
        WorkspaceFault: it is no regular file, stands behind a link, or is larger than the limit.
        OSError: it cannot be read or written; or two paths of the workspace have the same place.
    """
    target = os.path.join(made.path, place)
    source = open_inside(workspace, path)
    try:
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        size_bytes, digest = 0, sha256()
        try:
            with open(target, "xb") as stream:
                for chunk in read_chunks(source, limit_bytes):
                    stream.write(chunk)
                    digest.update(chunk)
                    size_bytes += len(chunk)
        except WorkspaceFault:
            os.remove(target)
            raise
        os.chmod(target, 0o400)
        return size_bytes, digest.hexdigest()
    finally:
        os.close(source)


def _put_frozen(folder_path: str, path: str, frozen_path: str) -> None:
    """Put the frozen copy of a pinned file at its own path, in the place of what stands there."""
    import shutil

    target = os.path.join(folder_path, path)
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    if os.path.lexists(target):
        os.remove(target)
    shutil.copyfile(frozen_path, target)
    os.chmod(target, 0o500 if os.access(frozen_path, os.X_OK) else 0o400)
