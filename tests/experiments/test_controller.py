"""The controller: what a trial may do, what is accepted, what the user's checkout sees of it (nothing)."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.experiments import measurement
from omx_autoresearch.experiments.controller import AutoresearchController, new_controller_handle
from omx_autoresearch.experiments.judge.calibration import AcceptanceRule
from omx_autoresearch.experiments.judge.metrics import Guard, MetricSpec
from omx_autoresearch.experiments.judge.state import ExperimentHypothesis, ExperimentLimits, HypothesisOutcome
from omx_autoresearch.experiments.store import ExperimentStore
from omx_autoresearch.foundation.errors import (
    CommandFault,
    MissionInvalid,
    StepIllegal,
    StorageFailed,
    UsageError,
    WorkspaceFault,
)
from omx_autoresearch.journal.layout import StateHome, state_home
from tests.experiments.toys import begun, checkout, configured, git, h, put, toy, works_at, writes

if TYPE_CHECKING:
    from collections.abc import Callable

    from omx_autoresearch.experiments.trial import ExperimentWorkspace


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return toy(tmp_path / "repo")


def content(path: str) -> dict[str, str]:
    """Every file of a worktree but git's own."""
    return {
        str(each.relative_to(path)): each.read_text(encoding="utf-8")
        for each in sorted(Path(path).rglob("*"))
        if each.is_file() and ".git" not in each.relative_to(path).parts
    }


def worktree(controller: AutoresearchController, name: str) -> str:
    return os.path.join(controller.session_dir(), "work", name)


def crash(workspace: ExperimentWorkspace) -> HypothesisOutcome:
    put(workspace, "work.sh", "half a")
    raise SystemExit(3)


def same(workspace: ExperimentWorkspace) -> HypothesisOutcome:
    return HypothesisOutcome()


# --- beginning


@pytest.mark.requirement("EXP-03")
def test_an_experiment_begins_only_at_a_clean_root(root: Path) -> None:
    (root / "untracked.txt").write_text("x", encoding="utf-8")
    with pytest.raises(WorkspaceFault, match=r"untracked\.txt"):
        AutoresearchController(str(root), configured())
    (root / "untracked.txt").unlink()
    (root / "sub").mkdir()
    with pytest.raises(WorkspaceFault, match="root"):
        AutoresearchController(str(root / "sub"), configured())
    assert ExperimentStore(StateHome(state_home(os.environ))).list_ids() == ()
    AutoresearchController(str(root), configured()).close()


def test_a_configuration_that_cannot_be_run_leaves_nothing_behind(root: Path) -> None:
    with pytest.raises(MissionInvalid, match="measure"):
        AutoresearchController(str(root), configured(measure=""))
    assert not os.path.exists(os.path.join(state_home(os.environ), "experiments"))


@pytest.mark.requirement("EXP-08")
def test_two_controllers_on_one_repository_are_one_too_many(root: Path, tmp_path: Path) -> None:
    with AutoresearchController(str(root), configured()) as first:
        with pytest.raises(StepIllegal, match=rf"process {os.getpid()} .*{first.experiment_id}"):
            AutoresearchController(str(root), configured())
        git(root, "worktree", "add", "-q", str(tmp_path / "linked"))
        with pytest.raises(StepIllegal, match="has held this repository"):
            AutoresearchController(str(tmp_path / "linked"), configured())
    AutoresearchController(str(root), configured()).close()


def test_a_repository_that_fails_its_own_check_ends_the_experiment(tmp_path: Path) -> None:
    root = toy(tmp_path / "repo")
    with AutoresearchController(str(root), configured(check="./check.sh && exit 3")) as controller:
        with pytest.raises(CommandFault, match="unchanged repository cannot be measured"):
            controller.establish_baseline()
        assert (controller.state.phase, controller.state.completed_reason) == ("completed", "failure")


def test_no_trial_before_the_baseline_and_no_second_baseline(root: Path) -> None:
    with AutoresearchController(str(root), configured()) as controller:
        with pytest.raises(StepIllegal, match="no baseline"):
            controller.run_iteration(h(1), works_at(90))
        controller.establish_baseline()
        with pytest.raises(StepIllegal, match="the baseline was already measured"):
            controller.establish_baseline()


# --- trials


