"""Projections: equal to the rebuilt ones whatever happened, healed when killed, restored when edited."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from omx_autoresearch.core.directions import direction_of
from omx_autoresearch.core.findings import Evidence, Finding
from omx_autoresearch.core.records.directions import DirectionDeclared, DirectionInjected
from omx_autoresearch.core.records.findings import FindingRecorded
from omx_autoresearch.runtime.claims import take_in
from omx_autoresearch.storage import heartbeat, projections, views
from omx_autoresearch.storage.projections import Projections
from tests.storage.real_missions import SESSION, TASK, Place, at
from tests.support import snapshots

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omx_autoresearch.core.words import DirectionBy

FINDINGS, PROGRESS = views.FINDINGS, views.PROGRESS


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def rebuilt(place: Place) -> dict[str, bytes]:
    """What ``repair`` writes from nothing but the journal."""
    shutil.rmtree(place.task_path)
    (Path(place.folder.root_path) / "projected.json").unlink(missing_ok=True)
    place.store.rebuild(place.task_id)
    return place.projections()


def edits(place: Place) -> list[dict[str, Any]]:
    entries = place.store.journal(place.task_id).read()
    return [entry.data for entry in entries if entry.kind == "projection_edited"]


@pytest.mark.requirement("STATE-06")
def test_what_grew_record_by_record_is_what_repair_writes_byte_for_byte(place: Place) -> None:
    place.claim("first")
    place.bind()
    heartbeat.beat(place.folder.heartbeat_path, at=at(2), status="tool", session_id=SESSION)
    place.claim("second", second=3)
    place.block()
    grown = place.projections()
    assert b"second" in grown[FINDINGS]
    assert json.loads(grown[PROGRESS])["blocked_reason"] == "no key"
    assert grown == rebuilt(place)


@pytest.mark.requirement("STATE-06")
@pytest.mark.parametrize("gone", ["state", "logs", "", FINDINGS, "state/directions_tried.json", views.WORK])
def test_what_is_missing_is_rebuilt_by_the_next_record(place: Place, gone: str) -> None:
    place.claim("first")
    path = place.task_path / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    place.claim("second", second=2)
    assert place.projections() == rebuilt(place)


@pytest.mark.requirement("STATE-06")
def test_what_is_missing_is_rebuilt_by_taking_in_alone(place: Place) -> None:
    place.claim("first")
    shutil.rmtree(place.project / ".omx")
    assert take_in(place.runtime, TASK) == 0
    assert b"first" in place.projections()[FINDINGS]
    assert (place.project / ".omx" / ".gitignore").read_bytes() == b"*\n"


def test_an_ignore_rule_that_the_owner_changed_stays(place: Place) -> None:
    (place.project / ".omx" / ".gitignore").write_text("autoresearch/\n")
    shutil.rmtree(place.task_path)
    take_in(place.runtime, TASK)
    assert (place.project / ".omx" / ".gitignore").read_text() == "autoresearch/\n"


@pytest.mark.requirement("STATE-06")
def test_a_writer_killed_between_journal_and_projections_is_made_up_for(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.claim("first")
    with monkeypatch.context() as killed:
        killed.setattr(Projections, "extend", lambda *_: None)
        place.claim("lost to view", second=2)
    assert b"lost to view" not in place.projections()[FINDINGS]
    place.claim("third", second=3)
    lines = place.projections()[FINDINGS].splitlines()
    assert [json.loads(line)["summary"] for line in lines] == ["first", "lost to view", "third"]
    assert place.projections() == rebuilt(place)


def test_a_writer_killed_there_is_made_up_for_without_another_record(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as killed:
        killed.setattr(Projections, "extend", lambda *_: None)
        place.claim("lost to view")
    assert take_in(place.runtime, TASK) == 0
    assert b"lost to view" in place.projections()[FINDINGS]
    assert edits(place) == []


@pytest.mark.parametrize("step", ["put", "append", "save"])
def test_a_writer_killed_among_the_projections_leaves_no_edit_behind(
    place: Place, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    from omx_autoresearch.storage.omx_folder import OmxFolder
    from omx_autoresearch.storage.projected import Projected

    place.claim("first")
    owner = Projected if step == "save" else OmxFolder
    whole = getattr(owner, step)

    def killed_after(self: Any, *arguments: Any, **options: Any) -> Any:
        if step == "append":
            whole(self, *arguments, **options)
        raise OSError("killed")

    with monkeypatch.context() as killed:
        killed.setattr(owner, step, killed_after)
        place.claim("second", second=2)
    place.block()
    assert take_in(place.runtime, TASK) == 0
    assert edits(place) == []
    assert place.projections() == rebuilt(place)


@pytest.mark.requirement("STATE-06")
@pytest.mark.parametrize("is_edited", [False, True])
def test_what_is_far_behind_is_written_anew_and_an_edit_in_it_is_kept(
    place: Place, monkeypatch: pytest.MonkeyPatch, *, is_edited: bool
) -> None:
    monkeypatch.setattr(projections, "MANY_RECORDS", 3)
    place.claim("first")
    with monkeypatch.context() as killed:
        killed.setattr(Projections, "extend", lambda *_: None)
        for number in range(5):
            place.claim(f"{number}")
    if is_edited:
        with (place.task_path / FINDINGS).open("a") as stream:
            stream.write("somebody's line\n")
    with monkeypatch.context() as memory:
        memory.setattr(Projections, "_unseen", lambda *_: pytest.fail("they were held in memory"))
        place.claim("next")
    take_in(place.runtime, TASK)
    assert ("somebody's line" in place.texts()) == is_edited
    monkeypatch.undo()
    assert place.projections() == rebuilt(place)


def test_a_torn_line_of_our_own_is_finished_and_is_no_edit(place: Place) -> None:
    place.claim("first")
    (Path(place.folder.root_path) / "projected.json").unlink()
    path = place.task_path / FINDINGS
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    assert take_in(place.runtime, TASK) == 0
    assert path.read_bytes() == whole
    assert edits(place) == []


def test_lost_stamps_are_no_edit(place: Place) -> None:
    place.claim("first")
    for content in (b"", b"{", b"[]", b'{"format": 2, "covered": null, "session_id": "", "files": {}}'):
        (Path(place.folder.root_path) / "projected.json").write_bytes(content)
        place.claim(f"more {content!r}", second=2)
        assert take_in(place.runtime, TASK) == 0
        assert edits(place) == []
    assert place.projections() == rebuilt(place)


def test_a_backup_that_was_put_back_is_no_edit(place: Place, tmp_path: Path) -> None:
    place.claim("first")
    shutil.copytree(place.project / ".omx", tmp_path / "copy")
    shutil.rmtree(place.project / ".omx")
    shutil.copytree(tmp_path / "copy", place.project / ".omx")
    assert take_in(place.runtime, TASK) == 0
    assert edits(place) == []
    assert not Projections(place.folder, place.store.load(TASK)).needs_care()


@pytest.mark.requirement("STATE-09")
def test_an_added_line_becomes_a_claim_and_the_file_is_restored(place: Place) -> None:
    place.claim("first")
    path = place.task_path / FINDINGS
    whole = path.read_bytes()
    path.write_bytes(whole + b"look at the tokenizer\n")
    assert take_in(place.runtime, TASK) == 1
    assert place.texts() == ["first", "look at the tokenizer"]
    assert path.read_bytes().startswith(whole)
    edit = edits(place)[0]
    assert edit["path"] == FINDINGS
    assert (place.task_path / edit["moved_to"]).read_bytes() == whole + b"look at the tokenizer\n"
    assert place.projections() == rebuilt(place)


@pytest.mark.requirement("STATE-09")
def test_a_changed_line_becomes_a_claim_and_its_own_text_stands_again(place: Place) -> None:
    place.claim("first")
    path = place.task_path / FINDINGS
    path.write_bytes(path.read_bytes().replace(b'"accepted":false', b'"accepted":true'))
    assert take_in(place.runtime, TASK) == 1
    assert '"accepted":true' in place.texts()[1]
    assert b'"accepted":true' not in path.read_bytes()
    assert place.store.load(TASK).edited_projections == (FINDINGS,)


@pytest.mark.requirement("STATE-09")
def test_a_removed_line_stands_again_and_is_said(place: Place) -> None:
    place.claim("first")
    place.claim("second")
    path = place.task_path / FINDINGS
    whole = path.read_bytes()
    path.write_bytes(whole.splitlines(keepends=True)[0])
    assert take_in(place.runtime, TASK) == 0
    assert path.read_bytes() == whole
    assert [edit["path"] for edit in edits(place)] == [FINDINGS]


@pytest.mark.requirement("STATE-09")
@pytest.mark.case("STA-07")
@pytest.mark.parametrize("content", [b"", b"{", b'{\n  "phase": "complete",\n  "iteration": 0\n}\n'])
def test_an_edited_state_file_decides_nothing_and_is_restored(place: Place, content: bytes) -> None:
    before = place.store.load(TASK)
    for name in (PROGRESS, views.TASK_SPEC):
        (place.task_path / name).write_bytes(content)
    take_in(place.runtime, TASK)
    after = place.store.load(TASK)
    assert (after.phase, after.goal) == (before.phase, before.goal)
    assert {edit["path"] for edit in edits(place)} == {PROGRESS, views.TASK_SPEC}
    assert place.projections() == rebuilt(place)
    assert all("complete" in text or text.startswith(("{", '"iteration')) for text in place.texts())


def test_an_edit_survives_the_records_that_come_before_it_is_taken_in(place: Place) -> None:
    (place.task_path / PROGRESS).write_text("{}\nplease look at the corpus\n")
    with (place.task_path / FINDINGS).open("a") as stream:
        stream.write("my own finding\n")
    place.claim("another")
    place.block()
    take_in(place.runtime, TASK)
    assert {"my own finding", "please look at the corpus"} <= set(place.texts())
    assert place.projections() == rebuilt(place)


def test_the_same_edit_again_is_one_claim(place: Place) -> None:
    for _ in range(2):
        with (place.task_path / FINDINGS).open("a") as stream:
            stream.write("again\n")
        take_in(place.runtime, TASK)
    assert place.texts() == ["again"]
    assert len(edits(place)) == 2


def test_an_edit_of_same_size_and_time_is_found_by_repair(place: Place) -> None:
    place.claim("first")
    path = place.task_path / FINDINGS
    status = path.stat()
    with path.open("r+b") as stream:
        stream.write(path.read_bytes().replace(b"first", b"fists"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert take_in(place.runtime, TASK) == 0
    place.store.rebuild(TASK)
    assert b"fists" not in path.read_bytes()
    assert take_in(place.runtime, TASK) == 1
    assert "fists" in place.texts()[1]


@pytest.mark.parametrize("name", [FINDINGS, PROGRESS])
def test_a_pipe_or_link_in_a_projections_place_is_neither_waited_for_nor_followed(
    place: Place, tmp_path: Path, name: str
) -> None:
    private = tmp_path / "private"
    private.write_text("a secret\n")
    path = place.task_path / name
    for make in (os.mkfifo, lambda it: os.symlink(private, it), lambda it: os.link(private, it), os.mkdir):
        path.unlink()
        make(path)
        place.claim(f"while {make} stands there")
        take_in(place.runtime, TASK)
        assert path.is_file()
        assert not path.is_symlink()
    assert private.read_text() == "a secret\n"
    assert "a secret" not in place.texts()
    assert place.projections() == rebuilt(place)


@pytest.mark.parametrize("sub", ["state", "logs", "inbox", "."])
def test_a_linked_folder_is_never_written_through(place: Place, tmp_path: Path, sub: str) -> None:
    outside = tmp_path / "outside"
    path = place.task_path / sub
    shutil.move(path, outside)
    os.symlink(outside, path.parent / path.name if sub != "." else place.task_path)
    before = {item: item.read_bytes() for item in outside.rglob("*") if item.is_file()}
    heartbeat.beat(place.folder.heartbeat_path, at=at(2), status="tool", session_id=SESSION)
    place.claim("not to be written outside")
    take_in(place.runtime, TASK)
    assert {item: item.read_bytes() for item in outside.rglob("*") if item.is_file()} == before


def test_a_heartbeat_that_was_linked_away_is_not_appended_to(place: Place, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("")
    os.symlink(target, place.task_path / "logs" / "heartbeat.jsonl")
    heartbeat.beat(place.folder.heartbeat_path, at=at(2), status="tool", session_id=SESSION)
    place.claim("first")
    assert target.read_text() == ""


def test_a_project_that_is_gone_or_read_only_is_no_fault_and_the_notice_is_written(place: Place) -> None:
    shutil.rmtree(place.project)
    place.block()
    assert "BLOCKED (agent-blocked)" in Path(place.folder.notice_path).read_text()
    assert take_in(place.runtime, TASK) == 0
    assert not place.project.exists()


@pytest.mark.requirement("STATE-12")
def test_the_mode_state_has_the_protocols_fields_and_ends_with_the_binding(place: Place) -> None:
    place.bind()
    state = json.loads(place.mode().read_bytes())
    assert state["active"] is True
    assert state["validation_mode"] == "mission-validator-script"
    assert state["mission_validator_command"] == "./check.sh"
    assert state["completion_artifact_path"] == ".omx/specs/autoresearch-parser/completion.json"
    place.bind("another-session")
    assert json.loads(place.mode().read_bytes())["active"] is False
    assert json.loads(place.mode("another-session").read_bytes())["active"] is True
    place.block()
    assert json.loads(place.mode("another-session").read_bytes())["active"] is False


def test_a_mode_state_of_another_mission_is_left_to_it(place: Place, tmp_path: Path) -> None:
    place.bind()
    other = Place(tmp_path, task_id="20260102-030406-other")
    other.bind()
    place.bind("another-session")
    place.store.rebuild(TASK)
    assert json.loads(place.mode().read_bytes())["task_id"] == other.task_id
    assert json.loads(place.mode().read_bytes())["active"] is True


def test_repair_closes_the_mode_states_of_sessions_that_were_held(place: Place) -> None:
    place.bind()
    state = place.mode().read_bytes()
    place.bind("another-session")
    place.mode().write_bytes(state)
    (Path(place.folder.root_path) / "projected.json").unlink()
    place.store.rebuild(TASK)
    assert json.loads(place.mode().read_bytes())["active"] is False


def test_git_status_stays_clean_when_the_folder_had_to_be_made_anew(place: Place) -> None:
    subprocess.run(["git", "init", "-q"], cwd=place.project, check=True)
    subprocess.run(["git", "clean", "-fdxq"], cwd=place.project, check=True)
    place.claim("after the cleaning")
    said = subprocess.run(
        ["git", "status", "--porcelain"], cwd=place.project, capture_output=True, text=True, check=True
    )
    assert said.stdout == ""
    assert place.projections() == rebuilt(place)


def test_temporary_files_of_killed_writers_are_swept(place: Place) -> None:
    (place.task_path / "state" / ".99-abc.tmp").write_text("half")
    (place.task_path / FINDINGS).unlink()
    place.claim("first")
    assert list((place.task_path / "state").glob("*.tmp")) == []


TEXTS = st.sampled_from(["profile it", "It, profile!", "\u5206\u6790\u5668", 'a\u2028b "c" \\ d', "x" * 3000])


class AnySequence(RuleBasedStateMachine):
    """Records, crashes, edits, losses and repairs in any order: the projections are those of the journal."""

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp(prefix="omx-projections-")
        self.place = Place(Path(self.root))
        self.second = 1
        self.heard: set[str] = set()

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    def _next(self) -> int:
        self.second += 1
        return self.second

    @rule()
    def claim(self) -> None:
        second = self._next()
        self.place.claim(f"claim {second}", second=second)

    @rule()
    def crash_before_the_projections(self) -> None:
        second, whole = self._next(), Projections.extend
        Projections.extend = lambda *_: None  # type: ignore[method-assign]
        try:
            self.place.claim(f"crash {second}", second=second)
        finally:
            Projections.extend = whole  # type: ignore[method-assign]

    @rule(session=st.sampled_from(["one", "two"]))
    def bind(self, session: str) -> None:
        self.place.bind(session)

    @rule(
        texts=st.lists(TEXTS, min_size=1, max_size=3),
        criterion=st.sampled_from(["", "tests", "cause"]),
        is_new=st.booleans(),
    )
    def find(self, texts: list[str], criterion: str, *, is_new: bool) -> None:
        evidence = Evidence(criterion, "d" * 64, is_new=is_new) if criterion else None
        second = self._next()
        findings = (
            Finding(f"f-{second}-{number}", "test", text, evidence=evidence, criterion_id=criterion)
            for number, text in enumerate(texts)
        )
        self.place.record(*map(FindingRecorded, findings), second=second)

    @rule(
        text=TEXTS,
        axis=st.sampled_from(["objective", "search_space"]),
        by=st.sampled_from(["agent", "claim"]),
    )
    def declare(self, text: str, axis: str, by: DirectionBy) -> None:
        direction = direction_of(text, {axis: text}, is_pivot=by == "agent", by=by)
        self.place.record(DirectionDeclared(direction), second=self._next())

    @rule(text=TEXTS)
    def inject(self, text: str) -> None:
        self.place.record(DirectionInjected(direction_of(text, {}, by="owner")), second=self._next())

    @rule(name=st.sampled_from([*views.LINE_FILES, *views.STATE_FILES]))
    def edit(self, name: str) -> None:
        path = self.place.task_path / name
        if path.is_file():
            text = f"edit {self._next()}"
            path.write_bytes(path.read_bytes() + f"{text}\n".encode())
            self.heard.add(text)

    @rule(name=st.sampled_from(["state", "logs", FINDINGS, PROGRESS]))
    def lose(self, name: str) -> None:
        take_in(self.place.runtime, TASK)
        path = self.place.task_path / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    @rule()
    def lose_the_stamps(self) -> None:
        (Path(self.place.folder.root_path) / "projected.json").unlink(missing_ok=True)

    @rule()
    def lose_the_snapshot(self) -> None:
        snapshots.lose(self.place.folder)

    @rule()
    def repair(self) -> None:
        self.place.store.rebuild(TASK)

    @invariant()
    def projections_are_those_of_the_journal_once_taken_in(self) -> None:
        if self.second % 3:
            return  # leave some steps to pile up
        take_in(self.place.runtime, TASK)
        now = self.place.projections()
        expected = dict(_expected(self.place))
        assert now == expected
        assert self.heard <= set(self.place.texts())


def _expected(place: Place) -> Iterator[tuple[str, bytes]]:
    entries = list(place.store.journal(TASK).read())
    for name in views.LINE_FILES:
        yield name, b"".join(views.line_of(name, entry) for entry in entries)
    yield from views.states(place.store.load(TASK)).items()


AnySequence.TestCase.settings = settings(
    max_examples=25, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
TestAnySequence = AnySequence.TestCase
TestAnySequence.pytestmark = [pytest.mark.requirement("STATE-06")]  # type: ignore[attr-defined]
