"""The guard of conftest.py holds: no real home, no foreign marks."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

from tests.conftest import home_environment, is_foreign


def test_every_path_to_a_persons_files_leads_into_the_scratch_home(home: Path) -> None:
    for name, value in home_environment(home).items():
        assert os.environ[name] == value
    assert Path.home() == home
    assert home != Path(pwd.getpwuid(os.getuid()).pw_dir)


def test_a_child_process_inherits_the_scratch_home(home: Path) -> None:
    program = "import os; print(os.path.expanduser('~/.claude'))"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == str(home / ".claude")


def test_no_mark_of_an_agent_that_runs_the_tests_is_left() -> None:
    ours = home_environment(Path())
    assert [name for name in os.environ if is_foreign(name) and name not in ours] == []


def test_git_can_commit_in_the_scratch_home_and_knows_no_real_person(tmp_path: Path) -> None:
    for arguments in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True, capture_output=True)
    shown = subprocess.run(
        ["git", "log", "--format=%ae"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert shown.stdout.strip() == "person@example.invalid"
