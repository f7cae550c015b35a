"""Intake: a draft becomes mission.md and sandbox.md, and these become a draft again.

The files are for people to read and fix before the start; ``start`` compiles them once (``missions/contracts.py``).
Nothing that exists is ever overwritten: a taken slug gets a suffix.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import Any

import yaml

from omx_autoresearch.foundation import json_codec, templates
from omx_autoresearch.foundation.errors import (
    AutoresearchError,
    MissionInvalid,
    StorageFailed,
    WorkspaceFault,
)
from omx_autoresearch.foundation.input_validation import Fault, refusal, validated
from omx_autoresearch.foundation.records import as_fields, dataclass, field, sha256, to_plain
from omx_autoresearch.foundation.types import Operation, TaskType
from omx_autoresearch.journal.layout import (
    INTAKE_NAMES,
    ProjectFolder,
    Runtime,
    is_safe_task_id,
    slugify,
)
from omx_autoresearch.journal.safe_files import (
    ensure_folder,
    path_faults,
    read_bounded,
    replace_file,
    storage_failed,
)
from omx_autoresearch.missions.rules.criteria import (
    Criterion,
    CriterionFault,
    criterion_of,
    criterion_text,
    rule_forms,
)
from omx_autoresearch.missions.rules.intake import IntakeRecord, MissionDraft, draft_faults, settled
from omx_autoresearch.missions.rules.mission import JudgingTerms

# --- Markdown files with YAML frontmatter: written and read by the YAML library, with fewer surprises than YAML 1.1.
#
# Everything but ``true``, ``false``, ``null``, whole and decimal numbers is text: ``no``, ``on``, ``12:30`` and dates
# stay as a person typed them. A key given twice, an alias and a tag are errors that name the line.

LIMIT_BYTES = 1024 * 1024
Place = tuple[str | int, ...]

_FENCE = re.compile(r"^---[ \t]*\r?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Frontmatter:
    """The fields between the two fences at the top of a file.

    Attributes:
        values: its fields.
        lines: the line of each key path in the file, from 1.
    """

    values: dict[str, Any]
    lines: dict[Place, int] = field(default_factory=dict)


# --- writing


class _Dumper(yaml.SafeDumper):
    """Block lists indented, texts of several lines as blocks."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, indentless=False)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    is_block = (
        "\n" in text and "\r" not in text and not re.search(r"[ \t]\n|^\s|\n\n\Z|[\x85\u2028\u2029]", text)
    )
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if is_block else _quoting(text))


def _quoting(text: str) -> str | None:
    return '"' if any(ord(c) < 32 or ord(c) == 127 or c in "\x85\u2028\u2029\ufeff" for c in text) else None


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(tuple, lambda dumper, items: dumper.represent_list(list(items)))


def dump(values: dict[str, Any]) -> str:
    """Return ``values`` as YAML lines that :func:`parse` reads back unchanged; ends in a newline."""
    text: str = yaml.dump(
        values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**9, default_flow_style=False
    )
    return text


# --- reading


