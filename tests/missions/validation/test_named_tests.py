"""Tests of the baseline must pass by their names."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.foundation.errors import MissionInvalid
from omx_autoresearch.missions.amending import amend_mission
from tests.missions.validation.test_validation import run_now

if TYPE_CHECKING:
    from typing import Any

    from omx_autoresearch.missions.rules.mission import Attestation, Contract, Mission
    from tests.support.scratch import Scratch

PYTEST = f"{sys.executable} -m pytest -q"
UNITTEST = f"{sys.executable} -m unittest"
WORK = "import os\n\ndef add(a, b):\n    return 0\n"
RIGHT = "def add(a, b):\n    return a + b\n"
TESTS = """\
import pytest
from work import add

def test_adds():
    assert add(1, 2) == 3

def test_is_there():
    assert add is not None
"""
CASES = """\
import unittest
from work import add

class Adding(unittest.TestCase):
    def test_adds(self):
        self.assertEqual(add(1, 2), 3)
"""
TRIVIAL = "def test_nothing():\n    pass\n"
TRIVIAL_CASE = "import unittest\n\nclass More(unittest.TestCase):\n    def test_more(self):\n        pass\n"


def mission_of(world: Scratch, command: str = PYTEST, **fields: Any) -> Mission:
    world.write("work.py", WORK)
    world.write("conftest.py", "import sys\nsys.path.insert(0, '.')\n")
    world.write("tests/__init__.py", "")
    if "unittest" in command:
        world.write("tests/test_work.py", CASES)
    elif not (world.project / "tests/test_work.py").exists():
        world.write("tests/test_work.py", TESTS)
    world.commit("Add the tests")
    return world.mission(validator_command=command, has_baseline=True, **fields)


def contract_of(world: Scratch, mission: Mission) -> Contract:
    contract = world.load(mission).contract
    assert contract is not None
    return contract


def told(run: Attestation) -> tuple[str, str]:
    return run.verdict, run.cause


@pytest.mark.requirement("DONE-31")
def test_a_test_that_the_work_skips_is_missed_by_its_name_whatever_is_added(world: Scratch) -> None:
    mission = mission_of(world)
    assert contract_of(world, mission).named_tests == 2
    world.write("work.py", "import pytest\n\ndef add(a, b):\n    pytest.skip('later')\n")
    for number in range(5):
        world.write(f"tests/test_more_{number}.py", TRIVIAL)
    run = run_now(world, mission)
    assert told(run) == ("failed", "tests-missing")
    assert "1 test of the baseline did not pass: tests.test_work::test_adds (skipped)" in run.summary
    assert (
        f"omx-autoresearch amend {mission.task_id} --without-test 'tests.test_work::test_adds'" in run.summary
    )
    world.write("work.py", RIGHT)
    assert told(run_now(world, mission)) == ("passed", "exit-0")


@pytest.mark.requirement("DONE-31")
@pytest.mark.parametrize("command", [UNITTEST, f"{UNITTEST} -v"], ids=["by-number", "by-name"])
def test_a_case_of_unittest_that_the_work_skips_is_missed(world: Scratch, command: str) -> None:
    mission = mission_of(world, command)
    world.write("work.py", "import unittest\n\ndef add(a, b):\n    raise unittest.SkipTest('later')\n")
    for number in range(3):
        world.write(f"tests/test_more_{number}.py", TRIVIAL_CASE)
    run = run_now(world, mission)
    assert told(run) == ("failed", "tests-missing" if "-v" in command else "skipped-tests")
    assert "tests.test_work.Adding.test_adds (skipped)" in run.summary or "1 test more skipped" in run.summary
    world.write("work.py", RIGHT)
    assert told(run_now(world, mission)) == ("passed", "exit-0")


@pytest.mark.requirement("DONE-31")
def test_the_owner_can_leave_a_test_out_by_its_name(world: Scratch) -> None:
    mission = mission_of(world, protect=("!tests/**",), unfrozen_reason="the tests are written anew")
    world.write("work.py", RIGHT)
    world.write("tests/test_work.py", TESTS.replace("test_is_there", "test_stands_there"))
    run = run_now(world, mission)
    assert told(run) == ("failed", "tests-missing"), "no tampering"
    assert "tests.test_work::test_is_there (not run)" in run.summary

    def amended(name: str) -> None:
        amend_mission(world.runtime(), mission.task_id, lambda draft: replace(draft, without_tests=(name,)))

    with pytest.raises(MissionInvalid, match="none of the 2 tests that the baseline named") as caught:
        amended("test_is_there")
    cure = f"omx-autoresearch amend {mission.task_id} --without-test 'tests.test_work::test_is_there'"
    assert caught.value.next_step == cure
    amended("tests.test_work::test_is_there")
    assert told(run_now(world, mission)) == ("passed", "exit-0")
    world.write("tests/test_work.py", TRIVIAL)
    assert told(run_now(world, mission)) == ("failed", "tests-missing")


@pytest.mark.requirement("DONE-31")
def test_names_that_two_runs_list_differently_count_by_number(world: Scratch) -> None:
    changing = "import os, pytest\n\n@pytest.mark.parametrize('x', [str(os.getpid())])\ndef test_p(x): pass\n"
    world.write("tests/test_p.py", changing)
    mission = mission_of(world)
    contract = contract_of(world, mission)
    assert (contract.named_tests, contract.baseline_tests) == (2, 3)
    world.write("work.py", RIGHT)
    assert told(run_now(world, mission)) == ("passed", "exit-0")


@pytest.mark.requirement("DONE-31")
def test_tests_of_every_pytest_that_the_check_runs_count(world: Scratch) -> None:
    world.write(
        "tests/test_other.py", "from work import add\n\ndef test_other():\n    assert add(2, 2) == 4\n"
    )
    mission = mission_of(world, f"{PYTEST} tests/test_work.py; {PYTEST} tests/test_other.py")
    assert contract_of(world, mission).named_tests == 3
    world.write("work.py", RIGHT)
    assert told(run_now(world, mission)) == ("passed", "exit-0")


@pytest.mark.requirement("DONE-31")
def test_a_module_that_the_tests_could_not_import_is_no_test_that_is_missed(world: Scratch) -> None:
    world.write("tests/test_new.py", "from new import what\n\ndef test_what():\n    assert what\n")
    mission = mission_of(world, f"{PYTEST} --continue-on-collection-errors")
    assert contract_of(world, mission).named_tests == 2
    world.write("work.py", RIGHT)
    world.write("new.py", "what = True\n")
    assert told(run_now(world, mission)) == ("passed", "exit-0")


@pytest.mark.requirement("DONE-31")
def test_a_lost_list_of_names_is_an_error_that_the_owner_mends(world: Scratch) -> None:
    mission = mission_of(world)
    world.write("work.py", RIGHT)
    Path(world.home.mission(mission.task_id).root_path, "baseline-tests").write_text(
        "tests.test_work::test_adds"
    )
    run = run_now(world, mission)
    assert told(run) == ("error", "tests-unknown")
    assert f"omx-autoresearch amend {mission.task_id}" in run.summary
    amend_mission(world.runtime(), mission.task_id, lambda draft: replace(draft, timeout_seconds=77.0))
    assert told(run_now(world, mission)) == ("passed", "exit-0")


@pytest.mark.requirement("DONE-31")
def test_a_runner_that_names_no_test_any_more_is_an_error(world: Scratch) -> None:
    mission = mission_of(world, f"{PYTEST}; test -e done.txt")
    world.write("work.py", RIGHT)
    world.write("done.txt", "")
    ends = "    with capfd.disabled():\n        os.write(1, b'\\n9 passed in 0.1s\\n')\n    os._exit(0)\n"
    world.write("tests/test_zz.py", f"import os\n\ndef test_last(capfd):\n{ends}")
    assert told(run_now(world, mission)) == ("error", "tests-unknown")


@pytest.mark.requirement("DONE-06")
def test_a_run_that_collected_nothing_is_said_to_have_tested_nothing(world: Scratch) -> None:
    world.write("check.sh", "#!/bin/sh\n# pytest\ncat said.txt\nexit $(cat status.txt)\n", executable=True)
    world.write("said.txt", "= 2 failed in 0.1s =\n")
    world.write("status.txt", "1")
    protect = ("!said.txt", "!status.txt")
    mission = world.mission(validator_command="./check.sh # pytest", has_baseline=True, protect=protect)
    world.write("said.txt", "= no tests ran in 0.01s =\n")
    world.write("status.txt", "0")
    run = run_now(world, mission)
    assert told(run) == ("failed", "fewer-tests")
    assert "it tested nothing" in run.summary


@pytest.mark.requirement("DONE-31")
def test_a_project_that_writes_a_report_of_its_own_keeps_it(world: Scratch) -> None:
    world.write("pytest.ini", "[pytest]\naddopts = --junitxml=report.xml\n")
    world.write(".gitignore", "report.xml\n__pycache__\n")
    mission = mission_of(world, f"{PYTEST}; grep -q testsuite report.xml && test -e done.txt")
    assert contract_of(world, mission).named_tests == 0
    world.write("work.py", RIGHT)
    world.write("done.txt", "")
    assert told(run_now(world, mission)) == ("passed", "exit-0")
