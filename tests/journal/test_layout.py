"""Where everything stands, and how foreign names become file names."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.journal.layout import (
    MissionFolder,
    ProjectFolder,
    StateHome,
    is_safe_task_id,
    session_file_name,
    slugify,
    state_home,
    task_id,
)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"OMX_AUTORESEARCH_HOME": "/team/state", "XDG_STATE_HOME": "/x", "HOME": "/h"}, "/team/state"),
        ({"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/omx-autoresearch"),
        (
            {"OMX_AUTORESEARCH_HOME": "", "XDG_STATE_HOME": "", "HOME": "/h"},
            "/h/.local/state/omx-autoresearch",
        ),
    ],
)
def test_the_state_home_is_the_variable_then_xdg_then_the_home_folder(
    environ: dict[str, str], expected: str
) -> None:
    assert state_home(environ) == expected


@pytest.mark.parametrize("variable", ["OMX_AUTORESEARCH_HOME", "XDG_STATE_HOME", "HOME"])
def test_a_relative_state_home_is_an_error_that_names_the_variable(variable: str) -> None:
    with pytest.raises(UsageError, match=variable):
        state_home({variable: "here/state"})


def test_the_paths_are_those_of_the_design() -> None:
    home = StateHome("/s")
    mission = home.mission("20260102-030405-fix")
    assert (home.active_path, home.approved_path) == ("/s/active", "/s/approved")
    assert mission.task_id == "20260102-030405-fix"
    assert mission.journal_path == "/s/missions/20260102-030405-fix/journal.jsonl"
    assert {
        os.path.dirname(path) for path in (mission.lock_path, mission.notice_path, mission.torn_path)
    } == {mission.root_path}
    project = ProjectFolder("/p")
    assert project.specs_path("fix") == "/p/.omx/specs/autoresearch-fix"
    assert project.inbox_path("t1") == "/p/.omx/autoresearch/t1/inbox"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../x", "a\0b", "Fix", "con", "nul.txt", "x.", "-x", "ä", "a" * 129]
)
def test_an_unsafe_name_leads_to_no_folder(name: str) -> None:
    assert not is_safe_task_id(name)
    with pytest.raises(UsageError):
        StateHome("/s").mission(name)
    with pytest.raises(UsageError):
        ProjectFolder("/p").task_path(name)


HOSTILE_IDS = [
    "../../../../tmp/x", "a/b", "a_b", "a\\b", "..", ".", "", "x" * 5000, "x" * 5001, "a\0b", "CON", "con", "con.txt",
    "\n", " ", "a.", "a", "A", "h-" + "0" * 64, "h-x", "\ud800", "\ud801", "é", "e\u0301", "a:b", "NUL",
]  # fmt: skip


@pytest.mark.case("SES-11")
def test_hostile_session_ids_stay_inside_one_folder_and_never_share_a_name(tmp_path: object) -> None:
    home = StateHome(str(tmp_path))
    os.makedirs(home.active_path)
    for session_id in HOSTILE_IDS:
        path = home.session_path(session_id)
        assert os.path.dirname(os.path.realpath(path)) == os.path.realpath(home.active_path)
        with open(
            path, "x", encoding="utf-8", errors="surrogatepass"
        ) as out:  # "x": a shared name would fail
            out.write(session_id)
    assert len({name.casefold() for name in os.listdir(home.active_path)}) == len(HOSTILE_IDS)


@pytest.mark.case("SES-11")
@given(st.text(), st.text())
def test_two_session_ids_never_share_a_name_even_where_case_does_not_count(one: str, other: str) -> None:
    for first, second in ((one, other), (one, one.swapcase()), (one, session_file_name(one))):
        shares = session_file_name(first).casefold() == session_file_name(second).casefold()
        assert shares == (first == second)


def test_the_session_ids_of_real_clients_are_their_own_names() -> None:
    for session_id in ("0b9a3f5e-8f52-4ec0-9d0e-0d9f6a3a7d11", "019ac2f4-1c1b-7b02-8a59-4a1f0e0f5a7c"):
        assert session_file_name(session_id) == session_id


def test_a_task_id_is_the_time_in_utc_and_the_slug() -> None:
    there = timezone(timedelta(hours=2))
    assert task_id(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "fix") == "20260102-030405-fix"
    assert task_id(datetime(2026, 1, 2, 1, 4, 5, tzinfo=there), "fix") == "20260101-230405-fix"
    with pytest.raises(ValueError, match="aware"):
        task_id(datetime(2026, 1, 2, 3, 4, 5), "fix")  # noqa: DTZ001 - the naive time is the fault
    with pytest.raises(ValueError, match="slug"):
        task_id(datetime(2026, 1, 2, tzinfo=UTC), "../x")


@pytest.mark.parametrize(
    ("goal", "slug"),
    [
        ("Make the parser pass the corpus!", "make-the-parser-pass-the-corpus"),
        ("Über-schnelle Café Suche", "uber-schnelle-cafe-suche"),
        ("CON", "goal-con"),
        ("../../etc/passwd", "etc-passwd"),
    ],
)
def test_a_goal_becomes_a_readable_slug(goal: str, slug: str) -> None:
    assert slugify(goal) == slug


def test_a_long_goal_is_cut_at_a_word() -> None:
    slug = slugify("improve " * 20)
    assert len(slug) <= 48
    assert set(slug.split("-")) == {"improve"}
    assert slugify("x" * 200) == "x" * 48


@pytest.mark.parametrize("goal", ["修复解析器", "🚀🚀", "", "!!!"])
def test_a_goal_without_ascii_has_a_slug_of_its_own_that_stays_the_same(goal: str) -> None:
    slug = slugify(goal)
    assert slug == slugify(goal)
    assert slug.startswith("goal-")
    assert slug != slugify(goal + "修")


@given(st.text())
def test_every_goal_has_a_safe_slug(goal: str) -> None:
    slug = slugify(goal)
    assert is_safe_task_id(slug)
    assert len(slug) <= 48
    assert is_safe_task_id(task_id(datetime(2026, 1, 2, tzinfo=UTC), slug))


@pytest.mark.parametrize("run_id", ["../x", "a/b", "", "..", "CON"])
def test_a_run_id_that_is_no_file_name_is_refused(run_id: str) -> None:
    with pytest.raises(UsageError, match="not the id of a run"):
        MissionFolder("/missions/m").output_path(run_id)
