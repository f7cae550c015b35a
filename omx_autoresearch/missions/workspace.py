"""The workspace at one moment: HEAD, content, pinned files, the artifact under review; freshness is judged by it."""

from __future__ import annotations

import os

from omx_autoresearch.foundation import json_codec
from omx_autoresearch.foundation.errors import StateUntrusted, WorkspaceFault
from omx_autoresearch.foundation.records import dataclass, replace, sha256
from omx_autoresearch.freezing import pins
from omx_autoresearch.freezing.tree import whole_tree
from omx_autoresearch.journal.safe_files import (
    FILE_LIMIT_BYTES,
    digest_inside,
    open_inside,
    read_at,
    read_inside,
)
from omx_autoresearch.missions.rules.briefing import completion_path
from omx_autoresearch.missions.rules.criteria import WorkspaceSnapshot
from omx_autoresearch.missions.rules.evidence import read_artifact
from omx_autoresearch.system.files import digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from omx_autoresearch.freezing.light_pins import LightPins
    from omx_autoresearch.journal.layout import MissionFolder
    from omx_autoresearch.missions.rules.mission import Contract, Mission
    from omx_autoresearch.system.commands import CommandResult

ARTIFACT_BYTES = 1024 * 1024 * 1024
_COMPLETION_BYTES = 4 * 1024 * 1024
MARKED_BYTES = 4 * 1024 * 1024
"""A larger artifact is another one with any byte that changes."""
CRITERIA_FILES_BYTES = 512 * 1024 * 1024
"""The most bytes that one look reads of the files that criteria name; that takes about a second."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """The output artifact as it stands.

    Attributes:
        digest: sha256 of its bytes; empty when there is a fault.
        mark: of its text without white space, where it is under review.
        fault: path and rule, when it cannot be taken.
    """

    digest: str = ""
    fault: str = ""
    mark: str = ""


def snapshot_workspace(
    folder: MissionFolder, mission: Mission, *, reads_files: bool = False
) -> WorkspaceSnapshot:
    """See the workspace of a mission as it is now.

    Args:
        folder: of the mission.
        mission: which.
        reads_files: read every file that counts; else one whose inode, size and times are known is not read again.
            A verdict that passes and a completion are decided on what was read.

    Raises:
        WorkspaceFault: the workspace is gone, or git cannot tell its state.
    """
    refuse_gone(mission)
    head, entries = whole_tree(mission.workspace_path, reads_files=reads_files)
    contract = mission.contract
    if contract is None:
        raise StateUntrusted(f"mission {mission.task_id} was never launched")
    light = None if reads_files else light_pins(folder, contract)
    if light and light.stand_in(entries, mission.workspace_path):
        manifest = light.manifest
    else:
        manifest = pins.load_manifest(folder.frozen_path, contract.pin_digest)
    tree_digest = digest(entries)
    check = pins.compare(
        manifest,
        mission.workspace_path,
        cache_path=_cache_path(folder),
        reads_files=reads_files,
        frozen_path=folder.frozen_path if contract.mounts_pins else "",
    )
    artifact = Artifact()
    if contract.output_artifact_path:
        artifact = look_at_artifact(mission.workspace_path, contract.output_artifact_path)
    if artifact.digest and contract.is_review:
        artifact = _marked(artifact, mission.workspace_path, contract.output_artifact_path)
    files = _look_at_files(mission.workspace_path, contract)
    return WorkspaceSnapshot(
        head=head,
        tree_digest=tree_digest,
        pin_digest=check.digest,
        changed_pins=(*check.changed, *check.added),
        output_artifact_digest=artifact.digest,
        output_artifact_mark=artifact.mark,
        artifact_fault=artifact.fault,
        file_digests={path: file.digest for path, file in files.items() if file.digest},
        file_faults={path: file.fault for path, file in files.items() if file.fault},
        changed_code=_changed_code(folder, mission, contract, tree_digest),
        **_hand_written(mission),
    )


def refuse_gone(mission: Mission) -> None:
    """Refuse to look at a workspace that is not where it was.

    Raises:
        WorkspaceFault: it is gone.
    """
    if not os.path.isdir(mission.workspace_path):
        raise WorkspaceFault(
            f"the workspace {mission.workspace_path} is gone",
            next_step=f"omx-autoresearch amend {mission.task_id} --workspace PATH",
        )


def _changed_code(
    folder: MissionFolder, mission: Mission, contract: Contract, tree_digest: str
) -> tuple[str, ...]:
    """Code that differs from the launch, where the contract's own verdict does not come from running it."""
    if contract.validation_mode == "mission-validator-script" or tree_digest == mission.launch_tree_digest:
        return ()

    from omx_autoresearch.missions.launch_tree import changed_code  # most missions are judged by a validator

    exempt = (contract.output_artifact_path, *(item.rule.path for item in contract.criteria))
    return changed_code(folder, mission, exempt)


