"""Verbs that the hook carries out for an agent that may write nothing: a few, plain, its own mission's."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.agents.events import HookEvent
from omx_autoresearch.freezing import pins
from omx_autoresearch.missions.claims import relay_line
from omx_autoresearch.missions.findings import list_findings
from omx_autoresearch.missions.hook_events import relayed_verb, simple_words, take_relayed
from omx_autoresearch.missions.records.lifecycle import MissionAmended, MissionPaused
from omx_autoresearch.missions.rules.mission import Contract
from omx_autoresearch.missions.validation.approvals import approval_key, approve
from omx_autoresearch.system.processes import ProcessIdentity, wait_for
from tests.missions.real_missions import SESSION, TASK, Place, at
from tests.support.boxes import take_box
from tests.support.pipes import opened

if TYPE_CHECKING:
    from pathlib import Path

BLOCK = 'omx-autoresearch block --reason "no key; none in reach" --needs "an API key"'


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.bind()
    return place


def tool(command: str, output: str | None = None, *, agent_id: str = "") -> HookEvent:
    words = command.split()
    verb = words[1] if len(words) > 1 else ""
    return HookEvent(
        client="codex",
        kind="tool",
        session_id=SESSION,
        agent_id=agent_id,
        tool_command=command,
        tool_output=f"some words\n{relay_line(verb)}\n" if output is None else output,
    )


def relay(place: Place, event: HookEvent) -> str:
    return take_relayed(place.runtime, place.store.load(TASK), event)


@pytest.mark.parametrize(
    "command",
    [BLOCK, f"{BLOCK} 2>&1", BLOCK.replace("block", f"block {TASK}"), BLOCK.replace("block", "block parser")],
)
def test_a_block_is_carried_out_in_the_agents_own_words(place: Place, command: str) -> None:
    assert relay(place, tool(command)) == "block"
    mission = place.store.load(TASK)
    assert mission.phase == "blocked"
    blocker = mission.blocker
    assert blocker is not None
    assert (blocker.by, blocker.reason_code) == ("agent", "agent-blocked")
    assert (blocker.what, blocker.needs) == ("no key; none in reach", "an API key")


@pytest.mark.requirement("SESS-16")
@pytest.mark.parametrize("option", ["", " --seconds 30", " --seconds=30 --json"])
def test_a_validation_is_asked_for_with_the_options_of_the_command(option: str) -> None:
    relayed = relayed_verb(f"omx-autoresearch validate{option}", relay_line("validate"))
    assert relayed is not None
    assert relayed.verb == "validate"


def test_a_duplicate_event_changes_nothing_more(place: Place) -> None:
    for command in (BLOCK, "omx-autoresearch note 'the corpus is incomplete'"):
        relay(place, tool(command))
        relay(place, tool(command))
    assert place.kinds().count("mission_blocked") == 1
    assert place.kinds().count("claim_recorded") == 1


def test_two_hooks_that_read_the_same_state_block_once(place: Place) -> None:
    before = place.store.load(TASK)
    assert take_relayed(place.runtime, before, tool(BLOCK)) == "block"
    assert take_relayed(place.runtime, before, tool(BLOCK)) == ""
    assert place.kinds().count("mission_blocked") == 1


def test_a_note_becomes_a_claim(place: Place) -> None:
    assert relay(place, tool(f"/usr/bin/omx-autoresearch note {TASK} 'it is `slow`; why?'")) == "note"
    assert place.texts() == ["it is `slow`; why?"]


def test_a_note_for_another_mission_is_left_alone(place: Place, tmp_path: Path) -> None:
    other = Place(tmp_path, task_id="20260102-030406-other")
    assert relay(place, tool(f"omx-autoresearch note {other.task_id} 'not here'")) == ""
    assert place.texts() == other.texts() == []


@pytest.mark.parametrize(
    "command",
    [
        f"omx-autoresearch {verb} {TASK} --reason x --needs y"
        for verb in ("cancel", "pause", "resume", "unblock", "approve", "amend", "unbind", "review", "repair")
    ],
)
def test_no_owner_verb_is_ever_carried_out(place: Place, command: str) -> None:
    before = place.kinds()
    assert relay(place, tool(command)) == ""
    assert place.kinds() == before


@pytest.mark.parametrize(
    "command",
    [
        f"true; {BLOCK}",
        f"{BLOCK}; true",
        f"{BLOCK} && true",
        f"{BLOCK} | cat",
        f"{BLOCK} &",
        f"{BLOCK}\ntrue",
        f"{BLOCK} > out",
        f"({BLOCK})",
        f"sudo {BLOCK}",
        f"A=1 {BLOCK}",
        f"echo {BLOCK}",
        'omx-autoresearch block --reason "$(cat key)" --needs x',
        'omx-autoresearch block --reason "`cat key`" --needs x',
        "omx-autoresearch block --reason $REASON --needs x",
        "omx-autoresearch block --reason 'open --needs x",
        "omx-autoresearch block --reason x",
        "omx-autoresearch block --reason x --needs",
        "omx-autoresearch block --reason x --needs ''",
        "omx-autoresearch block --reason x --reason y --needs z",
        "omx-autoresearch block --reason x --needs y --as-owner",
        "omx-autoresearch block other-mission --reason x --needs y",
        "omx-autoresearch-block --reason x --needs y",
        "omx-autoresearch",
        "",
        "omx-autoresearch block " + "x" * 70_000,
    ],
)
def test_anything_but_one_plain_command_is_left_alone(place: Place, command: str) -> None:
    before = place.kinds()
    assert relay(place, tool(command, output=f"{relay_line('block')}\n")) == ""
    assert place.kinds() == before


@pytest.mark.parametrize("output", ["", "blocked", "omx-autoresearch: not recorded here", relay_line("note")])
def test_without_the_mark_of_that_verb_nothing_is_carried_out(place: Place, output: str) -> None:
    assert relay(place, tool(BLOCK, output=output)) == ""
    assert place.store.load(TASK).phase == "running"


def test_a_sub_agents_event_is_left_alone(place: Place) -> None:
    assert relay(place, tool(BLOCK, agent_id="a-1")) == ""


def test_a_mission_that_does_not_run_is_not_blocked(place: Place) -> None:
    place.record(MissionPaused("paused", "lunch"))
    assert relay(place, tool(BLOCK)) == ""
    assert relay(place, tool("omx-autoresearch validate")) == ""
    assert place.store.load(TASK).phase == "paused"


def test_a_validation_is_started_once_and_nobody_waits_for_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = pins.manifest_of((), ())
    pins.pin(place.folder.frozen_path, manifest, str(place.project))
    contract = Contract(
        validation_mode="mission-validator-script",
        validator_command="cat gate",
        environment=dict(os.environ),
        pin_digest=manifest.digest,
    )
    place.record(MissionAmended(contract, "amended"))
    take_box(monkeypatch, "none")
    assert relay(place, tool("omx-autoresearch validate")) == ""
    assert "validation_started" not in place.kinds()  # nobody approved the command
    key = approval_key(str(place.project), TASK, "amended", manifest.digest)
    approve(place.home, key, is_unsandboxed=True, ts=at(1))
    gate = place.project / "gate"
    os.mkfifo(gate)
    assert relay(place, tool("omx-autoresearch validate")) == "validate"
    with opened(gate) as stream:  # opens only once the validator reads: the hook came back before it ended
        running = place.store.load(TASK).running_validation
        assert relay(place, tool("omx-autoresearch validate")) == "validate"
        stream.write("done")
    assert running is not None
    process = ProcessIdentity(running.pid, running.pid_started)
    assert wait_for(process, 30)
    run = place.store.load(TASK).attestation
    assert run is not None
    assert run.verdict == "passed"
    assert place.kinds().count("validation_started") == 1


def test_what_a_shell_would_not_change_is_read_as_a_shell_reads_it() -> None:
    assert simple_words("a 'b c' \"d 'e'\" f\\ g") is None
    assert simple_words('a \'b $c\' "d \\"e\\"" 2>&1') == ["a", "b $c", 'd "e"']
    relayed = relayed_verb("omx-autoresearch note --json -- --text", relay_line("note"))
    assert relayed is not None
    assert relayed.words == ("--text",)


# --- findings


FINDING = (
    "omx-autoresearch finding add --summary 'the tokenizer is quadratic' --kind benchmark --path src/a.py"
)


def findings_in(place: Place) -> list[tuple[str, str, str, tuple[str, ...]]]:
    lines = list_findings(place.runtime, TASK)
    return [(line["summary"], line["kind"], line["source"], tuple(line["paths"])) for line in lines]


@pytest.mark.requirement("SESS-16")
@pytest.mark.parametrize("named", ["", f" {TASK}", " parser"])
def test_a_finding_is_recorded_as_a_claim_in_the_agents_own_words_once(place: Place, named: str) -> None:
    command = FINDING.replace("add", f"add{named}") + " --path=src/b.py --json"
    assert relay(place, tool(command)) == "finding"
    assert relay(place, tool(command)) == "", "a duplicate of the event"
    assert findings_in(place) == [
        ("the tokenizer is quadratic", "benchmark", "hook", ("src/a.py", "src/b.py"))
    ]
    assert place.store.load(TASK).accepted_count == 0


@pytest.mark.requirement("SESS-16")
@pytest.mark.parametrize(
    "command",
    [
        FINDING.replace("add", "add 20260102-030405-another"),
        FINDING.replace("'the tokenizer is quadratic'", "-"),
        FINDING.replace("'the tokenizer is quadratic'", "''"),
        FINDING.replace("benchmark", "gossip"),
        FINDING.replace("--path", "--unknown"),
        FINDING.replace("finding add", "finding import"),
        f"{FINDING} --criterion nowhere",
    ],
)
def test_a_finding_that_cannot_stand_or_means_another_mission_changes_nothing(
    place: Place, command: str
) -> None:
    before = place.kinds()
    assert relay(place, tool(command)) == ""
    assert place.kinds() == before
