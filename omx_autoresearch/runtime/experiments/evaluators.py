"""The bench of an experiment: what judges its candidates, frozen at the start, and how it is kept that way.

Pinned are the files that the measure, check and cache-reset commands name, what known runners load by themselves, the
owner's ``protect`` globs, and the doors by which Python takes in foreign code (``sitecustomize`` and modules of the
standard library's names in folders of PYTHONPATH). The set-up command is not: how the work is built is the candidate's.

Before each run the pinned paths are compared by inode, size and times, rehashed where those moved, and put back from
the frozen copies where they differ. After it they are compared again, and with how they stood before: a file that was
changed and put back has another change time.

What this cannot see: what the code under test does inside its own process, what happens on a file system that keeps no
change times, and an agent with the user's rights that forges the frozen copies, their manifest and the log together.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from omx_autoresearch.core.json_path import parse_json_path
from omx_autoresearch.core.pins import Pin
from omx_autoresearch.core.values import dataclass, replace
from omx_autoresearch.errors import StateUntrusted, WorkspaceFault
from omx_autoresearch.runtime.experiments.editable import editable_folders
from omx_autoresearch.runtime.experiments.held_out import check_held_out, take_held_out
from omx_autoresearch.storage import strictjson
from omx_autoresearch.storage.atomic import load_json, replace_file
from omx_autoresearch.storage.evaluators import take_pins
from omx_autoresearch.storage.inside import open_folder
from omx_autoresearch.storage.pin_check import (
    RACY_NS,
    check_pins,
    manifest_of,
    pin_stamps,
    touched,
    with_modules,
)
from omx_autoresearch.storage.pins import freeze, load_manifest, restore_pins

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omx_autoresearch.core.experiments import ExperimentConfig
    from omx_autoresearch.core.pins import PinManifest
    from omx_autoresearch.storage.experiments import ExperimentFolder
    from omx_autoresearch.storage.pin_check import Stamps

_BENCH_NAME = "bench.json"
_PATH_LISTS = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "VIRTUAL_ENV")
_PYTHON_START = ("sitecustomize.py", "usercustomize.py")


@dataclass(frozen=True, slots=True)
class Bench:
    """What is the same for every run of one experiment.

    Attributes:
        folder: of the experiment.
        config: as started.
        project_path: the user's checkout.
        worktree_paths: of incumbent and candidate; in the sandbox neither sees the other.
        manifest: of the pinned files.
        environment: the owner's at the start.
        held_out_digest: of the private copy of the held-out check; empty where there is none.
        editable_folders: of the project, relative, from which an editable installation imports (:mod:`.editable`).
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


def set_up_bench(
    folder: ExperimentFolder,
    config: ExperimentConfig,
    *,
    project_path: str,
    worktree_paths: Sequence[str],
    environment: Mapping[str, str],
) -> Bench:
    """Pin and freeze what judges, as the first worktree has it at the start, and take the held-out check.

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
    folders = editable_folders(environment, project_path)
    moved = moved_environment(environment, project_path, base_path)
    manifest = _pins_of(config, base_path, _with_editable(moved, folders, base_path))
    freeze(folder.frozen_path, manifest, base_path)
    held_out_digest = ""
    if config.held_out:
        source_path = os.path.join(project_path, os.path.expanduser(config.held_out))
        held_out_digest = take_held_out(source_path, folder.held_out_path)
    kept = {
        "environment": dict(environment),
        "held_out_digest": held_out_digest,
        "pin_digest": manifest.digest,
        "editable_folders": list(folders),
    }
    replace_file(os.path.join(folder.root_path, _BENCH_NAME), strictjson.encode(kept))
    return Bench(
        folder,
        config,
        project_path,
        tuple(worktree_paths),
        manifest,
        dict(environment),
        held_out_digest,
        folders,
    )


def open_bench(
    folder: ExperimentFolder,
    config: ExperimentConfig,
    *,
    project_path: str,
    worktree_paths: Sequence[str],
    pin_digest: str = "",
) -> Bench:
    """The bench of an experiment that is resumed.

    Args:
        folder: of the experiment.
        config: of the experiment.
        project_path: the user's checkout.
        worktree_paths: of incumbent and candidate.
        pin_digest: what the log of the experiment says; empty to believe the folder.

    Raises:
        StateUntrusted: what was kept is missing, or is not what it was.
    """
    path = os.path.join(folder.root_path, _BENCH_NAME)
    try:
        kept = load_json(path)
        environment = {str(name): str(value) for name, value in kept["environment"].items()}
        held_out_digest = str(kept["held_out_digest"])
        digest = pin_digest or str(kept["pin_digest"])
        folders = tuple(str(name) for name in kept["editable_folders"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StateUntrusted) as error:
        raise _untrusted(f"{path} cannot be believed: {error}") from error
    try:
        manifest = load_manifest(folder.frozen_path, digest)
    except StateUntrusted as error:
        raise _untrusted(error.message) from error
    if held_out_digest:
        check_held_out(folder.held_out_path, held_out_digest)
    worktrees = tuple(worktree_paths)
    return Bench(folder, config, project_path, worktrees, manifest, environment, held_out_digest, folders)


def moved_environment(
    environment: Mapping[str, str], project_path: str, worktree_path: str
) -> dict[str, str]:
    """An environment whose search paths into the checkout lead to the same places of a worktree, where those exist.

    Relative entries are dropped: whoever writes the folder that a command runs in would name programs and modules.
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
    folders = _python_folders(environment, worktree_path)
    starts = [f"{folder}/{name}".lstrip("/") for folder in folders for name in _PYTHON_START]
    present = [path for path in starts if os.path.lexists(os.path.join(worktree_path, path))]
    document = parse_json_path(config.metric.json_path).file_path if config.metric.source == "json" else ""
    manifest = take_pins(
        worktree_path,
        commands=[command for command in (config.measure, config.check, config.reset_caches) if command],
        protect=(*(f"/{path}" if "/" not in path else path for path in present), *config.protect),
        exempt=(document,),
        search_path=environment.get("PATH", ""),
    )
    if not folders:
        return manifest
    known = {pin.path for pin in manifest.pins}
    guards = [Pin(path, "absent-guard") for path in starts if path not in known and path not in present]
    extended = replace(
        manifest_of([*manifest.pins, *guards], manifest.runners, manifest.notes), programs=manifest.programs
    )
    return with_modules(extended, tuple(sorted({*manifest.import_folders, *folders})), worktree_path)