@pytest.mark.requirement("EXP-04")
def test_only_what_is_better_is_accepted_and_becomes_the_incumbent(root: Path) -> None:
    with begun(root) as controller:
        better = controller.run_iteration(h(1), works_at(90))
        worse = controller.run_iteration(h(2), works_at(95))
        equal = controller.run_iteration(h(3), writes("note.txt", "no effect\n"))
        assert (better.status, better.metric) == ("accepted", 90.0)
        assert better.improvement == pytest.approx(0.1)
        assert (worse.status, worse.reason_code) == ("rejected", "not_better")
        assert (equal.status, equal.reason_code) == ("rejected", "not_better")
        state = controller.state
        assert state.checkpoints == (better.candidate_commit,) == (state.incumbent_commit,)
        assert worse.checkpoint == better.candidate_commit
        assert worse.candidate_commit == ""


@pytest.mark.requirement("EXP-04")
def test_higher_is_better_where_the_metric_says_so(root: Path) -> None:
    with begun(root, metric=MetricSpec("ms", "higher")) as controller:
        assert controller.run_iteration(h(1), works_at(90)).status == "rejected"
        assert controller.run_iteration(h(2), works_at(110)).status == "accepted"


@pytest.mark.requirement("EXP-03")
@pytest.mark.case("GIT-01")
def test_the_next_candidate_sees_exactly_the_checkpoint(root: Path) -> None:
    seen: list[dict[str, str]] = []

    def litter(workspace: ExperimentWorkspace) -> HypothesisOutcome:
        seen.append(content(workspace.path))
        put(workspace, "new.txt", "x")
        os.makedirs(f"{workspace.path}/d/build")
        put(workspace, "d/e.txt", "x")
        put(workspace, "cache.log", "ignored")
        put(workspace, "d/build/o", "ignored")
        return HypothesisOutcome()

    with begun(root) as controller:
        for number in (1, 2):
            assert controller.run_iteration(h(number), litter).status == "rejected"
        assert seen[0] == seen[1] == content(str(root))
        controller.run_iteration(h(3), works_at(80))
        controller.run_iteration(h(4), litter)
    assert seen[2] == {**seen[0], "work.sh": "#!/bin/sh\necho 80\n"}


@pytest.mark.requirement("EXP-04")
def test_what_is_measured_is_the_tree_that_is_committed(root: Path) -> None:
    """A gain that lives in an ignored file is none: the file is in no checkpoint."""

    def cheat(workspace: ExperimentWorkspace) -> HypothesisOutcome:
        put(workspace, "work.sh", "#!/bin/sh\ncat fast.log 2>/dev/null || echo 100\n")
        put(workspace, "fast.log", "10\n")
        return HypothesisOutcome()

    with begun(root) as controller:
        row = controller.run_iteration(h(1), cheat)
    assert (row.status, row.reason_code, row.metric) == ("rejected", "not_better", 100.0)


@pytest.mark.slow
@pytest.mark.requirement("EXP-05")
@pytest.mark.parametrize(
    ("play", "code"),
    [
        (same, "no_change"),
        (writes("measure.sh", "#!/bin/sh\necho METRIC ms=1\n"), "tampered"),
        (writes("check.sh", "#!/bin/sh\nexit 0\n"), "tampered"),
        (writes("answer.sh", "#!/bin/sh\necho 41\n"), "check_failed"),
    ],
)
def test_a_candidate_that_is_wanting_is_rejected_with_its_reason(
    root: Path, play: Callable[[ExperimentWorkspace], HypothesisOutcome], code: str
) -> None:
    with begun(root) as controller:
        row = controller.run_iteration(h(1), play)
        assert (row.status, row.reason_code) == ("rejected", code)
        assert controller.state.tampered == (code == "tampered")
        assert controller.run_iteration(h(2), works_at(90)).status == "accepted"


@pytest.mark.requirement("EXP-05")
def test_a_frozen_file_that_the_candidates_own_program_edits_while_it_is_measured_is_tampered(
    root: Path,
) -> None:
    program = "#!/bin/sh\necho 'echo METRIC ms=1' > measure.sh\necho 50\n"
    with begun(root) as controller:
        row = controller.run_iteration(h(1), writes("work.sh", program))
        assert (row.status, row.reason_code) == ("rejected", "tampered")
        assert controller.run_iteration(h(2), works_at(90)).metric == 90.0


