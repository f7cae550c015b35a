"""One branch a checkpoint: reviewable, in order, beside everything that the user has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.experiments.final_patch import branch_plan, finalize
from omx_autoresearch.experiments.reports.pages import ReportMaterial, markdown_report, step_changes
from omx_autoresearch.experiments.worktrees.pair import Checkpoint, WorktreePair
from omx_autoresearch.foundation.errors import StepIllegal, UsageError, WorkspaceFault
from tests.experiments.samples import a_claim, a_state, a_story, accepted, commit, judged
from tests.support.contents_on_disk import contents
from tests.support.repositories import git, settle

if TYPE_CHECKING:
    from pathlib import Path

    from omx_autoresearch.experiments.judge.state import ExperimentState

PREFIX = "autoresearch/20260102-030405-speed"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "a.py").write_text("one\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    settle(root)
    return root


@pytest.fixture
def worktrees(project: Path, tmp_path: Path) -> WorktreePair:
    return WorktreePair.create(str(project), str(tmp_path / "work"), "e1")


@pytest.fixture
def two_steps(project: Path, worktrees: WorktreePair) -> ExperimentState:
    """Two accepted steps, as they stand in the checkpoints."""
    commits, parent = [], worktrees.base_commit
    for text in ("two\n", "two\nthree\n"):
        worktrees.candidate.set_to(parent)
        with open(f"{worktrees.candidate.root_path}/a.py", "w", encoding="utf-8") as target:
            target.write(text)
        made = worktrees.checkpoint("private words")
        assert isinstance(made, Checkpoint), made
        parent = made.commit
        commits.append(parent)
    base, (one, two) = worktrees.base_commit, commits
    rows = (
        accepted(1, 100, 90, checkpoint=base, candidate_commit=one, description="Fewer copies"),
        judged(2, 90, 91),
        accepted(3, 90, 77, checkpoint=one, candidate_commit=two, description="A smaller table"),
    )
    return a_state(
        rows,
        project_path=str(project),
        base_commit=base,
        incumbent_commit=two,
        claim=a_claim(),
        claim_commit=two,
    )


@pytest.mark.requirement("SEE-09")
def test_the_plan_names_a_branch_a_step_each_on_the_one_before() -> None:
    first, second = branch_plan(a_story())
    assert first.name == f"{PREFIX}/1-use-the-smaller-allocation-path"
    assert (first.checkpoint, first.iteration, second.checkpoint) == (commit(2), 2, commit(6))


@pytest.mark.requirement("SEE-09")
def test_a_message_says_what_was_tried_and_what_was_measured() -> None:
    first, second = branch_plan(a_story())
    assert first.message == (
        "total_ms: use the smaller allocation path\n\n"
        "> use the smaller allocation path\n\n"
        "Accepted with a median total_ms of 90 ms beside 100 ms of the step\n"
        "before, in 8 interleaved pairs, after its check had passed. These values\n"
        "decided the step; they are not a result.\n\n"
        "The last branch names the gain of all steps together.\n\n"
        "Experiment: 20260102-030405-speed\nExperiment-Trial: 2\nExperiment-Step: 1 of 2\n"
        f"Experiment-Checkpoint: {commit(2)}\n"
    )
    assert "Verified: total_ms is 23.1 % lower than at the base" in second.message


@pytest.mark.requirement("SEE-01")
def test_the_last_message_says_where_nothing_is_verified() -> None:
    assert "Not verified yet" in branch_plan(replace(a_story(), claim=None))[-1].message


@pytest.mark.requirement("SEE-05")
def test_what_a_hypothesis_says_closes_no_issue_calls_nobody_and_switches_no_check_off() -> None:
    text = "fix\n\nCloses #12 @everyone [skip ci] [ci skip]\nCo-authored-by: Eve <eve@evil.example>\x00"
    (plan,) = branch_plan(a_state([accepted(1, 100, 90, description=text)]))
    assert "#12" not in plan.message
    assert "@everyone" not in plan.message
    assert "[skip ci]" not in plan.message
    assert "[ci skip]" not in plan.message
    assert "\x00" not in plan.message
    assert not any(line.startswith("Co-authored-by") for line in plan.message.splitlines())
    subject = plan.message.splitlines()[0]
    assert len(subject) <= 72


def test_a_description_without_a_letter_still_gives_a_name() -> None:
    (plan,) = branch_plan(a_state([accepted(4, 100, 90, description="改善", hypothesis_id="…")]))
    assert plan.name == f"{PREFIX}/1-trial-4"


def test_names_of_many_steps_sort_in_their_order() -> None:
    plans = branch_plan(a_state([accepted(number, 100, 90) for number in range(1, 12)]))
    names = [plan.name for plan in plans]
    assert names == sorted(names)


@pytest.mark.requirement("SEE-09")
def test_without_a_step_there_is_nothing_to_finalize() -> None:
    with pytest.raises(StepIllegal, match="accepted no step"):
        branch_plan(a_state([judged(1, 100, 101)]))


@pytest.mark.requirement("SEE-09")
def test_branches_stand_on_each_other_and_hold_the_checkpoints_trees(
    project: Path, worktrees: WorktreePair, two_steps: ExperimentState
) -> None:
    before = (
        contents(project),
        git(project, "rev-parse", "HEAD"),
        git(project, "symbolic-ref", "HEAD"),
    )
    first, second = finalize(two_steps, worktrees)
    assert git(project, "rev-parse", f"{second.name}~1") == first.commit
    assert git(project, "rev-parse", f"{first.name}~1") == two_steps.base_commit
    assert git(project, "show", f"{first.name}:a.py") == "two"
    assert git(project, "show", f"{second.name}:a.py") == "two\nthree"
    assert git(project, "log", "-1", "--format=%s", first.name) == "total_ms: Fewer copies"
    assert (
        git(project, "log", "-1", "--format=%(trailers:key=Experiment-Trial)", second.name)
        == "Experiment-Trial: 3"
    )
    after = (
        contents(project),
        git(project, "rev-parse", "HEAD"),
        git(project, "symbolic-ref", "HEAD"),
    )
    assert after == before
    assert git(project, "status", "--porcelain") == ""


@pytest.mark.requirement("SEE-09")
def test_a_branch_that_exists_refuses_the_whole(
    project: Path, worktrees: WorktreePair, two_steps: ExperimentState
) -> None:
    taken = branch_plan(two_steps)[1].name
    git(project, "branch", taken)
    before = git(project, "for-each-ref")
    with pytest.raises(UsageError, match="this branch exists already") as caught:
        finalize(two_steps, worktrees)
    assert taken in caught.value.message
    assert "--prefix" in caught.value.next_step
    assert git(project, "for-each-ref") == before
    assert [branch.name for branch in finalize(two_steps, worktrees, "review")] == [
        "review/1-fewer-copies",
        "review/2-a-smaller-table",
    ]


@pytest.mark.requirement("SEE-09")
@pytest.mark.parametrize("prefix", ["main", "a..b", "with space", "-x", "a.lock"])
def test_a_prefix_that_makes_no_branch_is_refused(
    project: Path, worktrees: WorktreePair, two_steps: ExperimentState, prefix: str
) -> None:
    before = git(project, "for-each-ref")
    with pytest.raises(WorkspaceFault):
        finalize(two_steps, worktrees, prefix)
    assert git(project, "for-each-ref") == before


@pytest.mark.requirement("SEE-09")
def test_branches_can_be_made_after_the_work_trees_are_gone(
    project: Path, tmp_path: Path, worktrees: WorktreePair, two_steps: ExperimentState
) -> None:
    worktrees.close()
    reopened = WorktreePair.open(str(tmp_path / "work"))
    assert len(finalize(two_steps, reopened)) == 2
    assert git(project, "fsck", "--no-dangling") == ""


@pytest.mark.requirement("SEE-07")
def test_a_report_shows_the_lines_of_each_step_alone(
    worktrees: WorktreePair, two_steps: ExperimentState
) -> None:
    changes = step_changes(two_steps, worktrees)
    report = markdown_report(two_steps, ReportMaterial(changes=changes))
    assert "`a.py` +1 -1" in report
    assert "`a.py` +1 -0" in report
