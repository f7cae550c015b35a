"""The rules of the house: rooms, purity, light imports of the hook path. Each has a test that it can fail."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from importlinter.application import use_cases
from importlinter.configuration import configure

from omx_autoresearch.foundation.clients import KNOWN
from tests.support.hook_path import modules

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "omx_autoresearch"

HEAVY = frozenset(
    {
        "asyncio",
        "ctypes",
        "email",
        "hashlib",
        "http",
        "logging",
        "multiprocessing",
        "pathlib",
        "shlex",
        "shutil",
        "signal",
        "socket",
        "sqlite3",
    }
    | {"ssl", "subprocess", "tempfile", "threading", "unittest", "urllib", "uuid", "zipfile"}
    | {"click", "jinja2", "psutil", "pydantic", "rich", "transitions", "yaml"}
)
"""What none of them loads by being imported: 1.5 to 200 ms each, and a hook runs at every stop."""

RUNS_PROCESSES = frozenset({"system.commands", "system.git", "system.sandbox", "system.supervisor"})
"""Modules that may load subprocess (and what it brings), since starting processes is what they are for."""

BROUGHT_BY_SUBPROCESS = frozenset({"subprocess", "threading"})

IMPURE_NAMES = frozenset({"open", "input", "print", "eval", "exec", "__import__"})
IMPURE_ATTRIBUTES = frozenset({"now", "utcnow", "today", "time", "monotonic", "random", "urandom", "getenv"})


def loaded_by(module: str, *, root: Path = ROOT) -> set[str]:
    """Top-level names in ``sys.modules`` after a bare interpreter imported ``module`` and nothing else.

    ``-I -S`` as in the hook: no site-packages, so a third-party import at module level fails outright.
    """
    program = (
        f"import sys; sys.path.insert(0, {str(root)!r}); import {module}; "
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    said = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, f"{module}: {said.stderr.strip().splitlines()[-1]}"
    return set(said.stdout.split())


def impure_calls(source: str) -> list[str]:
    """Calls of a clock, of chance or of the world in ``source``, each as ``line: call``."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if (isinstance(called, ast.Name) and called.id in IMPURE_NAMES) or (
            isinstance(called, ast.Attribute) and called.attr in IMPURE_ATTRIBUTES
        ):
            found.append(f"{node.lineno}: {ast.unparse(called)}()")
    return found


def test_imports_keep_the_contracts_of_the_rooms(capfd: pytest.CaptureFixture[str]) -> None:
    configure()
    kept = use_cases.lint_imports(str(ROOT / "pyproject.toml"), cache_dir=None)
    assert kept, capfd.readouterr().out


