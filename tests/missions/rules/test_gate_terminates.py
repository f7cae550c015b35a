"""The gate ends: every history is walked, no sample.

The adversary of this walk is stronger than any agent. Between two stops it runs tools or none, edits, tampers, starts
background work, lets validations run, repeats its answer, changes the score in any direction, calls a turn a person's;
all of that reaches the gate only through the :class:`Situation` of the next stop, so at each stop it may choose *any*
situation. What moves counters outside a stop, a person's prompt and pins put back, are steps of their own. With small
limits the counters that can be reached are finitely many, and all of them are visited.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from itertools import product
from typing import NamedTuple

import pytest

from omx_autoresearch.agents.events import StopCap
from omx_autoresearch.missions.records.work import PinsRestored
from omx_autoresearch.missions.rules.allowances import Limits, Usage, after_person_prompt, refreshed
from omx_autoresearch.missions.rules.gate import Observation, Situation, after_iteration, decide, plan_blocker
from tests.missions.rules.samples import NEEDED, a_mission, at

STRONG = Observation(has_better_score=True)
WEAK = Observation(has_tree_change=True)
WEAK_AND_WORSE = Observation(has_tree_change=True, has_metric_drop=True)
NONE = Observation()
PERSON = Observation(is_person_turn_without_tools=True)
PERSON_AND_STRONG = replace(STRONG, is_person_turn_without_tools=True)
KINDS = (STRONG, WEAK, WEAK_AND_WORSE, NONE, PERSON, PERSON_AND_STRONG)
"""Every way in which an observation can move the counters; the first test shows that there is no other."""
FLAGS = tuple(product((False, True), repeat=4))
"""used tools, a validation runs, background work goes on, the answer repeats."""
SMALL = Limits(
    idle_refusals=2, stale_pivot=1, stale_fresh=2, stale_stalled=3, weak_holds=1, refusals_total=4,
    background_allows=1, wait_refusals=1,
)  # fmt: skip
LARGER = (
    replace(SMALL, weak_holds=2, refusals_total=6),
    replace(SMALL, idle_refusals=3, stale_stalled=4, weak_holds=3, refusals_total=8, background_allows=2),
    replace(SMALL, idle_refusals=9, weak_holds=4, refusals_total=9, wait_refusals=2),
    replace(SMALL, idle_refusals=1, stale_fresh=1, stale_stalled=1, weak_holds=1, refusals_total=3),
    replace(SMALL, idle_refusals=3, stale_stalled=5, refusals_total=8, background_allows=3, wait_refusals=2),
)
CAP = StopCap(limit=3, reset_by_tools=True)


class Step(NamedTuple):
    """What one stop did, as far as the theorem speaks of it; ``usage`` is its number in the walk."""

    answer: str
    is_strong: bool
    is_person_turn: bool
    usage: int


class State(NamedTuple):
    """Where a history stands: the counters (their number), and what was spent since the last strong progress."""

    usage: int
    counted: int = 0
    by_person: int = 0
    waited: int = 0
    allowed: int = 0


@cache
def situations() -> tuple[Situation, ...]:
    """Every stop of a bound, running mission with something missing that no owner and no host ends.

    A client may be let go when its agent repeats itself; that an answer which is no repetition does not depend on it
    is shown by a test of its own.
    """
    return tuple(
        Situation(
            missing=(NEEDED,),
            tampered=tampered,
            observation=observation,
            used_tools=tools,
            is_validation_running=running,
            has_background_work=background,
            repeats_answer=repeats,
            lets_go_on_repeat=lets_go_on_repeat,
            was_let_go_on_repeat=was_let_go,
            client_blocker=plan,
            cap=CAP,
        )
        for observation in KINDS
        for tools, running, background, repeats in FLAGS
        for lets_go_on_repeat in ((False, True) if repeats else (False,))
        for was_let_go in ((False, True) if lets_go_on_repeat else (False,))
        for plan in (None, plan_blocker("plan", "TASK"))
        for tampered in ((), ("check.sh",))
    )


def projected(usage: Usage) -> Usage:
    """The counters without the two that no later answer depends on (shown by a test of its own)."""
    return replace(usage, refusals_in_row=0, repeats=0)


class Walk:
    """Every history under some limits, depth first: a history that goes on for too long is met early.

    Attributes:
        usages: the counters that were met, by number.
        states: every state that was met.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.usages: list[Usage] = []
        self.states: set[State] = set()
        self._numbers: dict[Usage, int] = {}
        self._walk()

    def _number(self, usage: Usage) -> int:
        usage = projected(usage)
        if usage not in self._numbers:
            self._numbers[usage] = len(self.usages)
            self.usages.append(usage)
        return self._numbers[usage]

    def _stops(self, usage: Usage) -> set[Step]:
        """Everything that a next stop can do but let go; checks what must hold of each answer."""
        steps = set()
        for seen in situations():
            decision = decide(seen, usage, self.limits)
            assert not decision.completes
            if decision.answer == "release":
                assert decision.blocker is not None, "nobody is let go without a word to the owner"
                continue
            if decision.answer == "refuse":
                lower = rank(decision.usage, self.limits)
                assert min(lower) >= 0
                assert lower < rank(usage, self.limits)
            answer = "counted" if decision.progress else decision.answer
            person = seen.observation.is_person_turn_without_tools
            steps.add(Step(answer, decision.progress == "strong", person, self._number(decision.usage)))
        return steps

    def _walk(self) -> None:
        steps: dict[int, set[Step]] = {}
        others: dict[int, tuple[int, int]] = {}
        ahead = [State(self._number(Usage()))]
        self.states = set(ahead)
        while ahead:
            state = ahead.pop()
            if state.usage not in steps:
                usage = self.usages[state.usage]
                steps[state.usage] = self._stops(usage)
                others[state.usage] = self._number(after_person_prompt(usage)), self._number(restored(usage))
            self._check(state)
            following = {after(state, step) for step in steps[state.usage]}
            following |= {state._replace(usage=number) for number in others[state.usage]}
            new = following - self.states
            self.states |= new
            ahead.extend(sorted(new, key=lambda state: state.counted))

    def _check(self, state: State) -> None:
        """The theorem, said of one state."""
        limits = self.limits
        assert state.counted <= bound(limits, state.by_person)
        assert state.waited <= limits.wait_refusals
        assert state.allowed <= limits.background_allows
        assert self.usages[state.usage].refusals <= limits.refusals_total


