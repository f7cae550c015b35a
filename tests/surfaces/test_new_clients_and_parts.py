"""A new agent CLI is its own folder and one line; a new part of an installation is its own file and one line."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.surfaces.support.command_line import CLIENT, SESSION, Person
from tests.surfaces.support.copies import copied_package, insert, touched

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

CLIENT_LINE = (
    '    "pigeon": KnownClient(("PIGEON_SHELL",), shell_only=("PIGEON_SHELL",), folder=".pigeon"),\n'
)
ADAPTER = """
from omx_autoresearch.agents import payloads
from omx_autoresearch.agents.events import Client, HookEntry, StopCap

CLIENT = Client(
    name="pigeon",
    title="Pigeon CLI",
    stop_cap=StopCap(limit=None),
    entries=(
        HookEntry("Landed", "stop", 60, "active"),
        HookEntry("Whistled", "prompt", 60, "always"),
    ),
)


def parse(payload):
    return payloads.event_of(CLIENT, payload, shell_tools=(), last_message="last_words")


render = payloads.render_reply


def is_sandboxed(event, environ, meta=None):
    return False


def report(so_far, found):
    return None
"""
INSTALLATION = """
from omx_autoresearch.agents.clients.pigeon import CLIENT
from omx_autoresearch.agents.parts import Installation


def installation(scope, environ, project_path):
    paths = {"user": f"{environ['HOME']}/.pigeon/hooks.json", "project": f"{project_path}/.pigeon/hooks.json"}
    return Installation(client=CLIENT, scope=scope, settings_paths=paths)
"""
PART = """
from omx_autoresearch.agents.parts import Part
from omx_autoresearch.agents.settings_files import readable_text


class Motto(Part):
    name = "motto"

    def path(self, installation):
        return f"{installation.settings_path}.motto"

    def add(self, file, change):
        file.text = "Proof, not claims.\\n"

    def remove(self, file, change):
        file.after = None

    def check(self, examination):
        text = readable_text(self.path(examination.installation))
        return [self.found(f"it says {text!r}", "" if text else examination.install)]


PART = Motto()
"""


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return copied_package(tmp_path / "lib")


def person_with(copied: Path, tmp_path: Path) -> Person:
    return Person(tmp_path / "person", {"PYTHONPATH": str(copied.parent)})


def fire(person: Person, event: str, **fields: object) -> Any:
    """Run the line that stands in the client's settings, as the client would."""
    settings = json.loads((person.root / ".pigeon" / "hooks.json").read_text())
    (group,) = settings["hooks"][event]
    payload = {"session_id": SESSION, "cwd": str(person.project), "hook_event_name": event, **fields}
    done = subprocess.run(
        [*CLIENT, "sh", "-c", group["hooks"][0]["command"]],
        input=json.dumps(payload).encode(),
        cwd=person.project,
        env={"PATH": os.defpath, "HOME": str(person.root)},
        capture_output=True,
        check=True,
    )
    return json.loads(done.stdout) if done.stdout else None


@pytest.mark.requirement("HOOK-04")
def test_a_new_client_is_its_own_folder_and_one_line_and_its_stop_is_refused(
    copied: Path, tmp_path: Path
) -> None:
    folder = copied / "agents" / "clients" / "pigeon"
    folder.mkdir()
    (folder / "__init__.py").write_text(ADAPTER)
    (folder / "installation.py").write_text(INSTALLATION)
    insert(copied / "foundation" / "clients.py", '    "qwen": KnownClient(\n', CLIENT_LINE)
    assert touched(copied) == {
        "agents/clients/pigeon/__init__.py": (ADAPTER.count("\n"), 0),
        "agents/clients/pigeon/installation.py": (INSTALLATION.count("\n"), 0),
        "foundation/clients.py": (1, 0),
    }
    person = person_with(copied, tmp_path)
    person.ok("install", "pigeon")
    task_id = person.start()
    fire(person, "Whistled", prompt=f"$autoresearch {task_id}")
    answer = fire(person, "Landed")
    assert answer["decision"] == "block"
    assert task_id in answer["reason"]
    assert person.json("status", task_id)["client"] == "pigeon"
    (document,) = person.json("doctor", "pigeon")
    assert document["is_held"]
    person.ok("uninstall", "pigeon", "--yes")
    assert not (person.root / ".pigeon").exists()


@pytest.mark.requirement("INST-02")
@pytest.mark.parametrize("client", ["claude", "gemini"])
def test_a_new_part_is_its_own_file_and_one_line_and_every_verb_knows_it(
    copied: Path, tmp_path: Path, client: str
) -> None:
    (copied / "agents" / "parts" / "motto.py").write_text(PART)
    insert(copied / "agents" / "parts" / "__init__.py", '    "skill",\n)', '    "motto",\n')
    assert touched(copied) == {
        "agents/parts/__init__.py": (1, 0),
        "agents/parts/motto.py": (PART.count("\n"), 0),
    }
    person = person_with(copied, tmp_path)
    assert "+Proof, not claims." in person.ok("install", client, "--dry-run")
    person.ok("install", client, "--no-mcp")
    assert len(list(person.root.rglob("*.motto"))) == 1
    (document,) = person.json("doctor", client)
    assert [check["ok"] for check in document["checks"] if check["name"] == "motto"] == [True]
    person.ok("uninstall", client)
    assert list(person.root.rglob("*.motto")) == []
