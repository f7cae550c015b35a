"""What judges stays what it was at the start: put back before each run, looked at after it."""

from __future__ import annotations

import os
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from omx_autoresearch.experiments.evaluators import moved_environment, open_evaluators
from omx_autoresearch.experiments.judge.metrics import MetricSpec
from omx_autoresearch.experiments.judge.state import ExperimentConfig
from omx_autoresearch.experiments.runs import run_once
from omx_autoresearch.foundation.errors import StateUntrusted
from tests.experiments.benches import MEASURE, Scene, scene_in


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return scene_in(tmp_path)


# --- Touched by the candidate before its run -------------------------------------------------------------------------


def _edit(worktree: Path) -> None:
    (worktree / "measure.sh").write_text("#!/bin/sh\necho METRIC ms=1\n")


def _rename_over(worktree: Path) -> None:
    (worktree / "mine").write_text("#!/bin/sh\necho METRIC ms=1\n")
    (worktree / "mine").chmod(0o755)
    (worktree / "mine").rename(worktree / "measure.sh")


def _link(worktree: Path) -> None:
    (worktree / "mine").write_text("#!/bin/sh\necho METRIC ms=1\n")
    (worktree / "measure.sh").unlink()
    (worktree / "measure.sh").symlink_to("mine")


def _link_to_equal_content(worktree: Path) -> None:
    shutil.copy(worktree / "measure.sh", worktree / "mine")
    (worktree / "measure.sh").unlink()
    (worktree / "measure.sh").symlink_to("mine")


def _delete(worktree: Path) -> None:
    (worktree / "measure.sh").unlink()


def _folder(worktree: Path) -> None:
    (worktree / "measure.sh").unlink()
    (worktree / "measure.sh").mkdir()


def _no_longer_executable(worktree: Path) -> None:
    (worktree / "measure.sh").chmod(0o644)


@pytest.mark.requirement("RUN-01")
@pytest.mark.parametrize(
    "cheat", [_edit, _rename_over, _link, _link_to_equal_content, _delete, _folder, _no_longer_executable]
)
def test_a_touched_script_is_put_back_and_told_and_the_run_does_not_take_place(
    scene: Scene, cheat: object
) -> None:
    bench = scene.bench()
    scene.work("touch ran\n")
    cheat(scene.candidate)  # type: ignore[operator]
    run = scene.measure(bench)
    assert (run.fault, run.metric, run.tampered_paths) == ("tampered", None, ("measure.sh",))
    assert run.is_tampered
    assert not (scene.candidate / "ran").exists()
    assert (scene.candidate / "measure.sh").read_text() == MEASURE
    assert not (scene.candidate / "measure.sh").is_symlink()
    assert scene.measure(bench).metric == 5.0


@pytest.mark.requirement("RUN-01")
@pytest.mark.parametrize("kind", ["symlink", "repository"])
def test_a_folder_that_was_exchanged_as_a_whole_is_found(scene: Scene, kind: str) -> None:
    scene.write({"cases/a.txt": "1\n", "measure.sh": "#!/bin/sh\ncat cases/a.txt\necho METRIC ms=5\n"})
    bench = scene.bench(protect=("cases",))
    shutil.move(scene.candidate / "cases", scene.candidate / "theirs")
    if kind == "symlink":
        (scene.candidate / "cases").symlink_to("theirs")
    else:
        subprocess.run(["git", "init", "-q", str(scene.candidate / "cases")], check=True)
        (scene.candidate / "cases" / "a.txt").write_text("2\n")
    run = scene.measure(bench)
    assert (run.fault, run.tampered_paths) == ("tampered", ("cases/a.txt",))
    assert not (scene.candidate / "cases").is_symlink()
    assert scene.measure(bench).metric == 5.0


@pytest.mark.requirement("RUN-01")
def test_a_conftest_that_was_added_is_moved_away_and_told(scene: Scene) -> None:
    scene.write({"test_work.py": "def test_it():\n    assert False\n"})
    bench = scene.bench(check=f'"{sys.executable}" -m pytest -q')
    (scene.candidate / "conftest.py").write_text("def pytest_collection_modifyitems(items): items.clear()\n")
    run = scene.measure(bench)
    assert (run.fault, run.tampered_paths) == ("tampered", ("conftest.py",))
    assert not (scene.candidate / "conftest.py").exists()
    assert run_once("check", bench, str(scene.candidate), "c-1").fault == "check_failed"


@pytest.mark.requirement("RUN-01")
def test_a_program_planted_on_the_path_of_the_tree_is_told(scene: Scene) -> None:
    scene.write(
        {"bin/tool": "#!/bin/sh\necho METRIC ms=5\n", "measure.sh": "#!/bin/sh\ntool; awk 1 /dev/null\n"}
    )
    scene.environment["PATH"] = f"{scene.project}/bin:{os.environ['PATH']}"
    bench = scene.bench()
    assert scene.measure(bench).metric == 5.0
    (scene.candidate / "bin" / "awk").write_text("#!/bin/sh\necho METRIC ms=0\n")
    (scene.candidate / "bin" / "awk").chmod(0o755)
    assert scene.measure(bench).tampered_paths == ("bin/awk",)
    (scene.candidate / "bin" / "tool").write_text("#!/bin/sh\necho METRIC ms=0\n")
    assert scene.measure(bench).tampered_paths == ("bin/tool",)