def light_pins(folder: MissionFolder, contract: Contract) -> LightPins | None:
    """The light form of the pinned files; None where these are few."""
    path = os.path.join(folder.frozen_path, f"light-{contract.pin_digest}.json")
    if not os.path.lexists(path):
        return None
    from omx_autoresearch.freezing.light_pins import load  # most missions pin few files

    return load(path, contract.pin_digest)


def _cache_path(folder: MissionFolder) -> str:
    return os.path.join(folder.root_path, "pins.cache")


class _InPlace:
    """Empty files for the time of a run; a class, because contextlib costs a stop more than the rest of this."""

    def __init__(self, paths: list[str], then: Callable[[], None]) -> None:
        self._paths = paths
        self._then = then
        self._made: list[str] = []

    def __enter__(self) -> None:
        for path in self._paths:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
            self._made.append(path)
        self._then()

    def __exit__(self, *_: object) -> None:
        for path in self._made:
            try:
                if not os.path.getsize(path):
                    os.remove(path)
            except OSError:
                continue  # it is gone


LONG_SECONDS = 5.0
"""A check that took as long as this is not run twice only to pass beside many pinned files."""


def begins_light(mission: Mission, contract: Contract) -> bool:
    """Whether a run first leaves most of many pinned files to the look before it: it is short, and costs no review."""
    newest = mission.attestation
    return not contract.is_review and (newest is None or newest.duration_seconds < LONG_SECONDS)


class PinnedRun:
    """The pinned files around one run: read before it, held against their times after it, read again after a pass.

    Where the run sees the frozen copies instead (``mounts``), those are read before and after a pass as well.

    Attributes:
        is_light: most pinned files are left to the look before; a pass of such a run is not to be believed.
    """

    def __init__(
        self, folder: MissionFolder, mission: Mission, contract: Contract, *, is_light: bool = False
    ) -> None:
        from omx_autoresearch.freezing.meanwhile import Meanwhile  # most stops run nothing

        self.workspace_path = mission.workspace_path
        self._task_id = mission.task_id
        self._frozen_path = folder.frozen_path
        light = light_pins(folder, contract) if is_light else None
        self.is_light = light is not None
        self.manifest = (
            light.manifest if light else pins.load_manifest(folder.frozen_path, contract.pin_digest)
        )
        self._meanwhile = Meanwhile(self.manifest, self.workspace_path, is_mounted=contract.mounts_pins)
        self._cache_path = _cache_path(folder)
        self._before = pins.compare(
            self.manifest,
            self.workspace_path,
            cache_path=self._cache_path,
            reads_files=True,
            frozen_path=folder.frozen_path if contract.mounts_pins else "",
        )
        self.copies = pins.copies_of(self.manifest, self.workspace_path, folder.frozen_path)
        """Pairs of a pinned file and its frozen copy."""
        self._changed_copies = pins.changed_copies(self.manifest, folder.frozen_path)
        self.mounts = self.copies if contract.mounts_pins and not self._changed_copies else ()
        """What of them the run is to see."""
        self.watch = self._meanwhile.watch
        """Is to be read while the run goes on."""
        self.has_stayed_changed = False
        """After `changes`: what changed still differs, so that it can be put back."""

    def close(self) -> None:
        """Look no longer; `changes` does so itself."""
        self._meanwhile.close()

    def in_place(self) -> _InPlace:
        """For the time of the run: a renamed test has a file at its old name, too, for its copy to be mounted over."""
        renamed = [old for old, new in self._before.edited if old != new] if self.mounts else []
        paths = [os.path.join(self.workspace_path, path) for path in renamed]
        return _InPlace(paths, then=lambda: self._meanwhile.forget(renamed))

    def whole_copies(self) -> tuple[tuple[str, str], ...]:
        """The pairs of `copies`, for a run that has nothing but them.

        Raises:
            StateUntrusted: a frozen copy was changed or is gone.
        """
        if self._changed_copies:
            raise StateUntrusted(
                f"the frozen copy of {min(self._changed_copies)} was changed or is gone",
                next_step=f"omx-autoresearch amend {self._task_id} --reason 'freeze the files again'",
            )
        return self.copies

    @property
    def changed(self) -> tuple[str, ...]:
        """Pinned paths that were changed or added before the run; it must not begin then."""
        return (*self._before.changed, *self._before.added)

    @property
    def unseen(self) -> str:
        """What of these paths may have happened without being seen, and why; empty where nothing may."""
        return self._meanwhile.unseen

    def changes(self, result: CommandResult, *, has_passed: bool) -> tuple[str, ...]:
        """Why the run is not believed: pinned paths that were changed while it ran, also where they were put back.

        A pass is believed only where every pinned file reads the same again, and what judged could not move under it.
        The watch ends here.
        """
        try:
            return self._changes(result, has_passed=has_passed)
        finally:
            self._meanwhile.close()

    def _changes(self, result: CommandResult, *, has_passed: bool) -> tuple[str, ...]:
        after = pins.compare(
            self.manifest,
            self.workspace_path,
            cache_path="" if has_passed else self._cache_path,
            frozen_path=self._frozen_path if result.is_mounted else "",
        )
        self.has_stayed_changed = not after.is_intact
        if not after.is_intact:
            return (*after.changed, *after.added)
        if moved := self._meanwhile.moved(is_mounted=result.is_mounted):
            return _explained(
                moved, "made, written or moved while it ran (what a check writes itself: --protect '!PATH')"
            )
        if result.displaced:
            root = os.path.realpath(self.workspace_path)
            away = tuple(os.path.relpath(path, root) for path in result.displaced)
            return _explained(away, "replaced while it ran")
        if not has_passed:
            return ()
        if not result.is_mounted and self._before.writable:
            why = "open for writing in another process while it ran (end that process, or --protect '!PATH')"
            return _explained(self._before.writable, why)
        if result.is_mounted and (copies := pins.changed_copies(self.manifest, self._frozen_path)):
            return _explained(copies, "its frozen copy changed while it ran")
        return ()


