"""Records: each kind survives the disk, what is foreign is named, and a fold is the same in one piece or in many."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omx_autoresearch.foundation import types
from omx_autoresearch.foundation.errors import MissionInvalid
from omx_autoresearch.foundation.input_validation import schema_of, validated
from omx_autoresearch.foundation.records import ShapeError, fields, from_plain, to_plain
from omx_autoresearch.foundation.records import replace as light_replace
from omx_autoresearch.missions import records as record_module
from omx_autoresearch.missions.records import KINDS, draft_of, fold, record_class
from omx_autoresearch.missions.records.lifecycle import (
    MissionCreated,
    MissionLaunched,
    MissionPaused,
    OwnerVerbRefused,
)
from omx_autoresearch.missions.records.sessions import PersonPrompted, SessionBound, SessionUnbound
from omx_autoresearch.missions.records.work import (
    KEPT_OUTPUT_MARKS,
    ClaimRecorded,
    PinsRestored,
    StopAllowed,
    StopFacts,
    StopRefused,
    StopReleased,
    ValidationFinished,
    ValidationLost,
    ValidationStarted,
)
from omx_autoresearch.missions.rules import mission as mission_module
from omx_autoresearch.missions.rules.allowances import Limits, Usage
from omx_autoresearch.missions.rules.criteria import KINDS as RULE_KINDS
from omx_autoresearch.missions.rules.criteria import Rule, rule_class
from omx_autoresearch.missions.rules.mission import Contract, Mission, RunningValidation
from tests.missions.rules.samples import SCRIPT, TASK, a_mission, a_run, at

Record = Any
"""A value of any record class."""

CREATED = MissionCreated(TASK, "parser", "goal", "standard", "/p", "/p", ".omx/specs/autoresearch-parser")
SCALARS: dict[type, st.SearchStrategy[Any]] = {
    str: st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    int: st.integers(-(10**12), 10**12),
    float: st.floats(-1e9, 1e9),
    bool: st.booleans(),
    type(None): st.none(),
}


def of_hint(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a declared type."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return st.sampled_from(inner)
    if origin in (Union, UnionType):
        return st.one_of([of_hint(one) for one in inner])
    if origin is tuple:
        return st.lists(of_hint(inner[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(of_hint(inner[0]), of_hint(inner[1]), max_size=3)
    if hint is Rule:
        return st.one_of([of_rule_kind(kind) for kind in RULE_KINDS])
    return SCALARS[hint] if hint in SCALARS else values_of(hint)


def of_rule_kind(kind: str) -> st.SearchStrategy[Any]:
    made: Any = rule_class(kind)
    return values_of(made).map(lambda rule: light_replace(rule, kind=kind))


@cache
def values_of(kind: type) -> st.SearchStrategy[Any]:
    """Values of a class, from what it declares."""
    hints = get_type_hints(kind, localns={**vars(types), "ClassVar": ClassVar})
    return st.fixed_dictionaries({item.name: of_hint(hints[item.name]) for item in fields(kind)}).map(
        lambda given: kind(**given)
    )


@cache
def records() -> st.SearchStrategy[Record]:
    """A record of any kind."""
    return st.sampled_from(sorted(KINDS)).flatmap(lambda kind: values_of(record_class(kind)))


def through_disk(plain: Any) -> Any:
    """What comes back from a line of strict JSON."""
    return json.loads(json.dumps(plain, allow_nan=False))


def entries_of(records_: list[Record]) -> list[tuple[str, str, dict[str, Any]]]:
    """Records as the journal hands them to the fold."""
    drafts = [through_disk(draft_of(record)) for record in records_]
    return [(kind, at(second), data) for second, (kind, data) in enumerate(drafts)]


def folded(*records_: Record, onto: Mission | None = None) -> Mission:
    """The mission after some records."""
    mission = fold(onto, entries_of([*records_] if onto else [CREATED, *records_]))
    assert mission is not None
    return mission


# --- shapes


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_survives_the_disk(kind: str) -> None:
    found = record_class(kind)
    assert found.kind == kind

    @settings(max_examples=15)
    @given(values_of(found))
    def survives(record: Record) -> None:
        name, data = draft_of(record)
        assert name == kind
        assert from_plain(record_class(name), through_disk(data)) == record

    survives()


def test_the_kinds_are_the_record_classes_of_the_package() -> None:
    folder = Path(str(record_module.__file__)).parent
    modules = {place.partition(".")[0] for place in KINDS.values()}
    assert modules == {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert len(set(KINDS.values())) == len(KINDS)
    for kind, place in KINDS.items():
        assert (
            kind
            == "".join(f"_{char.lower()}" if char.isupper() else char for char in place.partition(".")[2])[1:]
        )


def test_a_record_of_an_unknown_kind_is_named() -> None:
    with pytest.raises(ShapeError, match="record kind 'mission_teleported' is unknown"):
        fold(a_mission(), [("mission_teleported", at(1), {})])


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        (
            "mission_paused",
            {"phase": "paused", "mood": "y", "age": 1},
            "MissionPaused has unknown fields: age, mood",
        ),
        ("mission_cancelled", [], "MissionCancelled: an object is needed, received list"),
        ("mission_cancelled", None, "MissionCancelled: an object is needed, received NoneType"),
        ("session_bound", {"client": "claude", "how": "prompt"}, "SessionBound.session_id is missing"),
        ("mission_blocked", {}, "MissionBlocked.phase is missing"),
        ("mission_blocked", {"phase": "blocked", "blocker": None}, "MissionBlocked.blocker is missing"),
        (
            "mission_blocked",
            {"phase": "blocked", "blocker": "stalled"},
            "Blocker: an object is needed, received str",
        ),
        ("stop_released", {"stop": {"session_id": "s"}}, "StopFacts.reason_code is missing"),
        (
            "stop_refused",
            {"stop": {"session_id": "s", "reason_code": "x", "usage": {"refusals": "many"}}},
            "Usage.refusals: int is needed, received str",
        ),
        (
            "stop_allowed",
            {"stop": {"session_id": "s", "reason_code": "x", "usage": {"luck": 1}}},
            "Usage has unknown fields: luck",
        ),
    ],
)
def test_an_unknown_a_missing_and_a_misshapen_field_have_their_own_sentence(
    kind: str, data: Any, said: str
) -> None:
    with pytest.raises(ShapeError) as caught:
        fold(a_mission(), [(kind, at(1), data)])
    assert said in str(caught.value)


def test_a_field_that_has_a_default_may_be_missing() -> None:
    assert from_plain(Usage, {}) == Usage()
    assert from_plain(Contract, {"validation_mode": "mission-validator-script"}).limits == Limits()


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"mission_created"}))
def test_no_record_comes_before_the_creation(kind: str) -> None:
    with pytest.raises(ShapeError, match=f"{kind} comes before mission_created|missing"):
        fold(None, [(kind, at(1), {})])


def test_nothing_folds_to_nothing() -> None:
    assert fold(None, []) is None


@pytest.mark.requirement("LIFE-08")
@pytest.mark.parametrize(
    "kind",
    [
        *sorted(KINDS),
        "Mission",
        "Contract",
        "Attestation",
        "Limits",
        "Usage",
        "Blocker",
        "Binding",
        "LastStop",
    ],
)
def test_every_class_of_the_disk_has_a_schema(kind: str) -> None:
    found = record_class(kind) if kind in KINDS else getattr(mission_module, kind)
    schema = schema_of(found)
    assert set(schema["properties"]) == {item.name for item in fields(found)}


@pytest.mark.requirement("LIFE-08")
def test_a_schemas_validator_takes_what_we_write_and_refuses_a_wrong_type() -> None:
    mission = a_mission(attestation=a_run("passed", score=1.5), usage=Usage(refusals=3))
    assert validated(Mission, through_disk(to_plain(mission)), where="a test") == mission
    with pytest.raises(MissionInvalid, match="phase"):
        validated(Mission, {**through_disk(to_plain(mission)), "phase": "sleeping"}, where="a test")


# --- the fold


@settings(max_examples=60)
@given(st.lists(records(), max_size=8), st.data())
def test_a_fold_in_pieces_over_a_snapshot_is_the_fold_of_the_whole(
    records_: list[Record], data: st.DataObject
) -> None:
    entries = entries_of([CREATED, *records_])
    whole = fold(None, entries)
    cut = data.draw(st.integers(1, len(entries)))
    first = fold(None, entries[:cut])
    snapshot = from_plain(Mission, through_disk(to_plain(first)))
    assert snapshot == first
    assert fold(snapshot, entries[cut:]) == whole


@settings(max_examples=60)
@given(st.lists(records(), max_size=8))
def test_every_record_says_when_it_was_and_the_mission_keeps_its_identity(records_: list[Record]) -> None:
    mission = folded(*records_)
    last = (
        at(len(records_))
        if any(record.kind != "mission_created" for record in records_[-1:])
        else mission.updated_at
    )
    assert mission.updated_at == last
    assert (mission.task_id, mission.created_at) == (TASK, at(0))
    goals = [getattr(record, "goal", "") for record in records_ if record.kind == "mission_amended"]
    assert mission.goal in ("goal", *goals), "only its owner states another goal"


# --- stops


def facts(**changes: Any) -> StopFacts:
    """The facts of a stop."""
    return replace(StopFacts("s-1", "validation", Usage(refusals=1), is_iteration=True), **changes)


def test_a_refusal_moves_counters_ends_the_turn_and_remembers_what_was_said() -> None:
    mission = a_mission(is_person_turn=True)
    after = StopRefused(facts(tree_digest="t", heartbeat_bytes=7, text="no"), ("validation",), "none").apply(
        mission, at(5)
    )
    assert (after.usage.refusals, after.iteration, after.is_person_turn, after.turn_heartbeat_bytes) == (
        1,
        1,
        False,
        7,
    )
    assert after.last_stop is not None
    assert (after.last_stop.answer, after.last_stop.text, after.last_stop.tree_digest) == (
        "refuse",
        "no",
        "t",
    )


@pytest.mark.parametrize(
    "record",
    [
        StopRefused(facts(tree_digest="later", is_iteration=False), progress=""),
        StopAllowed(facts(reason_code="background-work", tree_digest="later", is_iteration=False)),
        StopAllowed(facts(reason_code="host-rate-limit", tree_digest="later", is_iteration=False)),
    ],
    ids=["waits", "background work", "the host ended it"],
)
def test_a_stop_that_judged_nothing_leaves_what_was_achieved_to_be_judged(record: Record) -> None:
    judged = StopRefused(facts(tree_digest="then"), progress="none").apply(a_mission(best_score=1.0), at(1))
    achieved = ValidationFinished(a_run(score=7.0)).apply(judged, at(2))
    after = record.apply(achieved, at(3))
    assert (after.best_score, after.last_score, after.output_marks) == (1.0, None, ())
    assert after.last_stop is not None
    assert after.last_stop.tree_digest == "then"


@pytest.mark.parametrize(
    "record",
    [
        StopRefused(facts(tree_digest="later"), progress="strong"),
        StopRefused(facts(tree_digest="later", is_iteration=False), progress="none"),
        StopReleased(facts(tree_digest="later"), progress="strong"),
        StopAllowed(facts(reason_code="complete", tree_digest="later")),
    ],
    ids=["refused", "refused a person's turn", "released", "completed"],
)
def test_a_stop_that_judged_makes_the_newest_run_what_later_ones_are_compared_with(record: Record) -> None:
    mission = a_mission(best_score=1.0, attestation=a_run(score=7.0))
    after = record.apply(mission, at(3))
    assert (after.best_score, after.last_score, after.output_marks) == (7.0, 7.0, ("mark",))
    assert after.last_stop is not None
    assert after.last_stop.tree_digest == "later"


def test_a_worse_run_lowers_the_last_score_and_never_the_best() -> None:
    mission = a_mission(best_score=7.0, last_score=7.0, attestation=a_run(score=3.0))
    after = StopRefused(facts(), progress="weak").apply(mission, at(3))
    assert (after.best_score, after.last_score) == (7.0, 3.0)
    lower = a_mission(replace(SCRIPT, score_direction="lower"), best_score=7.0, attestation=a_run(score=3.0))
    assert StopRefused(facts(), progress="weak").apply(lower, at(3)).best_score == 3.0


@pytest.mark.parametrize(
    "changes",
    [{"verdict": "tampered"}, {"verdict": "error"}, {"contract_digest": "the contract before"}],
    ids=str,
)
def test_a_run_that_does_not_count_moves_no_score(changes: dict[str, Any]) -> None:
    mission = a_mission(best_score=1.0, attestation=replace(a_run(score=99.0), **changes))
    assert StopRefused(facts(), progress="none").apply(mission, at(3)).best_score == 1.0


def test_marks_of_output_are_remembered_newest_last_and_bounded() -> None:
    mission = a_mission()
    for number in range(KEPT_OUTPUT_MARKS + 5):
        mission = ValidationFinished(a_run(output_mark=f"m{number}")).apply(mission, at(1))
        mission = StopRefused(facts(), progress="weak").apply(mission, at(1))
    assert len(mission.output_marks) == KEPT_OUTPUT_MARKS
    assert mission.output_marks[-1] == f"m{KEPT_OUTPUT_MARKS + 4}"
    again = ValidationFinished(a_run(output_mark="m100")).apply(mission, at(1))
    again = StopRefused(facts(), progress="weak").apply(again, at(1))
    assert (len(again.output_marks), again.output_marks[-1]) == (KEPT_OUTPUT_MARKS, "m100")


@pytest.mark.requirement("GATE-05")
def test_a_stop_that_the_host_ended_is_counted_by_itself() -> None:
    mission = StopAllowed(facts(reason_code="host-user-abort", is_iteration=False)).apply(a_mission(), at(1))
    assert (mission.host_end_count, mission.iteration) == (1, 0)
    other = StopAllowed(facts(reason_code="background-work", is_iteration=False)).apply(mission, at(2))
    assert other.host_end_count == 1


# --- persons, sessions, runs


@pytest.mark.requirement("GATE-13", "DONE-08")
def test_a_persons_prompt_begins_a_turn_and_makes_the_validator_due() -> None:
    mission = PersonPrompted("s-1", 42).apply(a_mission(usage=Usage(idle_refusals=3, refusals=3)), at(5))
    assert (mission.usage.idle_refusals, mission.usage.refusals) == (0, 3)
    assert (mission.is_person_turn, mission.is_recheck_due, mission.turn_heartbeat_bytes) == (True, True, 42)
    assert PersonPrompted("s-1").apply(mission, at(6)).turn_heartbeat_bytes == 0


@pytest.mark.requirement("DONE-08")
@pytest.mark.parametrize(("started", "is_due"), [(4, True), (5, False), (6, False)])
def test_a_run_that_began_before_the_person_spoke_is_still_due(started: int, is_due: bool) -> None:
    mission = PersonPrompted("s-1").apply(a_mission(), at(5))
    mission = ValidationFinished(a_run(started_at=at(started), finished_at=at(9))).apply(mission, at(9))
    assert mission.is_recheck_due is is_due


def test_the_newest_binding_holds_and_only_it_can_be_unbound() -> None:
    mission = SessionBound("s-1", "claude", "prompt").apply(a_mission(), at(1))
    mission = SessionBound("s-2", "codex", "environment", "/worktree").apply(
        replace(mission, nonce_digest="n"), at(2)
    )
    assert mission.binding is not None
    assert (mission.binding.session_id, mission.workspace_path, mission.nonce_digest) == (
        "s-2",
        "/worktree",
        "",
    )
    assert SessionUnbound("s-1").apply(mission, at(3)).binding == mission.binding
    assert SessionUnbound("s-2").apply(mission, at(3)).binding is None


def test_a_run_that_is_lost_or_reports_late_does_not_end_another_one() -> None:
    other = RunningValidation("r-2", 1, "mark", at(1), "tree")
    mission = ValidationStarted(other).apply(a_mission(), at(1))
    assert ValidationLost("r-1").apply(mission, at(2)).running_validation == other
    assert ValidationLost("r-2").apply(mission, at(2)).running_validation is None
    late = ValidationFinished(a_run(run_id="r-1")).apply(mission, at(2))
    assert (late.running_validation, late.attestation is not None) == (other, True)
    assert ValidationFinished(a_run(run_id="r-2")).apply(mission, at(2)).running_validation is None


@pytest.mark.requirement("GATE-08")
def test_pins_put_back_make_the_one_refusal_available_again() -> None:
    assert (
        PinsRestored(("check.sh",)).apply(a_mission(usage=Usage(tamper_refusals=1)), at(1)).usage == Usage()
    )


@pytest.mark.requirement("LIFE-06")
def test_verbs_that_were_not_the_callers_are_kept_bounded_and_change_nothing_else() -> None:
    mission = a_mission()
    for number in range(30):
        mission = OwnerVerbRefused("cancel", ("CLAUDECODE",)).apply(mission, at(number))
    assert len(mission.refused_verbs) == 20
    assert mission.refused_verbs[-1] == f"{at(29)} cancel"
    assert replace(mission, refused_verbs=()) == a_mission()


@pytest.mark.requirement("DONE-02")
@pytest.mark.case("LOOP-13")
@given(st.lists(records(), max_size=8))
def test_only_its_own_record_completes_a_mission(records_: list[Record]) -> None:
    mission = folded(*[record for record in records_ if record.kind != "mission_completed"])
    assert mission.phase != "complete"
    claimed = ClaimRecorded("DONE: status passed, passed true", "inbox", "c-1").apply(mission, at(59))
    assert claimed.phase == mission.phase
    assert claimed.claim_count == mission.claim_count + 1


def test_a_launch_takes_the_baseline_as_what_is_to_be_beaten() -> None:
    mission = folded(MissionLaunched("running", replace(SCRIPT, baseline_score=4.0), "contract", "nonce"))
    assert (mission.phase, mission.best_score, mission.last_score) == ("running", 4.0, 4.0)
    assert (mission.running_since, mission.nonce_digest) == (at(1), "nonce")
    assert folded(MissionPaused("paused"), onto=mission).phase == "paused"
