"""A further verb: its own file and one line of the table; help, answer, schema and the page of verbs follow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.surfaces.support.command_line import PROGRAM, Person
from tests.surfaces.support.copies import copied_package, insert, touched

pytestmark = pytest.mark.slow

VERB = '''
from __future__ import annotations

from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.surfaces.cli.console import Document, json_option, print_json, say, verb


@dataclass(frozen=True, slots=True)
class Greeting:
    """What is said."""

    words: str


@verb("greet", Document("greeting", Greeting))
@json_option
def greet_verb(as_json):
    """Say hello."""
    greeting = Greeting("hello")
    print_json(greeting) if as_json else say(greeting.words)
'''
LINE = '            Entry("greet", "greeting", "Say hello to the person"),\n'
SCHEMA = """
import json
from omx_autoresearch.foundation.input_validation import schema_of
from omx_autoresearch.surfaces.cli.program import documents
print(json.dumps(schema_of(documents()["greeting"], mode="serialization")))
"""
PAGE = f"""
import sys
sys.path.append({str(Path(__file__).resolve().parents[3])!r})
from scripts.generate_specs import verbs_block
print(verbs_block())
"""


def test_a_new_verb_is_its_own_file_and_one_line(tmp_path: Path) -> None:
    copied = copied_package(tmp_path / "lib")
    table = copied / "surfaces" / "cli" / "program.py"
    insert(table, '            Entry("list", "status", "Show every mission"),\n', LINE)
    (table.parent / "greeting.py").write_text(VERB, encoding="utf-8")
    assert touched(copied) == {
        "surfaces/cli/greeting.py": (VERB.count("\n"), 0),
        "surfaces/cli/program.py": (1, 0),
    }
    person = Person(tmp_path / "person", {"PYTHONPATH": str(copied.parent)})

    def said(*command: str) -> str:
        done = subprocess.run(
            command, cwd=person.project, env=person.environment(), capture_output=True, text=True, check=True
        )
        return done.stdout

    assert "\n  greet         Say hello to the person\n" in said(*PROGRAM, "--help")
    assert "Usage: omx-autoresearch greet" in said(*PROGRAM, "greet", "--help")
    assert said(*PROGRAM, "greet") == "hello\n"
    schema = json.loads(said(sys.executable, "-c", SCHEMA))
    assert "| `greet` | [greeting](schemas/greeting.json) |" in said(sys.executable, "-c", PAGE)
    assert schema["properties"].keys() == {"words"}
    Draft202012Validator(schema).validate(json.loads(said(*PROGRAM, "greet", "--json")))
