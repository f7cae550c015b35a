"""Runs of the older session tools: what becomes of good, bad, broken, endless and killed benchmarks."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.compat.auto_log import SessionConfig, SessionFolder, SessionRun, session_folder
from omx_autoresearch.compat.auto_sessions import (
    RunAsk,
    SessionView,
    init_session,
    report_run,
    start_run,
    wait_for_run,
)
from omx_autoresearch.foundation.errors import StepIllegal, UsageError
from omx_autoresearch.journal.layout import StateHome
from omx_autoresearch.system.processes import RUN_MARK, wait_for
from tests.support.needs import needs_bubblewrap
from tests.support.scratch import Scratch

if TYPE_CHECKING:
    from pathlib import Path

    from omx_autoresearch.experiments.judge.state import Isolation
    from omx_autoresearch.foundation.types import MetricDirection
    from omx_autoresearch.journal.layout import Runtime

CONFIG = SessionConfig("fast", "total_ms", "ms")
VALUE = "#!/bin/sh\necho METRIC total_ms=$(cat value.txt)\necho METRIC other=7\n"
ENDLESS = "#!/bin/sh\ntouch began\nexec sleep 1000\n"


class Session:
    """One workspace with a session of its own."""

    def __init__(self, scratch: Scratch) -> None:
        self.scratch = scratch
        self.runtime: Runtime = scratch.runtime()
        self.folder: SessionFolder = session_folder(scratch.home, str(scratch.project))

    def begin(self, measure: str = VALUE, checks: str = "", config: SessionConfig = CONFIG) -> None:
        self.scratch.write(".auto/measure.sh", measure, executable=True)
        if checks:
            self.scratch.write(".auto/checks.sh", checks, executable=True)
        init_session(self.runtime, self.folder, config)

    def start(
        self, description: str = "try", *, isolation: Isolation = "none", wait_seconds: float = 60
    ) -> SessionView:
        ask = RunAsk(description, isolation, self.runtime.new_id())
        return start_run(self.runtime, self.folder, ask, wait_seconds=wait_seconds)

    def run(self, value: object = "", description: str = "try") -> SessionRun:
        if value != "":
            self.scratch.write("value.txt", str(value))
        run = self.start(description).run
        assert run is not None
        return run

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.scratch.read(".auto/log.jsonl").splitlines()]

    def output(self, run: int, script: str = "measure.sh") -> str:
        with open(self.folder.output_path(run, script), encoding="utf-8") as stream:
            return stream.read()


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(Scratch.make(tmp_path))


@pytest.mark.requirement("AUTO-02")
@pytest.mark.parametrize(
    ("direction", "values", "statuses", "best"),
    [
        ("lower", (100, 90, 95, 90), ["keep", "keep", "discard", "discard"], 90),
        ("higher", (100, 90, 110, 110), ["keep", "discard", "keep", "discard"], 110),
    ],
)
def test_a_run_is_kept_where_it_is_strictly_better_than_the_best_so_far(
    session: Session, direction: MetricDirection, values: tuple[int, ...], statuses: list[str], best: float
) -> None:
    session.begin(config=replace(CONFIG, direction=direction))
    assert [session.run(value).status for value in values] == statuses
    lines = session.lines()
    assert [line.get("metric") for line in lines[1:]] == list(values)
    assert lines[1]["metrics"]["other"] == 7
    assert lines[1]["commit"] == session.scratch.git("rev-parse", "HEAD")
    assert session.start().log.best == best


@pytest.mark.requirement("AUTO-02")
@pytest.mark.case("STA-10")
@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("echo done", "metric_missing"),
        ("echo METRIC total_ms=nan", "metric_not_finite"),
        ("echo METRIC total_ms=inf", "metric_not_finite"),
        ("echo METRIC total_ms=12ms", "metric_malformed"),
        ("echo METRIC total_ms=1,5", "metric_malformed"),
        ("echo METRIC total_ms=1; echo METRIC total_ms=2", "metric_repeated"),
        ("echo METRIC total_ms=1 >&2", "metric_missing"),
        ("echo METRIC total_ms=1; exit 3", "command_failed"),
        ("echo METRIC total_ms=1; kill -9 $$", "command_failed"),
    ],
)
def test_what_gives_no_value_is_a_crash_without_one_and_never_zero(
    session: Session, said: str, why: str
) -> None:
    session.begin(f"#!/bin/sh\n{said}\n")
    run = session.run()
    assert (run.status, run.metric) == ("crash", None)
    assert run.reason.startswith(f"{why}: ")
    assert session.lines()[-1]["metric"] is None
    session.scratch.write(".auto/measure.sh", "#!/bin/sh\necho METRIC total_ms=5\n")
    assert session.run().status == "keep"  # the crash is no best


@pytest.mark.requirement("AUTO-02")
def test_a_benchmark_that_does_not_end_is_ended_and_its_value_does_not_count(session: Session) -> None:
    endless = "#!/bin/sh\necho METRIC total_ms=1\nsleep 1000 &\nexec sleep 1000\n"
    session.begin(endless, config=replace(CONFIG, timeout_seconds=0.3))
    run = session.run()
    assert (run.status, run.metric) == ("crash", None)
    assert run.reason.startswith("timed_out: ")


@pytest.mark.requirement("AUTO-02")
def test_checks_that_fail_keep_nothing_and_are_not_measured(session: Session) -> None:
    session.begin(checks="#!/bin/sh\ntest -e right || { echo it is wrong; exit 4; }\n")
    run = session.run(10)
    assert (run.status, run.metric, run.checks) == ("checks_failed", 10, "failed")
    assert "exit status 4" in run.reason
    assert session.output(1, "checks.sh") == "it is wrong\n"
    session.scratch.write("right", "")
    good = session.run(20)
    assert (good.status, good.checks) == ("keep", "passed")  # what failed its checks is no best


@pytest.mark.requirement("AUTO-02")
def test_checks_are_not_run_where_there_is_no_value_and_have_a_time_limit(session: Session) -> None:
    session.begin(
        "#!/bin/sh\nexit 1\n",
        checks="#!/bin/sh\ntouch checked\nexec sleep 1000\n",
        config=replace(CONFIG, checks_timeout_seconds=0.3),
    )
    assert session.run().status == "crash"
    assert not (session.scratch.project / "checked").exists()
    session.scratch.write(".auto/measure.sh", "#!/bin/sh\necho METRIC total_ms=5\n")
    run = session.run()
    assert (run.status, run.checks) == ("checks_failed", "failed")
    assert "time limit" in run.reason


@pytest.mark.requirement("AUTO-02")
def test_the_output_is_kept_whole(session: Session) -> None:
    session.begin("#!/bin/sh\nyes 0123456789 | head -c 300000\necho\necho METRIC total_ms=5\n")
    assert session.run().metric == 5
    assert len(session.output(1)) > 300000


@pytest.mark.requirement("AUTO-02")
def test_the_workspace_is_left_as_it_is(session: Session) -> None:
    session.begin()
    before = session.scratch.git("rev-parse", "HEAD")
    for value in (10, 20):
        session.run(value)
    assert session.scratch.read("value.txt") == "20"
    assert session.scratch.git("rev-parse", "HEAD") == before


@pytest.mark.requirement("AUTO-06")
def test_a_benchmark_carries_the_mark_of_a_run_and_no_ticket_of_its_starter(session: Session) -> None:
    session.begin("#!/bin/sh\nenv >env.txt\necho METRIC total_ms=5\n")
    session.runtime = session.scratch.runtime(OMX_AUTORESEARCH_TASK="task:nonce")
    session.run()
    env = session.scratch.read("env.txt")
    assert f"{RUN_MARK}=" in env
    assert "OMX_AUTORESEARCH_TASK" not in env
    assert "LC_ALL=C.UTF-8\n" in env


@pytest.mark.requirement("AUTO-05")
def test_a_run_that_takes_long_goes_on_and_another_one_waits_its_turn(session: Session) -> None:
    session.begin("#!/bin/sh\nread _ <gate\necho METRIC total_ms=5\n")
    os.mkfifo(session.scratch.project / "gate")
    first = session.start("the long one", wait_seconds=0.1)
    assert first.run is None
    assert first.under_way is not None
    assert first.under_way.run == 1
    for act in (
        lambda: session.start("another"),
        lambda: report_run(session.runtime, session.folder, "x", 1.0, {}),
        lambda: init_session(session.runtime, session.folder, CONFIG),
    ):
        with pytest.raises(StepIllegal, match=r"'the long one'.* has been under way"):
            act()
    assert wait_for_run(session.runtime, session.folder, 1, wait_seconds=0).run is None
    (session.scratch.project / "gate").write_text("go\n")
    ended = wait_for_run(session.runtime, session.folder, 1, wait_seconds=60).run
    assert ended is not None
    assert (ended.run, ended.status, ended.description) == (1, "keep", "the long one")
    assert len(session.lines()) == 2


@pytest.mark.requirement("AUTO-05")
def test_a_run_whose_process_was_killed_is_a_crash_of_its_own_number(session: Session) -> None:
    session.begin(ENDLESS)
    lost = session.start("the lost one", wait_seconds=0.2).under_way
    assert lost is not None
    os.kill(lost.pid, signal.SIGKILL)
    assert wait_for(lost.process, 60)
    ended = wait_for_run(session.runtime, session.folder, 1, wait_seconds=60).run
    assert ended is not None
    assert (ended.run, ended.status, ended.metric, ended.description) == (1, "crash", None, "the lost one")
    assert "interrupted" in ended.reason
    session.scratch.write(".auto/measure.sh", "#!/bin/sh\necho METRIC total_ms=5\n")
    assert session.run().run == 2
    assert [line.get("run") for line in session.lines()] == [None, 1, 2]


@pytest.mark.requirement("AUTO-05")
def test_a_run_that_was_recorded_before_its_process_was_killed_is_recorded_once(session: Session) -> None:
    session.begin()
    run = session.run(5)
    note = {
        "run": 1,
        "run_id": run.run_id,
        "description": "try",
        "pid": 2**22 - 1,
        "pid_started": "never",
        "started_at": "",
        "commit": "",
    }
    with open(session.folder.running_path, "w", encoding="utf-8") as stream:
        json.dump(note, stream)
    assert session.run(4).run == 2
    assert len(session.lines()) == 3


@pytest.mark.requirement("AUTO-05")
def test_a_wait_for_a_run_that_there_never_was_says_so(session: Session) -> None:
    session.begin()
    with pytest.raises(UsageError, match="no run 7"):
        wait_for_run(session.runtime, session.folder, 7, wait_seconds=0)


@pytest.mark.requirement("AUTO-01")
def test_a_session_needs_a_header_and_a_benchmark(session: Session) -> None:
    with pytest.raises(UsageError, match=r"no \.auto/measure\.sh"):
        init_session(session.runtime, session.folder, CONFIG)
    session.scratch.write(".auto/measure.sh", VALUE, executable=True)
    with pytest.raises(UsageError, match="so there is no session"):
        session.start()
    assert not (session.scratch.project / ".auto" / "log.jsonl").exists()


@pytest.mark.requirement("AUTO-01")
def test_a_session_writes_the_scripts_that_are_missing_and_changes_none(session: Session) -> None:
    scripts = {"measure_command": "echo METRIC total_ms=5", "checks_command": "false"}
    init_session(session.runtime, session.folder, CONFIG, **scripts)
    assert session.run().status == "checks_failed"
    init_session(session.runtime, session.folder, CONFIG, **{**scripts, "checks_command": "true"})
    assert session.run().status == "checks_failed"


@pytest.mark.requirement("AUTO-01")
def test_a_full_segment_takes_no_more_runs_until_a_new_one_begins(session: Session) -> None:
    session.begin(config=replace(CONFIG, max_iterations=1))
    session.run(5)
    with pytest.raises(StepIllegal, match="has used all of its 1 run"):
        session.start()
    with pytest.raises(StepIllegal):
        report_run(session.runtime, session.folder, "x", 1.0, {})
    session.begin()
    assert session.run(50).status == "keep"  # a best of its own


@pytest.mark.requirement("AUTO-02")
def test_a_reported_value_is_judged_and_marked_and_not_taken_twice(session: Session) -> None:
    session.begin()
    session.run(10)
    view, is_new = report_run(session.runtime, session.folder, "said again", 10.0, {})
    assert (is_new, view.run and view.run.run) == (False, 1)
    view, is_new = report_run(session.runtime, session.folder, "elsewhere", 8.0, {"a": 1.0}, commit="abc")
    assert is_new
    assert view.run is not None
    assert (view.run.status, view.run.source, view.run.commit) == ("keep", "reported", "abc")
    assert view.log.best == 8
    with pytest.raises(UsageError):
        report_run(session.runtime, session.folder, "x", float("nan"), {})


@needs_bubblewrap
@pytest.mark.requirement("AUTO-06")
def test_a_sandboxed_run_says_so_and_reaches_nothing_outside(session: Session) -> None:
    outside = session.scratch.root / "outside"
    session.begin(f"#!/bin/sh\ntouch {outside}\ntouch inside\necho METRIC total_ms=5\n")
    run = session.start(isolation="bubblewrap").run
    assert run is not None
    assert (run.status, run.isolation) == ("keep", "bubblewrap")
    assert (session.scratch.project / "inside").exists()
    assert not outside.exists()


@needs_bubblewrap
@pytest.mark.requirement("AUTO-06")
def test_a_sandboxed_run_works_where_the_state_home_stands_in_the_workspace(session: Session) -> None:
    home = StateHome(str(session.scratch.project / "state"))
    session.folder = session_folder(home, str(session.scratch.project))
    session.begin("#!/bin/sh\nls state/session-tools/*/outputs && exit 3\necho METRIC total_ms=5\n")
    run = session.start(isolation="bubblewrap").run
    assert run is not None
    assert (run.status, run.isolation) == ("keep", "bubblewrap"), run.reason