def bound(limits: Limits, by_person: int) -> int:
    """Counted refusals after a strong progress, ``by_person`` of them at the end of a person's turn without tools."""
    return min(limits.refusals_total, limits.stale_stalled - 1 + limits.weak_holds + by_person)


def rank(usage: Usage, limits: Limits) -> tuple[int, int]:
    """What every refusal makes smaller, strong progress or not: no history is refused for ever."""
    return limits.refusals_total - usage.refusals, limits.wait_refusals - usage.wait_refusals


def restored(usage: Usage) -> Usage:
    """The counters after ``restore``."""
    return PinsRestored(("check.sh",)).apply(a_mission(usage=usage), at(1)).usage


def after(state: State, step: Step) -> State:
    """The history after a stop that did not end it; a refusal that came with strong progress begins a new count."""
    if step.answer == "counted" and step.is_strong:
        return State(step.usage)
    return State(
        step.usage,
        counted=state.counted + (step.answer == "counted"),
        by_person=state.by_person + (step.answer == "counted" and step.is_person_turn),
        waited=state.waited + (step.answer == "refuse"),
        allowed=state.allowed + (step.answer == "allow"),
    )


@pytest.fixture(scope="module")
def small() -> Walk:
    """All histories under the small limits."""
    return Walk(SMALL)


def test_every_observation_moves_the_counters_like_one_that_is_walked() -> None:
    names = [item.name for item in fields(Observation)]
    usages = [Usage(stale=stale, weak_holds=holds, wait_refusals=1) for stale in (0, 1) for holds in (0, 2)]
    walked = {tuple(after_iteration(usage, seen, SMALL) for usage in usages) for seen in KINDS}
    for values in product((False, True), repeat=len(names)):
        seen = Observation(**dict(zip(names, values, strict=True)))
        assert tuple(after_iteration(usage, seen, SMALL) for usage in usages) in walked