@pytest.mark.requirement("RUN-01")
@pytest.mark.parametrize("name", ["sitecustomize.py", "usercustomize.py", "json.py"])
def test_a_module_that_python_would_take_in_by_itself_is_told(scene: Scene, name: str) -> None:
    scene.write({"lib/work.py": "", "measure.py": "import json\nprint('METRIC ms=5')\n"})
    scene.environment["PYTHONPATH"] = f"{scene.project}/lib"
    bench = scene.bench(measure=f'"{sys.executable}" measure.py', protect=())
    assert scene.measure(bench).metric == 5.0
    (scene.candidate / "lib" / name).write_text("print('METRIC ms=0')\n")
    assert scene.measure(bench).tampered_paths == (f"lib/{name}",)
    assert scene.measure(bench).metric == 5.0


@pytest.mark.requirement("RUN-01", "WORK-02")
def test_with_a_named_work_what_the_measure_script_reads_is_frozen_and_the_work_is_not(scene: Scene) -> None:
    scene.write(
        {
            "lib/work.py": "",
            "report.py": "def say():\n    print('METRIC ms=5')\n",
            "measure.py": "import sys\nsys.path.append('lib')\nimport report\nimport work\nreport.say()\n",
        }
    )
    bench = scene.bench(measure=f'"{sys.executable}" measure.py', protect=(), work=("lib/**",))
    scene.write({"lib/work.py": "pass\n"})
    assert scene.measure(bench).metric == 5.0
    (scene.candidate / "report.py").write_text("def say():\n    print('METRIC ms=0')\n")
    assert scene.measure(bench).tampered_paths == ("report.py",)


@pytest.mark.requirement("RUN-01")
def test_a_compiled_form_of_a_frozen_module_is_never_taken(scene: Scene) -> None:
    frozen = "def say():\n    print('METRIC ms=5')\n"
    scene.write({"bench_lib.py": frozen, "measure.py": "import bench_lib\nbench_lib.say()\n"})
    bench = scene.bench(measure=f'"{sys.executable}" measure.py', protect=("bench_lib.py",))
    source = scene.candidate / "bench_lib.py"
    status = source.stat()
    forged = scene.candidate / "forged.py"
    forged.write_text(frozen.replace("5", "1"))
    os.utime(forged, ns=(status.st_atime_ns, status.st_mtime_ns))
    cached = scene.candidate / "__pycache__" / f"bench_lib.{sys.implementation.cache_tag}.pyc"
    py_compile.compile(str(forged), str(cached))
    assert scene.measure(bench).metric == 5.0
    outside = scene.root / "outside"
    shutil.rmtree(cached.parent)
    outside.mkdir()
    py_compile.compile(str(forged), str(outside / cached.name))
    cached.parent.symlink_to(outside)
    assert scene.measure(bench).metric == 5.0
    assert (outside / cached.name).exists()


# --- Touched while it runs -------------------------------------------------------------------------------------------

CHEATS = {
    "appended": "echo '# mine' >> measure.sh",
    "changed and put back": "cp -p measure.sh kept; echo 'echo METRIC ms=1' > measure.sh; cat kept > measure.sh",
    "put back with its times": (
        "cp -p measure.sh kept; echo 'echo METRIC ms=1' > measure.sh; cat kept > measure.sh; touch -r kept measure.sh"
    ),
    "moved away and back": "mv measure.sh away; mv away measure.sh",
    "exchanged for its copy": "cp -p measure.sh copy; mv copy measure.sh",
    "made a link": "mv measure.sh away; ln -s away measure.sh",
    "by a child in another session": "setsid sh -c 'echo \"# mine\" >> measure.sh' & wait",
    "gone": "rm measure.sh",
}


@pytest.mark.requirement("RUN-01")
@pytest.mark.parametrize("cheat", CHEATS.values(), ids=CHEATS.keys())
def test_a_script_touched_by_the_running_candidate_is_told(scene: Scene, cheat: str) -> None:
    bench = scene.bench()
    scene.work(f"{cheat}\n")
    run = scene.measure(bench)
    assert (run.fault, run.metric, run.others) == ("tampered", None, {})
    assert run.tampered_paths == ("measure.sh",)
    assert "measure.sh" in run.detail


@pytest.mark.requirement("RUN-01")
def test_what_a_runner_would_load_is_told_when_it_appears_during_the_run(scene: Scene) -> None:
    scene.write({"test_work.py": "def test_it():\n    pass\n"})
    bench = scene.bench(check="pytest -q")
    scene.work("mkdir -p deep; echo > deep/conftest.py\n")
    assert scene.measure(bench).tampered_paths == ("deep/conftest.py",)


