"""The stop gate: its order, its reason codes, what each answer moves, and who can build a refusal."""

from __future__ import annotations

import ast
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest

import omx_autoresearch
from omx_autoresearch.agents.events import StopCap
from omx_autoresearch.foundation.types import HostEnd, Phase, StopScope
from omx_autoresearch.missions.rules.allowances import Limits, Usage, after_person_prompt
from omx_autoresearch.missions.rules.gate import Decision, Observation, Situation, decide, plan_blocker
from omx_autoresearch.missions.rules.mission import Blocker
from tests.missions.rules.samples import NEEDED, TASK

PACKAGE = Path(omx_autoresearch.__file__).parent

LIMITS = Limits()
HOLDING = Situation(missing=(NEEDED,), task_id=TASK)
"""A running mission with something missing: a stop that step 9 refuses."""
APPROVAL = Blocker(
    "approval-missing", "nobody approved it", "an approval", f"omx-autoresearch approve {TASK}"
)
HOUR = Blocker(
    "wall-clock-spent", "24 h are spent", "more hours", f"omx-autoresearch unblock {TASK} --add-hours 8"
)
PLAN = plan_blocker("plan", TASK)
HOST_ENDS: tuple[HostEnd, ...] = tuple(end for end in get_args(HostEnd) if end)
PHASES: tuple[Phase, ...] = get_args(Phase)
SCOPES: tuple[StopScope, ...] = get_args(StopScope)
STRONG = Observation(has_better_score=True)
WEAK = Observation(has_tree_change=True)
NONE = Observation()
IDLE_PERSON = Observation(is_person_turn_without_tools=True)

ORDER: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"scope": "unbound"}, "allow", "unbound"),
    ({"fault": "journal.jsonl, line 7"}, "release", "fault"),
    ({"phase": "paused"}, "allow", "phase-paused"),
    ({"host_end": "rate_limit"}, "allow", "host-rate-limit"),
    ({"missing": ()}, "allow", "complete"),
    ({"blocker": APPROVAL}, "release", "approval-missing"),
    ({"client_blocker": PLAN}, "allow", "plan-mode"),
    ({"lets_go_on_repeat": True, "repeats_answer": True}, "allow", "answer-repeated"),
    ({"has_background_work": True}, "allow", "background-work"),
    ({"is_validation_running": True}, "refuse", "validation-running"),
    ({}, "refuse", "validation"),
)
"""What is seen, first step first, and the answer that it alone gives."""


def after(situation: Situation, times: int, usage: Usage | None = None) -> Decision:
    """The decision on the last of some stops of the same kind."""
    decision = Decision("allow", "", usage or Usage())
    for _ in range(times):
        decision = decide(situation, decision.usage, LIMITS)
    return decision


# --- the order


@pytest.mark.requirement("GATE-12")
@pytest.mark.parametrize(("seen", "answer", "reason"), ORDER, ids=[reason for _, _, reason in ORDER])
def test_each_step_answers_with_its_own_reason(seen: dict[str, Any], answer: str, reason: str) -> None:
    decision = decide(replace(HOLDING, **seen), Usage(), LIMITS)
    assert (decision.answer, decision.reason_code) == (answer, reason)


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_an_earlier_step_answers_before_every_later_one(first: int) -> None:
    everything: dict[str, Any] = {}
    for seen, _, _ in reversed(ORDER[first:]):
        everything |= seen
    decision = decide(replace(HOLDING, **everything), Usage(), LIMITS)
    assert (decision.answer, decision.reason_code) == ORDER[first][1:]


@pytest.mark.requirement("GATE-01")
@pytest.mark.case("SES-01")
@pytest.mark.parametrize("scope", [scope for scope in SCOPES if scope != "ours"])
def test_a_stop_that_is_not_ours_is_allowed_in_silence(scope: StopScope) -> None:
    usage = Usage(refusals=3, stale=2)
    decision = decide(replace(HOLDING, scope=scope, tampered=("check.sh",)), usage, LIMITS)
    assert decision == Decision("allow", scope, usage, is_recorded=False)


