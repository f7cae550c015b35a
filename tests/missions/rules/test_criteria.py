"""How criteria are written, read back, and refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omx_autoresearch.foundation.records import NewerShape, ShapeError
from omx_autoresearch.missions.rules.criteria import (
    CRITERIA_LIMIT,
    TEXT_LIMIT,
    Criterion,
    CriterionFault,
    criteria_faults,
    criterion_of,
    criterion_text,
    rule_from_plain,
)
from omx_autoresearch.missions.rules.rule_kinds import Command, File, Person, Review, Validator

SCRIPT, REVIEW = "mission-validator-script", "prompt-architect-artifact"


@pytest.mark.requirement("EVID-14")
@pytest.mark.parametrize(
    ("text", "criterion"),
    [
        (
            "tests: the corpus passes :: command: pytest -q 'a b'",
            Criterion("tests", "the corpus passes", Command(("pytest", "-q", "a b"))),
        ),
        (
            "optional report: written :: file: out/report.md ~ ^## Findings",
            Criterion("report", "written", File("out/report.md", "^## Findings"), False),
        ),
        ("done: it agrees :: validator", Criterion("done", "it agrees", Validator())),
        ("look: 人が見た :: person", Criterion("look", "人が見た", Person())),
        ("good: a: b :: review", Criterion("good", "a: b", Review())),
    ],
)
def test_a_criterion_is_read_and_written_back(text: str, criterion: Criterion) -> None:
    assert criterion_of(text) == criterion
    assert criterion_of(criterion_text(criterion)) == criterion


@given(
    name=st.from_regex(r"[a-z0-9][a-z0-9_-]{0,20}", fullmatch=True).filter(lambda name: name != "optional"),
    description=st.text(min_size=1, max_size=60),
    argv=st.lists(st.text(max_size=20), min_size=1, max_size=5),
    required=st.booleans(),
)
def test_what_can_stand_survives_the_round_trip(
    name: str, description: str, argv: list[str], required: bool
) -> None:
    criterion = Criterion(name, description, Command(tuple(argv)), required)
    if not criteria_faults((criterion,), SCRIPT):
        assert criterion_of(criterion_text(criterion)) == criterion


@pytest.mark.requirement("EVID-14")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tests", "id: description :: rule"),
        ("tests: it passes", "id: description :: rule"),
        ("tests: :: validator", "id: description :: rule"),
        ("Tests: it passes :: validator", "a-z, 0-9"),
        ("needed tests: it passes :: validator", "only the word `optional`"),
        ("[optional] tests: it passes :: validator", "`optional tests: ...`"),
        ("tests: it passes :: trust me", "a rule is one of"),
        ("tests: it passes :: validator: yes", "a rule is one of"),
        ("tests: it passes :: command:", "is empty"),
        ("tests: it passes :: command: echo 'a", "cannot be split"),
        ("tests: it passes :: file: ../x", "inside the workspace"),
        ("tests: it passes :: file: /etc/passwd", "inside the workspace"),
        ("tests: it passes :: file: x ~ (", "not a regular expression"),
    ],
)
def test_what_is_no_criterion_is_refused_with_what_would_be_one(text: str, said: str) -> None:
    with pytest.raises(CriterionFault, match=said.replace("(", r"\(")):
        criterion_of(text)


@pytest.mark.requirement("EVID-14")
@pytest.mark.parametrize(
    ("criteria", "mode", "said"),
    [
        ((Criterion("a", "x", Validator()),) * 2, SCRIPT, "two criteria have the id 'a'"),
        ((Criterion("a", "x", Review()),), SCRIPT, "which only a prompt-architect-artifact mission has"),
        (
            (Criterion("a", "x", Validator()),),
            REVIEW,
            "which only a mission-validator-script mission has",
        ),
        ((Criterion("a", "x" * TEXT_LIMIT, Person()),), SCRIPT, f"at most {TEXT_LIMIT}"),
        ((Criterion("a", "x\0", Person()),), SCRIPT, "NUL"),
        ((Criterion("a", "x \ud800", Person()),), SCRIPT, "surrogate"),
        ((Criterion("a", "x :: y", Person()),), SCRIPT, "a rule is one of"),
        ((Criterion("a", "x", File("a ~ b")),), SCRIPT, "read back"),
        (
            tuple(Criterion(f"c{number}", "x", Person()) for number in range(CRITERIA_LIMIT + 1)),
            SCRIPT,
            f"at most {CRITERIA_LIMIT}",
        ),
    ],
)
def test_criteria_that_cannot_stand_are_told(criteria: tuple[Criterion, ...], mode: str, said: str) -> None:
    assert any(said in fault for fault in criteria_faults(criteria, mode)), criteria_faults(criteria, mode)


@pytest.mark.requirement("EVID-14")
def test_a_rule_of_an_earlier_journal_is_read_and_an_unknown_kind_or_field_is_a_newer_versions() -> None:
    side_by_side = {"argv": [], "path": "", "pattern": "", "metric": "", "gain": 0.0, "is_percent": False}
    assert rule_from_plain({**side_by_side, "kind": "command", "argv": ["a b"]}) == Command(("a b",))
    assert rule_from_plain({**side_by_side, "kind": "person"}) == Person()
    for newer in ({"kind": "poem"}, {"kind": "person", "meter": ""}, {"kind": "person", "path": "x"}):
        with pytest.raises(NewerShape):
            rule_from_plain(newer)
    with pytest.raises(ShapeError):
        rule_from_plain({"path": "x"})
