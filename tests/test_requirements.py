"""Requirements and cases are checked both ways against the marks of the tests, and against the pages of specs/."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SPECS = ROOT / "specs"

PAGES = {
    "GATE": "gate.md",
    "DONE": "completion.md",
    "WORK": "completion.md",
    "SESS": "sessions.md",
    "STATE": "state.md",
    "LIFE": "lifecycle.md",
    "HOOK": "hooks.md",
    "INST": "installation.md",
    "CLI": "command-line.md",
    "DIR": "directions.md",
    "STALL": "directions.md",
    "BRIEF": "directions.md",
    "HOST": "command-line.md",
    "LINE": "statusline.md",
    "MCP": "mcp.md",
    "AUTO": "session-tools.md",
    "SPEED": "hook-speed.md",
    "EVID": "evidence.md",
    "READY": "readiness.md",
    "API": "python-api.md",
    "RESUME": "resume.md",
    "DRIVE": "experiment-command-line.md",
    "METRIC": "metrics.md",
    "ACC": "acceptance.md",
    "EXP": "experiments.md",
    "TREE": "worktrees.md",
    "RUN": "metrics.md",
    "SEE": "experiment-reports.md",
}
SOURCES = {"protocol", "client", "field", "design"}
AREAS = {
    "artifact",
    "budget-stall",
    "disk",
    "git-worktree",
    "hook-io",
    "loop-control",
    "metric",
    "process",
    "session-scope",
    "state-jsonl",
    "validator",
}


@cache
def _entries(name: str) -> dict[str, dict[str, str]]:
    rows = tomllib.loads((SPECS / f"{name}s.toml").read_text(encoding="utf-8"))[name]
    ids = [row["id"] for row in rows]
    assert len(ids) == len(set(ids)), "an id stands twice"
    return {row["id"]: row for row in rows}


def marks_in(source: str) -> dict[str, set[str]]:
    """The ids that ``@pytest.mark.requirement`` and ``@pytest.mark.case`` name in a module, by mark.

    Raises:
        TypeError: an id is computed, so that nobody could look it up.
    """
    found: dict[str, set[str]] = {"requirement": set(), "case": set()}
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr not in found or not ast.unparse(node.func.value).endswith("mark"):
            continue
        for argument in node.args:
            if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                raise TypeError(f"line {node.lineno}: a mark takes literal ids")
            found[node.func.attr].add(argument.value)
    return found


@cache
def _marked() -> dict[str, dict[str, list[str]]]:
    places: dict[str, dict[str, list[str]]] = {"requirement": defaultdict(list), "case": defaultdict(list)}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if path == Path(__file__).resolve():
            continue  # its own samples are no claims
        for mark, ids in marks_in(path.read_text(encoding="utf-8")).items():
            for marked in ids:
                places[mark][marked].append(str(path.relative_to(ROOT)))
    return places


@pytest.mark.parametrize("mark", ["requirement", "case"])
def test_every_marked_id_is_in_the_manifest(mark: str) -> None:
    unknown = {marked: places for marked, places in _marked()[mark].items() if marked not in _entries(mark)}
    assert unknown == {}


def test_every_requirement_has_a_test() -> None:
    missing = [f"{key}: {row['text']}" for key, row in _entries("requirement").items()]
    missing = [line for line in missing if line.split(":")[0] not in _marked()["requirement"]]
    assert not missing, "\n".join(["requirements without a test:", *missing])


def test_every_case_has_a_test_or_is_planned_but_not_both() -> None:
    wrong = [
        f"{key}: {'planned and tested' if 'planned' in row else 'neither planned nor tested'}: {row['right']}"
        for key, row in _entries("case").items()
        if ("planned" in row) == (key in _marked()["case"])
    ]
    assert not wrong, "\n".join(["cases:", *wrong])


def test_every_entry_is_complete() -> None:
    for key, row in _entries("requirement").items():
        assert re.fullmatch(rf"(?:{'|'.join(PAGES)})-\d\d", key), key
        assert row.keys() == {"id", "source", "text"}, key
        assert row["source"] in SOURCES, key
        assert row["text"].endswith("."), key
    for key, row in _entries("case").items():
        assert row.keys() - {"planned"} == {"id", "area", "right"}, key
        assert row["area"] in AREAS, key
        assert row.get("planned", "a concept"), key


def test_every_requirement_is_explained_on_the_page_of_its_system_and_nowhere_is_an_unknown_one() -> None:
    told = defaultdict(set)
    for path in SPECS.rglob("*.md"):
        for key in re.findall(rf"\b(?:{'|'.join(PAGES)})-\d\d\b", path.read_text(encoding="utf-8")):
            told[key].add(path.name)
    assert sorted(set(told) - set(_entries("requirement"))) == []
    assert [key for key in _entries("requirement") if PAGES[key.split("-")[0]] not in told[key]] == []


def test_marks_are_found_on_functions_in_parameters_and_in_module_marks() -> None:
    source = (
        'pytestmark = pytest.mark.case("A-1")\n'
        '@pytest.mark.requirement("R-1", "R-2")\ndef test_a() -> None: ...\n'
        '@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.case("A-2"))])\ndef test_b(x): ...\n'
    )
    assert marks_in(source) == {"requirement": {"R-1", "R-2"}, "case": {"A-1", "A-2"}}


def test_a_computed_id_is_refused() -> None:
    with pytest.raises(TypeError, match="literal ids"):
        marks_in("@pytest.mark.case(name)\ndef test_a(): ...\n")
