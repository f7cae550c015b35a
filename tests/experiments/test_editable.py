"""A project that is installed in editable form is measured in the worktree, not in the user's checkout."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.foundation.errors import WorkspaceFault
from omx_autoresearch.freezing.installed import editable_folders
from tests.experiments.benches import Scene, scene_in

if TYPE_CHECKING:
    from pathlib import Path

FINDER = """\
MAPPING: dict[str, str] = {'work': %r}
NAMESPACES: dict[str, list[str]] = {}
"""


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return scene_in(tmp_path)


def site_of(venv: Path) -> Path:
    site = venv / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    site.mkdir(parents=True, exist_ok=True)
    return site


@pytest.mark.requirement("RUN-02")
def test_folders_are_found_in_path_files_and_finders_of_every_interpreter(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (site_of(project / ".venv") / "_work.pth").write_text(f"import something\n{project}/src\n/elsewhere\n")
    finder = site_of(tmp_path / "other") / "__editable___work_1_0_finder.py"
    finder.write_text(FINDER % f"{project}/lib/work")
    (site_of(tmp_path / "third") / "flat.pth").write_text(f"{project}\n{project}-other\n")
    environment = {"VIRTUAL_ENV": str(tmp_path / "other"), "PATH": f"{tmp_path}/third/bin:/usr/bin"}
    assert sorted(editable_folders(environment, str(project))) == [".", "lib", "src"]


def test_without_an_editable_installation_nothing_is_put_on_the_path(scene: Scene) -> None:
    assert "PYTHONPATH" not in scene.bench().environment_in(str(scene.candidate))


@pytest.mark.requirement("RUN-02")
def test_the_candidates_own_package_is_what_is_measured(scene: Scene) -> None:
    venv = scene.root / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (site_of(venv) / "_work.pth").write_text(f"{scene.project}/src\n")
    (scene.project / "src").mkdir()
    (scene.project / "src" / "pack.py").write_text("SPEED = 9\n")
    scene.write(
        {"src/pack.py": "SPEED = 5\n", "tools/measure.py": "import pack\nprint(f'METRIC ms={pack.SPEED}')\n"}
    )
    scene.environment["PATH"] = f"{venv}/bin:{scene.environment['PATH']}"
    bench = scene.bench(measure="python tools/measure.py", protect=())
    assert scene.measure(bench).metric == 5.0
    (scene.candidate / "src" / "pack.py").write_text("SPEED = 3\n")
    assert scene.measure(bench).metric == 3.0
    assert bench.editable_folders == ("src",)
    (scene.candidate / "src" / "sitecustomize.py").write_text("print('METRIC ms=1')\n")
    assert scene.measure(bench).tampered_paths == ("src/sitecustomize.py",)


@pytest.mark.requirement("RUN-02")
def test_an_experiment_whose_package_is_built_where_it_is_installed_from_is_refused(scene: Scene) -> None:
    venv = scene.root / "venv"
    info = site_of(venv) / "pack-1.0.dist-info"
    info.mkdir()
    said = {"url": scene.project.as_uri(), "dir_info": {"editable": True}}
    (info / "direct_url.json").write_text(json.dumps(said))
    (site_of(venv) / "_pack_editable_loader.py").write_text("# builds and imports\n")
    scene.environment["PATH"] = f"{venv}/bin:{scene.environment['PATH']}"
    with pytest.raises(WorkspaceFault, match="pack is installed in editable form") as caught:
        scene.bench(measure="echo METRIC ms=1")
    assert "--setup" in caught.value.next_step
    assert scene.measure(scene.bench(measure="echo METRIC ms=1", setup="true")).metric == 1.0
