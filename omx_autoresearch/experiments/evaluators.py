"""The evaluators of an experiment: frozen at its start, compared and restored around every run.

The manifest pins the files that the measure, check and cache-reset commands name, those that known runners load, the
owner's ``protect`` globs, and the doors by which Python takes in foreign code (``sitecustomize`` and modules of the
standard library's names in folders of PYTHONPATH). The set-up command is free: a candidate may change how it is built.

Before each run the pinned paths are compared by inode, size and times, rehashed where those moved, and restored from
the frozen copies where they differ. After the run they are compared again, also with their state before it: a file
that was changed and put back has another change time.

This cannot see inside the process of the code under test, nor on a file system that keeps no change times; and it does
not stop an agent with the user's rights that forges the frozen copies, their manifest and the log together.
"""

from __future__ import annotations

import os
import shlex
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import file_digest, sha256

from omx_autoresearch.experiments.judge.metrics import parse_json_path
from omx_autoresearch.experiments.judge.state import ExperimentConfig
from omx_autoresearch.experiments.store import ExperimentFolder
from omx_autoresearch.foundation import json_codec
from omx_autoresearch.foundation.errors import StateUntrusted, WorkspaceFault
from omx_autoresearch.freezing import discovery, pins, restoration
from omx_autoresearch.freezing.import_path import python_folders
from omx_autoresearch.freezing.installed import editable_folders, fixed_installs
from omx_autoresearch.freezing.manifest import PinManifest
from omx_autoresearch.journal.safe_files import load_json, open_folder, replace_file, storage_failed
from omx_autoresearch.missions.secrets import WITHHELD, forms_of
from omx_autoresearch.system.files import kind_of, walk

_KEPT_NAME = "bench.json"
_PATH_LISTS = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "VIRTUAL_ENV")


@dataclass(frozen=True, slots=True)
class FrozenEvaluators:
    """Evaluators, environment and paths: the same for every run of one experiment.

    Attributes:
        folder: of the experiment.
        config: as started.
        project_path: the user's checkout.
        worktree_paths: of incumbent and candidate; in the sandbox neither sees the other.
        manifest: of the pinned files.
        environment: the owner's at the start.
        held_out_digest: of the private copy of the held-out check; empty where there is none.
        editable_folders: of the project, relative, from which an editable installation imports.
    """

    folder: ExperimentFolder
    config: ExperimentConfig
    project_path: str
    worktree_paths: tuple[str, ...]
    manifest: PinManifest
    environment: dict[str, str]
    held_out_digest: str = ""
    editable_folders: tuple[str, ...] = ()

    def environment_in(self, worktree_path: str) -> dict[str, str]:
        """The owner's environment as it is in a worktree: search paths into the checkout lead into the worktree."""
        moved = moved_environment(self.environment, self.project_path, worktree_path)
        return _with_editable(moved, self.editable_folders, worktree_path)

    @property
    def secret_forms(self) -> tuple[str, ...]:
        """The texts that give away a secret among the declared variables; no output, log or report may have one."""
        secrets = (name for name, value in self.config.env.items() if value == WITHHELD)
        return forms_of(self.environment.get(name, "") for name in secrets)

    # --- before and after a run

    def restore(self, worktree_path: str) -> tuple[str, ...]:
        """Make the pinned paths of a worktree what they were at the start.

        Returns:
            The paths that had been touched, sorted; empty where nothing had. A candidate that touched them is tampered.

        Raises:
            StateUntrusted: a frozen copy is missing or not what it was.
            WorkspaceFault: the worktree is gone or keeps changing.
            StorageFailed: the system refused.
        """
        restored: tuple[str, ...] = ()
        if self.manifest.pins:
            check = pins.compare(self.manifest, worktree_path, cache_path=self._cache_path(worktree_path))
            if not check.is_intact:
                try:
                    restored = restoration.restore(
                        self.manifest, worktree_path, frozen_path=self.folder.frozen_path
                    ).paths
                except StateUntrusted as error:
                    raise _untrusted(error.message) from error
        _drop_bytecode(self.manifest, worktree_path)
        return restored

    def stamps(self, worktree_path: str) -> pins.Stamps:
        """The stamps of the pinned paths at this moment, for `touched_since`.

        A file written within the kernel's tick of this moment could be written again without a new time: then the
        tick is waited for (:data:`RACY_NS`).
        """
        stamps = pins.pin_stamps(self.manifest, worktree_path)
        newest_ns = max((marks[-1] for path, marks in stamps.items() if marks and path[-1] != "/"), default=0)
        age_ns = time.time_ns() - newest_ns
        if 0 <= age_ns < pins.RACY_NS:
            time.sleep((pins.RACY_NS - age_ns) / 1e9)
        return stamps

    def touched_since(self, worktree_path: str, stamps: pins.Stamps) -> tuple[str, ...]:
        """Pinned paths that were changed, added, or changed and put back since then; sorted, for people."""
        try:
            moved = pins.touched(stamps, pins.pin_stamps(self.manifest, worktree_path))
            check = pins.compare(self.manifest, worktree_path, cache_path=self._cache_path(worktree_path))
        except WorkspaceFault as error:
            return (error.message,)
        return tuple(sorted({*moved, *check.changed, *check.added}))

    def check_held_out(self) -> None:
        """Refuse a copy of the held-out check that has changed since the start.

        Raises:
            StateUntrusted: it was changed, or is gone.
        """
        check_held_out(self.folder.held_out_path, self.held_out_digest)

    def _cache_path(self, worktree_path: str) -> str:
        return os.path.join(self.folder.frozen_path, f"seen-{os.path.basename(worktree_path)}.json")