@pytest.mark.requirement("GATE-02")
@pytest.mark.case("SES-09")
def test_a_subagents_stop_moves_no_counter() -> None:
    usage = Usage(refusals=3, idle_refusals=2)
    assert decide(replace(HOLDING, scope="subagent", used_tools=True), usage, LIMITS).usage == usage


@pytest.mark.requirement("GATE-03")
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("missing", [(), (NEEDED,)])
def test_a_fault_releases_and_never_completes(phase: Phase, missing: tuple[()]) -> None:
    usage = Usage(refusals=3, stale=3, idle_refusals=3)
    decision = decide(replace(HOLDING, fault="line 7", phase=phase, missing=missing), usage, LIMITS)
    assert decision == Decision("release", "fault", usage, is_recorded=False)
    assert not decision.completes
    assert decision.blocker is None


@pytest.mark.requirement("GATE-04")
@pytest.mark.parametrize("phase", [phase for phase in PHASES if phase != "running"])
def test_a_mission_that_does_not_run_holds_nobody(phase: Phase) -> None:
    usage = Usage(refusals=3)
    decision = decide(replace(HOLDING, phase=phase, missing=()), usage, LIMITS)
    assert decision == Decision("allow", f"phase-{phase}", usage, is_recorded=False)


@pytest.mark.requirement("GATE-05")
@pytest.mark.case("LOOP-05")
@pytest.mark.parametrize("end", HOST_ENDS)
def test_a_stop_that_the_host_ended_is_allowed_and_spends_nothing(end: HostEnd) -> None:
    usage = Usage(refusals=3, idle_refusals=2, stale=3, weak_holds=4, background_allows=1, wait_refusals=1)
    decision = decide(replace(HOLDING, host_end=end, observation=STRONG, missing=()), usage, LIMITS)
    assert (decision.answer, decision.completes, decision.blocker) == ("allow", False, None)
    assert decision.is_recorded
    assert not decision.is_iteration
    assert decision.usage == usage


# --- completion


@pytest.mark.requirement("GATE-06")
def test_the_contract_met_completes_also_while_background_work_runs() -> None:
    decision = decide(replace(HOLDING, missing=(), has_background_work=True), Usage(), LIMITS)
    assert (decision.answer, decision.completes, decision.usage.background_allows) == ("allow", True, 0)
    assert decision.is_iteration


@pytest.mark.requirement("GATE-06")
def test_the_contract_met_completes_although_everything_is_spent() -> None:
    spent = Usage(refusals=200, idle_refusals=3, stale=4, weak_holds=40, background_allows=8, wait_refusals=6)
    assert decide(replace(HOLDING, missing=(), blocker=HOUR), spent, LIMITS).completes


@pytest.mark.requirement("DONE-02")
def test_a_situation_in_which_nobody_looked_is_never_complete() -> None:
    assert Situation().missing != ()
    assert decide(Situation(), Usage(), LIMITS).answer == "refuse"


@pytest.mark.requirement("DONE-02", "GATE-03", "GATE-04")
def test_a_mission_is_complete_only_where_everything_is_in_order() -> None:
    kinds = product(
        SCOPES, ("", "fault"), PHASES, get_args(HostEnd), ((), (NEEDED,)), (None, APPROVAL), ((), ("check.sh",)),
        (False, True), (False, True), (NONE, STRONG, IDLE_PERSON),
    )  # fmt: skip
    count = completed = 0
    for scope, fault, phase, end, missing, need, tampered, background, running, observation in kinds:
        seen = Situation(
            scope=scope, fault=fault, phase=phase, host_end=end, missing=missing, blocker=need, tampered=tampered,
            has_background_work=background, is_validation_running=running, observation=observation,
        )  # fmt: skip
        decision = decide(seen, Usage(), LIMITS)
        is_held_by_us = scope == "ours" and not fault and phase == "running" and not end
        is_met = is_held_by_us and not missing and not tampered
        assert decision.completes is is_met
        assert decision.answer != "refuse" or (is_held_by_us and not is_met and need is None)
        assert decision.blocker is None or (is_held_by_us and decision.answer == "release")
        assert (decision.answer == "release") == (
            decision.blocker is not None or bool(fault and scope == "ours")
        )
        count, completed = count + 1, completed + decision.completes
    assert count == 5 * 2 * 6 * 6 * 2 * 2 * 2 * 2 * 2 * 3
    assert completed == 2 * 2 * 2 * 3