def _explained(paths: tuple[str, ...], why: str) -> tuple[str, ...]:
    *others, last = paths[:5]
    return (*others, f"{last}: {why}")


def _look_at_files(workspace_path: str, contract: Contract) -> dict[str, Artifact]:
    """The files that criteria name, by path; together they are read up to a limit, since a hook waits for it."""
    found: dict[str, Artifact] = {}
    left = CRITERIA_FILES_BYTES
    for path in dict.fromkeys(item.rule.path for item in contract.criteria):
        if not path:
            continue
        try:
            size = os.lstat(os.path.join(workspace_path, path)).st_size
        except (OSError, ValueError):
            size = 0
        size = 0 if size > FILE_LIMIT_BYTES else size  # refused unread
        if size > left:
            limit = f"{CRITERIA_FILES_BYTES // 1024**2} MiB"
            found[path] = Artifact(fault=f"the files that the criteria name are larger than {limit} together")
            continue
        found[path] = look_at_artifact(workspace_path, path, limit_bytes=FILE_LIMIT_BYTES)
        left -= size
    return found


def look_at_artifact(
    workspace_path: str, relative_path: str, *, limit_bytes: int = ARTIFACT_BYTES
) -> Artifact:
    """The digest of an artifact inside the workspace; anything that is not a non-empty regular file is a fault."""
    try:
        return Artifact(digest=digest_inside(workspace_path, relative_path, limit_bytes=limit_bytes))
    except FileNotFoundError:
        return Artifact(fault="no such file")
    except WorkspaceFault as error:
        return Artifact(fault=error.message)
    except OSError as error:
        return Artifact(fault=error.strerror or type(error).__name__)


def _marked(artifact: Artifact, workspace_path: str, relative_path: str) -> Artifact:
    """The artifact with its mark; that of a large one, or of one that changes meanwhile, is its digest."""
    from omx_autoresearch.missions.rules.reviews import content_mark

    try:
        data = read_inside(workspace_path, relative_path, MARKED_BYTES)
    except (OSError, WorkspaceFault):
        data = b""
    is_same = sha256(data).hexdigest() == artifact.digest
    return replace(artifact, mark=content_mark(data) if is_same else artifact.digest)


def _hand_written(mission: Mission) -> dict[str, str]:
    """The claim of a completion artifact that the runtime did not write."""
    path = completion_path(mission)
    if not os.path.lexists(os.path.join(mission.project_path, path)):
        return {}
    try:
        descriptor = open_inside(mission.project_path, path)
        try:
            data = read_at(descriptor, 0, _COMPLETION_BYTES + 1)
        finally:
            os.close(descriptor)
        if len(data) > _COMPLETION_BYTES:
            raise ValueError(f"it is larger than {_COMPLETION_BYTES} bytes")  # noqa: TRY301
        artifact = json_codec.decode_document(data)
    except (WorkspaceFault, OSError, ValueError) as error:
        said = error.message if isinstance(error, WorkspaceFault) else str(error)
        return {"artifact_report": f"a hand-written completion artifact cannot be read ({said})"}
    is_passing, report = read_artifact(artifact, mission)
    return {"artifact_report": report, "artifact_claim": "passed" if is_passing else ""}


def is_within(path: str, folder_path: str) -> bool:
    """Whether a path is a folder or lies in it, links resolved; an empty path tells nothing and counts as inside."""
    outer = os.path.realpath(folder_path)
    return not path or os.path.commonpath([outer, os.path.realpath(path)]) == outer
