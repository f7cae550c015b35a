"""Whatever stands in somebody's folder, it is read or its faults are named; nothing else happens."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omx_autoresearch.compat.foreign_folders import Folder, adoptable

NAMES = st.sampled_from(
    [
        *("task_id", "goal", "scope", "milestones", "allowed_operations", "write", "success_criteria"),
        *("id", "description", "required", "accepts", "status", "iteration", "stale_count"),
        *("summary", "kind", "paths", "command"),
    ]
)
WORDS = st.sampled_from(
    ["running", "manual", "f1", "a-b", "person", "command: 'x", "file: a ~ (", "command: ./x"]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | WORDS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=8),
    max_leaves=20,
)


@pytest.mark.requirement("RESUME-04")
@given(VALUES, VALUES, VALUES, st.lists(st.tuples(st.integers(1, 9), VALUES), max_size=3))
def test_any_json_is_read_or_refused_by_file_and_place(
    spec: Any, progress: Any, directions: Any, findings: list[tuple[int, Any]]
) -> None:
    found, faults = adoptable(Folder(spec, None, progress, directions, findings), "/origin")
    if not faults:
        assert found.goal.strip()
        assert len({finding.id for finding in found.findings}) == len(findings)
        assert not any(finding.is_accepted for finding in found.findings)
        assert all(direction.by == "claim" for direction in found.directions)
    for fault in faults:
        assert fault.file
        assert fault.cause


@given(st.text(max_size=400))
def test_any_page_is_read_or_says_what_it_lacks(page: str) -> None:
    found, faults = adoptable(Folder(page=page, progress={"status": "running"}), "/origin")
    assert bool(faults) != bool(found.goal.strip())
