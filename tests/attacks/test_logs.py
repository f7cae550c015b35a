"""An experiment's log that somebody edited: it is named, and not passed over as if there were none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.surfaces.support.experiments import Researcher, works_at


@pytest.mark.requirement("EXP-02")
@pytest.mark.parametrize("verb", ["status", "resume", "verify", "patch", "accept"])
def test_an_edited_log_is_named_by_file_and_line(tmp_path: Path, verb: str) -> None:
    person = Researcher(tmp_path)
    experiment_id = person.begin()
    person.tries(works_at(90))
    workspace = person.json("experiment", "status")["workspace_path"]
    log = Path(workspace).parents[1] / "events.jsonl"
    log.write_text(log.read_text().replace('"improvement":0.1', '"improvement":0.9'))
    said = person.refused("experiment", verb, status=4)
    assert experiment_id in said
    assert "events.jsonl" in said
    assert "line" in said
