"""Newcomers that would be imported, or run, in the place of what the check means; and newcomers that may come."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.freezing import discovery, pins

if TYPE_CHECKING:
    from pathlib import Path

PATH = f"{sys.prefix}/bin{os.pathsep}/usr/bin{os.pathsep}/bin"
IMPORTS_AN_INSTALLED = "import click\nfrom helper import x\n\n\ndef test_it(): ...\n"


def laid(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return str(root)


CASES: dict[str, tuple[str, dict[str, str], str]] = {
    "the standard library's, beside tests": ("pytest -q", {"tests/test_a.py": ""}, "tests/filecmp.py"),
    "an installed one, beside tests": (
        "pytest -q",
        {"tests/test_a.py": IMPORTS_AN_INSTALLED},
        "tests/click.py",
    ),
    "an installed package, beside tests": (
        "pytest -q",
        {"tests/test_a.py": IMPORTS_AN_INSTALLED},
        "tests/click/__init__.py",
    ),
    "above tests that are a package": (
        "pytest -q",
        {"tests/__init__.py": "", "tests/test_a.py": IMPORTS_AN_INSTALLED},
        "click.py",
    ),
    "of a script": ("python3 check.py", {"check.py": "import click\n"}, "click.py"),
    "of a quoted interpreter": (
        '"/usr/bin/python3" -m unittest',
        {"tests/test_a.py": "import json"},
        "json.py",
    ),
    "in a folder that a script puts first": (
        "python3 tools/check.py",
        {
            "tools/check.py": "import sys\nsys.path.insert(0, str(ROOT / 'vendored'))\nimport json\n",
            "vendored/x.py": "",
        },
        "vendored/json.py",
    ),
    "in a folder of pytest's own option": (
        "pytest",
        {
            "pytest.ini": "[pytest]\npythonpath = helpers\n",
            "helpers/a.py": "",
            "tests/test_a.py": "import csv",
        },
        "helpers/csv.py",
    ),
    "a pinned one, in a folder before its own": (
        "pytest",
        {
            "pytest.ini": "[pytest]\npythonpath = helpers\n",
            "helpers/a.py": "",
            "tests/test_a.py": "import support",
            "tests/support.py": "",
        },
        "helpers/support.py",
    ),
    "the runner itself": ("python3 -m pytest", {"tests/test_a.py": ""}, "packaging/__init__.py"),
    "a private package of the runner": ("python3 -m pytest", {"tests/test_a.py": ""}, "_pytest/__init__.py"),
}


@pytest.mark.requirement("DONE-15")
@pytest.mark.parametrize("case", CASES)
def test_a_new_module_in_the_place_of_another_tampers_and_a_new_one_of_its_own_does_not(
    tmp_path: Path, case: str
) -> None:
    command, files, planted = CASES[case]
    root = laid(tmp_path, files)
    manifest = discovery.find(root, commands=[command], search_path=PATH)
    folder = planted.removesuffix("/__init__.py").rpartition("/")[0]
    laid(tmp_path, {f"{folder or '.'}/newcomer.py": "", "work/click.py": "", "work/json.py": ""})
    assert pins.compare(manifest, root).is_intact
    laid(tmp_path, {planted: ""})
    assert pins.compare(manifest, root).added == (planted.removesuffix("/__init__.py"),)


@pytest.mark.requirement("DONE-15")
def test_a_name_that_is_installed_nowhere_is_the_agents_to_write(tmp_path: Path) -> None:
    root = laid(tmp_path, {"tests/__init__.py": "", "tests/test_a.py": "import the_answer\n"})
    manifest = discovery.find(root, commands=["python3 -m pytest"], search_path=PATH)
    laid(tmp_path, {"the_answer.py": ""})
    assert pins.compare(manifest, root).is_intact


SITE = ".venv/lib/python3.11/site-packages"
ENVIRONMENT = {
    ".venv/pyvenv.cfg": "home = /usr/bin\n",
    f"{SITE}/old.pth": "/somewhere\n",
    f"{SITE}/yaml.py": "",
}


@pytest.mark.requirement("DONE-15")
@pytest.mark.parametrize(
    ("command", "planted"),
    [
        (".venv/bin/python check.py", f"{SITE}/new.pth"),
        (".venv/bin/python check.py", f"{SITE}/sitecustomize.py"),
        ("uv run check.py", f"{SITE}/usercustomize.py"),
        (".venv/bin/python check.py", "yaml.py"),
    ],
)
def test_what_an_interpreter_of_the_workspace_runs_by_itself_tampers(
    tmp_path: Path, command: str, planted: str
) -> None:
    root = laid(tmp_path, {"check.py": "import yaml\n", **ENVIRONMENT})
    manifest = discovery.find(root, commands=[command], search_path=PATH)
    laid(tmp_path, {f"{SITE}/newcomer.py": "", "node_modules/new.pth": ""})
    assert pins.compare(manifest, root).is_intact
    laid(tmp_path, {planted: "", f"{SITE}/old.pth": "import os\n"})
    check = pins.compare(manifest, root)
    assert (check.added, check.changed) == ((planted,), (f"{SITE}/old.pth",))


@pytest.mark.requirement("DONE-16")
def test_an_environment_alone_judges_nothing(tmp_path: Path) -> None:
    root = laid(tmp_path, ENVIRONMENT)
    manifest = discovery.find(root, commands=[".venv/bin/python -c 1"], search_path=PATH)
    assert (manifest.frozen_count, manifest.judging_count) == (2, 0)


@pytest.mark.requirement("DONE-15")
def test_a_program_that_npm_finds_before_the_owners_tampers(tmp_path: Path) -> None:
    package = '{"scripts": {"test": "node --test && sh check.sh"}}'
    root = laid(tmp_path, {"package.json": package, "check.sh": "grep -q x y\n"})
    manifest = discovery.find(root, commands=["npm test"], search_path="/usr/bin:/bin")
    laid(tmp_path, {"node_modules/.bin/prettier": "", "node_modules/x/index.js": ""})
    assert pins.compare(manifest, root).is_intact
    laid(tmp_path, {"node_modules/.bin/node": "", "node_modules/.bin/grep": ""})
    assert pins.compare(manifest, root).added == ("node_modules/.bin/grep", "node_modules/.bin/node")