# --- what only the owner can fix, and pinned files


@pytest.mark.requirement("GATE-07")
@pytest.mark.parametrize("need", [APPROVAL, HOUR], ids=lambda need: need.reason_code)
def test_what_only_the_owner_can_mend_blocks_at_once_with_what_to_type(need: Blocker) -> None:
    decision = decide(replace(HOLDING, blocker=need, has_background_work=True), Usage(), LIMITS)
    assert (decision.answer, decision.reason_code) == ("release", need.reason_code)
    assert decision.blocker is not None
    assert (decision.blocker.command, decision.blocker.needs) == (need.command, need.needs)
    assert decision.usage.refusals == 0


@pytest.mark.requirement("GATE-08")
@pytest.mark.case("VAL-08")
def test_changed_pins_earn_one_refusal_and_then_block() -> None:
    seen = replace(HOLDING, tampered=("check.sh",), used_tools=True, observation=WEAK)
    first = decide(seen, Usage(), LIMITS)
    assert (first.answer, first.reason_code, first.usage.refusals) == ("refuse", "tampered", 1)
    assert first.usage.tamper_refusals == 1
    assert decide(HOLDING, Usage(), LIMITS).usage.tamper_refusals == 0
    second = decide(seen, first.usage, LIMITS)
    assert (second.answer, second.reason_code) == ("release", "tampered")
    assert second.blocker is not None
    assert second.blocker.command == f"omx-autoresearch restore {TASK} && omx-autoresearch unblock {TASK}"


def test_changed_pins_never_complete_and_wait_for_nothing() -> None:
    seen = replace(
        HOLDING, tampered=("check.sh",), missing=(), has_background_work=True, is_validation_running=True
    )
    decision = decide(seen, Usage(), LIMITS)
    assert (decision.answer, decision.reason_code, decision.completes) == ("refuse", "tampered", False)
    assert (decision.usage.background_allows, decision.usage.wait_refusals) == (0, 0)


def test_what_was_measured_beside_changed_pins_is_no_strong_progress() -> None:
    usage = Usage(stale=2, weak_holds=3)
    decision = decide(replace(HOLDING, tampered=("check.sh",), observation=STRONG), usage, LIMITS)
    assert (decision.usage.stale, decision.usage.weak_holds, decision.progress) == (3, 3, "none")


def test_many_changed_pins_are_named_in_part() -> None:
    seen = replace(HOLDING, tampered=tuple(f"tests/test_{number}.py" for number in range(100)))
    blocker = decide(seen, Usage(tamper_refusals=1), LIMITS).blocker
    assert blocker is not None
    assert "tests/test_4.py" in blocker.what
    assert "tests/test_5.py" not in blocker.what


# --- waiting


@pytest.mark.requirement("GATE-09")
@pytest.mark.case("LOOP-07")
def test_background_work_is_let_through_a_finite_number_of_times_and_then_the_gate_applies() -> None:
    busy = replace(HOLDING, has_background_work=True, used_tools=True)
    allowed = after(busy, LIMITS.background_allows)
    assert (allowed.answer, allowed.reason_code, allowed.usage.refusals) == ("allow", "background-work", 0)
    assert not allowed.is_iteration
    held = decide(busy, allowed.usage, LIMITS)
    assert (held.answer, held.reason_code, held.usage.refusals) == ("refuse", "validation", 1)