@pytest.mark.requirement("STATE-02")
def test_each_contract_of_the_rooms_can_be_broken(tmp_path: Path) -> None:
    copy = tmp_path / "omx_autoresearch"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name, line in {
        "missions/rules/mission.py": "import omx_autoresearch.surfaces",  # a room above
        "missions/rules/gate.py": "import random",  # no pure rule
        "system/clock.py": "import omx_autoresearch.system.processes",  # half of a cycle
        "system/processes.py": "import omx_autoresearch.system.clock",
        "agents/clients/claude/__init__.py": "import omx_autoresearch.agents.clients.gemini",  # that know each other
        "missions/registry.py": "import omx_autoresearch.journal.log",  # a second writer of journals
    }.items():
        (copy / name).write_text(f"{(copy / name).read_text('utf-8')}\n{line}\n", encoding="utf-8")
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    said = subprocess.run(
        [sys.executable, "-c", program, "--no-cache"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 1, said.stderr
    assert "0 kept, 5 broken" in said.stdout


@pytest.mark.parametrize("module", modules(("missions.rules.*", "missions.records.*", "experiments.judge.*")))
def test_a_rule_asks_no_clock_no_chance_and_no_file(module: str) -> None:
    assert impure_calls((PACKAGE / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")) == []


def test_a_clock_in_a_rule_would_be_found() -> None:
    assert impure_calls("from datetime import datetime\nat = datetime.now()\nopen('x')\n") == [
        "2: datetime.now()",
        "3: open()",
    ]


@pytest.mark.requirement("SPEED-03")
@pytest.mark.parametrize("module", modules())
def test_a_module_of_the_hook_path_imports_light(module: str) -> None:
    allowed = BROUGHT_BY_SUBPROCESS if module in RUNS_PROCESSES else frozenset()
    assert sorted((loaded_by(f"omx_autoresearch.{module}") & HEAVY) - allowed) == []


def test_a_heavy_import_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "heavy.py").write_text("import pathlib\n", encoding="utf-8")
    assert "pathlib" in loaded_by("heavy", root=tmp_path)


def _python_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def test_no_module_is_named_after_nothing() -> None:
    banned = {"utils", "util", "helpers", "helper", "manager", "handler", "base", "common", "misc"}
    assert [str(path) for path in _python_files() if path.stem in banned] == []


def test_no_module_is_longer_than_a_concept() -> None:
    long = {path.relative_to(ROOT): len(path.read_text("utf-8").splitlines()) for path in _python_files()}
    assert {str(path): lines for path, lines in long.items() if lines > 700} == {}


WALKERS = frozenset({"walk", "fwalk", "scandir", "rglob"})


def walkers(text: str) -> set[str]:
    """Calls in a module that list or walk folders themselves."""
    found = set()
    for node in ast.walk(ast.parse(text)) if any(name in text for name in WALKERS) else ():
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) != "ast":
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and not str(node.module).startswith("omx_autoresearch"):
            found.update(alias.name for alias in node.names)
    return found & WALKERS


def test_only_one_module_walks_folders() -> None:
    found = {str(path.relative_to(PACKAGE)) for path in _python_files() if walkers(path.read_text("utf-8"))}
    assert found == {"system/files.py"}


def test_another_walker_would_be_found() -> None:
    assert walkers("import os\nfor folder in os.walk('x'): pass") == {"walk"}
    assert walkers("from os import scandir") == {"scandir"}
    assert walkers("from omx_autoresearch.system.files import walk\nwalk('x')") == set()


def test_every_room_says_what_it_holds_and_where_to_begin() -> None:
    rooms = [path.parent for path in PACKAGE.glob("*/__init__.py")]
    silent = [
        room.name
        for room in rooms
        if "Begin" not in (ast.get_docstring(ast.parse((room / "__init__.py").read_text("utf-8"))) or "")
    ]
    assert silent == []


def named_clients(text: str) -> set[str]:
    """The agent CLIs that the code of a module names, its documentation left out."""
    if not any(name in text.lower() for name in KNOWN):  # parsing takes longest
        return set()
    tree = ast.parse(text)
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    words = [
        str(getattr(node, "value" if isinstance(node, ast.Constant) else "name", ""))
        for node in ast.walk(tree)
        if isinstance(node, (ast.Constant, ast.FunctionDef, ast.ClassDef, ast.alias))
        and id(node) not in documents
    ]
    return {name for name in KNOWN for word in words if name in word.lower()}


def test_only_its_own_folder_and_the_registry_name_a_client() -> None:
    own = (
        PACKAGE / "foundation" / "clients.py",
        PACKAGE / "surfaces" / "cli" / "demo.py",
    )  # the demo plays a client
    folders = PACKAGE / "agents" / "clients"
    found = {
        str(path.relative_to(PACKAGE)): named
        for path in PACKAGE.rglob("*.py")
        if path not in own
        and not path.is_relative_to(folders)
        and (named := named_clients(path.read_text("utf-8")))
    }
    assert found == {}


def test_a_client_named_in_code_would_be_found_and_in_a_docstring_not() -> None:
    assert named_clients('"""Of Claude."""\nif name == "gemini":\n    from x import codex\n') == {
        "gemini",
        "codex",
    }


FOREIGN = {
    "a path of the machine": re.compile(r"/wor[k]/|/roo[t]/|/opt/pyp[i]"),
    "a package registry": re.compile(r"registry\.np[m]js|pyp[i]\.org|pythonhoste[d]|index-ur[l]"),
    "the number of an issue": re.compile(r"(?i)\b(issue|ticket|pull request|closes|fixes)s? #?[0-9]+\b"),
}
"""What no tracked file may hold: it means something in one place and at one time only."""


def test_foreign_references_would_be_found() -> None:
    for text in ("cd /wor" + "k/main", "https://pyp" + "i.org/simple", "see issu" + "e 12", "Fixe" + "s #3"):
        assert any(pattern.search(text) for pattern in FOREIGN.values()), text
    for text in ("workspace/", "--root", "the issue is 2 files", "npm", "#3 of them"):
        assert not any(pattern.search(text) for pattern in FOREIGN.values()), text


def test_the_project_never_refers_to_a_machine_a_registry_or_an_issue() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode != 0:
        pytest.skip("not a git checkout: the list of tracked files is git's")
    wrong = []
    for name in tracked.stdout.splitlines():
        path = ROOT / name
        text = path.read_text("utf-8", errors="replace") if path.is_file() else ""
        wrong += [f"{name}: {what}" for what, pattern in FOREIGN.items() if pattern.search(text)]
    assert wrong == []