@pytest.mark.requirement("EXP-05")
def test_a_candidate_whose_program_spoils_the_incumbent_is_tampered(root: Path) -> None:
    spoil = "#!/bin/sh\nprintf '#!/bin/sh\\necho 500\\n' > ../incumbent/work.sh\necho 100\n"
    with begun(root, reverification="off") as controller:
        row = controller.run_iteration(h(1), writes("work.sh", spoil))
        assert (row.status, row.reason_code) == ("rejected", "tampered")
        assert "work.sh" in row.reason
        assert controller.run_iteration(h(2), works_at(95)).incumbent_samples == (100.0, 100.0)


@pytest.mark.slow
@pytest.mark.requirement("EXP-05")
@pytest.mark.parametrize("who", ["agent", "program"])
def test_an_incumbent_that_an_earlier_candidate_spoiled_is_right_again(root: Path, who: str) -> None:
    """Else every later candidate would look better than it is."""
    slow = "printf '#!/bin/sh\\necho 500\\n' > ../incumbent/work.sh"

    def spoil(workspace: ExperimentWorkspace) -> HypothesisOutcome:
        if who == "agent":
            put(workspace, "../incumbent/work.sh", "#!/bin/sh\necho 500\n")
        put(workspace, "work.sh", f"#!/bin/sh\n{slow if who == 'program' else ''}\necho 600\n")
        return HypothesisOutcome()

    with begun(root) as controller:
        assert controller.run_iteration(h(1), works_at(95)).status == "accepted"
        assert controller.run_iteration(h(2), spoil).status == "rejected"
        row = controller.run_iteration(h(3), works_at(97))
        assert (row.status, row.incumbent_samples) == ("rejected", (95.0, 95.0))


@pytest.mark.parametrize(
    ("value", "code"),
    [("nan", "metric_not_finite"), ("", "metric_malformed"), ("1\\nMETRIC ms=2", "metric_repeated")],
)
def test_a_candidate_without_one_finite_metric_fails_and_is_never_zero(
    root: Path, value: str, code: str
) -> None:
    with begun(root) as controller:
        row = controller.run_iteration(h(1), writes("work.sh", f"#!/bin/sh\nprintf '{value}'\n"))
        assert (row.status, row.reason_code, row.metric) == ("failed", code, None)


@pytest.mark.requirement("EXP-03")
def test_whatever_a_callback_raises_fails_its_trial_and_is_rolled_back(root: Path) -> None:
    with begun(root) as controller:
        row = controller.run_iteration(h(1), crash)
        assert (row.status, row.reason_code, row.reason) == ("failed", "callback_failed", "SystemExit: 3")
        assert content(worktree(controller, "candidate")) == content(str(root))


@pytest.mark.case("BUD-01")
@pytest.mark.parametrize("cost", [float("nan"), float("inf"), -5, None, "1"])
def test_a_cost_that_is_none_fails_the_trial_and_leaves_the_total(root: Path, cost: Any) -> None:
    with begun(root, limits=ExperimentLimits(cost_usd=10.0)) as controller:
        controller.run_iteration(h(1), lambda _: HypothesisOutcome(cost_usd=2.5))
        row = controller.run_iteration(h(2), lambda _: HypothesisOutcome(cost_usd=cost))
        assert (row.status, row.reason_code, row.cost_usd) == ("failed", "callback_failed", 0.0)
        assert controller.state.usage.cost_usd == 2.5


@pytest.mark.parametrize(
    "outcome",
    [None, 0.0, HypothesisOutcome(metadata={"x": object()}), HypothesisOutcome(metadata={"x": "y" * 70_000})],
)
def test_an_outcome_that_cannot_be_recorded_fails_the_trial(root: Path, outcome: Any) -> None:
    with begun(root) as controller:
        row = controller.run_iteration(h(1), lambda _: outcome)
        assert (row.status, row.reason_code) == ("failed", "callback_failed")


def test_what_the_host_says_of_its_turn_stands_in_the_row(root: Path) -> None:
    outcome = HypothesisOutcome(1.5, {"model": "m"}, description="found it", direction="caches")
    with begun(root) as controller:
        row = controller.run_iteration(
            ExperimentHypothesis("h-1", metadata={"provider": "p"}), lambda _: outcome
        )
        assert (row.description, row.direction, row.cost_usd) == ("found it", "caches", 1.5)
        assert row.metadata == {"provider": "p", "model": "m"}
        gone = replace(outcome, fault="agent_failed", fault_reason="it crashed")
        failed = controller.run_iteration(h(2), lambda _: gone)
        assert (failed.status, failed.reason_code, failed.reason) == ("failed", "agent_failed", "it crashed")
        assert controller.state.usage.cost_usd == 3.0


