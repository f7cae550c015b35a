from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.agents.clients.claude.installation import RAISED_CAP
from omx_autoresearch.agents.hook_lines import HookProgram
from omx_autoresearch.agents.parts import Change
from omx_autoresearch.agents.parts.hooks import Hooks, registered
from omx_autoresearch.agents.parts.switches import lowered_caps, turned_off
from omx_autoresearch.agents.registry import installation_of
from omx_autoresearch.agents.settings_files import SettingsFile
from omx_autoresearch.agents.settings_text import TextFault
from omx_autoresearch.foundation.clients import CLIENT_NAMES

if TYPE_CHECKING:
    from pathlib import Path

    from omx_autoresearch.agents.parts import Installation

HOME = "/s/omx-autoresearch"
OURS = "[ -d {0}/active ] && [ -x {0}/hook ] && exec {0}/hook claude; exit 0"


def of(name: str) -> Installation:
    return installation_of(name, "user", {"HOME": "/h"}, "/p")


CLAUDE = of("claude")


def merged(text: str, installation: Installation, memory: dict[str, tuple[str, ...]] | None = None) -> str:
    file = SettingsFile("/settings", text.encode())
    Hooks().add(file, Change(installation, {}, HookProgram(HOME, "", ""), {} if memory is None else memory))
    return file.text


def without(text: str, installation: Installation = CLAUDE) -> str:
    file = SettingsFile("/settings", text.encode())
    Hooks().remove(file, Change(installation, {}))
    return file.text


def events_of(text: str) -> dict[str, Any]:
    events: dict[str, Any] = json.loads(text)["hooks"]
    return events


@pytest.mark.requirement("INST-01")
@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_every_event_is_registered_once_and_again_changes_nothing(name: str) -> None:
    installation = of(name)
    text = merged("", installation)
    assert [one.event for one in registered(text, comments=False)] == [
        entry.native_event for entry in installation.client.entries
    ]
    assert merged(text, installation) == text


@pytest.mark.requirement("INST-03")
@pytest.mark.parametrize(("name", "factor"), [("claude", 1), ("codex", 1), ("gemini", 1000)])
def test_time_outs_are_explicit_and_in_the_clients_unit(name: str, factor: int) -> None:
    installation = of(name)
    text = merged("", installation)
    found = {one.event: one.timeout for one in registered(text, comments=False)}
    assert found == {e.native_event: e.timeout_seconds * factor for e in installation.client.entries}


FOREIGN = [
    '{"model": "x"}',
    '{\n  "hooks": {\n    "Stop": [{"hooks": [{"type": "command", "command": "mine"}]}]\n  }\n}\n',
    '{\r\n\t"hooks": {\r\n\t\t"PreToolUse": []\r\n\t},\r\n\t"env": {\r\n\t\t"A": "1"\r\n\t}\r\n}',
    '{"hooks": {"Stop": [{"matcher": "", "hooks": []}], "Other": 5}, "n": 1.50, "env": {"B": "2"}}',
]


@pytest.mark.requirement("INST-01")
@pytest.mark.requirement("INST-02")
@pytest.mark.parametrize("text", FOREIGN)
def test_what_a_person_wrote_stays_byte_for_byte(text: str) -> None:
    there = merged(text, CLAUDE)
    assert len(registered(there, comments=False)) == len(CLAUDE.client.entries)
    assert without(there) == text
    ours = events_of(there)
    for event, groups in json.loads(text).get("hooks", {}).items():
        assert ours[event][: len(groups)] == groups if isinstance(groups, list) else ours[event] == groups


def test_an_older_entry_of_ours_is_replaced_where_it_stands() -> None:
    old = OURS.format("/elsewhere")
    text = json.dumps(
        {
            "hooks": {
                "Stop": [{"hooks": [{"type": "command", "command": old}]}, {"hooks": [{"command": "mine"}]}]
            }
        },
        indent=1,
    )
    there = merged(text, CLAUDE)
    first, second = events_of(there)["Stop"]
    assert first["hooks"] == [{"type": "command", "command": OURS.format(HOME), "timeout": 120}]
    assert second == {"hooks": [{"command": "mine"}]}


@pytest.mark.case("HIO-13")
def test_doubled_entries_of_ours_become_one() -> None:
    group = {"hooks": [{"type": "command", "command": OURS.format(HOME), "timeout": 120}]}
    both = {"hooks": [{"type": "command", "command": "mine"}, *group["hooks"], *group["hooks"]]}
    there = merged(json.dumps({"hooks": {"Stop": [group, both, group]}}), CLAUDE)
    assert events_of(there)["Stop"] == [group, {"hooks": [{"type": "command", "command": "mine"}]}]


