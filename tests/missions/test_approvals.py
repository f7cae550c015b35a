"""Approvals count by what the file says, for exactly one project, task, contract and set of pins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omx_autoresearch.foundation.errors import StorageFailed
from omx_autoresearch.journal.layout import StateHome
from omx_autoresearch.missions.validation.approvals import Approval, approval_key, approve, is_approved

TS = "2026-01-02T03:04:05.123456Z"
KEY = approval_key("/p", "t", "c", "n")


@pytest.fixture
def state(tmp_path: Path) -> StateHome:
    return StateHome(str(tmp_path / "state"))


def test_an_approval_is_found_by_its_key_alone(state: StateHome) -> None:
    assert is_approved(state, KEY) is None
    approve(state, KEY, is_unsandboxed=False, ts=TS)
    assert is_approved(state, KEY) == Approval(KEY, False, TS)
    others = [
        ("/q", "t", "c", "n"),
        ("/p", "u", "c", "n"),
        ("/p", "t", "d", "n"),
        ("/p", "t", "c", "m"),
        ("/p", "tc", "", "n"),
    ]
    assert [is_approved(state, approval_key(*other)) for other in others] == [None] * len(others)


def test_another_spelling_of_the_project_has_the_same_key(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert approval_key(str(tmp_path / "link"), "t", "c", "n") == approval_key(
        str(tmp_path / "real"), "t", "c", "n"
    )


def test_the_owner_may_extend_an_approval(state: StateHome) -> None:
    approve(state, KEY, is_unsandboxed=False, ts=TS)
    approve(state, KEY, is_unsandboxed=True, ts=TS)
    found = is_approved(state, KEY)
    assert found is not None
    assert found.is_unsandboxed


def test_the_file_is_for_the_owner_alone(state: StateHome) -> None:
    approve(state, KEY, is_unsandboxed=False, ts=TS)
    assert Path(state.approved_path, KEY).stat().st_mode & 0o777 == 0o600


def content(**changes: object) -> bytes:
    return json.dumps({"key": KEY, "is_unsandboxed": False, "ts": TS, **changes}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"\0" * 40,
        content(key="0" * 64),
        content(is_unsandboxed=1),
        content(ts=3),
        content(more=1),
    ],
)
def test_a_file_with_the_right_name_and_no_such_content_approves_nothing(
    state: StateHome, data: bytes
) -> None:
    folder = Path(state.approved_path)
    folder.mkdir(parents=True)
    (folder / KEY).write_bytes(data)
    (folder / KEY).chmod(0o600)
    assert is_approved(state, KEY) is None
    approve(state, KEY, is_unsandboxed=False, ts=TS)
    assert is_approved(state, KEY) is not None


def test_a_file_that_others_may_write_approves_nothing(state: StateHome) -> None:
    approve(state, KEY, is_unsandboxed=False, ts=TS)
    Path(state.approved_path, KEY).chmod(0o666)
    assert is_approved(state, KEY) is None


def test_a_link_approves_nothing(state: StateHome, tmp_path: Path) -> None:
    Path(state.approved_path).mkdir(parents=True)
    (tmp_path / "forged").write_bytes(content())
    Path(state.approved_path, KEY).symlink_to(tmp_path / "forged")
    assert is_approved(state, KEY) is None


def test_a_name_that_is_no_key_is_refused(state: StateHome) -> None:
    with pytest.raises(ValueError, match="not an approval key"):
        is_approved(state, "../../etc/passwd")


def test_a_refused_write_is_said(state: StateHome) -> None:
    Path(state.root_path).write_text("a file in the way")
    with pytest.raises(StorageFailed):
        approve(state, KEY, is_unsandboxed=False, ts=TS)
