"""An agent's command line is filled in so that a real shell reads each placeholder as one word."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omx_autoresearch.experiments.driver import agent_script, checked_line, filled
from omx_autoresearch.foundation.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

NASTY = 'it\'s "so" `date` $(date) $HOME \\ 100 %; rm -rf / #\n{workspace} {prompt} é'
FORMS = (
    "printf %s {prompt}",
    'printf %s "{prompt}"',
    "printf %s '{prompt}'",
    'printf %s "$(printf %s {prompt})"',
    'printf %s "$(printf %s "{prompt}")"',
    "true \\' && printf %s {prompt}",
    'true "\\"" && printf %s {prompt}',
    "true 'it\\' && printf %s {prompt}",
)


def said(script: str) -> str:
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, check=True)
    return done.stdout.decode()


@pytest.mark.requirement("DRIVE-02")
@pytest.mark.parametrize("form", FORMS)
def test_a_prompt_reaches_the_agent_as_one_word_however_it_is_quoted(form: str) -> None:
    assert said(filled(form, {"prompt": NASTY})) == NASTY


@settings(max_examples=40)
@given(st.text(st.characters(exclude_characters="\0", codec="utf-8")), st.sampled_from(FORMS))
def test_any_text_survives_the_shell(text: str, form: str) -> None:
    # a command substitution drops newlines at the end, whoever wrote it
    expected = text.rstrip("\n") if "$(" in form else text
    assert said(filled(form, {"prompt": text})) == expected


@pytest.mark.requirement("DRIVE-02")
def test_all_placeholders_are_filled_and_other_braces_stay(tmp_path: Path) -> None:
    folder = tmp_path / "a folder's"
    folder.mkdir()
    prompt_path = folder / "prompt.md"
    prompt_path.write_text("Do it.\n")
    line = """printf '%s|' {workspace} "{prompt_file}" {prompt} '{"a": {b}}' ${HOME:+x}; cat"""
    script = agent_script(line, prompt="Do it.\n", prompt_path=str(prompt_path), workspace_path=str(folder))
    assert said(script) == f'{folder}|{prompt_path}|Do it.\n|{{"a": {{b}}}}|x|Do it.\n'


def test_a_prompt_that_no_command_line_holds_is_refused_with_the_way_around() -> None:
    with pytest.raises(UsageError, match="command line") as caught:
        agent_script("agent {prompt}", prompt="x" * 200_000, prompt_path="/p", workspace_path="/w")
    assert "{prompt_file}" in caught.value.next_step
    agent_script("agent {prompt_file}", prompt="x" * 200_000, prompt_path="/p", workspace_path="/w")


@pytest.mark.parametrize("line", ["", "  ", "claude 'oops", "claude \0"])
def test_a_line_that_no_shell_reads_is_refused_before_anything_runs(line: str) -> None:
    with pytest.raises(UsageError):
        checked_line(line)