class _Loader(yaml.SafeLoader):
    """YAML's safe loader with its own, shorter table of what is not text."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  # yaml's own name


for _tag, _pattern, _starts in (
    ("bool", r"true|false", "tf"),
    ("null", r"null|~|", ["n", "~", ""]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?", "-+.0123456789"),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})\\Z"), list(_starts)
    )


def parse(data: bytes, *, where: str) -> Frontmatter:
    """Return the frontmatter of a file. A UTF-8 byte order mark and CRLF line ends are taken.

    Raises:
        MissionInvalid: no UTF-8 (UTF-16 is named), no frontmatter, no YAML mapping, a key given twice, an alias or
            a tag; names the file and the line.
    """
    inner, _ = _divided(data, where)
    values, lines = _load(inner, where)
    if not isinstance(values, dict):
        raise _invalid(where, "the frontmatter must be a mapping: `key: value` lines", 2)
    return Frontmatter(values, lines)


def replaced(data: bytes, values: dict[str, Any], *, where: str) -> bytes:
    """Return a file with other frontmatter; the text below it stays as it is.

    Raises:
        MissionInvalid: as for :func:`parse`.
    """
    _, below = _divided(data, where)
    return f"---\n{dump(values)}---{below}".encode()


def _divided(data: bytes, where: str) -> tuple[str, str]:
    """The text between the fences, and the text below them."""
    text = _decoded(data, where)
    opening = _FENCE.match(text)
    closing = _FENCE.search(text, opening.end()) if opening else None
    if opening is None or closing is None:
        raise _invalid(
            where, "it has no frontmatter: put YAML between two lines of `---`, the first one at the top"
        )
    return text[opening.end() : closing.start()], text[closing.end() :]


def _load(text: str, where: str) -> tuple[Any, dict[Place, int]]:
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        reader = _Reader(loader, where)
        return (reader.value(node, ()) if node is not None else {}), reader.lines
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise _invalid(where, f"{error.problem or error.context or error}", line) from None
    except yaml.reader.ReaderError as error:
        at = int(error.position)
        what = f"the character U+{int(error.character):04X} is not allowed; write it as an escape in double quotes"
        raise _invalid(where, what, text[:at].count("\n") + 1) from None
    except RecursionError:
        raise _invalid(where, "it is nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:
        raise _invalid(where, f"it is not YAML: {error}") from None


def _decoded(data: bytes, where: str) -> str:
    try:
        return json_codec.as_utf8(data).decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise _invalid(where, f"byte {error.start} is not UTF-8", line) from None
    except ValueError as error:
        raise _invalid(where, str(error)) from None


def _invalid(where: str, what: str, line: int = 0) -> MissionInvalid:
    place = f"{where}, line {line}" if line else where
    return MissionInvalid(f"{place}: {what}", next_step=f"fix {where}, then run the same command again")


class _Reader:
    """Nodes to values, noting the line of every key."""

    def __init__(self, loader: _Loader, where: str) -> None:
        self.loader = loader
        self.where = where
        self.lines: dict[Place, int] = {}
        self.seen: set[int] = set()

    def value(self, node: yaml.Node, place: Place) -> Any:
        if id(node) in self.seen:
            raise _invalid(
                self.where, "an alias (`*name`) is not allowed; write the value itself", _line(node)
            )
        self.seen.add(id(node))
        self.lines.setdefault(place, _line(node))
        if node.tag not in _TAGS:
            raise _invalid(self.where, f"the tag {node.tag} is not allowed", _line(node))
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*place, index)) for index, item in enumerate(node.value)]
        if not isinstance(node, yaml.MappingNode):
            return self.loader.construct_object(node)
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            if not isinstance(key, str):
                raise _invalid(self.where, "a key must be plain text", _line(key_node))
            if key in values:
                raise _invalid(self.where, f"the key {key[:80]!r} is given twice", _line(key_node))
            self.lines[*place, key] = _line(key_node)
            values[key] = self.value(value_node, (*place, key))
        return values


_TAGS = frozenset(
    f"tag:yaml.org,2002:{name}" for name in ("str", "bool", "int", "float", "null", "map", "seq")
)


def _line(node: yaml.Node) -> int:
    """The line of a node in its file: the frontmatter's first line end belongs to the fence."""
    return int(node.start_mark.line) + 1


MISSION_NAME, SANDBOX_NAME, RECORD_NAME = INTAKE_NAMES
FILE_MODE = 0o644
_SUFFIX_LIMIT = 1000
RECORD_VERSION = 1
"""The version of result.json."""

IGNORE_ALL = "*\n"
IGNORE_BUT_SPECS = "/*\n!/specs/\n"
"""Contents of ``.omx/.gitignore``: ignore everything, itself too; with ``--track`` everything but the specs."""


@dataclass(frozen=True, slots=True)
class MissionPage:
    """The frontmatter of mission.md."""

    goal: str
    slug: str = ""
    task_type: TaskType = "standard"
    scope: tuple[str, ...] = ()
    non_goals: tuple[str, ...] = ()
    milestones: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CriterionPage:
    """One criterion of sandbox.md as a mapping; most people write ``id: description :: rule`` instead."""

    id: str
    description: str
    rule: str
    required: bool = True

    def text(self) -> str:
        """The criterion in one line."""
        return f"{'' if self.required else 'optional '}{self.id}: {self.description} :: {self.rule}"