def test_the_counters_left_out_of_the_walk_decide_nothing() -> None:
    for seen in situations():
        for usage in (Usage(), Usage(stale=2), Usage(refusals=5, weak_holds=2, idle_refusals=1)):
            plain = decide(seen, usage, SMALL)
            other = decide(seen, replace(usage, refusals_in_row=7, repeats=5), SMALL)
            assert (plain.answer, plain.reason_code, plain.blocker) == (
                other.answer,
                other.reason_code,
                other.blocker,
            )
            assert projected(plain.usage) == projected(other.usage)


@pytest.mark.slow
def test_only_a_repeated_answer_depends_on_whether_the_client_is_let_go_for_it(small: Walk) -> None:
    for seen in situations():
        if not seen.repeats_answer:
            for usage in small.usages[::50]:
                let_go = decide(replace(seen, lets_go_on_repeat=True), usage, SMALL)
                assert let_go == decide(seen, usage, SMALL)


@pytest.mark.requirement("GATE-18")
@pytest.mark.case("LOOP-01")
def test_every_history_keeps_the_bound_and_ends(small: Walk) -> None:
    assert len(small.usages) > 100
    assert len(small.states) > 1_000, "the walk saw next to nothing"


@pytest.mark.requirement("GATE-18")
def test_the_bound_is_reached_so_that_it_is_no_empty_promise(small: Walk) -> None:
    for by_person in range(SMALL.refusals_total + 1):
        counted = [state.counted for state in small.states if state.by_person == by_person]
        assert max(counted) == bound(SMALL, by_person)
    assert max(state.waited for state in small.states) == SMALL.wait_refusals
    assert max(state.allowed for state in small.states) == SMALL.background_allows


@pytest.mark.slow
@pytest.mark.requirement("GATE-18")
@pytest.mark.parametrize("limits", LARGER, ids=range(len(LARGER)))
def test_every_history_keeps_the_bound_and_ends_under_larger_limits(limits: Limits) -> None:
    assert len(Walk(limits).states) > 100


@pytest.mark.requirement("GATE-18")
def test_without_tools_and_persons_the_idle_limit_is_the_bound() -> None:
    """An agent that only says ``done`` is let go after ``idle_refusals``, whatever it makes the validator print."""
    quiet = [
        seen
        for seen in situations()
        if not (
            seen.used_tools or seen.observation.is_person_turn_without_tools or seen.is_validation_running
        )
    ]
    states, count = {Usage()}, 0
    while states:
        assert count <= SMALL.idle_refusals + SMALL.background_allows * (1 + SMALL.idle_refusals)
        states = {
            projected(decision.usage)
            for usage in states
            for seen in quiet
            if (decision := decide(seen, usage, SMALL)).answer != "release"
        }
        assert all(usage.idle_refusals <= SMALL.idle_refusals for usage in states)
        count += 1


@pytest.mark.requirement("GATE-18", "LIFE-04")
def test_an_owner_who_goes_on_gives_the_short_allowances_anew_and_not_the_total() -> None:
    spent = Usage(
        refusals=SMALL.refusals_total,
        idle_refusals=2,
        stale=3,
        weak_holds=2,
        background_allows=2,
        wait_refusals=2,
    )
    again = decide(Situation(missing=(NEEDED,)), refreshed(spent), SMALL)
    assert (again.answer, again.reason_code) == ("release", "refusals-spent")
    assert (
        decide(Situation(missing=(NEEDED,)), refreshed(replace(spent, refusals=0)), SMALL).answer == "refuse"
    )


def never(*_: object) -> bool:
    """No."""
    return False


@pytest.mark.slow
def test_a_gate_without_a_stall_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omx_autoresearch.missions.rules.gate.is_stalled", never)
    with pytest.raises(AssertionError):
        Walk(SMALL)


@pytest.mark.requirement("DONE-02")
def test_no_history_completes_a_mission_and_none_is_too_late_for_it(small: Walk) -> None:
    for usage in small.usages:
        assert not decide(Situation(missing=(NEEDED,)), usage, SMALL).completes
        assert decide(Situation(missing=()), usage, SMALL).completes
