"""What a command and a script name, by their text alone."""

from __future__ import annotations

import pytest

from omx_autoresearch.freezing.evaluator_commands import (
    command_paths,
    is_optional,
    literal_paths,
    looks_like_evaluator,
    only_reads,
    program_of,
    recipe_of,
    sourced_paths,
)
from omx_autoresearch.freezing.manifest import glob_pattern
from omx_autoresearch.freezing.runners import runners_of

SCRIPT = """\
#!/bin/bash
# other.sh is not used
. "$(dirname "$0")/one.sh"
source ${HERE}/two.sh
[ -f x.sh ] && . three.sh
"$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/four.sh" --fast
python score.py data/in.txt > out.txt 2>> err.txt | tee log.txt
diff - "want dir/five.txt"
"""


def test_what_a_script_sources_is_found_behind_every_spelling_of_its_own_folder() -> None:
    assert sourced_paths(SCRIPT) == ["one.sh", "two.sh", "three.sh"]


def test_literal_paths_are_found_but_not_what_is_commented_out_or_written_to() -> None:
    found = literal_paths(SCRIPT)
    assert {"one.sh", "four.sh", "score.py", "data/in.txt"} <= set(found)
    assert not {"other.sh", "out.txt", "err.txt", "log.txt"} & set(found)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("[ -f .env ] && . ./.env\n", True),
        ("if [ -f ./.env ]; then . ./.env; fi\n", True),
        ("if test -r .env\nthen\n  . ./.env\nfi\n", True),
        (". ./.env 2>/dev/null || true\n", True),
        ('[ -f "$(dirname "$0")/.env" ] && . "$(dirname "$0")/.env"\n', True),
        ("[ -f .env ] || exit 1\n. ./.env\n", False),
        (". ./.env\n", False),
    ],
)
def test_a_script_may_read_a_file_where_it_is_there(script: str, expected: bool) -> None:
    (word,) = sourced_paths(script)
    assert is_optional(word, script) is expected


@pytest.mark.parametrize(
    ("path", "script", "expected"),
    [
        ("score.py", "check.sh", True),
        ("expected/a.txt", "check.sh", True),
        ("corpus/a.txt", "check.sh", True),
        ("parser.py", "check.sh", False),
        ("src/latest.py", "check.sh", False),
        ("src/casework.py", "check.sh", False),
        ("tools/run.py", "tools/go.sh", True),
        ("src/run.py", "tools/go.sh", False),
    ],
)
def test_inside_a_script_the_name_or_the_folder_says_whether_a_path_judges(
    path: str, script: str, expected: bool
) -> None:
    assert looks_like_evaluator(path, script) is expected


def test_a_recipe_has_its_own_lines_and_those_of_its_test_targets() -> None:
    text = "all: build\n\tcc a.c\nbuild:\n\tcc b.c\ncheck: build unit-tests\n\t@./c.sh \\\n\t  more\n"
    text += "unit-tests:\n\tpytest\nX := 1\n"
    assert recipe_of(text, ["make", "check"]).splitlines() == ["./c.sh  \t  more", "pytest"]
    assert recipe_of(text, ["make"]) == "cc a.c"
    assert recipe_of("", ["x"]) == ""


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("./check.sh --x", ("./check.sh", "")),
        ("FOO=1 ./check.sh", ("./check.sh", "")),
        ("python3.11 a/check.py", ("python3.11", "a/check.py")),
        ("bash -c x", ("bash", "")),
        ("pytest tests/", ("pytest", "")),
        ("( cd x )", ("", "")),
        ("", ("", "")),
        ("sh $DIR/x.sh", ("sh", "")),
    ],
)
def test_the_program_of_a_command_and_the_script_that_it_is_handed(
    command: str, expected: tuple[str, str]
) -> None:
    assert program_of(command) == expected


def test_every_runner_is_found() -> None:
    assert runners_of("pytest -q && cargo test && npx vitest run") == ("cargo", "npm", "pytest")
    assert runners_of("./check.sh") == ()


def test_a_very_deep_command_ends() -> None:
    command = "x"
    for _ in range(12):
        command = f"sh -c '{command}' y"
    assert command_paths(command)


@pytest.mark.parametrize(
    ("glob", "yes", "no"),
    [
        ("*.lock", ["a.lock", "x/y/a.lock"], ["a.locks"]),
        ("data/*.csv", ["data/a.csv"], ["data/x/a.csv", "x/data/a.csv"]),
        ("data/**/*.csv", ["data/a.csv", "data/x/y/a.csv"], ["data/a.txt"]),
        ("data", ["data", "data/x/y", "x/data/y"], ["data2", "mydata"]),
        ("a?c.txt", ["abc.txt"], ["a/c.txt"]),
        ("/x/", ["x", "x/y"], []),
        ("a[b].txt", ["a[b].txt"], ["ab.txt"]),
    ],
)
def test_a_glob_matches_as_in_a_gitignore(glob: str, yes: list[str], no: list[str]) -> None:
    pattern = glob_pattern(glob)
    assert [path for path in (*yes, *no) if pattern.fullmatch(path)] == yes


@pytest.mark.parametrize(
    "command", ["'a folder/check me.sh'", "a\\ folder/check\\ me.sh", "sh 'a folder/check me.sh' -q"]
)
def test_a_path_with_spaces_is_named(command: str) -> None:
    assert "a folder/check me.sh" in [named.word for named in command_paths(command)]


def test_a_script_with_spaces_is_the_one_that_an_interpreter_is_handed() -> None:
    assert program_of("sh 'check me.sh' -q") == ("sh", "check me.sh")


@pytest.mark.requirement("DONE-16")
@pytest.mark.parametrize(
    "command",
    [
        "grep -q done notes.md",
        "test -s notes.md && ! grep -q TODO notes.md",
        'test "$(wc -l < notes.md)" -gt 3',
        "cd docs && cat a.md b.md | grep -qx 42",
        "[ -f notes.md ]",
    ],
)
def test_a_command_of_readers_alone_is_the_whole_check(command: str) -> None:
    assert only_reads(command)


@pytest.mark.requirement("DONE-16")
@pytest.mark.parametrize(
    "command",
    [
        "true",
        "sh notes.md",
        "cat notes.md | sh",
        "grep -qf patterns notes.md",
        "grep --file=patterns notes.md",
        'test "$(./count notes.md)" -gt 3',
        "test `./count notes.md` -gt 3",
        "PATH=. grep -q done notes.md",
        "cat notes.md > other.md",
        "cmp notes.md other.md",
    ],
)
def test_a_command_that_runs_or_compares_something_of_the_workspace_is_no_whole_check(command: str) -> None:
    assert not only_reads(command)