@dataclass(frozen=True, slots=True)
class SandboxPage(JudgingTerms):
    """The frontmatter of sandbox.md; the names are those of :class:`MissionDraft`, but for ``env``.

    ``experiment`` is read where an experiment is started (``experiments/configuration.py``).
    """

    protect: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    criteria: tuple[str | CriterionPage, ...] = ()
    forbid: tuple[Operation, ...] = ()
    limits: dict[str, int | float] | None = None
    experiment: dict[str, Any] | None = None


def check_draft(draft: MissionDraft) -> list[str]:
    """The faults of a draft, with those of its paths, a sentence each; empty for a valid one."""
    found = draft_faults(draft)
    if draft.output_artifact_path:
        found += [f"output_artifact_path: {fault}" for fault in path_faults(draft.output_artifact_path)]
    for name in ("keep", "link"):
        found += [f"{name}: {fault}" for path in getattr(draft, name) for fault in path_faults(path)]
    if draft.slug and not (is_safe_task_id(draft.slug) and slugify(draft.slug) == draft.slug):
        found.append(
            f"slug: {draft.slug[:60]!r} is not a short name of a-z, 0-9 and single `-`; try {slugify(draft.slug)}"
        )
    return found


def require_valid(draft: MissionDraft, *, next_step: str) -> None:
    """Refuse a draft with faults.

    Raises:
        MissionInvalid: every fault of the draft.
    """
    if faults := check_draft(draft):
        raise MissionInvalid("\n".join(faults), next_step=next_step)


# --- writing


def write_intake(runtime: Runtime, project_root: str, draft: MissionDraft) -> IntakeRecord:
    """Write mission.md, sandbox.md and result.json under ``.omx/specs/autoresearch-{slug}`` of the project.

    Raises:
        MissionInvalid: the draft cannot stand; every fault is named.
        WorkspaceFault: the project is no folder, or its ``.omx`` is a link or no folder.
        StorageFailed: the system refused; no file of the intake remains.
    """
    require_valid(draft, next_step="omx-autoresearch init, with these fields fixed")
    draft = settled(draft)
    project = ProjectFolder(project_root)
    _make_omx(project, track=draft.track)
    slug, folder_path = _claim_folder(project, draft.slug or slugify(draft.goal))
    record, files = _files(runtime, project, folder_path, replace(draft, slug=slug))
    try:
        for name, data in files.items():
            replace_file(os.path.join(folder_path, name), data, mode=FILE_MODE)
    except AutoresearchError:
        _take_back(folder_path)
        raise
    return record


def restore_intake(runtime: Runtime, project_root: str, specs_path: str, draft: MissionDraft) -> None:
    """Write the files of an intake folder that are gone anew, as ``draft`` has them; the others stay as they are.

    Args:
        runtime: the world.
        project_root: of the project.
        specs_path: the folder, relative to the project; made where it is gone.
        draft: without a mode (neither validator nor prompt) mission.md alone is written.

    Raises:
        StorageFailed: the system refused.
    """
    folder_path = os.path.join(project_root, specs_path)
    draft = settled(draft)
    _, files = _files(runtime, ProjectFolder(project_root), folder_path, draft)
    ensure_folder(folder_path, mode=0o755)
    for name in files if draft.validation_mode else (MISSION_NAME,):
        path = os.path.join(folder_path, name)
        if not os.path.lexists(path):
            replace_file(path, files[name], mode=FILE_MODE)


def amended_sandbox(specs_path: str, draft: MissionDraft, *, is_anew: bool = False) -> bytes:
    """Return sandbox.md of a folder as ``draft`` has it; the text below its frontmatter stays. Nothing is written.

    ``is_anew``: the present file, which cannot be read, gives nothing.

    Raises:
        MissionInvalid: the draft cannot stand, or the file has no frontmatter.
        StorageFailed: the system refused the read.
    """
    require_valid(draft, next_step="run the command again with these fixed")
    path = os.path.join(specs_path, SANDBOX_NAME)
    if is_anew:
        return pages_of(draft)[SANDBOX_NAME]
    data = read_bounded(path, LIMIT_BYTES)
    said = _said(_sandbox_page(settled(draft)))
    if not draft.experiment and (block := parse(data, where=path).values.get("experiment")) is not None:
        said["experiment"] = block  # not accepted yet, and the owner's all the same
    return replaced(data, said, where=path)