def _python_folders(environment: Mapping[str, str], worktree_path: str) -> list[str]:
    """Folders of the worktree on PYTHONPATH, relative; the root is empty."""
    found = []
    for entry in environment.get("PYTHONPATH", "").split(os.pathsep):
        relative = os.path.relpath(entry, worktree_path) if entry else ".."
        if relative == ".":
            found.append("")
        elif relative.split(os.sep, 1)[0] != "..":
            found.append(relative)
    return found


# --- before and after a run


def restore_evaluators(bench: Bench, worktree_path: str) -> tuple[str, ...]:
    """Make the pinned paths of a worktree what they were at the start.

    Returns:
        The paths that had been touched, sorted; empty where nothing had. A candidate that touched them is tampered.

    Raises:
        StateUntrusted: a frozen copy is missing or not what it was.
        WorkspaceFault: the worktree is gone or keeps changing.
        StorageFailed: the system refused.
    """
    restored: tuple[str, ...] = ()
    if bench.manifest.pins:
        check = check_pins(bench.manifest, worktree_path, cache_path=_cache_path(bench, worktree_path))
        if not check.is_intact:
            try:
                restored = restore_pins(bench.manifest, worktree_path, frozen_path=bench.folder.frozen_path)
            except StateUntrusted as error:
                raise _untrusted(error.message) from error
    _drop_bytecode(bench.manifest, worktree_path)
    return restored


def stamps_of(bench: Bench, worktree_path: str) -> Stamps:
    """How the pinned paths stand at this moment, for `touched_since`.

    A file written within the kernel's tick of this moment could be written again without a new time: then the tick is
    waited for (:data:`RACY_NS`).
    """
    stamps = pin_stamps(bench.manifest, worktree_path)
    newest_ns = max((marks[-1] for path, marks in stamps.items() if marks and path[-1] != "/"), default=0)
    age_ns = time.time_ns() - newest_ns
    if 0 <= age_ns < RACY_NS:
        time.sleep((RACY_NS - age_ns) / 1e9)
    return stamps


def touched_since(bench: Bench, worktree_path: str, stamps: Stamps) -> tuple[str, ...]:
    """Pinned paths that were changed, added, or changed and put back since then; sorted, for people."""
    try:
        moved = touched(stamps, pin_stamps(bench.manifest, worktree_path))
        check = check_pins(bench.manifest, worktree_path, cache_path=_cache_path(bench, worktree_path))
    except WorkspaceFault as error:
        return (error.message,)
    return tuple(sorted({*moved, *check.changed, *check.added}))


def _cache_path(bench: Bench, worktree_path: str) -> str:
    return os.path.join(bench.folder.frozen_path, f"seen-{os.path.basename(worktree_path)}.json")


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
        next_step="omx-autoresearch experiment report (what was reached stays), then start a new experiment",
    )


def _editable_notes(bench: Bench) -> list[str]:
    if not bench.editable_folders:
        return []
    shown = ", ".join(bench.editable_folders)
    return [
        f"an editable installation imports {shown} of the checkout; commands get the worktree's by PYTHONPATH"
    ]


def plain_bench(bench: Bench) -> dict[str, Any]:
    """What of the bench may be shown: counts and notes, no variable's value."""
    return {
        "pinned": bench.manifest.frozen_count,
        "judging": bench.manifest.judging_count,
        "paths": [pin.path for pin in bench.manifest.pins if pin.kind != "absent-guard"],
        "notes": [*bench.manifest.notes, *_editable_notes(bench)],
        "has_held_out": bool(bench.held_out_digest),
    }
