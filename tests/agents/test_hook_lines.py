from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from omx_autoresearch.agents.events import HookEntry
from omx_autoresearch.agents.hook_lines import (
    HookProgram,
    hook_line,
    hook_script,
    path_fault,
    program_of_script,
    state_home_of_line,
)

SHELLS = [name for name in ("dash", "bash", "zsh", "fish", "sh") if shutil.which(name)]
HOMES = ["/s/omx-autoresearch", "/s/a home/with 'quotes'", "/s/ünï/ßtate", "/s/a && b; c # d"]
GUARDS = ["active", "start", "always"]


def line_of(guard: str, home_path: str | Path) -> str:
    return hook_line(HookEntry("Stop", "stop", 120, guard), "claude", str(home_path))


def run(shell: str, line: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    environment = {"PATH": "/usr/bin:/bin", **environ}
    return subprocess.run([shell, "-c", line], capture_output=True, env=environment, input=b"{}", check=False)


def write_script(home: Path, body: str) -> None:
    (home / "hook").write_text(f"#!/bin/sh\n{body}\n")
    (home / "hook").chmod(0o755)


@pytest.mark.requirement("SPEED-05")
def test_the_line_is_short_and_names_nothing_that_an_upgrade_changes() -> None:
    assert (
        line_of("active", "/s/home")
        == "[ -d /s/home/active ] && [ -x /s/home/hook ] && exec /s/home/hook claude; exit 0"
    )


@pytest.mark.parametrize("home_path", HOMES)
@pytest.mark.parametrize("guard", GUARDS)
def test_a_line_of_ours_tells_its_state_home(guard: str, home_path: str) -> None:
    assert state_home_of_line(line_of(guard, home_path)) == home_path


@pytest.mark.parametrize(
    "line",
    [
        "",
        "true",
        "exec /s/home/hook claude; exit 0",
        "[ -x /s/home/hook ] && exec /s/other/hook claude; exit 0",
        "[ -x /s/home/hook ] && exec /s/home/hook claude; exit 0; echo",
        "[ -x hook ] && exec hook claude; exit 0",
        "[ -x /s/tool ] && exec /s/tool claude; exit 0",
    ],
)
def test_a_line_of_somebody_else_is_not_ours(line: str) -> None:
    assert state_home_of_line(line) == ""


@pytest.mark.requirement("HOOK-06")
@pytest.mark.requirement("SPEED-01")
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("guard", GUARDS)
def test_a_missing_state_home_ends_with_nothing_and_zero(tmp_path: Path, shell: str, guard: str) -> None:
    done = run(shell, line_of(guard, tmp_path / "no such 'home"), OMX_AUTORESEARCH_TASK="T:N")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.requirement("SPEED-01")
@pytest.mark.parametrize("shell", SHELLS)
def test_only_something_active_starts_the_script_for_a_stop(tmp_path: Path, shell: str) -> None:
    home = tmp_path / "a home with 'quotes'"
    home.mkdir()
    write_script(home, 'echo "ran $1"')
    assert run(shell, line_of("active", home), OMX_AUTORESEARCH_TASK="T:N").stdout == b""
    assert run(shell, line_of("start", home)).stdout == b""
    assert run(shell, line_of("start", home), OMX_AUTORESEARCH_TASK="T:N").stdout == b"ran claude\n"
    assert run(shell, line_of("always", home)).stdout == b"ran claude\n"
    (home / "active").mkdir()
    assert run(shell, line_of("active", home)).stdout == b"ran claude\n"
    assert run(shell, line_of("start", home)).stdout == b"ran claude\n"


@pytest.mark.requirement("HOOK-06")
@pytest.mark.parametrize("shell", SHELLS)
def test_the_answer_and_status_of_the_hook_are_the_lines_own(tmp_path: Path, shell: str) -> None:
    write_script(tmp_path, "cat; exit 1")
    done = run(shell, line_of("always", tmp_path))
    assert (done.returncode, done.stdout) == (1, b"{}")


def test_a_script_that_may_not_be_run_is_as_good_as_missing(tmp_path: Path) -> None:
    write_script(tmp_path, "exit 2")
    (tmp_path / "hook").chmod(0o644)
    assert run("sh", line_of("always", tmp_path)).returncode == 0


def script_of(tmp_path: Path, python: Path, entry: Path) -> str:
    path = tmp_path / "hook"
    path.write_text(hook_script(HookProgram(str(tmp_path), str(python), str(entry))))
    path.chmod(0o755)
    return str(path)


@pytest.mark.requirement("HOOK-06")
@pytest.mark.parametrize("shell", SHELLS[:2])
def test_the_script_hands_state_home_and_client_to_the_entry(tmp_path: Path, shell: str) -> None:
    home = tmp_path / "it's here"
    home.mkdir()
    python = home / "python"
    python.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    python.chmod(0o755)
    entry = home / "entry.py"
    entry.touch()
    done = subprocess.run(
        [shell, script_of(home, python, entry), "codex"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"-I|-S|{entry}|{home}|codex|"


@pytest.mark.requirement("HOOK-06")
@pytest.mark.parametrize("shell", SHELLS[:2])
def test_a_missing_interpreter_or_entry_ends_with_nothing_and_zero(tmp_path: Path, shell: str) -> None:
    entry = tmp_path / "entry.py"
    for python in (tmp_path / "gone", Path(shutil.which("python3") or "/usr/bin/python3")):
        done = subprocess.run(
            [shell, script_of(tmp_path, python, entry), "codex"], capture_output=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize("home_path", HOMES)
def test_a_script_is_read_back_to_what_it_was_made_from(home_path: str) -> None:
    program = HookProgram(home_path, "/usr/bin/python3", "/site packages/o'hook.py")
    assert program_of_script(hook_script(program)) == program
    assert program_of_script(hook_script(program) + "exit 2\n") is None
    assert program_of_script("#!/bin/sh\nexit 0\n") is None


@pytest.mark.parametrize("path", ["relative", "/a$HOME", "/a`b`", "/a\\b", '/a"b', "/a\nb", ""])
def test_a_path_that_shells_or_clients_read_differently_is_named(path: str) -> None:
    assert path_fault(path)
    assert not path_fault("/plain path/it's")