def test_a_check_that_writes_beside_its_files_is_no_cheat(scene: Scene) -> None:
    scene.write({"bench/run.sh": MEASURE})
    bench = scene.bench(measure="bench/run.sh")
    scene.work("echo > bench/result; mkdir -p bench/more; rm bench/result\n")
    assert scene.measure(bench).metric == 5.0


def test_what_was_done_to_one_worktree_is_not_told_of_the_other(scene: Scene) -> None:
    bench = scene.bench()
    _edit(scene.candidate)
    assert scene.measure(bench, scene.incumbent).metric == 5.0
    assert scene.measure(bench).is_tampered


def test_only_what_moved_is_read_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    from omx_autoresearch.freezing import pins

    scene.write({f"cases/{number}.txt": f"{number}\n" for number in range(20)})
    bench = scene.bench(protect=("cases", "!work.sh"))
    worktree = str(scene.candidate)
    monkeypatch.setattr(pins, "RACY_NS", -(10**18))  # nothing is too new to be remembered
    bench.restore(worktree)
    read: list[str] = []
    digest_of_file = pins.digest_of_file

    def noted(root_path: str, path: str, *more: object) -> str:
        read.append(path)
        return digest_of_file(root_path, path, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(pins, "digest_of_file", noted)
    stamps = bench.stamps(worktree)
    assert bench.restore(worktree) == ()
    assert bench.touched_since(worktree, stamps) == ()
    assert read == []
    os.utime(scene.candidate / "cases" / "7.txt")
    assert bench.touched_since(worktree, stamps) == ("cases/7.txt",)
    assert read == ["cases/7.txt"]


def test_the_setup_is_the_candidates_own(scene: Scene) -> None:
    scene.write({"build.sh": "#!/bin/sh\n:\n"})
    bench = scene.bench(setup="./build.sh", reset_caches="./measure.sh")
    assert [pin.path for pin in bench.manifest.pins if pin.kind != "absent-guard"] == ["measure.sh"]


# --- Taken up again --------------------------------------------------------------------------------------------------


def _opened(scene: Scene, pin_digest: str) -> object:
    return open_evaluators(
        scene.folder,
        ExperimentConfig("scene", MetricSpec("ms"), measure="./measure.sh"),
        project_path=str(scene.project),
        worktree_paths=(str(scene.incumbent), str(scene.candidate)),
        pin_digest=pin_digest,
    )


@pytest.mark.requirement("RUN-09")
def test_a_bench_is_taken_up_as_it_was(scene: Scene) -> None:
    (scene.root / "check").write_text("#!/bin/sh\nexit 0\n")
    (scene.root / "check").chmod(0o755)
    bench = scene.bench(held_out=str(scene.root / "check"))
    opened = _opened(scene, bench.manifest.digest)
    assert (opened.manifest, opened.environment) == (bench.manifest, bench.environment)  # type: ignore[attr-defined]
    assert opened.held_out_digest == bench.held_out_digest  # type: ignore[attr-defined]


@pytest.mark.requirement("RUN-09")
@pytest.mark.parametrize("name", ["bench.json", "frozen/manifest.json", "held-out/check"])
def test_a_bench_that_somebody_touched_is_not_believed(scene: Scene, name: str) -> None:
    (scene.root / "check").write_text("#!/bin/sh\nexit 0\n")
    (scene.root / "check").chmod(0o755)
    bench = scene.bench(held_out=str(scene.root / "check"))
    path = Path(scene.folder.root_path, name)
    if name.endswith("manifest.json"):
        path = path.with_name(f"manifest-{bench.manifest.digest}.json")
    path.write_text("{}")
    with pytest.raises(StateUntrusted) as caught:
        _opened(scene, bench.manifest.digest)
    assert caught.value.next_step


def test_a_frozen_copy_that_somebody_touched_is_never_put_back(scene: Scene) -> None:
    bench = scene.bench()
    from omx_autoresearch.freezing import pins

    copy = Path(pins.copy_path(scene.folder.frozen_path, bench.manifest.pins[0]))
    copy.write_text("#!/bin/sh\necho METRIC ms=1\n")
    _edit(scene.candidate)
    with pytest.raises(StateUntrusted, match="frozen copy"):
        bench.restore(str(scene.candidate))


# --- The environment of a worktree -----------------------------------------------------------------------------------


@pytest.mark.requirement("RUN-02")
def test_search_paths_into_the_checkout_lead_into_the_worktree_where_the_place_exists(tmp_path: Path) -> None:
    project, worktree = tmp_path / "project", tmp_path / "work"
    (worktree / "lib").mkdir(parents=True)
    project.mkdir()
    environment = {
        "PATH": f"{project}/.venv/bin:/usr/bin:relative::.",
        "PYTHONPATH": f"{project}:{project}/lib:{project}-other/lib",
        "HOME": str(project),
    }
    assert moved_environment(environment, str(project), str(worktree)) == {
        "PATH": f"{project}/.venv/bin:/usr/bin",
        "PYTHONPATH": f"{worktree}:{worktree}/lib:{project}-other/lib",
        "HOME": str(project),
    }