@pytest.mark.case("GIT-23")
def test_a_nested_repository_is_rejected_by_name_and_gone_for_the_next(root: Path) -> None:
    def nest(workspace: ExperimentWorkspace) -> HypothesisOutcome:
        inner = Path(workspace.path, "inner")
        inner.mkdir()
        git(inner, "init", "-q")
        (inner / "f").write_text("x", encoding="utf-8")
        works_at(50)(workspace)
        return HypothesisOutcome()

    with begun(root) as controller:
        row = controller.run_iteration(h(1), nest)
        assert (row.status, row.reason_code) == ("rejected", "nested_repository")
        assert not os.path.exists(os.path.join(worktree(controller, "candidate"), "inner"))


@pytest.mark.case("GIT-19")
def test_a_worktree_that_vanishes_fails_its_trial_and_is_made_anew(root: Path) -> None:
    import shutil

    def lose(workspace: ExperimentWorkspace) -> HypothesisOutcome:
        shutil.rmtree(workspace.path)
        return HypothesisOutcome()

    with begun(root) as controller:
        assert controller.run_iteration(h(1), works_at(90)).status == "accepted"
        row = controller.run_iteration(h(2), lose)
        assert (row.status, row.reason_code) == ("failed", "workspace_lost")
        assert controller.run_iteration(h(3), works_at(80)).status == "accepted"
        assert controller.final_patch().changed_paths == ("work.sh",)


@pytest.mark.case("GIT-22")
def test_words_of_a_model_run_nothing_and_the_recorded_commit_is_the_real_one(
    root: Path, tmp_path: Path
) -> None:
    words = f"$(touch {tmp_path}/pwn) `touch {tmp_path}/pwn`\n-F /etc/passwd \U0001f680"
    with begun(root) as controller:
        row = controller.run_iteration(ExperimentHypothesis("-F x; touch pwn", words), works_at(90))
        assert row.status == "accepted"
        store = worktree(controller, "checkpoints")
        assert git(root, "--git-dir", store, "cat-file", "-t", row.candidate_commit) == "commit"
        assert (
            git(root, "--git-dir", store, "show", f"{row.candidate_commit}:work.sh") == "#!/bin/sh\necho 90"
        )
        with pytest.raises(UsageError, match="NUL"):
            controller.run_iteration(ExperimentHypothesis("a\0b"), works_at(80))
    assert not (tmp_path / "pwn").exists()
    assert not (root / "pwn").exists()


def _full_at(monkeypatch: pytest.MonkeyPatch, *kinds: str) -> list[str]:
    """The disk is full whenever one of these events is to be written; returns what was refused so far."""
    refused: list[str] = []
    append = ExperimentStore.append

    def full(self: ExperimentStore, name: str, *events: Any, **options: Any) -> Any:
        for event in events:
            if event.kind in kinds:
                refused.append(event.kind)
                raise StorageFailed("no space left on the disk (ENOSPC)")
        return append(self, name, *events, **options)

    monkeypatch.setattr(ExperimentStore, "append", full)
    return refused


@pytest.mark.requirement("EXP-04")
def test_a_disk_that_is_full_at_the_acceptance_accepts_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with begun(root) as controller:
        with monkeypatch.context() as full:
            refused = _full_at(full, "accepted")
            row = controller.run_iteration(h(1), works_at(90))
        assert (row.status, row.reason_code, row.candidate_commit) == ("failed", "storage_failed", "")
        assert (controller.state.checkpoints, refused) == ((), ["accepted"])
        assert content(worktree(controller, "incumbent")) == content(str(root))
        assert controller.run_iteration(h(2), works_at(90)).status == "accepted"


