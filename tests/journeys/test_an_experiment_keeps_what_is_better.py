"""Story of the measured experiment: whatever candidates try, only what is truly better is kept, and nothing is touched.

Cheating, crashing, silent, lying and lucky candidates come between the good ones. In the morning there is a table that
says of each what became of it, one verified number, and a patch; the checkout is the same to the byte until its owner
takes the patch.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch import (
    AcceptanceRule,
    AutoresearchController,
    ExperimentConfig,
    ExperimentHypothesis,
    ExperimentLimits,
    ExperimentWorkspace,
    HypothesisOutcome,
    MetricSpec,
)
from tests.experiments.toys import checkout, git, put, toy, works_at, writes

if TYPE_CHECKING:
    from collections.abc import Callable


CONFIG = ExperimentConfig(
    "compile-time",
    MetricSpec("ms", "lower", unit="ms"),
    measure="./measure.sh",
    check="./check.sh",
    calibration_pairs=2,
    measure_timeout_seconds=60.0,
    limits=ExperimentLimits(trials=40),
)


def edits_the_measure(workspace: ExperimentWorkspace) -> HypothesisOutcome:
    put(workspace, "measure.sh", "#!/bin/sh\necho METRIC ms=1\n")
    return HypothesisOutcome()


def replaces_the_check_by_a_link(workspace: ExperimentWorkspace) -> HypothesisOutcome:
    os.unlink(f"{workspace.path}/check.sh")
    os.symlink("/bin/true", f"{workspace.path}/check.sh")
    return works_at(50)(workspace)


def moves_the_measure_away(workspace: ExperimentWorkspace) -> HypothesisOutcome:
    os.rename(f"{workspace.path}/measure.sh", f"{workspace.path}/old.sh")
    put(workspace, "measure.sh", "#!/bin/sh\necho METRIC ms=1\n")
    os.chmod(f"{workspace.path}/measure.sh", 0o755)
    return HypothesisOutcome()


def crashes(workspace: ExperimentWorkspace) -> HypothesisOutcome:
    put(workspace, "work.sh", "half a pro")
    raise RuntimeError("the agent is gone")


def does_nothing(workspace: ExperimentWorkspace) -> HypothesisOutcome:
    return HypothesisOutcome(cost_usd=0.25, metadata={"model": "m-1"})


def hides_its_gain_in_an_ignored_file(workspace: ExperimentWorkspace) -> HypothesisOutcome:
    put(workspace, "work.sh", "#!/bin/sh\ncat fast.log 2>/dev/null || echo 99.5\n")
    put(workspace, "fast.log", "1\n")
    return HypothesisOutcome()


def program(text: str) -> Callable[[ExperimentWorkspace], HypothesisOutcome]:
    return writes("work.sh", f"#!/bin/sh\n{text}\n")


STORY: tuple[tuple[str, Callable[[ExperimentWorkspace], HypothesisOutcome], str, str], ...] = (
    ("edits-measure", edits_the_measure, "rejected", "tampered"),
    ("links-check", replaces_the_check_by_a_link, "rejected", "tampered"),
    ("moves-measure", moves_the_measure_away, "rejected", "tampered"),
    ("edits-at-run-time", program("echo 'echo METRIC ms=1' > measure.sh; echo 5"), "rejected", "tampered"),
    (
        "edits-and-puts-back",
        program("cp measure.sh m.log; cp m.log measure.sh; echo 5"),
        "rejected",
        "tampered",
    ),
    ("good-1", works_at(90), "accepted", "improved"),
    ("prints-a-second-metric", program("printf '80\\nMETRIC ms=1'"), "failed", "metric_repeated"),
    ("crashes", crashes, "failed", "callback_failed"),
    ("crashes-at-run-time", program("exit 3"), "failed", "metric_malformed"),
    ("prints-nan", works_at("nan"), "failed", "metric_not_finite"),
    ("prints-infinity", works_at("inf"), "failed", "metric_not_finite"),
    ("prints-a-comma", works_at("1,5"), "failed", "metric_malformed"),
    ("does-nothing", does_nothing, "rejected", "no_change"),
    ("breaks-the-answer", writes("answer.sh", "#!/bin/sh\necho 41\n"), "rejected", "check_failed"),
    ("worse", works_at(95), "rejected", "not_better"),
    ("equal", writes("notes.txt", "nothing that counts\n"), "rejected", "not_better"),
    ("hides-its-gain", hides_its_gain_in_an_ignored_file, "rejected", "not_better"),
    (
        "lucky-place",
        program('case "$PWD" in */candidate) echo 50 ;; *) echo 95 ;; esac'),
        "rejected",
        "not_reverified",
    ),
    (
        "spoils-the-incumbent",
        program("echo 'echo 500' > ../incumbent/work.sh; echo 91"),
        "rejected",
        "tampered",
    ),
    ("good-2", works_at(80), "accepted", "improved"),
)
"""What each candidate does, and what becomes of it."""


@pytest.mark.requirement("EXP-04")
@pytest.mark.requirement("EXP-05")
@pytest.mark.requirement("EXP-10")
def test_only_the_good_steps_are_accepted_and_the_checkout_is_untouched_until_the_patch(
    tmp_path: Path,
) -> None:
    root = toy(tmp_path / "repo")
    before = checkout(root)
    told: list[dict[str, Any]] = []
    with AutoresearchController(str(root), CONFIG) as experiment:
        experiment.subscribe(told.append)
        experiment.establish_baseline()
        for name, play, _, _ in STORY:
            experiment.run_iteration(ExperimentHypothesis(name, f"what {name} does"), play)
            assert checkout(root) == before, name
        rows = experiment.state.rows
        assert [(row.hypothesis_id, row.status, row.reason_code) for row in rows] == [
            (name, status, code) for name, _, status, code in STORY
        ]
        assert all(row.reason for row in rows)
        assert experiment.state.tampered == 6
        assert experiment.state.usage.cost_usd == 0.25
        claim = experiment.verify_claim()
        assert (claim.base, claim.final, claim.has_gain) == (100.0, 80.0, True)
        patch = experiment.final_patch()
        assert (patch.changed_paths, patch.warning) == (("work.sh",), "")
        assert checkout(root) == before
        assert experiment.accept_final_patch().is_applied
    assert (root / "work.sh").read_text(encoding="utf-8") == "#!/bin/sh\necho 80\n"
    assert git(root, "status", "--short") == "M  work.sh"
    log = Path(experiment.session_dir(), "events.jsonl").read_text(encoding="utf-8")
    kinds = [json.loads(line)["kind"] for line in log.splitlines()]
    assert [kind for kind in kinds if kind in ("accepted", "rejected", "failed")] == [
        status for _, _, status, _ in STORY
    ]
    assert [event["type"] for event in told] == kinds[2:]


NOISY = """\
#!/bin/sh
# Noise of one percent from a seeded generator whose state stands outside the worktree.
state=$(cat "$STATE")
state=$(( (state * 1103515245 + 12345) % 2147483648 ))
echo $state > "$STATE"
awk -v cost="$(./work.sh)" -v u=$(( state / 65536 % 2048 )) \\
    'BEGIN { printf "METRIC ms=%.6f\\n", cost * (1 + (u / 2048 - 0.5) * 0.035) }'
