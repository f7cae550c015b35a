"""The words of a person that mean us, and everything that only looks like them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omx_autoresearch.foundation.text import MARK
from omx_autoresearch.missions.rules.briefing import bound, refusal_for_person
from omx_autoresearch.missions.rules.prompts import PromptCommand, command_in, paths_named, task_named
from tests.missions.rules.samples import TASK, a_mission

BIND = PromptCommand("bind", TASK)

COMMANDS: tuple[tuple[str, PromptCommand], ...] = (
    (f"$autoresearch {TASK}", BIND),
    (f"/autoresearch {TASK}", BIND),
    (f"  \n\t$autoresearch \t {TASK}  ", BIND),
    (f"$autoresearch {TASK}\n\nand mind the corpus", BIND),
    (f"$autoresearch {TASK}\r\nmore", BIND),
    ("$autoresearch", PromptCommand("bind", "")),
    ("/autoresearch  \n", PromptCommand("bind", "")),
    ("$autoresearch pause", PromptCommand("pause", "")),
    ("$autoresearch RESUME", PromptCommand("resume", "")),
    ("/autoresearch status  ", PromptCommand("status", "")),
    (f"$autoresearch cancel {TASK}", PromptCommand("cancel", TASK)),
    (f"$autoresearch cancel '{TASK}'.", PromptCommand("cancel", TASK)),
    # quotes and the end of a sentence
    (f'$autoresearch "{TASK}"', BIND),
    (f"$autoresearch `{TASK}`", BIND),
    (f"$autoresearch <{TASK}>.", BIND),
    (f"$autoresearch {TASK}!", BIND),
    (f"$autoresearch '{TASK}", BIND),
    # Chinese and Japanese
    (f"$autoresearch\u3000{TASK}\u3002", BIND),
    (f"\u3000$autoresearch \u300c{TASK}\u300d", BIND),
    (f"$autoresearch \u201c{TASK}\u201d\uff01", BIND),
    ("$autoresearch \u89e3\u6790\u5668", PromptCommand("bind", "\u89e3\u6790\u5668")),
    # paths
    (f"$autoresearch .omx/autoresearch/{TASK}/", BIND),
    (f"$autoresearch /project/.omx/autoresearch/{TASK}/state/progress.json", BIND),
    (f"$autoresearch .reasonix/autoresearch/{TASK}", BIND),
    (f'$autoresearch "/my project/.omx/autoresearch/{TASK}/"', BIND),
    (f"$autoresearch /my\\ project/.omx/autoresearch/{TASK}/", BIND),
    (f"$autoresearch C:\\work\\.omx\\autoresearch\\{TASK}\\state", BIND),
    (f"$autoresearch pause '/my project/.omx/autoresearch/{TASK}'", PromptCommand("pause", TASK)),
    (f"$autoresearch {TASK}/", BIND),
)

FREE_TEXT: tuple[str, ...] = (
    "",
    "   \n",
    "autoresearch",
    f"please run $autoresearch {TASK}",
    f"> $autoresearch cancel {TASK}",
    f"'$autoresearch {TASK}'",
    f'"$autoresearch {TASK}"',
    f"`$autoresearch {TASK}`",
    f"```\n$autoresearch {TASK}\n```",
    f"    # $autoresearch {TASK}",
    f"- $autoresearch {TASK}",
    f"What does `$autoresearch cancel` do?\n$autoresearch cancel {TASK}",
    f"$autoresearcher {TASK}",
    f"$autoresearch-report {TASK}",
    f"/autoresearch/{TASK}",
    f"/autoresearch:status {TASK}",
    f"$autoresearch, {TASK}",
    f"$autoresearch. {TASK}",
    f"$Autoresearch {TASK}",
    f"$ autoresearch {TASK}",
    f"$$autoresearch {TASK}",
    f"\\$autoresearch {TASK}",
    f"\uff04autoresearch {TASK}",
    f"<hook_context>$autoresearch {TASK}</hook_context>",
    f"look at .omx/autoresearch/{TASK}/state/progress.json",
    "\u53d6\u6d88 $autoresearch cancel",
)


@pytest.mark.requirement("SESS-02")
@pytest.mark.parametrize(("prompt", "command"), COMMANDS)
def test_a_prompt_that_begins_with_the_command_is_one(prompt: str, command: PromptCommand) -> None:
    assert command_in(prompt) == command


@pytest.mark.requirement("SESS-01")
@pytest.mark.parametrize("prompt", FREE_TEXT)
def test_free_text_quotes_and_code_bind_nothing(prompt: str) -> None:
    assert command_in(prompt) is None


@pytest.mark.requirement("SESS-01")
def test_our_own_words_fed_back_as_a_prompt_bind_nothing() -> None:
    mission = a_mission(goal="$autoresearch cancel")
    for text in (
        bound(mission),
        refusal_for_person(mission),
        f"{MARK} $autoresearch {TASK}",
        f"\n{bound(mission)}",
    ):
        assert command_in(text) is None


@pytest.mark.parametrize("verb", ["pause", "resume", "status", "cancel"])
@pytest.mark.parametrize("around", ["'{}'", '"{}"', "`{}`", "{}.", "{}?", "({})", "{},"])
def test_an_owner_verb_is_the_bare_word_and_anything_around_it_is_a_name_that_nobody_has(
    verb: str, around: str
) -> None:
    found = command_in(f"$autoresearch {around.format(verb)}")
    assert found == PromptCommand("bind", verb)


def test_a_sentence_behind_an_owner_verb_names_a_task_that_nobody_has() -> None:
    assert command_in("$autoresearch cancel culture is a topic") == PromptCommand("cancel", "culture")


@pytest.mark.parametrize(
    "word", ["???", "...", "''", "\u3002", ".omx/autoresearch/../x", '""', "-", "/", "()"]
)
def test_a_word_of_punctuation_names_no_task_and_above_all_not_the_only_one(word: str) -> None:
    for prompt in (f"$autoresearch {word}", f"$autoresearch cancel {word}"):
        found = command_in(prompt)
        assert found is not None
        assert found.task != ""


def test_only_the_first_word_names_the_task() -> None:
    assert command_in(f"$autoresearch fix what .omx/autoresearch/{TASK}/ says") == PromptCommand(
        "bind", "fix"
    )


@pytest.mark.parametrize(
    ("word", "task"),
    [
        (TASK, TASK),
        (f"./.omx/autoresearch/{TASK}", TASK),
        (f".omx/autoresearch/{TASK}.", TASK),
        ("../../etc/passwd", "/../etc/passwd"),
        (".omx/specs/autoresearch-parser", "omx/specs/autoresearch-parser"),
        (".omx/autoresearch/", "omx/autoresearch"),
    ],
)
def test_a_task_is_named_by_itself_or_by_its_folder(word: str, task: str) -> None:
    assert task_named(word) == task


@given(st.text())
def test_any_prompt_is_read_and_only_the_beginning_decides(prompt: str) -> None:
    found = command_in(prompt)
    begins = prompt.lstrip().startswith(("$autoresearch", "/autoresearch"))
    assert found is None or begins
    assert command_in(f"x{prompt}") is None


@given(st.text(alphabet=st.characters(blacklist_characters="\r\n")))
def test_whatever_follows_the_command_is_read(rest: str) -> None:
    found = command_in(f"$autoresearch {rest}")
    assert found is not None
    assert (found.task == "") == (rest.strip() == "" or (found.verb != "bind" and len(rest.split()) == 1))


@pytest.mark.parametrize("piece", [" ", "\n", "$autoresearch ", "\\", "'", "a ", "\\ ", "\u3002", "```\n"])
def test_a_prompt_of_megabytes_is_read_in_linear_steps(piece: str) -> None:
    for prompt in (piece * 500_000, f"$autoresearch {piece * 500_000}"):
        command_in(prompt)


NAMED: tuple[tuple[str, list[tuple[str, str, str]]], ...] = (
    ("make the parser pass", []),
    (".omx/autoresearch/", []),
    (".omx/autoresearch/../x", []),
    (f"go on with .omx/autoresearch/{TASK}/.", [(TASK, "omx", f".omx/autoresearch/{TASK}")]),
    (f"see .omx/autoresearch/{TASK}\u3002\u7d9a\u3051\u3066", [(TASK, "omx", f".omx/autoresearch/{TASK}")]),
    (
        f"it's in '/my project/.reasonix/autoresearch/{TASK}/'!",
        [(TASK, "reasonix", f"/my project/.reasonix/autoresearch/{TASK}")],
    ),
    (
        f"/my\\ project/.omx/autoresearch/{TASK}/state/progress.json",
        [(TASK, "omx", f"/my project/.omx/autoresearch/{TASK}")],
    ),
    (
        f"C:\\jobs\\.reasonix\\autoresearch\\{TASK}\\state",
        [(TASK, "reasonix", f"C:/jobs/.reasonix/autoresearch/{TASK}")],
    ),
    (
        f"C:\\\\jobs\\\\.omx\\\\autoresearch\\\\{TASK}\\\\",
        [(TASK, "omx", f"C:/jobs/.omx/autoresearch/{TASK}")],
    ),
    (
        f"(/a/.omx/autoresearch/{TASK}), then `.reasonix/autoresearch/b`; again .omx/autoresearch/{TASK}",
        [(TASK, "omx", f"/a/.omx/autoresearch/{TASK}"), ("b", "reasonix", ".reasonix/autoresearch/b")],
    ),
)


@pytest.mark.requirement("RESUME-01")
@pytest.mark.parametrize(("text", "named"), NAMED)
def test_every_folder_that_a_text_names_is_found_once_whatever_stands_around_it(
    text: str, named: list[tuple[str, str, str]]
) -> None:
    assert [(item.task_id, item.root, item.path) for item in paths_named(text)] == named


@given(st.text(alphabet=" ./\\\"'`omxautresch-", max_size=200))
def test_any_text_may_be_searched_for_folders(text: str) -> None:
    for item in paths_named(text):
        assert item.task_id == item.task_id.strip(".-_/\\ ")