@pytest.mark.requirement("GATE-09")
def test_strong_progress_gives_the_waiting_allowances_anew() -> None:
    usage = Usage(background_allows=8, wait_refusals=6)
    moved = decide(replace(HOLDING, observation=STRONG), usage, LIMITS).usage
    assert (moved.background_allows, moved.wait_refusals) == (0, 0)


@pytest.mark.requirement("GATE-11")
def test_a_stall_behind_a_denied_tool_is_the_persons_to_end_and_no_want_of_progress() -> None:
    denied = replace(HOLDING, denial="Claude requested permissions to write")
    assert decide(denied, Usage(), LIMITS).reason_code == "validation"
    ended = decide(denied, Usage(idle_refusals=3), LIMITS)
    assert (ended.answer, ended.reason_code) == ("release", "tools-denied")
    assert ended.would_block
    assert ended.blocker is not None
    assert "requested permissions" in ended.blocker.what


@pytest.mark.requirement("GATE-10")
def test_a_running_validation_refuses_uncounted_a_finite_number_of_times_and_then_counts() -> None:
    running = replace(HOLDING, is_validation_running=True)
    waited = after(running, LIMITS.wait_refusals)
    assert (waited.answer, waited.reason_code) == ("refuse", "validation-running")
    assert waited.usage == Usage(wait_refusals=6, refusals_in_row=6)
    assert (waited.is_iteration, waited.progress) == (False, "")
    counted = decide(running, waited.usage, LIMITS)
    assert (counted.reason_code, counted.usage.refusals, counted.usage.stale) == ("validation", 1, 1)


def test_background_work_that_is_spent_still_waits_for_our_own_validation() -> None:
    seen = replace(HOLDING, has_background_work=True, is_validation_running=True)
    decision = decide(seen, Usage(background_allows=8), LIMITS)
    assert (decision.reason_code, decision.usage.wait_refusals) == ("validation-running", 1)


@pytest.mark.parametrize("waits_for", ["has_background_work", "is_validation_running"])
def test_a_tool_before_a_wait_counts_as_a_tool_since_the_last_refusal(waits_for: str) -> None:
    changes: dict[str, Any] = {waits_for: True}
    decision = decide(replace(HOLDING, used_tools=True, **changes), Usage(idle_refusals=2), LIMITS)
    assert decision.usage.idle_refusals == 0


# --- stalled


@pytest.mark.requirement("GATE-11", "GATE-13")
@pytest.mark.case("LOOP-01")
def test_refusals_in_a_row_without_a_tool_end_as_blocked_and_never_complete() -> None:
    seen = replace(HOLDING, observation=Observation(has_new_output=True))
    assert after(seen, LIMITS.idle_refusals).answer == "refuse"
    decision = after(seen, LIMITS.idle_refusals + 1)
    assert (decision.answer, decision.reason_code, decision.completes) == ("release", "stalled", False)
    assert decision.would_block


@pytest.mark.requirement("GATE-11", "GATE-14")
def test_iterations_without_progress_end_as_blocked_although_tools_ran() -> None:
    seen = replace(HOLDING, used_tools=True)
    assert after(seen, LIMITS.stale_stalled - 1).answer == "refuse"
    decision = after(seen, LIMITS.stale_stalled)
    assert (decision.answer, decision.reason_code) == ("release", "stalled")
    assert decision.usage.refusals == LIMITS.stale_stalled - 1


@pytest.mark.requirement("GATE-11")
def test_a_stall_asks_for_the_smallest_input_and_names_what_is_missing() -> None:
    blocker = decide(HOLDING, Usage(stale=3), LIMITS).blocker
    assert blocker is not None
    assert NEEDED.what in blocker.what
    assert "smallest external input" in blocker.needs
    assert blocker.command == f"omx-autoresearch unblock {TASK}"


@pytest.mark.requirement("GATE-13")
def test_a_tool_or_a_person_begins_the_idle_count_anew() -> None:
    usage = Usage(idle_refusals=3, stale=1)
    assert decide(replace(HOLDING, used_tools=True), usage, LIMITS).usage.idle_refusals == 1
    assert decide(HOLDING, after_person_prompt(usage), LIMITS).usage.idle_refusals == 1


