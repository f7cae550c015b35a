"""The guard of conftest.py holds: no real home, no foreign marks."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.slow
def test_a_worker_finds_the_clients_where_the_process_above_it_does(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(clients_path): print(f'<{clients_path}>')\n")
    outer = Path(pwd.getpwuid(os.getuid()).pw_dir)
    for workers, environ, expected in (
        ("1", {"OMX_CLIENTS_DIR": "/some/clients"}, "/some/clients"),
        ("1", {"HOME": str(outer)}, str(outer / ".cache" / "omx-autoresearch" / "clients")),
    ):
        options = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-c", os.devnull, "-n", workers, "-rP"]
        said = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                *options,
                "--rootdir",
                str(tmp_path),
                str(tmp_path / "test_it.py"),
            ],
            cwd=Path(__file__).resolve().parent.parent,
            env={"PATH": os.environ["PATH"], **environ},
            capture_output=True,
            text=True,
            check=False,
        )
        assert f"<{expected}>" in said.stdout, said.stdout + said.stderr
