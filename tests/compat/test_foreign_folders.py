"""Whatever stands in a task folder, it is read or its faults are named; nothing else happens."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omx_autoresearch.compat.adoption import Origin, read_origin
from omx_autoresearch.foundation.errors import MissionInvalid

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


def read(**files: str) -> Origin | list[str]:
    """What becomes of a folder of these files: the origin, or the lines of its refusal."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            Path(folder, name.replace("__", ".")).write_text(text, "utf-8", "surrogatepass")
        try:
            return read_origin(folder)
        except MissionInvalid as error:
            return error.message.splitlines()[1:]


@pytest.mark.requirement("RESUME-04")
@given(VALUES, VALUES, VALUES, st.lists(VALUES, max_size=3))
def test_any_json_is_read_or_refused_by_file_and_place(
    spec: Any, progress: Any, directions: Any, findings: list[Any]
) -> None:
    found = read(
        task_spec__json=json.dumps(spec),
        progress__json=json.dumps(progress),
        directions_tried__json=json.dumps(directions),
        findings__jsonl="".join(f"{json.dumps(line)}\n" for line in findings),
    )
    if isinstance(found, Origin):
        assert found.draft.goal.strip()
        assert len({finding.id for finding in found.findings}) == len(findings)
        assert not any(finding.evidence for finding in found.findings)
        assert all(direction.by == "claim" for direction in found.directions)
    else:
        assert found
        assert all(line.startswith("  - ") and ".json" in line for line in found if line.startswith("  - "))


@given(st.text(max_size=400))
def test_any_page_is_read_or_says_what_it_lacks(page: str) -> None:
    found = read(task_spec__md=page, progress__json='{"status": "running"}')
    assert not isinstance(found, Origin) or found.draft.goal.strip()
