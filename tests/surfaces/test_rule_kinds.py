"""A further kind of rule: its own file and one line of the registry, then every door knows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.support.command_line import AGENT, Person
from tests.surfaces.support.copies import PACKAGE, copied_package, touched

RULES = PACKAGE / "missions" / "rules" / "criteria.py"
REGISTRY_LINE = '    "lines": "line_rule.Lines",\n'
LINE_RULE = '''
from __future__ import annotations

from {base} import CriterionFault, Rule
from omx_autoresearch.foundation.records import dataclass


@dataclass(frozen=True, slots=True)
class Lines(Rule):
    """A file with at least so many lines."""

    path: str
    least: int
    kind: str = "lines"
    form = "lines: PATH COUNT"
    example = "long: the notes are long :: lines: notes.txt 3"
    counts = "`{{rule}}`, a file of at least so many lines"
    finding_kind = "file"

    @classmethod
    def parse(cls, text):
        path, _, least = text.rpartition(" ")
        if not path or not least.isdigit():
            raise CriterionFault(f"the rule is `{{cls.form}}`, received {{text!r}}")
        return cls(path, int(least))

    def __str__(self):
        return f"lines: {{self.path}} {{self.least}}"

    def examine(self, examiner):
        data = examiner.read(self.path)
        if isinstance(data, str):
            return examiner.missed(data)
        count = data.count(b"\\n")
        if count < self.least:
            return examiner.missed(f"{{self.path}} has {{count}} lines of {{self.least}}")
        return examiner.met(self.path, str(count), size_bytes=len(data))
'''
LOOK = """
import sys
from dataclasses import replace
from omx_autoresearch.journal.layout import Runtime
from omx_autoresearch.missions.validation.checks import look_at
from omx_autoresearch.missions.workspace import snapshot_workspace
from omx_autoresearch.missions.store import MissionStore
from omx_autoresearch.surfaces.sources import SOURCES

runtime = replace(Runtime.of_process(), sources=SOURCES)
mission = MissionStore(runtime.home).load(sys.argv[1])
look = snapshot_workspace(runtime.home.mission(mission.task_id), mission)
(seen,) = look_at(runtime, mission, mission.contract.criteria, isolation="none", look=look)
print(seen.evidence is not None, any("experiments" in name for name in sys.modules))
"""
"""Looks at the one criterion of a mission as a stop does; prints whether it is met and experiments were loaded."""


@pytest.fixture
def inventor(tmp_path: Path) -> Person:
    """A person whose package has a kind more; asserts what that took."""
    copied = copied_package(tmp_path / "lib")
    base = ".".join((PACKAGE.name, *RULES.relative_to(PACKAGE).with_suffix("").parts))
    registry = copied / RULES.relative_to(PACKAGE)
    opening = "KINDS: dict[str, str] = {\n"
    assert registry.read_text("utf-8").count(opening) == 1
    registry.write_text(registry.read_text("utf-8").replace(opening, opening + REGISTRY_LINE), "utf-8")
    (registry.parent / "line_rule.py").write_text(LINE_RULE.format(base=base), encoding="utf-8")
    names = {Path(name).name: lines for name, lines in touched(copied).items()}
    assert names == {registry.name: (1, 0), "line_rule.py": (LINE_RULE.count("\n"), 0)}
    return Person(tmp_path / "person", {"PYTHONPATH": str(copied.parent)})


def criterion(person: Person, task_id: str) -> Any:
    (found,) = person.json("status", task_id)["criteria"]
    return found


@pytest.mark.slow
@pytest.mark.requirement("EVID-17")
def test_a_new_kind_of_rule_is_its_own_file_and_one_line_and_every_door_knows_it(inventor: Person) -> None:
    person = inventor
    assert "`lines: PATH COUNT`" in " ".join(person.ok("init", "--help").split())
    refused = person.run(
        "init", "--goal", "x", "--validator", "true", "--criterion", "a: b :: lines: notes.txt"
    )
    assert refused.returncode == 2
    assert "--criterion 'long: the notes are long :: lines: notes.txt 3'" in refused.stderr
    person.write("answer.txt", "41\n")
    person.commit("Answer")
    task_id = person.start("answer", "--criterion", "long: they are long :: lines: notes.txt 3")
    person.bind(task_id)
    listed = person.json("criterion", "list", task_id)["criteria"]
    assert [(item["accepts"], item["status"]) for item in listed] == [("lines: notes.txt 3", "open")]

    person.write("answer.txt", "42\n")
    person.write("notes.txt", "one\ntwo\n")
    assert "notes.txt has 2 lines of 3" in person.stop()["reason"], "the runtime looked by itself"
    assert criterion(person, task_id)["received"] == "notes.txt has 2 lines of 3"

    person.write("notes.txt", "one\ntwo\nthree\n")
    added = person.json("finding", "add", "--criterion", "long", "--summary", "long enough", env=AGENT)
    assert added["accepted"]
    shown = criterion(person, task_id)
    assert (shown["status"], shown["evidence_count"], shown["required"]) == ("satisfied", 1, True)
    person.write("other.txt", "moved\n")
    assert person.json("criterion", "list", task_id)["criteria"][0]["status"] == "open", (
        "it saw another content"
    )
    person.stop()
    assert person.json("status", task_id)["phase"] == "complete"


@pytest.mark.requirement("EVID-18")
@pytest.mark.parametrize(("rule", "is_asked"), [("file: notes.txt", False), ("trial total_ms 5%", True)])
def test_a_check_loads_experiments_only_where_a_rule_asks_them(
    person: Person, rule: str, is_asked: bool
) -> None:
    task_id = person.start("answer", "--criterion", f"done: it is done :: {rule}")
    person.write("notes.txt", "done\n")
    ran = subprocess.run(
        [sys.executable, "-c", LOOK, task_id],
        cwd=person.project,
        env=person.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == [str(not is_asked), str(is_asked)]
