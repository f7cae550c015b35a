"""A validator prints what it was given: no secret of the owner comes to light in what is shown or kept."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from omx_autoresearch.foundation.errors import CommandFault
from omx_autoresearch.missions import claims, launch
from omx_autoresearch.missions.contracts import dry_run
from omx_autoresearch.missions.rules.criteria import criterion_of
from omx_autoresearch.missions.rules.intake import MissionDraft
from omx_autoresearch.missions.secrets import for_run, is_secret
from omx_autoresearch.missions.validation import runs
from tests.support.scratch import Scratch

if TYPE_CHECKING:
    from pathlib import Path

    from omx_autoresearch.missions.rules.mission import Mission

SECRETS = {
    "DEPLOY": "hunter2hunter2",
    "PGPASSWORD": "correct-horse",
    "STORE_DSN": "store:service",
    "SERVICE_URL": "https://me:pa%2Fss-word@example.invalid/base",
    "QUOTED_TOKEN": 'a"quoted\\token',
}
SHOWN = {"MODE": "production", "DATA_FOLDER": "/srv/data-2024", "SEED": "123456789", "SHORT_TOKEN": "ab12"}
PRINTS = '#!/bin/sh\nenv\nprintf \'{"passed": false, "summary": "it is %s"}\\n\' "$DEPLOY"\nexit 1\n'


@pytest.fixture
def world(tmp_path: Path) -> Scratch:
    world = Scratch.make(tmp_path)
    world.environ.update(SECRETS | SHOWN)
    world.write("check.sh", PRINTS, executable=True)
    return world


def _mission(world: Scratch, **fields: Any) -> Mission:
    return world.mission(environment_names=tuple(SECRETS | SHOWN), has_baseline=True, **fields)


def _forms() -> list[str]:
    plain = [*SECRETS.values(), "pa%2Fss-word", "pa/ss-word"]
    return [*plain, *(json.dumps(text)[1:-1] for text in plain), *(quote(text, safe="") for text in plain)]


@pytest.mark.requirement("DONE-28")
def test_no_secret_stands_in_a_refusal_a_journal_or_an_output(world: Scratch) -> None:
    mission = _mission(world, criteria=(criterion_of("seen: it is seen :: command: ./check.sh"),))
    refusal = world.stop().refusal
    assert "it is [redacted]" in refusal
    claims.note(world.runtime(), mission.task_id, f"the password is {SECRETS['PGPASSWORD']}", origin="cli")
    world.follow()
    folder = world.home.mission(mission.task_id)
    kept = [path for root in (folder.root_path, world.project) for path in _files(str(root))]
    assert folder.secrets_path in kept
    for path in kept:
        with open(path, "rb") as stream:
            text = stream.read().decode("utf-8", "replace")
        found = [form for form in _forms() if form in text]
        assert not found or path == folder.secrets_path, (path, found)
    assert stat.S_IMODE(os.stat(folder.secrets_path).st_mode) == 0o600
    assert [form for form in _forms() if form in refusal] == []


@pytest.mark.requirement("DONE-28")
def test_the_validator_gets_the_values_and_settings_are_shown(world: Scratch) -> None:
    world.write(
        "check.sh", '#!/bin/sh\n[ "$DEPLOY" = hunter2hunter2 ] || exit 3\nenv\nexit 1\n', executable=True
    )
    mission = _mission(world)
    world.stop()
    run = world.load(mission).attestation
    assert run is not None
    assert (run.verdict, run.exit_status) == ("failed", 1)
    shown = runs.output_tail(world.runtime(), world.load(mission), 10_000)
    assert all(f"{name}={value}" in shown for name, value in SHOWN.items())


@pytest.mark.requirement("DONE-28")
def test_a_dry_run_and_a_baseline_show_no_secret(world: Scratch) -> None:
    draft = MissionDraft(goal="g", validator_command="./check.sh", environment_names=tuple(SECRETS))
    tryout = dry_run(world.runtime(), str(world.project), draft).tryout
    assert tryout is not None
    assert "[redacted]" in tryout.output
    assert [form for form in _forms() if form in tryout.output + tryout.report.summary] == []
    mission = world.draft(environment_names=tuple(SECRETS))
    baseline = launch.start(world.runtime(), mission.task_id, launch.StartOptions()).baseline
    assert baseline is not None
    assert baseline.summary == "it is [redacted]"


@pytest.mark.requirement("DONE-28")
def test_a_run_whose_secrets_are_gone_says_how_to_give_them_again(world: Scratch) -> None:
    mission = _mission(world)
    os.unlink(world.home.mission(mission.task_id).secrets_path)
    with pytest.raises(CommandFault, match="no longer in secrets") as told:
        for_run(world.home.mission(mission.task_id), _contract(mission))
    assert f"omx-autoresearch amend {mission.task_id}" in told.value.next_step
    assert world.stop().refusal


@pytest.mark.parametrize(
    ("name", "value", "is_one"),
    [
        ("AWS_SECRET_ACCESS_KEY", "abcdefgh", True),
        ("Db_Password", "lettersonly", True),
        ("ANYTHING", "0f343b0931126a20f133d67c2b018a3b", True),
        ("DATABASE_URL", "postgres://user:longpassword@db/x", True),
        ("DATABASE_URL", "postgres://db.example.invalid/x", False),
        ("STAGE", "release-2024", False),
        ("LC_ALL", "en_US.UTF-8", False),
        ("MONKEY", "business", False),
        ("TOKEN", "short", False),
    ],
)
def test_a_secret_is_known_by_its_name_or_its_value(name: str, value: str, is_one: bool) -> None:
    assert is_secret(name, value) is is_one


def _contract(mission: Mission) -> Any:
    assert mission.contract is not None
    return mission.contract


def _files(root: str) -> list[str]:
    return [os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names]
