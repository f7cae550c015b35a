"""The held-out check is copied at the start, is the same at every run, and is seen by nobody else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omx_autoresearch.experiments.evaluators import check_held_out, digest_of_held_out, take_held_out
from omx_autoresearch.experiments.runs import run_once
from omx_autoresearch.foundation.errors import StateUntrusted, WorkspaceFault
from tests.experiments.benches import Scene, scene_in
from tests.support.boxes import BOXES, take_box
from tests.support.needs import needs_bubblewrap

CHECK = '#!/bin/sh\ngrep -q good work.sh && echo "$PWD" && cat "$(dirname "$0")/expected"\n'


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return scene_in(tmp_path)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The owner's folder with a check and what it compares with."""
    path = tmp_path / "kept-back"
    (path / "data").mkdir(parents=True)
    (path / "check").write_text(CHECK)
    (path / "check").chmod(0o755)
    (path / "data" / "expected").write_text("the secret\n")
    (path / "expected").symlink_to("data/expected")
    return path


@pytest.mark.requirement("RUN-07")
def test_the_copy_judges_the_worktree_it_runs_in(scene: Scene, source: Path) -> None:
    bench = scene.bench(held_out=str(source))
    scene.work("# good\n")
    passed = run_once("held_out", bench, str(scene.candidate), "h-1")
    assert (passed.fault, passed.kind, passed.metric) == ("", "held_out", None)
    assert Path(passed.output_path).read_text() == f"{scene.candidate}\nthe secret\n"
    failed = run_once("held_out", bench, str(scene.incumbent), "h-2")
    assert (failed.fault, failed.exit_status) == ("held_out_failed", 1)


@pytest.mark.requirement("RUN-07")
def test_a_file_alone_is_a_check(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "judge").write_text("#!/bin/sh\ntest -f work.sh\n")
    (tmp_path / "judge").chmod(0o755)
    bench = scene.bench(held_out=str(tmp_path / "judge"))
    assert not run_once("held_out", bench, str(scene.candidate), "h-1").fault


@pytest.mark.requirement("RUN-07")
def test_what_the_check_said_and_where_it_stands_is_not_in_what_is_told(scene: Scene, source: Path) -> None:
    (source / "check").write_text("#!/bin/sh\ncat $(dirname $0)/expected; echo $0 >&2; exit 1\n")
    run = run_once("held_out", scene.bench(held_out=str(source)), str(scene.candidate), "h-1")
    assert "the secret" not in run.detail
    assert "held-out/check" not in run.detail


@pytest.mark.requirement("RUN-07")
def test_the_owners_original_may_change_or_go(scene: Scene, source: Path) -> None:
    bench = scene.bench(held_out=str(source))
    (source / "check").write_text("#!/bin/sh\nexit 1\n")
    scene.work("# good\n")
    assert not run_once("held_out", bench, str(scene.candidate), "h-1").fault


@pytest.mark.requirement("RUN-07")
@pytest.mark.parametrize("kind", BOXES)
def test_no_boxed_run_sees_the_check_of_another_experiment(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    take_box(monkeypatch, kind)
    older = scene.root / "experiments" / "older" / "held-out" / "check"
    older.parent.mkdir(parents=True)
    older.write_text("the secret\n")
    scene.work(f"cat {older} > seen 2>&1\n")

    run = run_once("measure", scene.bench(sandbox="auto"), str(scene.candidate), "r-1")

    assert (run.metric, run.isolation) == (5.0, kind)
    assert "the secret" not in (scene.candidate / "seen").read_text()


@pytest.mark.requirement("RUN-07")
@pytest.mark.parametrize("name", ["check", "data/expected", "added"])
def test_a_changed_copy_is_not_believed(scene: Scene, source: Path, name: str) -> None:
    bench = scene.bench(held_out=str(source))
    Path(scene.folder.held_out_path, name).write_text("#!/bin/sh\nexit 0\n")
    with pytest.raises(StateUntrusted, match="held-out"):
        run_once("held_out", bench, str(scene.candidate), "h-1")


@pytest.mark.requirement("RUN-07")
def test_a_copy_changed_by_the_code_under_test_is_noticed(scene: Scene, source: Path) -> None:
    (source / "check").write_text("#!/bin/sh\n. ./work.sh\n")
    bench = scene.bench(held_out=str(source))
    scene.work('echo "exit 0" > "$(dirname "$0")/check"\n')
    with pytest.raises(StateUntrusted, match="held-out"):
        run_once("held_out", bench, str(scene.candidate), "h-1")


@needs_bubblewrap
@pytest.mark.requirement("RUN-07")
def test_in_the_sandbox_no_other_run_sees_the_check_or_its_original(scene: Scene, source: Path) -> None:
    bench = scene.bench(held_out=str(source), sandbox="bubblewrap")
    scene.work(f"# good\nls {scene.folder.root_path} {source} > seen; cat {source}/expected 2>> seen\n")
    run = run_once("measure", bench, str(scene.candidate), "r-1")
    assert run.metric == 5.0
    seen = (scene.candidate / "seen").read_text()
    assert "held-out" not in seen
    assert "the secret" not in seen
    assert "check\n" not in seen
    held_out = run_once("held_out", bench, str(scene.candidate), "h-1")
    assert (held_out.fault, held_out.isolation) == ("", "bubblewrap")


@pytest.mark.requirement("RUN-07")
def test_what_is_no_check_is_refused_with_the_cure(tmp_path: Path) -> None:
    target = str(tmp_path / "target")
    with pytest.raises(WorkspaceFault, match="does not exist") as caught:
        take_held_out(str(tmp_path / "absent"), target)
    assert "--held-out" in caught.value.next_step
    (tmp_path / "plain").write_text("#!/bin/sh\n")
    with pytest.raises(WorkspaceFault, match="not executable") as caught:
        take_held_out(str(tmp_path / "plain"), target)
    assert "chmod +x" in caught.value.next_step
    assert not os.path.exists(target)


@pytest.mark.requirement("RUN-07")
@pytest.mark.parametrize("kind", ["absolute", "outside", "pipe"])
def test_a_folder_whose_copy_would_not_be_whole_is_refused(source: Path, tmp_path: Path, kind: str) -> None:
    if kind == "absolute":
        (source / "other").symlink_to(source / "check")
    elif kind == "outside":
        (source / "other").symlink_to("../elsewhere")
    else:
        os.mkfifo(source / "other")
    with pytest.raises(WorkspaceFault, match="other"):
        take_held_out(str(source), str(tmp_path / "target"))


def test_the_digest_is_of_names_kinds_and_contents(source: Path, tmp_path: Path) -> None:
    digest = take_held_out(str(source), str(tmp_path / "target"))
    check_held_out(str(tmp_path / "target"), digest)
    (tmp_path / "target" / "data" / "expected").chmod(0o755)
    assert digest_of_held_out(str(tmp_path / "target")) != digest
    (tmp_path / "target" / "data" / "expected").chmod(0o644)
    assert digest_of_held_out(str(tmp_path / "target")) == digest
    (tmp_path / "target" / "data" / "expected").rename(tmp_path / "target" / "data" / "moved")
    assert digest_of_held_out(str(tmp_path / "target")) != digest