def freeze_evaluators(
    folder: ExperimentFolder,
    config: ExperimentConfig,
    *,
    project_path: str,
    worktree_paths: Sequence[str],
    environment: Mapping[str, str],
) -> FrozenEvaluators:
    """Pin the evaluators as the first worktree has them at the start, and take the held-out check.

    Args:
        folder: of the experiment.
        config: of the experiment.
        project_path: the user's checkout; ``config.held_out`` counts from there.
        worktree_paths: both stand at the base.
        environment: what the owner's commands have (``contracts.captured_environment``).

    Raises:
        WorkspaceFault: too much to pin, a file that cannot be read, or no held-out check where one is named.
        StorageFailed: the system refused a write.
    """
    base_path = worktree_paths[0]
    if not config.setup and (fixed := fixed_installs(environment, project_path)):
        raise WorkspaceFault(
            f"{fixed[0]} is installed in editable form by a back end that builds it, so both arms would import it from "
            f"{project_path} and none from its worktree",
            next_step="have the set-up install it from the worktree: --setup 'python3 -m venv .venv && "
            ".venv/bin/pip install .', and measure with .venv/bin/python",
        )
    folders = editable_folders(environment, project_path)
    moved = moved_environment(environment, project_path, base_path)
    manifest = _pins_of(config, base_path, _with_editable(moved, folders, base_path))
    pins.pin(folder.frozen_path, manifest, base_path)
    held_out_digest = ""
    if config.held_out:
        source_path = os.path.join(project_path, os.path.expanduser(config.held_out))
        held_out_digest = take_held_out(source_path, folder.held_out_path)
    kept = {
        "environment": dict(environment),
        "held_out_digest": held_out_digest,
        "editable_folders": list(folders),
    }
    replace_file(os.path.join(folder.root_path, _KEPT_NAME), json_codec.encode(kept))
    worktrees = tuple(worktree_paths)
    return FrozenEvaluators(
        folder, config, project_path, worktrees, manifest, dict(environment), held_out_digest, folders
    )