def test_an_entry_of_ours_on_an_event_that_is_no_longer_used_is_taken_out() -> None:
    text = json.dumps({"hooks": {"Setup": [{"hooks": [{"command": OURS.format("/old")}]}]}})
    assert "Setup" not in events_of(merged(text, CLAUDE))


@pytest.mark.requirement("INST-03")
def test_a_cap_that_a_person_chose_is_kept() -> None:
    text = '{"env": {"CLAUDE_CODE_STOP_HOOK_BLOCK_CAP": "20"}}'
    memory: dict[str, tuple[str, ...]] = {}
    there = merged(text, CLAUDE, memory)
    assert json.loads(there)["env"] == {"CLAUDE_CODE_STOP_HOOK_BLOCK_CAP": "20"}
    assert memory["environment"] == ()
    assert without(there) == text


@pytest.mark.requirement("INST-03")
def test_a_cap_that_an_earlier_version_wrote_is_brought_down_and_taken_out_with_ours() -> None:
    """It bounds the client's own goals too, which 250 let go on for 250 rounds."""
    name = "CLAUDE_CODE_STOP_HOOK_BLOCK_CAP"
    old = json.dumps({"env": {name: "250"}})
    memory: dict[str, tuple[str, ...]] = {"environment": (name,)}
    assert json.loads(merged(old, CLAUDE, memory))["env"] == {name: str(RAISED_CAP)}
    assert memory["environment"] == (name,)
    assert json.loads(merged(old, CLAUDE, {}))["env"] == {name: "250"}, "a person wrote it"
    assert "env" not in json.loads(without(old))


@pytest.mark.requirement("INST-06")
@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('{\n"hooks": []\n}', 2, "not an object"),
        ('{\n"hooks": {\n"Stop": {}\n}}', 3, "hooks.Stop"),
        ("[]", 1, "not an object"),
        ('{\n// mine\n"a": 1}', 2, "comment"),
        ('{"env": 5}', 1, '"env"'),
        ('{\n"a": 1,,\n}', 2, "key"),
    ],
)
def test_a_text_of_another_shape_is_a_fault_with_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(TextFault, match=words) as caught:
        merged(text, CLAUDE)
    assert caught.value.line == line


def test_a_client_that_reads_comments_keeps_them() -> None:
    gemini = of("gemini")
    text = '{\n  // mine\n  "ui": {} // last\n}\n'
    there = merged(text, gemini)
    assert there.startswith('{\n  // mine\n  "ui": {}, // last\n  "hooks": {')
    assert without(there, gemini) == text


def test_the_switches_that_turn_hooks_off_are_named(tmp_path: Path) -> None:
    for name, file, text, faults in (
        ("claude", ".claude/settings.local.json", '{"disableAllHooks": true}', ["disableAllHooks is true"]),
        ("claude", ".claude/settings.json", '{"disableAllHooks": false}', []),
        ("claude", ".claude/settings.json", '// mine\n{"disableAllHooks": true}', []),
        ("gemini", ".gemini/settings.json", '{"hooksConfig": /* no */ {"enabled": false}}',
         ["hooksConfig.enabled is false"]),
    ):  # fmt: skip
        path = tmp_path / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        found = turned_off(installation_of(name, "user", {"HOME": str(tmp_path)}, str(tmp_path)))
        assert found == [f"{fault} in {path}" for fault in faults]
        path.unlink()


def test_a_cap_that_another_settings_file_lowers_is_named(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    claude = installation_of("claude", "user", {"HOME": str(tmp_path / "home")}, str(tmp_path))
    assert lowered_caps(claude) == []
    path = tmp_path / ".claude" / "settings.local.json"
    for value, is_lower in (("1", True), (1, True), ("0", False), (RAISED_CAP, False), ("many", True)):
        path.write_text(json.dumps({"env": {"CLAUDE_CODE_STOP_HOOK_BLOCK_CAP": value}}))
        assert bool(lowered_caps(claude)) is is_lower, value
    assert lowered_caps(claude) == [f"CLAUDE_CODE_STOP_HOOK_BLOCK_CAP is many in {path}"]


def test_malformed_groups_of_others_are_stepped_over() -> None:
    text = '{"hooks": {"Stop": [5, {"hooks": 1}, {"hooks": [null, {"command": 3}]}]}}'
    assert registered(text, comments=False) == []
    assert without(merged(text, CLAUDE)) == text
