"""Set-up commands, kept and linked paths: a measurement finds what it needs, and nothing is carried over by it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.experiments.judge.state import ExperimentLimits, HypothesisOutcome
from tests.experiments.toys import begun, git, h, put, toy, works_at, writes

if TYPE_CHECKING:
    from omx_autoresearch.experiments.trial import ExperimentWorkspace

BUILT = """\
#!/bin/sh
printf 'METRIC ms=%s\\n' "$(cat build/cost)"
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = toy(tmp_path / "repo", measure=BUILT)
    (root / "setup.sh").write_text("#!/bin/sh\nmkdir -p build\n./work.sh > build/cost\n", encoding="utf-8")
    (root / "setup.sh").chmod(0o755)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "build")
    return root


@pytest.mark.case("GIT-03")
@pytest.mark.requirement("EXP-03")
def test_the_set_up_runs_after_each_change_of_a_tree_so_a_clean_tree_is_measurable(root: Path) -> None:
    with begun(root, setup="./setup.sh") as controller:
        stages: list[tuple[str, str]] = []
        controller.subscribe(
            lambda event: (
                stages.append((event["stage"], event["arm"])) if event["type"] == "measured" else None
            )
        )
        worse = controller.run_iteration(h(1), works_at(110))
        better = controller.run_iteration(h(2), works_at(90))
        again = controller.run_iteration(h(3), works_at(80))
        assert [row.metric for row in (worse, better, again)] == [110.0, 90.0, 80.0]
        assert [row.status for row in (worse, better, again)] == ["rejected", "accepted", "accepted"]
        assert stages[0] == ("setup", "candidate")


@pytest.mark.requirement("EXP-03")
def test_a_set_up_that_fails_says_whose_it_was(root: Path) -> None:
    with begun(root, setup="./setup.sh") as controller:
        row = controller.run_iteration(h(1), writes("setup.sh", "#!/bin/sh\nexit 4\n"))
        assert (row.status, row.reason_code) == ("failed", "setup_command_failed")
        assert "status 4" in row.reason


@pytest.mark.requirement("EXP-03")
def test_what_a_candidates_set_up_puts_into_a_kept_path_goes_with_it(root: Path) -> None:
    """Else a rejected candidate would leave a cache that makes the next one look better."""
    keeps = "#!/bin/sh\nmkdir -p build\n[ -e build/cost ] || ./work.sh > build/cost\n"
    (root / "setup.sh").write_text(keeps, encoding="utf-8")
    git(root, "commit", "-q", "-a", "-m", "keep")
    seen: list[bool] = []

    def spoil(workspace: ExperimentWorkspace) -> HypothesisOutcome:
        seen.append(os.path.exists(f"{workspace.path}/build/cost"))
        put(workspace, "setup.sh", "#!/bin/sh\nmkdir -p build\necho 120 > build/cost\n")
        return HypothesisOutcome()

    def look(workspace: ExperimentWorkspace) -> HypothesisOutcome:
        seen.append(Path(workspace.path, "build", "cost").read_text(encoding="utf-8") == "100\n")
        put(workspace, "notes.txt", "x")
        return HypothesisOutcome()

    with begun(root, setup="./setup.sh", keep=("build",)) as controller:
        assert controller.run_iteration(h(1), spoil).metric == 120.0
        assert controller.run_iteration(h(2), look).metric == 100.0
        assert seen == [True, True]


@pytest.mark.requirement("EXP-03")
def test_a_linked_path_is_there_in_both_worktrees_and_changed_in_neither(tmp_path: Path) -> None:
    root = toy(tmp_path / "repo", value="$(cat build/lib)")
    (root / "build").mkdir()
    (root / "build" / "lib").write_text("100\n", encoding="utf-8")

    def spoil(workspace: ExperimentWorkspace) -> HypothesisOutcome:
        put(workspace, "build/lib", "1\n")
        put(workspace, "notes.txt", "x")
        return HypothesisOutcome()

    with begun(root, link=("build",)) as controller:
        assert controller.run_iteration(h(1), spoil).metric == 100.0
        assert (root / "build" / "lib").read_text(encoding="utf-8") == "100\n"


@pytest.mark.requirement("EXP-09")
def test_a_calibration_takes_at_most_a_quarter_of_the_runs(tmp_path: Path) -> None:
    root = toy(tmp_path / "repo")
    with begun(root, calibration_pairs=15, limits=ExperimentLimits(runs=50)) as controller:
        assert controller.state.calibration is not None
        assert controller.state.calibration.pairs == 6
    with begun(root, calibration_pairs=3, limits=ExperimentLimits(runs=50)) as controller:
        assert controller.state.calibration is not None
        assert controller.state.calibration.pairs == 3