def test_a_turn_that_a_person_began_and_that_used_no_tool_is_no_iteration() -> None:
    decision = decide(replace(HOLDING, observation=IDLE_PERSON), Usage(stale=3), LIMITS)
    assert (decision.answer, decision.is_iteration) == ("refuse", False)
    assert (decision.usage.stale, decision.usage.refusals) == (3, 1)
    released = decide(replace(HOLDING, observation=IDLE_PERSON), Usage(idle_refusals=3), LIMITS)
    assert (released.answer, released.is_iteration) == ("release", False)
    assert decide(HOLDING, Usage(idle_refusals=3), LIMITS).is_iteration


@pytest.mark.requirement("GATE-17")
def test_the_missions_refusals_are_spent_whatever_the_progress() -> None:
    seen = replace(HOLDING, observation=STRONG, used_tools=True)
    assert decide(seen, Usage(refusals=199), LIMITS).answer == "refuse"
    decision = decide(seen, Usage(refusals=200), LIMITS)
    assert (decision.answer, decision.reason_code) == ("release", "refusals-spent")
    assert decision.blocker is not None
    assert "--add-refusals" in decision.blocker.command


@pytest.mark.requirement("DONE-08")
def test_a_block_for_want_of_progress_or_time_asks_for_a_run_of_now() -> None:
    assert decide(HOLDING, Usage(stale=3), LIMITS).would_block
    assert decide(HOLDING, Usage(refusals=200), LIMITS).would_block
    assert decide(replace(HOLDING, blocker=HOUR), Usage(), LIMITS).would_block
    assert not decide(replace(HOLDING, blocker=APPROVAL), Usage(), LIMITS).would_block
    assert not decide(replace(HOLDING, tampered=("x",)), Usage(tamper_refusals=1), LIMITS).would_block
    assert not decide(HOLDING, Usage(), LIMITS).would_block


# --- clients


@pytest.mark.requirement("GATE-22")
def test_a_client_that_spins_on_a_repeated_answer_is_let_go() -> None:
    seen = replace(HOLDING, repeats_answer=True, lets_go_on_repeat=True)
    usage = Usage(refusals=1, idle_refusals=1, stale=1)
    decision = decide(seen, usage, LIMITS)
    assert (decision.answer, decision.reason_code) == ("allow", "answer-repeated")
    assert decision.usage == replace(usage, background_allows=1), "uncounted, and paid for"
    for again in (
        decide(replace(seen, was_let_go_on_repeat=True), decision.usage, LIMITS),
        decide(seen, Usage(background_allows=LIMITS.background_allows), LIMITS),
    ):
        assert (again.answer, again.reason_code) == ("release", "answer-repeated")
    tolerated = decide(replace(seen, lets_go_on_repeat=False), Usage(repeats=1), LIMITS)
    assert (tolerated.answer, tolerated.usage.repeats) == ("refuse", 2)
    assert decide(replace(seen, repeats_answer=False), Usage(repeats=3), LIMITS).answer == "refuse"


CAPPED = replace(HOLDING, cap=StopCap(limit=3, reset_by_tools=False), observation=WEAK, used_tools=True)


@pytest.mark.requirement("GATE-22")
def test_the_cap_less_one_is_said_before_the_client_overrides() -> None:
    assert not after(CAPPED, 1).override_expected
    assert after(CAPPED, 2).override_expected
    assert after(CAPPED, 3).override_expected
    assert not after(replace(CAPPED, cap=StopCap(limit=None)), 30).override_expected
    assert not after(replace(CAPPED, cap=None), 30).override_expected


@pytest.mark.requirement("GATE-22")
def test_a_cap_is_reset_by_tools_only_where_the_client_does_so() -> None:
    reset = replace(CAPPED, cap=StopCap(limit=3, reset_by_tools=True))
    assert not after(reset, 10).override_expected
    assert after(replace(reset, used_tools=False), 2).override_expected
    assert after(CAPPED, 2).usage.refusals_in_row == 2


