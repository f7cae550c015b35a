"""The inbox: anybody may put anything there, and all it ever becomes is a claim."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omx_autoresearch.foundation.errors import StorageFailed
from omx_autoresearch.missions import claims as inbox
from tests.missions.real_missions import at
from tests.support.scratch import Scratch

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "project" / ".omx" / "autoresearch" / "20260102-030405-parser" / "inbox"
    path.mkdir(parents=True)
    return path


@pytest.mark.requirement("STATE-08")
def test_a_dropped_claim_waits_and_is_removed_once_taken(folder: Path) -> None:
    path = inbox.drop_claim(str(folder), "the tokenizer is slow", verb="note", at=at(1))
    claims = inbox.waiting_claims(str(folder))
    assert [(claim.text, claim.verb, claim.at, claim.file_path) for claim in claims] == [
        ("the tokenizer is slow", "note", at(1), path)
    ]
    inbox.remove_claims(claims)
    assert list(folder.iterdir()) == []


def test_claims_come_in_the_order_of_their_time_and_never_share_a_file(folder: Path) -> None:
    for second in (3, 1, 2, 2):
        inbox.drop_claim(str(folder), f"at {second}", verb="note", at=at(second))
    assert [claim.text for claim in inbox.waiting_claims(str(folder))] == ["at 1", "at 2", "at 2", "at 3"]


def test_a_missing_folder_is_made_with_its_ignore_rule(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    inbox.drop_claim(str(project / ".omx/autoresearch/t/inbox"), "x", verb="note", at=at(1))
    assert (project / ".omx" / ".gitignore").read_bytes() == b"*\n"
    assert inbox.waiting_claims(str(tmp_path / "nowhere/.omx/autoresearch/t/inbox")) == ()


@given(st.text(st.characters(), max_size=200))
def test_a_bounded_text_is_utf_8_without_nul_and_stays_as_it_is(text: str) -> None:
    once = inbox.bounded_claim(text)
    assert "\0" not in once
    once.encode("utf-8")
    assert inbox.bounded_claim(once) == once


def test_a_text_beyond_the_limit_is_cut_between_characters_and_says_so() -> None:
    cut = inbox.bounded_claim("é" * inbox.CLAIM_LIMIT_BYTES)
    assert len(cut.encode()) <= inbox.CLAIM_LIMIT_BYTES
    assert cut.endswith("é [... cut]")
    assert inbox.bounded_claim(cut) == cut


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"try the other grammar\n", "try the other grammar"),
        (b"\xff\xfe broken", "\ufffd\ufffd broken"),
        (b"a\0b", "a\ufffdb"),
        (b'{"verb": "note"', '{"verb": "note"'),
        (b'{"verb": "note", "text": 5}', '{"verb": "note", "text": 5}'),
        (
            b'{"verb": "note", "text": "x", "accepted": "yes"}',
            '{"verb": "note", "text": "x", "accepted": "yes"}',
        ),
        (b"[" * 5000, "[" * 5000),
        (b"", ""),
    ],
)
def test_garbage_is_a_claim_of_unknown_origin(folder: Path, data: bytes, text: str) -> None:
    (folder / "hint.txt").write_bytes(data)
    assert [(claim.text, claim.verb) for claim in inbox.waiting_claims(str(folder))] == [(text, "")]


def test_a_file_that_the_journal_cannot_hold_whole_is_kept_aside(folder: Path) -> None:
    (folder / "long.txt").write_bytes(b"x" * (inbox.CLAIM_LIMIT_BYTES + 1))
    claims = inbox.waiting_claims(str(folder))
    assert len(claims[0].text.encode()) == inbox.CLAIM_LIMIT_BYTES
    inbox.remove_claims(claims)
    kept = list((folder / "taken").iterdir())
    assert [path.stat().st_size for path in kept] == [inbox.CLAIM_LIMIT_BYTES + 1]
    assert inbox.waiting_claims(str(folder)) == ()


def test_taken_files_make_room_for_newer_ones(folder: Path) -> None:
    for number in range(inbox.TAKEN_LIMIT + 3):
        (folder / f"{number:03d}.txt").write_bytes(b"y" * (inbox.CLAIM_LIMIT_BYTES + 1))
        inbox.remove_claims(inbox.waiting_claims(str(folder)))
    assert len(list((folder / "taken").iterdir())) == inbox.TAKEN_LIMIT


def test_a_flood_is_taken_in_parts(folder: Path) -> None:
    for number in range(inbox.CLAIMS_AT_ONCE + 5):
        (folder / f"{number:04d}.txt").write_text(f"claim {number}")
    first = inbox.waiting_claims(str(folder))
    inbox.remove_claims(first)
    assert len(first) == inbox.CLAIMS_AT_ONCE
    assert [claim.text for claim in inbox.waiting_claims(str(folder))] == [
        f"claim {number}" for number in range(inbox.CLAIMS_AT_ONCE, inbox.CLAIMS_AT_ONCE + 5)
    ]
    for number in range(6):
        (folder / f"big-{number}").write_bytes(b"z" * (2 * 1024 * 1024))
    assert len(inbox.waiting_claims(str(folder))) < 11


def test_pipes_links_folders_and_files_with_another_name_are_left_alone(folder: Path, tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.write_text("a secret")
    os.mkfifo(folder / "pipe")
    os.symlink(private, folder / "link")
    os.link(private, folder / "hard")
    (folder / "sub").mkdir()
    (folder / ".hidden.tmp").write_text("half a claim")
    assert inbox.waiting_claims(str(folder)) == ()
    assert private.read_text() == "a secret"


@pytest.mark.parametrize("level", ["inbox", "20260102-030405-parser", "autoresearch", ".omx"])
def test_a_linked_folder_is_neither_read_nor_emptied_nor_written(
    folder: Path, tmp_path: Path, level: str
) -> None:
    (folder / "key").write_text("a secret")
    claims = inbox.waiting_claims(str(folder))
    path = next(item for item in (folder, *folder.parents) if item.name == level)
    shutil.move(path, tmp_path / "outside")
    os.symlink(tmp_path / "outside", path)
    assert inbox.waiting_claims(str(folder)) == ()
    inbox.remove_claims(claims)
    assert (folder / "key").read_text() == "a secret"
    with pytest.raises(StorageFailed, match="symbolic link"):
        inbox.drop_claim(str(folder), "x", verb="note", at=at(1))


def test_a_folder_that_cannot_be_written_is_an_error_with_a_cure(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("in the way")
    with pytest.raises(StorageFailed, match="inbox") as caught:
        inbox.drop_claim(str(folder), "x", verb="note", at=at(1))
    assert caught.value.next_step


@pytest.mark.requirement("STATE-08")
def test_a_claim_that_a_command_left_is_taken_in_by_the_tool_event_of_that_command(tmp_path: Path) -> None:
    world = Scratch.make(tmp_path)
    mission = world.mission()
    path = world.project / ".omx" / "autoresearch" / mission.task_id / "inbox"
    inbox.drop_claim(str(path), "the cache is cold", verb="note", at=at(1))
    world.tell(world.payload("PostToolUse", tool_name="Bash", tool_input={"command": "./work.sh"}))
    assert inbox.waiting_claims(str(path)) == ()
    assert "claim_recorded" in world.kinds(mission)
