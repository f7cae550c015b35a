"""A run is a number, or a fault that says why there is none."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from statistics import median

import pytest

from omx_autoresearch.experiments.context import AutoresearchCancellation
from omx_autoresearch.experiments.judge.calibration import AcceptanceRule, calibrate
from omx_autoresearch.experiments.judge.decision import Judge, guard_failures
from omx_autoresearch.experiments.judge.metrics import Guard, MetricSpec, samples_of
from omx_autoresearch.experiments.runs import Run, run_once
from omx_autoresearch.foundation.errors import CommandFault, UsageError
from omx_autoresearch.journal.layout import state_home
from omx_autoresearch.missions.secrets import WITHHELD
from omx_autoresearch.system import commands, sandbox
from omx_autoresearch.system.sandbox import run_limited
from tests.experiments.benches import (
    Scene,
    fresh_marker,
    linux_only,
    living_with,
    scene_in,
)
from tests.experiments.toys import begun, toy
from tests.support.boxes import take_box
from tests.support.clocks import ClockUntil
from tests.support.needs import needs_bubblewrap
from tests.support.repositories import git

MIB = 1024 * 1024


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return scene_in(tmp_path)


# --- Metrics of real commands ----------------------------------------------------------------------------------------


@pytest.mark.requirement("METRIC-01")
def test_a_run_gives_the_metric_and_what_was_seen_of_the_command(scene: Scene) -> None:
    scene.work("echo METRIC other=2; echo METRIC ms=9 >&2\n")
    run = scene.measure(scene.bench())
    assert (run.metric, run.fault) == (5.0, "")
    assert run.others["other"] == 2.0
    assert run.others["wall_seconds"] == run.wall_seconds > 0
    assert "METRIC ms=9" in Path(run.output_path).read_text()
    assert (run.outcome, run.exit_status, run.isolation) == ("exited", 0, "none")


@pytest.mark.case("MET-09")
@pytest.mark.requirement("METRIC-06")
@pytest.mark.parametrize("command", ["true", "echo building; echo linking >&2"])
def test_a_command_that_measures_nothing_has_failed(scene: Scene, command: str) -> None:
    run = scene.measure(scene.bench(measure=command))
    assert (run.metric, run.fault) == (None, "metric_missing")
    assert "building" in run.detail or "wrote nothing" in run.detail


@pytest.mark.requirement("METRIC-03", "METRIC-04")
def test_an_output_for_a_terminal_is_read_and_what_is_said_twice_of_a_guard_is_left_out(scene: Scene) -> None:
    coloured = "'50 %%\\r\\033[1mMETRIC ms=5\\033[0m\\nMETRIC kb=1\\nMETRIC kb=2\\nMETRIC rows=x\\n'"
    run = scene.measure(scene.bench(measure=f"printf {coloured}"))
    assert (run.metric, run.fault) == (5.0, "")
    assert run.others.keys() == {"wall_seconds", "cpu_seconds"}


@pytest.mark.requirement("METRIC-04")
def test_a_second_line_for_the_metric_is_an_error(scene: Scene) -> None:
    run = scene.measure(scene.bench(measure="echo METRIC ms=5; echo METRIC ms=5"))
    assert (run.metric, run.fault) == (None, "metric_repeated")


@pytest.mark.requirement("METRIC-05")
def test_a_metric_that_is_missing_is_told_with_what_was_seen_and_no_name_reaches_a_shell(
    scene: Scene,
) -> None:
    run = scene.measure(scene.bench(measure="echo 'METRIC mss=5'; echo 'METRIC $(touch_x)=1'"))
    assert (run.metric, run.fault) == (None, "metric_missing")
    assert "'mss'" in run.detail
    wide = scene.measure(scene.bench(metric=MetricSpec("größe"), measure="echo 'METRIC gro\u0308ße=7'"))
    assert wide.metric == 7.0


@pytest.mark.case("MET-03")
@pytest.mark.requirement("METRIC-02")
@pytest.mark.parametrize("value", ["nan", "inf", "1e400"])
def test_one_sample_that_is_not_finite_is_no_sample(scene: Scene, value: str) -> None:
    scene.write({"measure.sh": "#!/bin/sh\n. ./work.sh\necho METRIC ms=$ms\n"})
    bench = scene.bench()
    samples = []
    for ms in ("4", value, "6"):
        scene.work(f"ms={ms}\n")
        samples.append(scene.measure(bench))
    assert [run.metric for run in samples] == [4.0, None, 6.0]
    assert samples[1].fault == "metric_not_finite"
    assert median(run.metric for run in samples if run.metric is not None) == 5.0


@linux_only
@pytest.mark.case("MET-10")
@pytest.mark.requirement("METRIC-06")
@pytest.mark.parametrize(
    ("end", "fault"),
    [
        ("exit 1", "command_failed"),
        ("kill -SEGV $$", "command_failed"),
        ("touch ../../up; echo up; sleep 60", "timed_out"),
    ],
)
def test_a_metric_before_a_failure_does_not_count(
    scene: Scene, end: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "SystemClock", lambda: ClockUntil(Path(scene.folder.root_path, "up")))
    scene.write({"measure.sh": f"#!/bin/sh\necho METRIC ms=1\n{end}\n"})
    run = scene.measure(scene.bench())
    assert (run.metric, run.others, run.fault) == (None, {}, fault)
    assert "'ms'='1'" in run.detail


@pytest.mark.requirement("METRIC-06")
def test_what_a_failing_measurement_wrote_to_stderr_is_told(scene: Scene) -> None:
    run = scene.measure(scene.bench(measure="echo METRIC ms=1; echo no such table >&2; exit 4"))
    assert run.detail.startswith("the measure command failed with exit status 4\n")
    assert "no such table" in run.detail
    assert scene.measure(scene.bench(measure="echo no >&2; false")).detail.splitlines()[1:] == ["no"]


@pytest.mark.case("MET-06")
@pytest.mark.requirement("RUN-02")
def test_a_command_prints_decimal_points_whatever_the_owners_locale_is(scene: Scene) -> None:
    scene.environment |= {"LC_ALL": "pl_PL.UTF-8", "LC_NUMERIC": "pl_PL.UTF-8", "LANG": "pl_PL.UTF-8"}
    run = scene.measure(scene.bench(measure="LC_NUMERIC=pl_PL.UTF-8 printf 'METRIC ms=%.2f\\n' 15"))
    assert run.metric == 15.0


@pytest.mark.requirement("METRIC-06")
@pytest.mark.parametrize(
    ("command", "metric", "fault"),
    [
        ("printf 'METRIC ms=123'", None, "metric_missing"),
        ("printf 'METRIC ms=1\\nMETRIC ms=123'", None, "metric_repeated"),
        ("echo first; echo METRIC ms=7; seq 9999", 7.0, ""),
        (
            "printf 'METRIC ms=7'; head -c 90000 /dev/zero | tr '\\0' 1; echo; echo last",
            None,
            "metric_missing",
        ),
    ],
    ids=["cut-number", "second", "in-the-middle", "endless-number"],
)
def test_a_metric_is_read_whole_wherever_it_stands_in_an_output_past_the_limit(
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    metric: float | None,
    fault: str,
) -> None:
    assert scene.measure(scene.bench(measure="echo METRIC ms=123")).metric == 123.0
    monkeypatch.setattr(
        sandbox,
        "run_limited",
        lambda argv, limits, **options: run_limited(
            argv, limits, **options, output_limit_bytes=len("METRIC ms=1\n")
        ),
    )
    run = scene.measure(scene.bench(measure=command))
    assert (run.metric, run.fault) == (metric, fault)
    assert not fault or "cut at the limit of 64 MiB" in run.detail


@pytest.mark.case("MET-13")
@pytest.mark.parametrize(
    ("incumbent", "candidate", "outcome"),
    [
        ((659.4, 660, 658), (656.2, 690, 700), "rejected"),
        ((660, 660, 660), (655, 655, 655), "rejected"),  # exactly the least effect
        ((660, 660, 660), (654, 900, 654.5), "accepted"),
    ],
)
def test_the_samples_of_runs_are_judged_by_their_medians_and_the_threshold_is_strict(
    scene: Scene, incumbent: tuple[float, ...], candidate: tuple[float, ...], outcome: str
) -> None:
    scene.write({"measure.sh": "#!/bin/sh\n. ./work.sh\necho METRIC ms=$ms\n"})
    bench = scene.bench()
    judge = Judge(
        AcceptanceRule("median", min_effect=5.0, runs=3, warmups=0), calibrate([(660.0, 660.0)] * 15)
    )
    verdicts = []
    for ours, theirs in zip(incumbent, candidate, strict=True):
        (scene.incumbent / "work.sh").write_text(f"ms={ours}\n")
        scene.work(f"ms={theirs}\n")
        pair = [scene.measure(bench, scene.incumbent).metric, scene.measure(bench).metric]
        assert pair == [ours, theirs]
        verdicts.append(judge.add_pair(ours, theirs))
    assert [verdict and verdict.outcome for verdict in verdicts] == [None, None, outcome]


@pytest.mark.requirement("METRIC-09")
def test_guards_are_judged_by_the_runs_of_the_same_trial(scene: Scene) -> None:
    scene.write({"measure.sh": "#!/bin/sh\n. ./work.sh\necho METRIC ms=$ms\necho METRIC size=$size\n"})
    bench = scene.bench(guards=(Guard("size", max_regression_percent=10.0),))
    runs: dict[str, list[Run]] = {"incumbent": [], "candidate": []}
    for size in (100, 104, 130):
        (scene.incumbent / "work.sh").write_text(f"ms=2 size={size - 20}\n")
        scene.work(f"ms=1 size={size}\n")
        runs["incumbent"].append(scene.measure(bench, scene.incumbent))
        runs["candidate"].append(scene.measure(bench))
    samples = {arm: samples_of([run.others for run in found]) for arm, found in runs.items()}
    assert samples["candidate"]["size"] == [100.0, 104.0, 130.0]
    told = guard_failures(bench.config.guards, samples["incumbent"], samples["candidate"])
    assert told == ("guard size: the median went from 84 to 104, at most 10 % worse is allowed",)


# --- Sources ---------------------------------------------------------------------------------------------------------


@linux_only
@pytest.mark.requirement("METRIC-07")
def test_the_peak_memory_of_a_child_is_a_metric(scene: Scene) -> None:
    program = f"x = bytearray({100 * MIB}); x[::4096] = b'1' * len(x[::4096])"
    command = f'"{sys.executable}" -I -S -c "{program}"; true'
    run = scene.measure(scene.bench(measure=command, metric=MetricSpec("peak", source="memory")))
    assert run.metric is not None
    assert 100 * MIB <= run.metric < 160 * MIB


@linux_only
def test_the_peak_memory_is_measured_where_it_is_guarded(scene: Scene) -> None:
    guard = Guard("peak_bytes", max_regression_percent=5.0)
    assert scene.measure(scene.bench(guards=(guard,))).others["peak_bytes"] > 0
    assert "peak_bytes" not in scene.measure(scene.bench()).others


@pytest.mark.requirement("METRIC-07")
def test_an_exit_status_is_a_metric_and_no_failure(scene: Scene) -> None:
    run = scene.measure(scene.bench(measure="exit 7", metric=MetricSpec("errors", source="exit")))
    assert (run.metric, run.fault) == (7.0, "")


@pytest.mark.requirement("METRIC-08")
def test_a_json_file_is_read_anew_from_each_run(scene: Scene) -> None:
    scene.write({"measure.sh": "#!/bin/sh\n. ./work.sh\n"})
    bench = scene.bench(metric=MetricSpec("mean", source="json", json_path="out/bench.json#results[0].mean"))
    scene.work('mkdir -p out; echo \'{"results": [{"mean": 3}]}\' > out/bench.json\n')
    assert scene.measure(bench).metric == 3.0
    scene.work("true\n")  # and writes nothing this time
    run = scene.measure(bench)
    assert (run.metric, run.fault) == (None, "metric_missing")


@pytest.mark.requirement("METRIC-08")
def test_a_json_file_that_leads_elsewhere_is_none(scene: Scene) -> None:
    scene.write({"measure.sh": "#!/bin/sh\n. ./work.sh\n"})
    (scene.root / "else.json").write_text('{"mean": 1}')
    bench = scene.bench(metric=MetricSpec("mean", source="json", json_path="bench.json#mean"))
    scene.work(f"ln -s {scene.root}/else.json bench.json\n")
    assert scene.measure(bench).fault == "metric_missing"


# --- Checks, set-ups, caches -----------------------------------------------------------------------------------------


def test_a_check_is_judged_by_its_exit_status_and_shows_both_streams(scene: Scene) -> None:
    bench = scene.bench(check="echo out; echo 'assertion: 1 != 2' >&2; exit 3")
    run = run_once("check", bench, str(scene.candidate), "c-1")
    assert (run.fault, run.exit_status, run.metric, run.others) == ("check_failed", 3, None, {})
    assert "assertion: 1 != 2" in run.detail
    assert not run_once("check", scene.bench(check="true"), str(scene.candidate), "c-2").fault


def test_a_command_that_cannot_be_run_says_why(scene: Scene) -> None:
    scene.write({"check.sh": "no shebang\n"})
    run = run_once("check", scene.bench(check="./check.sh"), str(scene.candidate), "c-1")
    assert "chmod +x ./check.sh" in run.detail
    assert (
        run_once("setup", scene.bench(setup="absent-program"), str(scene.candidate), "s-1").fault
        == "command_failed"
    )


@pytest.mark.requirement("RUN-01")
def test_a_check_that_the_candidate_rewrites_while_it_runs_is_tampered(scene: Scene) -> None:
    scene.write({"check.sh": "#!/bin/sh\n. ./work.sh\nexit 1\n"})
    bench = scene.bench(check="./check.sh")
    scene.work("printf '#!/bin/sh\\nexit 0\\n' > check.sh\n")
    assert run_once("check", bench, str(scene.candidate), "c-1").tampered_paths == ("check.sh",)
    assert not run_once("setup", scene.bench(setup="true"), str(scene.candidate), "s-1").fault


def test_caches_are_reset_before_each_measured_run_and_not_measured(scene: Scene) -> None:
    scene.write({"measure.sh": "#!/bin/sh\n. ./work.sh\nls cache; touch cache/used; echo METRIC ms=5\n"})
    bench = scene.bench(reset_caches="rm -rf cache; mkdir cache")
    for _ in range(2):
        run = scene.measure(bench)
        assert run.metric == 5.0
        assert "used" not in Path(run.output_path).read_text()


def test_caches_that_cannot_be_reset_are_a_fault_and_nothing_is_measured(scene: Scene) -> None:
    scene.work("touch measured\n")
    run = scene.measure(scene.bench(reset_caches="echo no space >&2; exit 1"))
    assert (run.fault, run.kind, run.metric) == ("reset_failed", "measure", None)
    assert "no space" in run.detail
    assert not (scene.candidate / "measured").exists()


# --- Surroundings of a run -------------------------------------------------------------------------------------------


@pytest.mark.requirement("RUN-02")
def test_a_command_has_the_owners_environment_of_the_start_and_no_more(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONLY_NOW", "1")
    scene.environment |= {"GIT_DIR": "/elsewhere", "TZ": "Asia/Kolkata", "LC_NUMERIC": "de_DE"}
    bench = scene.bench(measure="env; echo METRIC ms=5", env={"EXTRA": "yes", "GIT_INDEX_FILE": "/elsewhere"})
    lines = Path(scene.measure(bench).output_path).read_text().splitlines()
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    assert (values["TZ"], values["EXTRA"], values["LC_ALL"]) == ("Asia/Kolkata", "yes", "C.UTF-8")
    assert [name for name in values if name.startswith("GIT_")] == ["GIT_CEILING_DIRECTORIES"]
    assert not values.keys() & {"ONLY_NOW", "PYTHONHASHSEED"}
    assert values["PYTHONDONTWRITEBYTECODE"] == "1"


@pytest.mark.requirement("TREE-06")
@pytest.mark.case("GIT-19")
def test_git_in_a_tree_without_its_git_folder_finds_no_repository_above(scene: Scene) -> None:
    git(scene.candidate.parent, "init", "-q")
    run = scene.measure(scene.bench(measure="echo METRIC ms=5; git rev-parse --git-dir && echo found"))
    assert run.fault == "command_failed"
    assert "found" not in Path(run.output_path).read_text().splitlines()


@pytest.mark.requirement("RUN-02")
def test_a_variable_of_the_experiment_has_the_last_word(scene: Scene) -> None:
    bench = scene.bench(
        measure="echo METRIC ms=$PYTHONDONTWRITEBYTECODE", env={"PYTHONDONTWRITEBYTECODE": "7"}
    )
    assert scene.measure(bench).metric == 7.0


@pytest.mark.requirement("RUN-02")
def test_each_run_has_a_temporary_folder_of_its_own_that_is_gone_afterwards(scene: Scene) -> None:
    bench = scene.bench(measure='echo "$TMPDIR"; mkdir -m 0 "$TMPDIR/shut"; echo METRIC ms=5')
    paths = [Path(scene.measure(bench).output_path).read_text().splitlines()[0] for _ in range(2)]
    assert len(set(paths)) == 2
    assert len({len(path) for path in paths}) == 1
    assert os.listdir(scene.folder.scratch_path) == []


@pytest.mark.case("PRC-04")
@pytest.mark.requirement("RUN-02")
@pytest.mark.parametrize(
    "command", ["read x; echo METRIC ms=5", "cat; echo METRIC ms=5", f'"{sys.executable}"; echo METRIC ms=5']
)
def test_a_command_that_reads_gets_the_end_at_once(scene: Scene, command: str) -> None:
    assert scene.measure(scene.bench(measure=command)).metric == 5.0


def test_an_id_that_is_no_file_name_is_refused(scene: Scene) -> None:
    with pytest.raises(UsageError):
        run_once("measure", scene.bench(), str(scene.candidate), "../r")


# --- Processes -------------------------------------------------------------------------------------------------------


@linux_only
@pytest.mark.case("PRC-01")
@pytest.mark.case("PRC-02")
@pytest.mark.requirement("RUN-03")
def test_nothing_of_a_timed_out_run_is_left(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    up = Path(scene.folder.root_path, "up")
    monkeypatch.setattr(commands, "SystemClock", lambda: ClockUntil(up))
    marker = fresh_marker()
    child = f"touch {up}; echo up; read line < never; : {marker}"
    scene.work(f"trap '' TERM; mkfifo never; setsid -f sh -c '{child}'; sleep {marker} & sleep {marker}\n")
    run = scene.measure(scene.bench())
    assert (run.fault, run.metric) == ("timed_out", None)
    assert run.leaked == (f"sh -c {child}",)
    assert living_with(marker) == []


@linux_only
@pytest.mark.case("PRC-06")
@pytest.mark.requirement("RUN-03")
def test_nothing_of_one_run_reaches_the_next(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    late = scene.incumbent / "late"
    marker = fresh_marker()
    survivor = f"trap '' TERM; while :; do echo METRIC ms=1; echo >> ../incumbent/late; : {marker}; done"
    scene.work(f'setsid -f sh -c "{survivor}"; sleep {marker}\n')
    bench = scene.bench()
    with monkeypatch.context() as patched:
        patched.setattr(commands, "SystemClock", lambda: ClockUntil(late))
        assert scene.measure(bench).fault == "timed_out"
    size_bytes = late.stat().st_size
    following = scene.measure(bench, scene.incumbent)
    assert (following.metric, Path(following.output_path).read_text()) == (5.0, "METRIC ms=5\n")
    assert late.stat().st_size == size_bytes
    assert living_with(marker) == []


@linux_only
@pytest.mark.requirement("RUN-04")
def test_a_cancellation_ends_the_run_from_another_thread_and_leaves_nobody(scene: Scene) -> None:
    marker = fresh_marker()
    os.mkfifo(scene.root / "up")
    scene.work(
        f"trap '' TERM; setsid -f sleep {marker}; sleep {marker} & echo > {scene.root}/up; sleep {marker}\n"
    )
    bench, cancellation = scene.bench(), AutoresearchCancellation()
    runs: list[Run] = []
    thread = threading.Thread(target=lambda: runs.append(scene.measure(bench, cancellation=cancellation)))
    thread.start()
    (scene.root / "up").read_bytes()
    cancellation.trigger("cancelled")
    thread.join()
    assert [(run.fault, run.outcome, run.metric) for run in runs] == [("cancelled", "cancelled", None)]
    assert living_with(marker) == []
    assert os.listdir(scene.folder.scratch_path) == []


@pytest.mark.requirement("RUN-04")
def test_what_is_cancelled_already_runs_no_further(scene: Scene) -> None:
    cancellation = AutoresearchCancellation()
    cancellation.trigger("cancelled")
    scene.work("sleep 60\n")
    run = scene.measure(scene.bench(reset_caches="sleep 60"), cancellation=cancellation)
    assert run.fault == "cancelled"


def test_a_cancellation_after_the_run_is_of_no_concern_to_it(scene: Scene) -> None:
    cancellation = AutoresearchCancellation()
    assert scene.measure(scene.bench(), cancellation=cancellation).metric == 5.0
    cancellation.trigger("cancelled")


# --- Sandbox ---------------------------------------------------------------------------------------------------------


@needs_bubblewrap
@pytest.mark.requirement("RUN-06")
def test_in_the_sandbox_only_the_worktree_and_the_temporary_folder_can_be_written(scene: Scene) -> None:
    outside = scene.root / "outside"
    outside.mkdir()
    scene.work(
        f"echo 1 > made; echo 2 > $TMPDIR/made; echo 3 > {outside}/made; echo 4 > {scene.incumbent}/made;"
        f" echo 5 > {scene.folder.root_path}/made; ls {scene.incumbent} | grep work; cat $TMPDIR/made made\n"
    )
    run = scene.measure(scene.bench(sandbox="bubblewrap"))
    assert (run.metric, run.isolation) == (5.0, "bubblewrap")
    assert (scene.candidate / "made").read_text() == "1\n"
    assert not any(
        (path / "made").exists() for path in (outside, scene.incumbent, Path(scene.folder.root_path))
    )
    output = Path(run.output_path).read_text()
    assert "work.sh\n" not in output
    assert "2\n1\nMETRIC ms=5\n" in output


@needs_bubblewrap
@pytest.mark.requirement("RUN-06")
def test_in_the_sandbox_there_is_no_network(scene: Scene) -> None:
    scene.work("cat /proc/net/dev\n")
    interfaces = Path(scene.measure(scene.bench(sandbox="bubblewrap")).output_path).read_text()
    assert [line.split(":")[0].strip() for line in interfaces.splitlines() if ":" in line] == ["lo"]


@needs_bubblewrap
@pytest.mark.requirement("RUN-06")
def test_metrics_faults_and_time_limits_are_the_same_in_the_sandbox(scene: Scene) -> None:
    marker = fresh_marker()
    bench = scene.bench(sandbox="auto", guards=(Guard("peak_bytes", bound=1e12),))
    assert scene.measure(bench).others["peak_bytes"] > 0
    scene.work("exit 3\n")
    run = scene.measure(bench)
    assert (run.fault, run.exit_status, run.isolation) == ("command_failed", 3, "bubblewrap")
    scene.work(f"trap '' TERM; setsid -f sleep {marker}; sleep {marker}\n")
    assert scene.measure(scene.bench(sandbox="auto", measure_timeout_seconds=0.6)).fault == "timed_out"
    assert living_with(marker) == []


@needs_bubblewrap
@pytest.mark.requirement("RUN-01")
def test_a_cheat_in_the_sandbox_is_found_too(scene: Scene) -> None:
    bench = scene.bench(sandbox="bubblewrap")
    scene.work("cp measure.sh kept; echo > measure.sh; cat kept > measure.sh\n")
    assert scene.measure(bench).tampered_paths == ("measure.sh",)


@pytest.mark.requirement("RUN-06")
def test_without_bubblewrap_auto_says_so_and_a_demand_is_refused(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_box(monkeypatch, "none")
    run = scene.measure(scene.bench(sandbox="auto"))
    assert (run.metric, run.isolation) == (5.0, "none")
    bench = scene.bench(sandbox="bubblewrap")
    with pytest.raises(CommandFault, match="bubblewrap is missing") as caught:
        scene.measure(bench)
    assert "--sandbox auto" in caught.value.next_step


@pytest.mark.requirement("DONE-28")
def test_a_declared_secret_stands_in_no_output_and_in_no_detail(scene: Scene) -> None:
    scene.environment["STORE_PASSWORD"] = "hunter2hunter2"
    bench = scene.bench(
        measure='echo "$STORE_PASSWORD $STAGE" >&2; echo "METRIC ms=$STORE_PASSWORD"; exit 3',
        env={"STORE_PASSWORD": WITHHELD, "STAGE": "staging-2024"},
    )
    run = scene.measure(bench)
    assert run.exit_status == 3
    shown = run.detail + Path(run.output_path).read_text()
    assert "[redacted] staging-2024" in shown
    assert "hunter2" not in shown


@pytest.mark.requirement("DONE-28")
def test_a_declared_secret_stands_in_one_file_of_an_experiment(tmp_path: Path) -> None:
    root = toy(tmp_path / "project")
    measure = "sh -c 'echo \"$MY_TOKEN\" >&2; exec ./measure.sh'"
    begun(root, measure=measure, protect=("measure.sh",), env={"MY_TOKEN": "hunter2hunter2"})
    home = Path(state_home(os.environ))
    holding = [path for path in home.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
    assert [(path.parent.parent.name, path.stat().st_mode & 0o777) for path in holding] == [
        ("experiments", 0o600)
    ]
