from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.agents import hook_settings
from omx_autoresearch.agents.json_text import JsonTextFault
from omx_autoresearch.agents.registry import CLIENT_NAMES, dialect

if TYPE_CHECKING:
    from omx_autoresearch.agents.installations import Installation

HOME = "/s/omx-autoresearch"
OURS = "[ -d {0}/active ] && [ -x {0}/hook ] && exec {0}/hook claude; exit 0"


def installation_of(name: str) -> Installation:
    return dialect(name).installation("user", {"HOME": "/h"}, "/p")


CLAUDE = installation_of("claude")


def without(text: str) -> str:
    return hook_settings.without_ours(text, CLAUDE, environment=("CLAUDE_CODE_STOP_HOOK_BLOCK_CAP",))


def events_of(text: str) -> dict[str, Any]:
    events: dict[str, Any] = json.loads(text)["hooks"]
    return events


@pytest.mark.requirement("INST-01")
@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_every_event_is_registered_once_and_again_changes_nothing(name: str) -> None:
    installation = installation_of(name)
    text = hook_settings.merged("", installation, HOME)
    assert [one.event for one in hook_settings.registered(text, comments=False)] == [
        entry.native_event for entry in installation.client.entries
    ]
    assert hook_settings.merged(text, installation, HOME) == text


@pytest.mark.requirement("INST-03")
@pytest.mark.parametrize(("name", "factor"), [("claude", 1), ("codex", 1), ("gemini", 1000)])
def test_time_outs_are_explicit_and_in_the_clients_unit(name: str, factor: int) -> None:
    installation = installation_of(name)
    text = hook_settings.merged("", installation, HOME)
    found = {one.event: one.timeout for one in hook_settings.registered(text, comments=False)}
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
    merged = hook_settings.merged(text, CLAUDE, HOME)
    assert len(hook_settings.registered(merged, comments=False)) == len(CLAUDE.client.entries)
    assert without(merged) == text
    ours = events_of(merged)
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
    merged = hook_settings.merged(text, CLAUDE, HOME)
    first, second = events_of(merged)["Stop"]
    assert first["hooks"] == [{"type": "command", "command": OURS.format(HOME), "timeout": 120}]
    assert second == {"hooks": [{"command": "mine"}]}


@pytest.mark.case("HIO-13")
def test_doubled_entries_of_ours_become_one() -> None:
    group = {"hooks": [{"type": "command", "command": OURS.format(HOME), "timeout": 120}]}
    both = {"hooks": [{"type": "command", "command": "mine"}, *group["hooks"], *group["hooks"]]}
    merged = hook_settings.merged(json.dumps({"hooks": {"Stop": [group, both, group]}}), CLAUDE, HOME)
    assert events_of(merged)["Stop"] == [group, {"hooks": [{"type": "command", "command": "mine"}]}]


def test_an_entry_of_ours_on_an_event_that_is_no_longer_used_is_taken_out() -> None:
    text = json.dumps({"hooks": {"Setup": [{"hooks": [{"command": OURS.format("/old")}]}]}})
    assert "Setup" not in events_of(hook_settings.merged(text, CLAUDE, HOME))


@pytest.mark.requirement("INST-03")
def test_a_cap_that_a_person_chose_is_kept() -> None:
    text = '{"env": {"CLAUDE_CODE_STOP_HOOK_BLOCK_CAP": "20"}}'
    merged = hook_settings.merged(text, CLAUDE, HOME)
    assert json.loads(merged)["env"] == {"CLAUDE_CODE_STOP_HOOK_BLOCK_CAP": "20"}
    assert hook_settings.added_environment(text, CLAUDE) == ()
    assert without(merged) == text


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
    with pytest.raises(JsonTextFault, match=words) as caught:
        hook_settings.merged(text, CLAUDE, HOME)
    assert caught.value.line == line


def test_a_client_that_reads_comments_keeps_them() -> None:
    gemini = installation_of("gemini")
    text = '{\n  // mine\n  "ui": {} // last\n}\n'
    merged = hook_settings.merged(text, gemini, HOME)
    assert merged.startswith('{\n  // mine\n  "ui": {}, // last\n  "hooks": {')
    assert hook_settings.without_ours(merged, gemini, environment=()) == text


def test_the_switches_that_turn_hooks_off_are_named() -> None:
    assert hook_settings.switch_faults('{"disableAllHooks": true}', CLAUDE) == ["disableAllHooks is true"]
    assert hook_settings.switch_faults('{"disableAllHooks": false}', CLAUDE) == []
    off = '{"hooksConfig": {"enabled": false}}'
    assert hook_settings.switch_faults(off, installation_of("gemini")) == ["hooksConfig.enabled is false"]


def test_malformed_groups_of_others_are_stepped_over() -> None:
    text = '{"hooks": {"Stop": [5, {"hooks": 1}, {"hooks": [null, {"command": 3}]}]}}'
    assert hook_settings.registered(text, comments=False) == []
    assert without(hook_settings.merged(text, CLAUDE, HOME)) == text