"""


@pytest.mark.slow
@pytest.mark.requirement("EXP-04")
def test_under_noise_a_real_gain_is_kept_and_luck_is_not(tmp_path: Path) -> None:
    root = toy(tmp_path / "repo", measure=NOISY)
    state = tmp_path / "state"
    state.write_text("7\n", encoding="utf-8")
    config = ExperimentConfig(
        "noisy",
        MetricSpec("ms"),
        measure="./measure.sh",
        check="./check.sh",
        env={"STATE": str(state)},
        rule=AcceptanceRule(warmups=0, max_pairs=20),
        limits=ExperimentLimits(trials=10),
        claim_pairs=12,
    )
    with AutoresearchController(str(root), config) as experiment:
        assert experiment.establish_baseline().calibration is not None
        assert experiment.state.calibration is not None
        assert experiment.state.calibration.regime == "noisy"
        luck = [
            experiment.run_iteration(
                ExperimentHypothesis(f"no-effect-{n}"), writes("notes.txt", f"{n}\n")
            ).status
            for n in range(3)
        ]
        assert luck == ["rejected"] * 3
        row = experiment.run_iteration(ExperimentHypothesis("faster"), works_at(90))
        assert row.status == "accepted"
        assert row.pairs < 20
        claim = experiment.verify_claim()
        assert claim.has_gain
        assert claim.interval[0] < 0.1 < claim.interval[1]