def write_sandbox(specs_path: str, data: bytes) -> None:
    """Give sandbox.md of a folder this content; the folder is made where it is gone.

    Raises:
        StorageFailed: the system refused.
    """
    ensure_folder(specs_path, mode=0o755)
    replace_file(os.path.join(specs_path, SANDBOX_NAME), data, mode=FILE_MODE)


def pages_of(draft: MissionDraft) -> dict[str, bytes]:
    """mission.md and sandbox.md of a valid draft, by name."""
    return {name: text.encode("utf-8") for name, text in _pages(settled(draft)).items()}


def _pages(draft: MissionDraft) -> dict[str, str]:
    mission = MissionPage(**{name: getattr(draft, name) for name in MissionPage.__dataclass_fields__})
    sandbox = _sandbox_page(draft)
    return {
        MISSION_NAME: templates.render("mission.md.j2", frontmatter=dump(_said(mission)), draft=draft),
        SANDBOX_NAME: templates.render(
            "sandbox.md.j2", frontmatter=dump(_said(sandbox)), draft=draft, rule_forms=rule_forms()
        ),
    }


def _sandbox_page(draft: MissionDraft) -> dict[str, Any]:
    """The fields of sandbox.md that say something; what equals its default is left to the default."""
    values = {name: getattr(draft, name) for name in SandboxPage.__dataclass_fields__ if hasattr(draft, name)}
    values["env"] = draft.environment_names
    values["criteria"] = tuple(criterion_text(criterion) for criterion in draft.criteria)
    if draft.validation_mode == "mission-validator-script":
        del values["reviewed_by"]
    return values


_ALWAYS_SAID = ("goal", "slug", "task_type", "validation_mode", "timeout_seconds", "reviewed_by")


def _said(page: Any) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(page)
    quiet = {"score_direction": "higher"}
    return {
        name: value
        for name, value in plain.items()
        if name in _ALWAYS_SAID or (value not in ("", [], {}, False) and quiet.get(name) != value)
    }


def _files(
    runtime: Runtime, project: ProjectFolder, folder_path: str, draft: MissionDraft
) -> tuple[IntakeRecord, dict[str, bytes]]:
    """The record of an intake, and the content of its files by name."""
    pages = pages_of(draft)
    specs_path = os.path.relpath(folder_path, project.root_path)
    record = IntakeRecord(
        schema_version=RECORD_VERSION,
        slug=draft.slug,
        goal=draft.goal,
        task_type=draft.task_type,
        validation_mode=draft.validation_mode or "prompt-architect-artifact",
        specs_path=specs_path,
        mission_path=os.path.join(specs_path, MISSION_NAME),
        sandbox_path=os.path.join(specs_path, SANDBOX_NAME),
        digests={name: _digest(data) for name, data in pages.items()},
        created_at=runtime.now(),
    )
    return record, pages | {RECORD_NAME: (json_codec.pretty(to_plain(record)) + "\n").encode("utf-8")}


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()


def _make_omx(project: ProjectFolder, *, track: bool) -> None:
    """Make ``.omx`` and ``.omx/specs``, real folders of the project, kept out of git."""
    if not os.path.isdir(project.root_path):
        raise WorkspaceFault(
            f"the project {project.root_path} is not a folder", next_step="cd to your project"
        )
    for path in (project.omx_path, os.path.join(project.omx_path, "specs")):
        try:
            os.mkdir(path, 0o755)
        except FileExistsError:
            if os.path.islink(path) or not os.path.isdir(path):
                raise WorkspaceFault(
                    f"{path} is a symbolic link or not a folder; missions are kept in a real one",
                    next_step=f"ls -ld {path}",
                ) from None
        except OSError as error:
            raise storage_failed("make the folder", path, error) from error
    _ignore(project, track=track)