@pytest.mark.requirement("EXP-04")
def test_a_disk_that_takes_no_end_at_all_is_an_error_and_the_trial_is_interrupted(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with begun(root) as controller:
        with monkeypatch.context() as full:
            _full_at(full, "accepted", "rejected", "failed")
            with pytest.raises(StorageFailed, match="ENOSPC"):
                controller.run_iteration(h(1), works_at(90))
        assert controller.state.phase == "running"
        row = controller.run_iteration(h(2), works_at(90))
        assert (row.iteration, row.status) == (2, "accepted")
        assert controller.state.rows[0].reason_code == "interrupted"


def test_a_fault_of_our_own_is_recorded_as_such_and_raised(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with begun(root) as controller:
        with monkeypatch.context() as broken:
            broken.setattr(measurement, "Judge", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                controller.run_iteration(h(1), works_at(90))
        assert controller.state.rows[0].reason_code == "controller_failed"
        assert controller.run_iteration(h(2), works_at(90)).status == "accepted"


# --- guards, held-out, re-verification, other rules

TWO = """\
#!/bin/sh
set -- $(./work.sh)
printf 'METRIC ms=%s\\nMETRIC size=%s\\n' "$1" "$2"
"""


@pytest.mark.requirement("EXP-13")
def test_a_guard_that_breaks_rejects_a_faster_candidate(tmp_path: Path) -> None:
    root = toy(tmp_path / "repo", value="100 10", measure=TWO)
    with begun(root, guards=(Guard("size", max_regression_percent=10.0),)) as controller:
        row = controller.run_iteration(h(1), works_at("50 20"))
        assert (row.status, row.reason_code) == ("rejected", "guard_failed")
        assert row.others["size"] == 20.0
        assert controller.run_iteration(h(2), works_at("90 10")).status == "accepted"


def test_a_guard_that_the_base_breaks_or_lacks_is_said_before_any_trial(tmp_path: Path) -> None:
    root = toy(tmp_path / "repo", value="100 10", measure=TWO)
    for guard, word in ((Guard("size", bound=5.0), "size"), (Guard("rss", bound=5.0), "rss")):
        with (
            AutoresearchController(str(root), configured(guards=(guard,))) as controller,
            pytest.raises(CommandFault, match=word),
        ):
            controller.establish_baseline()


@pytest.mark.requirement("EXP-13")
def test_a_held_out_check_rejects_what_the_visible_check_let_pass(root: Path, tmp_path: Path) -> None:
    held_out = tmp_path / "held-out.sh"
    held_out.write_text("#!/bin/sh\n! grep -q special work.sh\n", encoding="utf-8")
    held_out.chmod(0o755)
    with begun(root, held_out=str(held_out)) as controller:
        row = controller.run_iteration(h(1), writes("work.sh", "#!/bin/sh\n# special case\necho 50\n"))
        assert (row.status, row.reason_code) == ("rejected", "held_out_failed")
        assert controller.run_iteration(h(2), works_at(90)).status == "accepted"
        controller.verify_claim()
        assert controller.state.claim_held_out == "passed"


@pytest.mark.slow
@pytest.mark.requirement("ACC-11", "EXP-04")
def test_a_gain_of_the_place_alone_is_found_out_in_the_other_worktree(root: Path) -> None:
    lucky = '#!/bin/sh\ncase "$PWD" in */candidate) echo 90 ;; *) echo 110 ;; esac\n'
    with begun(root) as controller:
        row = controller.run_iteration(h(1), writes("work.sh", lucky))
        assert (row.status, row.reason_code) == ("rejected", "not_reverified")
        assert content(worktree(controller, "incumbent")) == content(str(root))
    with begun(root, reverification="off") as controller:
        assert controller.run_iteration(h(1), writes("work.sh", lucky)).status == "accepted"


@pytest.mark.requirement("ACC-04", "EXP-04")
def test_the_median_rule_compares_medians_by_an_absolute_strict_threshold(root: Path) -> None:
    rule = AcceptanceRule(name="median", runs=3, min_effect=10.0)
    with begun(root, rule=rule) as controller:
        exact = controller.run_iteration(h(1), works_at(90))
        more = controller.run_iteration(h(2), works_at("89.9"))
        assert (exact.status, exact.pairs) == ("rejected", 3)
        assert more.status == "accepted"
        assert more.improvement == pytest.approx(10.1)


# --- events


@pytest.mark.requirement("EXP-02")
def test_events_reach_subscribers_and_stand_in_the_log_in_the_same_order(root: Path) -> None:
    heard: list[dict[str, Any]] = []
    with AutoresearchController(str(root), configured()) as controller:
        controller.subscribe(heard.append)
        controller.establish_baseline()
        controller.run_iteration(h(1), works_at(90))
        controller.run_iteration(h(2), works_at(95))
        controller.run_iteration(h(3), crash)
        controller.complete()
        path = Path(controller.session_dir(), "events.jsonl")
    named = [event["type"] for event in heard if event["type"] not in ("measured", "made", "detached")]
    assert named == [
        "baseline", "iteration", "accepted", "iteration", "rejected", "iteration", "failed", "completed",
    ]  # fmt: skip
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [line["kind"] for line in lines][2:] == [event["type"] for event in heard]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))


@pytest.mark.requirement("EXP-02")
def test_a_host_that_comes_later_gets_every_event_as_a_subscriber_heard_it(root: Path) -> None:
    heard: list[dict[str, Any]] = []
    with AutoresearchController(str(root), configured()) as controller:
        controller.subscribe(heard.append)
        controller.establish_baseline()
        controller.run_iteration(h(1), works_at(90))
    with AutoresearchController.resume(controller.experiment_id) as later:
        told = list(later.events())
    assert [event["type"] for event in told[:2]] == ["started", "resumed"]
    assert json.loads(json.dumps(told[2:-1])) == json.loads(json.dumps(heard))
    assert [event["seq"] for event in told] == list(range(1, len(told) + 1))


@pytest.mark.requirement("EXP-02")
def test_a_broken_subscriber_breaks_nothing(root: Path) -> None:
    heard: list[str] = []

    def broken(event: dict[str, Any]) -> None:
        event.clear()
        raise RuntimeError("mine")

    with begun(root) as controller:
        controller.subscribe(broken)
        leave = controller.subscribe(lambda event: heard.append(event["type"]))
        assert controller.run_iteration(h(1), works_at(90)).status == "accepted"
        leave()
        controller.complete()
    assert heard[-1] == "accepted"


@pytest.mark.requirement("EXP-15")
def test_a_subscriber_that_calls_the_controller_back_is_refused_not_stuck(root: Path) -> None:
    refused: list[str] = []
    with begun(root) as controller:

        def meddle(event: dict[str, Any]) -> None:
            for act in (controller.close, controller.complete, controller.verify_claim):
                try:
                    act()
                except StepIllegal as fault:
                    refused.append(fault.message)

        leave = controller.subscribe(meddle)
        assert controller.run_iteration(h(1), works_at(90)).status == "accepted"
        leave()
        assert controller.state.phase == "ready"
    assert refused


def test_a_handle_shares_a_controller_and_starts_nothing(root: Path) -> None:
    with AutoresearchController(str(root), configured()) as controller:
        handle = new_controller_handle(controller)
        assert handle.state.phase == "started"
        with handle as shared:
            shared.establish_baseline()
        assert (handle.state.phase, handle.cancellation.is_cancelled) == ("ready", False)


def test_the_sandbox_is_chosen_before_the_baseline_alone(root: Path) -> None:
    with AutoresearchController(str(root), configured()) as controller:
        with pytest.raises(UsageError, match="no sandbox"):
            controller.set_command_sandbox("docker")  # type: ignore[arg-type]
        controller.set_command_sandbox("auto")
        controller.establish_baseline()
        assert controller.state.config.sandbox == "auto"
        with pytest.raises(StepIllegal, match="'auto'"):
            controller.set_command_sandbox("none")


# --- the end


@pytest.mark.requirement("EXP-10")
@pytest.mark.case("GIT-02")
def test_the_users_checkout_is_the_same_to_the_byte_until_the_patch_is_accepted(root: Path) -> None:
    (root / "build").mkdir()
    (root / "build" / "precious.log").write_text("mine", encoding="utf-8")
    (root / "later.log").write_text("ignored", encoding="utf-8")
    before = checkout(root)
    with begun(root) as controller:
        for number, play in enumerate((works_at(90), works_at(95), same, works_at("nan")), start=1):
            controller.run_iteration(h(number), play)
        controller.verify_claim()
        patch = controller.final_patch()
        reference = f"refs/omx-autoresearch/{controller.experiment_id}/base"
        assert git(root, "for-each-ref", "--format=%(refname)", "refs/omx-autoresearch") == reference
        assert checkout(root) == before
        assert patch.changed_paths == ("work.sh",)
        assert b"+echo 90" in Path(patch.path).read_bytes()
        done = controller.accept_final_patch()
        assert (done.is_applied, done.changed_paths, done.warning) == (True, ("work.sh",), "")
        assert (controller.state.phase, controller.state.completed_reason) == ("completed", "final_patch")
        with pytest.raises(StepIllegal, match="already"):
            controller.accept_final_patch()
    assert git(root, "status", "--short") == "M  work.sh"
    assert (root / "build" / "precious.log").read_text(encoding="utf-8") == "mine"


@pytest.mark.requirement("EXP-10")
def test_a_checkout_that_moved_is_not_touched(root: Path) -> None:
    with begun(root) as controller:
        controller.run_iteration(h(1), works_at(90))
        (root / "mine.txt").write_text("edited meanwhile", encoding="utf-8")
        refused = controller.accept_final_patch()
        assert (refused.is_applied, refused.reason_code) == (False, "user_moved")
        assert "mine.txt" in " ".join(refused.reasons)
        assert controller.state.phase == "ready"
        assert (root / "work.sh").read_text(encoding="utf-8") == "#!/bin/sh\necho 100\n"
        (root / "mine.txt").unlink()
        assert controller.accept_final_patch().is_applied


@pytest.mark.requirement("EXP-10")
def test_a_patch_warns_until_a_fresh_check_shows_its_gain(root: Path) -> None:
    with begun(root) as controller:
        assert "nothing was accepted" in controller.final_patch().warning
        runs = controller.state.usage.runs
        with pytest.raises(StepIllegal, match="nothing was accepted yet"):
            controller.verify_claim()
        assert controller.state.usage.runs == runs
        with pytest.raises(StepIllegal, match="no step was accepted"):
            controller.accept_final_patch()
        controller.run_iteration(h(1), works_at(90))
        assert "not yet measured" in controller.final_patch().warning
        claim = controller.verify_claim()
        assert (claim.has_gain, claim.base, claim.final) == (True, 100.0, 90.0)
        assert controller.final_patch().warning == ""
        controller.run_iteration(h(2), works_at(80))
        assert "not yet measured" in controller.final_patch().warning


@pytest.mark.requirement("ACC-12", "EXP-14")
def test_the_claim_is_measured_freshly_and_leaves_both_worktrees_at_the_incumbent(root: Path) -> None:
    with begun(root) as controller:
        controller.run_iteration(h(1), works_at(90))
        runs = controller.state.usage.runs
        claim = controller.verify_claim()
        assert controller.state.usage.runs == runs + 2 * claim.pairs + 2
        assert controller.verify_claim() == claim
        assert controller.state.usage.runs == runs + 2 * claim.pairs + 2
        row = controller.run_iteration(h(2), works_at(85))
        assert row.incumbent_samples == (90.0, 90.0)


@pytest.mark.requirement("EXP-14")
def test_the_target_ends_the_experiment_once_a_fresh_check_reaches_it(root: Path) -> None:
    with begun(root, target=85.0) as controller:
        controller.run_iteration(h(1), works_at(90))
        assert controller.state.phase == "ready"
        controller.run_iteration(h(2), works_at(85))
        assert (controller.state.phase, controller.state.completed_reason) == ("completed", "target_reached")
        assert controller.state.claim is not None
        assert controller.state.claim.final == 85.0


def test_a_completed_experiment_takes_no_more_trials_and_its_first_reason_stands(root: Path) -> None:
    with begun(root) as controller:
        controller.complete()
        controller.complete("failure")
        assert controller.state.completed_reason == "explicit"
        with pytest.raises(StepIllegal, match="completed: explicit"):
            controller.run_iteration(h(1), works_at(90))
    with pytest.raises(StepIllegal, match="closed"):
        controller.complete()
    controller.close()


@pytest.mark.requirement("EXP-15")
def test_two_threads_never_work_at_once(root: Path) -> None:
    rows: list[str] = []
    with begun(root) as controller:
        threads = [
            threading.Thread(
                target=lambda n=n: rows.append(controller.run_iteration(h(n), works_at(100 - n)).status)
            )
            for n in (1, 2, 3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [row.iteration for row in controller.state.rows] == [1, 2, 3]
        assert len(rows) == 3
