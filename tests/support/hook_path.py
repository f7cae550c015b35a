"""Which modules a hook process may load, and what each step of it never loads."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "omx_autoresearch"

HOOK_PATH = (
    "errors",
    "core.*",
    "core.records.*",
    "storage.approvals",
    "storage.atomic",
    "storage.heartbeat",
    "storage.inbox",
    "storage.inside",
    "storage.journal",
    "storage.layout",
    "storage.lines",
    "storage.migrations",
    "storage.missions",
    "storage.omx_folder",
    "storage.outputs",
    "storage.pin_check",
    "storage.pins",
    "storage.projections",
    "storage.reader",
    "storage.registry",
    "storage.snapshots",
    "storage.states",
    "storage.strictjson",
    "storage.views",
    "system.clock",
    "system.commands",
    "system.contents",
    "system.git",
    "system.processes",
    "system.sandbox",
    "system.signals",
    "system.supervisor",
    "system.tree",
    "agents.*",
    "runtime.claims",
    "runtime.completion",
    "runtime.context",
    "runtime.expiry",
    "runtime.faults",
    "runtime.heartbeats",
    "runtime.iterations",
    "runtime.looks",
    "runtime.owner_needs",
    "runtime.relay",
    "runtime.sessions",
    "runtime.stall",
    "runtime.stops",
    "runtime.turns",
    "runtime.validation",
    "runtime.verdicts",
    "surfaces.hook",
    "surfaces.sources",
    "surfaces.statusline",
)
"""Modules that a hook process imports; a star stands for every module beside it."""


def modules(patterns: tuple[str, ...] = HOOK_PATH) -> list[str]:
    """The modules that the patterns stand for, without the package's name."""
    names: list[str] = []
    for pattern in patterns:
        path = PACKAGE / pattern.replace(".", "/")
        if path.name != "*":
            names.append(pattern)
        else:
            prefix = pattern.removesuffix(".*")
            names += [
                f"{prefix}.{found.stem}"
                for found in sorted(path.parent.glob("*.py"))
                if found.stem != "__init__"
            ]
    return names


def unlisted(loaded: set[str]) -> set[str]:
    """Modules of ours that a process loaded and that the list does not have."""
    listed = {f"omx_autoresearch.{name}" for name in modules()}
    folders = {name.rpartition(".")[0] for name in listed} | {"omx_autoresearch"}
    return {name for name in loaded if name.startswith("omx_autoresearch") and name not in listed | folders}