@pytest.mark.requirement("GATE-22")
@pytest.mark.parametrize("change", [{"has_background_work": True}, {"host_end": "user_abort"}], ids=str)
def test_a_stop_that_is_let_through_begins_the_row_anew(change: dict[str, Any]) -> None:
    near = after(CAPPED, 2).usage
    allowed = decide(replace(CAPPED, **change), near, LIMITS)
    assert allowed.usage.refusals_in_row == 0
    assert not decide(CAPPED, allowed.usage, LIMITS).override_expected


def test_a_refusal_that_waits_counts_against_the_clients_cap_too() -> None:
    assert after(replace(CAPPED, is_validation_running=True), 2).override_expected


# --- what a refusal spends


@pytest.mark.requirement("GATE-12")
@pytest.mark.parametrize("is_running", [False, True])
@pytest.mark.parametrize("waited", range(8))
def test_exactly_one_allowance_moves_before_every_refusal(is_running: bool, waited: int) -> None:
    before = Usage(wait_refusals=waited)
    decision = decide(replace(HOLDING, is_validation_running=is_running), before, LIMITS)
    assert decision.answer == "refuse"
    spent = decision.usage.refusals + decision.usage.wait_refusals - before.wait_refusals
    assert spent == 1


@pytest.mark.requirement("GATE-16")
def test_no_field_of_a_situation_but_the_observation_moves_the_stale_count() -> None:
    names = [item.name for item in fields(Situation) if item.name != "observation"]
    other: dict[str, Any] = {
        "used_tools": True, "repeats_answer": True, "cap": StopCap(2), "task_id": "other",
    }  # fmt: skip
    assert other.keys() <= set(names)
    for name, value in other.items():
        assert decide(replace(HOLDING, **{name: value}), Usage(stale=1), LIMITS).usage.stale == 2


# --- nobody else can refuse


def calls_of(source: str, *names: str) -> list[ast.Call]:
    """Every call of one of these names, plain or as an attribute."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            called = node.func
            name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
            if name in names:
                found.append(node)
    return found


def builders_of(*names: str) -> dict[str, list[ast.Call]]:
    """The modules of the package that call one of these names."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    found = {
        str(path.relative_to(PACKAGE)): calls_of(text, *names)
        for path, text in texts.items()
        if any(f"{name}(" in text for name in names)
    }
    return {name: calls for name, calls in found.items() if calls}


@pytest.mark.requirement("GATE-24")
def test_only_the_gate_builds_a_decision() -> None:
    assert list(builders_of("Decision")) == ["missions/rules/gate.py"]
    changed = [
        f"{name}:{call.lineno}"
        for name, calls in builders_of("replace").items()
        for call in calls
        if not name.startswith(("experiments/", "compat/"))  # rows of trials have reason codes of their own
        and {keyword.arg for keyword in call.keywords} & {"answer", "completes", "reason_code"}
    ]
    assert changed == [], "a decision is taken as it is"


@pytest.mark.requirement("GATE-24")
def test_a_refusal_is_recorded_and_said_only_where_a_decision_stands() -> None:
    assert set(builders_of("StopRefused")) <= {"missions/stop.py"}
    spoken = {
        name
        for name, calls in builders_of("Reply").items()
        for call in calls
        if call.args or any(keyword.arg == "refusal" for keyword in call.keywords)
    }
    assert spoken <= {"missions/stop.py"}
    stops = PACKAGE / "missions" / "stop.py"
    for node in ast.walk(ast.parse(stops.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and calls_of(ast.unparse(node), "StopRefused"):
            takes = {ast.unparse(arg.annotation) for arg in node.args.args if arg.annotation}
            assert "Decision" in takes, f"{node.name} records a refusal that no decision asked for"


def test_a_second_builder_would_be_found() -> None:
    assert len(calls_of('x = gate.Decision("refuse", "because", usage)', "Decision")) == 1
