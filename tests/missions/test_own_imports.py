"""A check imports the project as it stands in the workspace, also where another checkout of it is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.foundation.errors import MissionInvalid
from omx_autoresearch.missions import launch
from omx_autoresearch.missions.validation import runs
from tests.support.scratch import Scratch

if TYPE_CHECKING:
    from pathlib import Path

    from omx_autoresearch.missions.rules.mission import Attestation, Contract

CHECK = "import sys\nimport pack\nsys.exit(pack.ANSWER != 42)\n"
PROJECT = '[project]\nname = "Its_Pack"\n[build-system]\nbuild-backend = "BACKEND"\n'


@pytest.fixture
def world(tmp_path: Path) -> Scratch:
    return Scratch.make(tmp_path)


def installed(world: Scratch, back_end: str = "hatchling.build") -> Path:
    """A linked work tree of a project that is installed in editable form from the main checkout; returns the tree."""
    world.write("src/pack.py", "ANSWER = 0\n")
    world.write("check.py", CHECK)
    world.write("pyproject.toml", PROJECT.replace("BACKEND", back_end))
    world.commit("Add a package")
    venv = world.root / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    site = next((venv / "lib").glob("python3*/site-packages"))
    info = site / "its_pack-1.0.dist-info"
    info.mkdir()
    said = {"url": world.project.as_uri(), "dir_info": {"editable": True}}
    (info / "direct_url.json").write_text(json.dumps(said))
    (site / "its_pack.pth").write_text(f"{world.project}/src\n")
    world.environ["PATH"] = f"{venv}/bin:{world.environ['PATH']}"
    tree = world.root / "tree"
    world.git("worktree", "add", "-q", "-b", "work", str(tree))
    return tree


def started(world: Scratch, tree: Path, **fields: bool) -> launch.Started:
    mission = world.draft(validator_command="python check.py", **fields)
    return launch.start(world.runtime(), mission.task_id, launch.StartOptions(workspace_path=str(tree)))


def judged(world: Scratch, begun: launch.Started) -> Attestation:
    assert runs.validate(world.runtime(), begun.mission.task_id, runs.Ask("none"), wait_seconds=60)
    run = world.load(begun.mission).attestation
    assert run is not None
    return run


def contract_of(begun: launch.Started) -> Contract:
    assert begun.mission.contract is not None
    return begun.mission.contract


@pytest.mark.requirement("DONE-32")
def test_a_mission_of_a_work_tree_is_judged_by_its_own_package_and_not_by_the_installed_one(
    world: Scratch,
) -> None:
    tree = installed(world)
    begun = started(world, tree)
    assert contract_of(begun).import_folders == ("src",)
    assert any("checks import it from" in note for note in begun.notes)
    world.write("src/pack.py", "ANSWER = 42\n")
    run = judged(world, begun)
    assert (run.verdict, run.imports_from) == ("failed", str(tree))
    (tree / "src" / "pack.py").write_text("ANSWER = 42\n")
    world.write("src/pack.py", "ANSWER = 0\n")
    assert judged(world, begun).verdict == "passed"


@pytest.mark.requirement("DONE-32")
@pytest.mark.parametrize("back_end", ["mesonpy", "scikit_build_core.build", "maturin"])
def test_a_package_that_is_built_where_it_is_installed_from_needs_the_owners_word(
    world: Scratch, back_end: str
) -> None:
    tree = installed(world, back_end)
    with pytest.raises(MissionInvalid, match="installed in editable form") as caught:
        started(world, tree)
    assert f"cd {tree} && pip install" in caught.value.next_step
    assert "--accept-foreign-install" in caught.value.next_step
    begun = started(world, tree, accept_foreign_install=True)
    run = judged(world, begun)
    assert (run.verdict, run.imports_from) == ("failed", str(world.project))


@pytest.mark.requirement("DONE-32")
def test_an_install_of_the_workspace_itself_or_of_another_project_changes_nothing(world: Scratch) -> None:
    tree = installed(world)
    own = world.draft(validator_command="python check.py")
    begun = launch.start(world.runtime(), own.task_id, launch.StartOptions())
    assert (contract_of(begun).import_folders, judged(world, begun).imports_from) == ((), "")
    assert tree.exists()


@pytest.mark.requirement("DONE-32")
def test_another_clone_of_a_project_with_the_same_name_is_noticed(world: Scratch) -> None:
    tree = installed(world)
    clone = world.root / "clone"
    world.git("clone", "-q", str(world.project), str(clone))
    assert contract_of(started(world, clone)).import_folders == ("src",)
    assert tree.exists()