def open_evaluators(
    folder: ExperimentFolder,
    config: ExperimentConfig,
    *,
    project_path: str,
    worktree_paths: Sequence[str],
    pin_digest: str,
) -> FrozenEvaluators:
    """Open the evaluators of an experiment that is resumed.

    Args:
        folder: of the experiment.
        config: of the experiment.
        project_path: the user's checkout.
        worktree_paths: of incumbent and candidate.
        pin_digest: of the manifest, from the log of the experiment.

    Raises:
        StateUntrusted: a kept file is missing or has changed.
    """
    path = os.path.join(folder.root_path, _KEPT_NAME)
    try:
        kept = load_json(path)
        environment = {str(name): str(value) for name, value in kept["environment"].items()}
        held_out_digest = str(kept["held_out_digest"])
        folders = tuple(str(name) for name in kept["editable_folders"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StateUntrusted) as error:
        raise _untrusted(f"{path} cannot be trusted: {error}") from error
    try:
        manifest = pins.load_manifest(folder.frozen_path, pin_digest)
    except StateUntrusted as error:
        raise _untrusted(error.message) from error
    if held_out_digest:
        check_held_out(folder.held_out_path, held_out_digest)
    worktrees = tuple(worktree_paths)
    return FrozenEvaluators(
        folder, config, project_path, worktrees, manifest, environment, held_out_digest, folders
    )


def moved_environment(
    environment: Mapping[str, str], project_path: str, worktree_path: str
) -> dict[str, str]:
    """An environment whose search paths into the checkout lead to the same places of a worktree, where those exist.

    Relative entries are dropped: an agent that writes in the working folder of a command could replace its programs.
    """
    moved = dict(environment)
    for name in _PATH_LISTS:
        if name in moved:
            entries = (entry for entry in moved[name].split(os.pathsep) if os.path.isabs(entry))
            moved[name] = os.pathsep.join(_moved(entry, project_path, worktree_path) for entry in entries)
    return moved


def _moved(entry: str, project_path: str, worktree_path: str) -> str:
    # The text is compared, not where links lead: a linked .venv of the checkout is one of the worktree as well.
    root = os.path.realpath(project_path)
    for prefix in dict.fromkeys((project_path, root)):
        if entry == prefix or entry.startswith(prefix + os.sep):
            inside = os.path.normpath(os.path.join(worktree_path, os.path.relpath(entry, prefix)))
            return inside if os.path.lexists(inside) else entry
    return entry


def _with_editable(environment: dict[str, str], folders: Sequence[str], worktree_path: str) -> dict[str, str]:
    """Python finds the worktree's own copy of what is installed from the checkout before anything else."""
    if not folders:
        return environment
    own = [os.path.normpath(os.path.join(worktree_path, folder)) for folder in folders]
    rest = environment.get("PYTHONPATH", "").split(os.pathsep)
    entries = dict.fromkeys([*own, *filter(None, rest)])
    return environment | {"PYTHONPATH": os.pathsep.join(entries)}


def _pins_of(config: ExperimentConfig, worktree_path: str, environment: Mapping[str, str]) -> PinManifest:
    document = parse_json_path(config.metric.json_path).file_path if config.metric.source == "json" else ""
    return discovery.find(
        worktree_path,
        commands=[command for command in (config.measure, config.check, config.reset_caches) if command],
        protect=config.protect,
        work=config.work,
        exempt=(document,),
        search_path=environment.get("PATH", ""),
        python_folders=python_folders(environment.get("PYTHONPATH", ""), worktree_path),
    )


def _drop_bytecode(manifest: PinManifest, worktree_path: str) -> None:
    """Remove compiled forms of pinned Python files: an interpreter believes them by size and time of the source."""
    stems: dict[str, list[str]] = {}
    for pin in manifest.pins:
        if pin.kind == "file" and pin.path.endswith(".py"):
            folder, _, name = pin.path.rpartition("/")
            stems.setdefault(folder, []).append(name[:-2])
    for folder, names in stems.items():
        try:
            descriptor = open_folder(worktree_path, f"{folder}/__pycache__".lstrip("/"))
        except (OSError, WorkspaceFault):
            _drop_link(worktree_path, folder)
            continue
        try:
            for entry in os.listdir(descriptor):
                if entry.startswith(tuple(names)):
                    os.unlink(entry, dir_fd=descriptor)
        finally:
            os.close(descriptor)


def _drop_link(worktree_path: str, folder: str) -> None:
    """A ``__pycache__`` that is a link leads an interpreter elsewhere: away with it."""
    path = os.path.join(worktree_path, folder, "__pycache__")
    if os.path.islink(path):
        os.unlink(path)


def _untrusted(message: str) -> StateUntrusted:
    return StateUntrusted(
        message,
        next_step="omx-autoresearch experiment report (it keeps the results), then start a new experiment",
    )


# --- the held-out check

# The held-out check: no agent has seen it, and it runs at acceptance and at the end.
#
# The owner names an executable file, or a folder with an executable ``check``. It is copied into the
# experiment's folder when the experiment starts, and only that copy runs, in the worktree, as long as its
# digest is the one of the start. Its path stands in no prompt and in no environment; in the sandbox every
# other run sees nothing of it. Without a sandbox the code under test has the user's rights and could read it
# while it runs: a stated limit.


CHECK_NAME = "check"
SIZE_LIMIT_BYTES = 1024 * 1024 * 1024
FILE_LIMIT = 10_000

_NEXT = "name an executable file, or a folder with an executable file `check`: --held-out PATH"


def take_held_out(source_path: str, target_path: str) -> str:
    """Copy the owner's check and return the digest of the copy.

    Args:
        source_path: an executable file, or a folder with an executable ``check``.
        target_path: the folder to make; what stands there is replaced.

    Raises:
        WorkspaceFault: there is no such check, it holds something else than files, folders and links inside it, or it
            is too large.
        StorageFailed: the system refused.
    """
    import shutil

    is_folder = os.path.isdir(source_path)
    program_path = os.path.join(source_path, CHECK_NAME) if is_folder else source_path
    if not os.path.isfile(program_path):
        raise WorkspaceFault(f"the held-out check {program_path} does not exist", next_step=_NEXT)
    if not os.access(program_path, os.X_OK):
        raise WorkspaceFault(
            f"the held-out check {program_path} is not executable",
            next_step=f"chmod +x {shlex.quote(program_path)}",
        )
    if is_folder:
        _refuse_unfit(source_path)
    try:
        if os.path.lexists(target_path):
            shutil.rmtree(target_path)
        if is_folder:
            shutil.copytree(source_path, target_path, symlinks=True)
        else:
            os.makedirs(target_path, mode=0o700)
            shutil.copy2(program_path, os.path.join(target_path, CHECK_NAME))
        os.chmod(target_path, 0o700)
    except OSError as error:
        raise storage_failed("copy the held-out check to", target_path, error) from error
    return digest_of_held_out(target_path)


def check_held_out(folder_path: str, digest: str) -> None:
    """Refuse a copy that has changed since the start.

    Raises:
        StateUntrusted: it was changed, or is gone.
    """
    try:
        is_same = digest_of_held_out(folder_path) == digest
    except (OSError, WorkspaceFault):
        is_same = False
    if not is_same:
        raise StateUntrusted(
            f"the private copy of the held-out check, {folder_path}, has changed since the start",
            next_step="start a new experiment; this one's report keeps its results",
        )


def digest_of_held_out(folder_path: str) -> str:
    """The sha256 over names, kinds, execute bits and contents of everything in the folder.

    Raises:
        OSError: something cannot be read.
        WorkspaceFault: it is not there.
    """
    whole = sha256()
    if not os.path.isfile(os.path.join(folder_path, CHECK_NAME)):
        raise WorkspaceFault(f"there is no held-out check in {folder_path}", next_step=_NEXT)
    for path in _paths(folder_path):
        status = os.lstat(path)
        name = os.path.relpath(path, folder_path)
        if stat.S_ISLNK(status.st_mode):
            kind, content = "link", os.fsencode(os.readlink(path))
        elif stat.S_ISREG(status.st_mode):
            with open(path, "rb") as stream:
                content = file_digest(stream, "sha256").digest()
            kind = "program" if status.st_mode & stat.S_IXUSR else "file"
        else:
            kind, content = "special", b""
        whole.update(sha256(os.fsencode(name) + b"\0" + kind.encode() + b"\0" + content).digest())
    return whole.hexdigest()


def _paths(folder_path: str) -> Iterator[str]:
    return (entry.path for _, entry in walk(folder_path) if kind_of(entry) != "folder")


def _refuse_unfit(folder_path: str) -> None:
    root = os.path.realpath(folder_path)
    size_bytes = count = 0
    for path in _paths(folder_path):
        status = os.lstat(path)
        size_bytes += status.st_size
        count += 1
        is_link = stat.S_ISLNK(status.st_mode)
        if is_link and os.path.isabs(os.readlink(path)):
            raise WorkspaceFault(f"{path} is an absolute link, which leads out of the copy", next_step=_NEXT)
        if is_link and not os.path.realpath(path).startswith(root + os.sep):
            raise WorkspaceFault(f"{path} leads out of the held-out check", next_step=_NEXT)
        if not is_link and not stat.S_ISREG(status.st_mode):
            raise WorkspaceFault(f"{path} is neither a file nor a link", next_step=_NEXT)
    if size_bytes > SIZE_LIMIT_BYTES or count > FILE_LIMIT:
        raise WorkspaceFault(
            f"the held-out check {folder_path} has {count} files of {size_bytes} bytes;"
            f" at most {FILE_LIMIT} files of {SIZE_LIMIT_BYTES} bytes are copied",
            next_step="name a smaller folder",
        )