def _ignore(project: ProjectFolder, *, track: bool) -> None:
    """Keep ``.omx`` out of git; rules that a person wrote stay as they are."""
    try:
        existing = read_bounded(project.ignore_path, 64 * 1024).decode("utf-8", "replace")
    except FileNotFoundError:
        existing = ""
    if not existing or (existing == IGNORE_ALL and track):
        text = IGNORE_BUT_SPECS if track else IGNORE_ALL
        replace_file(project.ignore_path, text.encode("ascii"), mode=FILE_MODE)


def _claim_folder(project: ProjectFolder, slug: str) -> tuple[str, str]:
    """Make the specs folder of the first free name: the slug, then slug-2, slug-3 ..."""
    for number in range(1, _SUFFIX_LIMIT):
        name = slug if number == 1 else f"{slug}-{number}"
        path = project.specs_path(name)
        try:
            os.mkdir(path, 0o755)
        except FileExistsError:
            continue
        except OSError as error:
            raise storage_failed("make the folder", path, error) from error
        return name, path
    raise StorageFailed(
        f"{slug} and its {_SUFFIX_LIMIT} suffixes are taken", next_step="init --slug ANOTHER-NAME"
    )


def _take_back(folder_path: str) -> None:
    """Remove what a failed intake left in the folder that it had made itself."""
    for name in (MISSION_NAME, SANDBOX_NAME, RECORD_NAME):
        try:
            os.unlink(os.path.join(folder_path, name))
        except OSError:
            continue
    try:
        os.rmdir(folder_path)
    except OSError:
        return


# --- reading


def read_intake(specs_path: str) -> MissionDraft:
    """Return the draft that mission.md and sandbox.md of a folder describe, with the digests of what was read.

    Raises:
        MissionInvalid: a file is missing, unreadable, or says something that cannot stand: file, line, field, what
            was received, what counts.
        StateUntrusted: a file is too large or no regular file.
        StorageFailed: the system refused the read.
    """
    mission, mission_digest = _read_page(MissionPage, os.path.join(specs_path, MISSION_NAME))
    sandbox, sandbox_digest = _read_page(SandboxPage, os.path.join(specs_path, SANDBOX_NAME))
    shared = {
        name: getattr(sandbox, name)
        for name in SandboxPage.__dataclass_fields__
        if name not in ("env", "limits", "criteria", "experiment")
    }
    sandbox_path = os.path.join(specs_path, SANDBOX_NAME)
    draft = MissionDraft(
        **as_fields(mission),
        environment_names=sandbox.env,
        criteria=_criteria(sandbox, sandbox_path),
        limits=dict(sandbox.limits or {}),
        experiment=dict(sandbox.experiment or {}),
        intake_digests={MISSION_NAME: mission_digest, SANDBOX_NAME: sandbox_digest},
        **shared,
    )
    if faults := check_draft(draft):
        raise MissionInvalid(
            refusal(specs_path, [Fault("", "", text) for text in faults]),
            next_step=f"fix {os.path.join(specs_path, SANDBOX_NAME)} or {MISSION_NAME} beside it",
        )
    return draft


def _criteria(page: SandboxPage, path: str) -> tuple[Criterion, ...]:
    """The criteria of sandbox.md.

    Raises:
        MissionInvalid: one of them cannot stand; every fault is named by its place in the list.
    """
    found, faults = [], []
    for number, item in enumerate(page.criteria):
        try:
            found.append(criterion_of(item if isinstance(item, str) else item.text()))
        except CriterionFault as error:
            faults.append(Fault(f"criteria.{number}", "", str(error)))
    if faults:
        raise MissionInvalid(refusal(path, faults), next_step=f"fix {path}, then run the same command again")
    return tuple(found)


def _read_page(kind: type[Any], path: str) -> tuple[Any, str]:
    try:
        data = read_bounded(path, LIMIT_BYTES)
    except FileNotFoundError:
        raise MissionInvalid(f"{path} is missing", next_step="omx-autoresearch init") from None
    page = parse(data, where=path)
    return validated(kind, page.values, where=path, lines=page.lines), _digest(data)
