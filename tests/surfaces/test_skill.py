"""The skill that may be copied to an agent CLI: every command that it tells an agent is one that can be typed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from omx_autoresearch.missions.rules.directions import AXES
from omx_autoresearch.missions.rules.prompts import command_in
from omx_autoresearch.surfaces.cli.program import VERBS, program

TEXT = (Path(__file__).resolve().parents[2] / "hooks" / "skills" / "autoresearch" / "SKILL.md").read_text(
    "utf-8"
)
COMMANDS = [" ".join(said.split()) for said in re.findall(r"`(omx-autoresearch [^`]+)`", TEXT)]


def test_the_skill_has_the_name_that_a_person_types() -> None:
    assert TEXT.startswith("---\nname: autoresearch\ndescription: ")
    assert command_in("$autoresearch TASK") is not None


@pytest.mark.parametrize("said", COMMANDS)
def test_every_command_of_the_skill_can_be_typed(said: str) -> None:
    words = shlex.split(said)[1:]
    command: click.Command | None = program
    context = click.Context(program)
    while isinstance(command, click.Group):
        command = command.get_command(context, words.pop(0))
    assert command is not None
    known = {option for param in command.params for option in param.opts}
    assert {word for word in words if word.startswith("--")} <= known
    axes = [words[at + 1].partition("=")[0] for at, word in enumerate(words) if word == "--axis"]
    assert set(axes) <= set(AXES)


def test_the_skill_forbids_only_verbs_that_there_are_and_shows_the_agents_own() -> None:
    owners = re.search(r"owner's \((.*?)\)", TEXT)
    assert owners is not None
    assert set(re.findall(r"`(\w+)`", owners[1])) <= set(VERBS)
    told = {said.split()[1] for said in COMMANDS}
    assert {"direction", "finding", "criterion", "readiness", "validate", "wait", "restore", "block"} <= told
