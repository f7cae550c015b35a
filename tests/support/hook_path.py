"""Which modules a hook process may load, and what each step of it never loads."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "omx_autoresearch"

HOOK_PATH = (
    "agents.clients.claude",
    "agents.clients.codex",
    "agents.clients.codex.policy",
    "agents.clients.codex.rollout",
    "agents.clients.gemini",
    "agents.events",
    "agents.headless",
    "agents.machine",
    "agents.payloads",
    "agents.registry",
    "experiments.judge.*",
    "foundation.clients",
    "foundation.errors",
    "foundation.json_codec",
    "foundation.metric_texts",
    "foundation.records",
    "foundation.times",
    "foundation.types",
    "freezing.facts",
    "freezing.git_answers",
    "freezing.inline_tests",
    "freezing.light_pins",
    "freezing.manifest",
    "freezing.pins",
    "freezing.evaluator_commands",
    "freezing.runners",
    "freezing.tree",
    "journal.layout",
    "journal.log",
    "journal.omx_folder",
    "foundation.text",
    "journal.reader",
    "journal.safe_files",
    "missions.checkouts",
    "missions.claims",
    "missions.hook_events",
    "missions.workspace",
    "missions.projection_texts",
    "missions.projections",
    "missions.records.*",
    "missions.registry",
    "missions.rules.*",
    "missions.secrets",
    "missions.session_reviews",
    "missions.sessions",
    "missions.snapshots",
    "missions.stop",
    "missions.store",
    "missions.validation.approvals",
    "missions.validation.asked",
    "missions.validation.newcomers",
    "missions.validation.output",
    "missions.validation.exhibits",
    "missions.validation.reviewers",
    "missions.validation.reviews",
    "missions.validation.runs",
    "surfaces.hook",
    "surfaces.sources",
    "surfaces.statusline",
    "system.clock",
    "system.commands",
    "system.files",
    "system.git",
    "system.processes",
    "system.sandbox",
    "system.mounts",
    "system.starting",
    "system.supervisor",
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
