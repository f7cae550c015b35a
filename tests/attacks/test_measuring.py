"""Candidates that are not better and want to be taken for it: none of them moves the incumbent or the claim."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.experiments.judge.state import HypothesisOutcome
from omx_autoresearch.foundation.errors import CommandFault
from tests.experiments.toys import begun, h, put, toy, works_at, writes

if TYPE_CHECKING:
    from pathlib import Path

    from omx_autoresearch.experiments.trial import ExperimentWorkspace

OTHER = 'case "$PWD" in */candidate) other=../incumbent ;; *) other=../candidate ;; esac\n'
"""What a program in one worktree takes for the other."""


def program(*lines: str) -> str:
    return "\n".join(["#!/bin/sh", OTHER, *lines, ""])


# --- reaching over


@pytest.mark.requirement("EXP-05")
@pytest.mark.parametrize("reverification", ["on", "off"])
def test_a_program_that_plants_new_files_beside_the_incumbent_is_tampered(
    tmp_path: Path, reverification: str
) -> None:
    root = toy(tmp_path / "project", value="$(cat extra 2>/dev/null || echo 100)")
    plants = program("grep -q other $other/work.sh || echo 130 > $other/extra", "echo 100")
    with begun(root, reverification=reverification) as controller:
        row = controller.run_iteration(h(1), writes("work.sh", plants))
        assert (row.status, row.reason_code) == ("rejected", "tampered"), row.reason
        assert "extra" in row.reason
        assert controller.state.incumbent_commit == controller.state.base_commit


@pytest.mark.requirement("EXP-05")
def test_a_program_that_spoils_the_incumbent_and_mends_it_in_time_is_tampered(tmp_path: Path) -> None:
    """Only with the worktrees swapped; what it writes takes itself back, so that no look at the end finds it."""
    root = toy(tmp_path / "project")
    spoils = program(
        "if [ $other = ../incumbent ]; then echo 90; exit; fi",
        "if ! grep -q other $other/work.sh; then cp -p $other/work.sh $other/build.log",
        "printf '#!/bin/sh\\nmv build.log work.sh\\necho 130\\n' > $other/work.sh; fi",
        "echo 100",
    )
    with begun(root) as controller:
        row = controller.run_iteration(h(1), writes("work.sh", spoils))
        assert (row.status, row.reason_code) == ("rejected", "tampered"), row.reason


@pytest.mark.requirement("EXP-05")
def test_a_final_state_that_slows_the_base_down_gives_no_claim(tmp_path: Path) -> None:
    root = toy(tmp_path / "project", value="$(cat extra 2>/dev/null || echo 100)")
    plants = program("if grep -q 100 $other/work.sh; then echo 500 > $other/extra; fi", "echo 90")
    with begun(root) as controller:
        assert controller.run_iteration(h(1), works_at(95)).status == "accepted"
        assert controller.run_iteration(h(2), writes("work.sh", plants)).status == "accepted", (
            "it leaves this incumbent alone"
        )
        with pytest.raises(CommandFault, match="the other worktree changed during the run: extra"):
            controller.verify_claim()
        assert controller.state.claim is None


@pytest.mark.requirement("EXP-05")
@pytest.mark.parametrize("reverification", ["on", "off"])
def test_a_program_that_rewrites_itself_while_it_is_measured_is_tampered(
    tmp_path: Path, reverification: str
) -> None:
    """What was measured would not be what is kept."""
    rewrites = "#!/bin/sh\nprintf '#!/bin/sh\\necho 50\\n' > work.sh\necho 100\n"
    with begun(toy(tmp_path / "project"), reverification=reverification) as controller:
        row = controller.run_iteration(h(1), writes("work.sh", rewrites))
        assert (row.status, row.reason_code) == ("rejected", "tampered"), row.reason
        assert "the candidate's runs rewrote tracked files: work.sh" in row.reason


@pytest.mark.requirement("EXP-05")
def test_results_that_the_command_itself_writes_into_the_tree_are_nobodys_tampering(tmp_path: Path) -> None:
    measure = (
        "#!/bin/sh\ndate +%s%N > results.txt; echo $$ > run.$$\nprintf 'METRIC ms=%s\\n' \"$(./work.sh)\"\n"
    )
    root = toy(tmp_path / "project", measure=measure)
    with begun(root) as controller:
        row = controller.run_iteration(h(1), writes("work.sh", "#!/bin/sh\ndate > own.$$\necho 90\n"))
        assert row.status == "accepted", row.reason
        assert controller.verify_claim().estimate == pytest.approx(0.1)


# --- how frozen files are written


@pytest.mark.requirement("EXP-05")
def test_attributes_that_would_write_frozen_files_otherwise_are_tampering(tmp_path: Path) -> None:
    """Once accepted, every tree that is made anew would differ from what was frozen, and nothing could be measured."""
    with begun(toy(tmp_path / "project")) as controller:

        def play(workspace: ExperimentWorkspace, pattern: str) -> HypothesisOutcome:
            put(workspace, ".gitattributes", f"{pattern} text eol=crlf\n")
            put(workspace, "work.sh", "#!/bin/sh\necho 90\n")
            return HypothesisOutcome()

        row = controller.run_iteration(h(1), lambda workspace: play(workspace, "*.sh"))
        assert (row.status, row.reason_code) == ("rejected", "tampered"), row.reason
        assert ".gitattributes" in row.reason
        assert controller.run_iteration(h(2), lambda workspace: play(workspace, "*.txt")).status == "accepted"
        assert controller.verify_claim().estimate == pytest.approx(0.1)


# --- answers that are kept


@pytest.mark.requirement("EXP-04")
@pytest.mark.parametrize("place", ["answer", "build/answer"])
def test_an_answer_that_a_program_keeps_in_its_worktree_is_not_replayed(tmp_path: Path, place: str) -> None:
    """Ignored or not: no fresh checkout has it."""
    replays = f"#!/bin/sh\nif [ -f {place} ]; then echo 50; exit; fi\nmkdir -p build; : > {place}\necho 100\n"
    with begun(toy(tmp_path / "project")) as controller:
        row = controller.run_iteration(h(1), writes("work.sh", replays))
        assert (row.status, row.reason_code) == ("rejected", "not_reverified"), row.reason


@pytest.mark.requirement("EXP-04")
def test_what_the_set_up_makes_and_what_both_arms_leave_stays_for_every_run(tmp_path: Path) -> None:
    measure = "#!/bin/sh\n: > warm.log\nprintf 'METRIC ms=%s\\n' \"$(./work.sh)\"\n"
    uses = "#!/bin/sh\nif [ -f build/made ]; then echo 50; else echo 100; fi\n"
    root = toy(tmp_path / "project", measure=measure)
    with begun(
        root, setup="mkdir -p build; cp answer.sh build/; [ ! -f use ] || : > build/made"
    ) as controller:

        def play(workspace: ExperimentWorkspace) -> HypothesisOutcome:
            put(workspace, "use", "")
            put(workspace, "work.sh", uses)
            return HypothesisOutcome()

        row = controller.run_iteration(h(1), play)
        assert (row.status, row.metric) == ("accepted", 50.0), row.reason


# --- work that goes on elsewhere


@pytest.mark.requirement("EXP-13")
@pytest.mark.parametrize("line", ["sleep 60 >/dev/null &", "setsid -f sleep 60 >/dev/null 2>&1"])
def test_a_program_that_leaves_its_work_to_a_process_that_is_not_waited_for_is_rejected(
    tmp_path: Path, line: str
) -> None:
    with begun(toy(tmp_path / "project")) as controller:
        row = controller.run_iteration(h(1), writes("work.sh", f"#!/bin/sh\n{line}\necho 50\n"))
        assert (row.status, row.reason_code) == ("rejected", "left_running"), row.reason


def test_a_server_that_the_measure_command_itself_leaves_running_is_nobodys_fault(tmp_path: Path) -> None:
    measure = "#!/bin/sh\nsleep 60 >/dev/null &\necho METRIC ms=$(./work.sh)\n"
    with begun(toy(tmp_path / "project", measure=measure)) as controller:
        assert controller.run_iteration(h(1), works_at(95)).status == "accepted"


# --- the output


@pytest.mark.requirement("RUN-05")
def test_what_a_measure_command_printed_can_be_taken_away_by_none_of_its_processes(tmp_path: Path) -> None:
    """Through /proc/PID/fd/1 a program could read its caller's pipe before we do, and write another number."""
    opens = "if (exec 3<>/proc/$$/fd/1) || (exec 3</proc/$$/fd/1) || (exec 3>/proc/$$/fd/1); then echo METRIC ms=1; fi"
    measure = f"#!/bin/sh\n{opens} 2>/dev/null\necho METRIC ms=$(./work.sh)\n"
    with begun(toy(tmp_path / "project", measure=measure)) as controller:
        assert controller.state.baseline == 100.0


@pytest.mark.requirement("RUN-05")
def test_a_measure_command_that_opens_its_stdout_by_a_path_is_told_why_that_fails(tmp_path: Path) -> None:
    root = toy(tmp_path / "project", measure="#!/bin/sh\necho METRIC ms=1 > /dev/stdout\n")
    with pytest.raises(CommandFault, match="stdout of a measured run is a socket"):
        begun(root)


# --- numbers


@pytest.mark.requirement("METRIC-02")
@pytest.mark.parametrize("value", ["1e308", "-1e308", "1e-320"])
def test_a_number_beyond_what_can_be_compared_ends_its_trial_and_not_the_experiment(
    tmp_path: Path, value: str
) -> None:
    """A mean of two such numbers is infinite, which no log can hold."""
    with begun(toy(tmp_path / "project")) as controller:
        row = controller.run_iteration(h(1), works_at(value))
        assert row.status == "failed", row.reason
        assert row.reason_code in {"metric_not_finite", "metric_malformed"}
        assert controller.run_iteration(h(2), works_at(95)).status == "accepted"
