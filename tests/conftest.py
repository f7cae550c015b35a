"""No test touches the home of whoever runs it, and none sees the marks of an agent that runs it.

The environment is cleaned when this file is read, so that it holds for every fixture of any scope, and each test gets
a home of its own on top of that.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from omx_autoresearch.missions import store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.scratch import Scratch

# How long an example takes says how busy the machine is, and nothing else.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

CLIENT_PREFIXES = (
    "AI_AGENT",
    "ANTHROPIC_",
    "CLAUDE",
    "CODEX_",
    "COPILOT_",
    "CURSOR_",
    "GEMINI_",
    "GOOGLE_",
    "OMX_",
    "OPENAI_",
    "OPENCODE",
    "QWEN_",
)
"""Environment variables of agent CLIs, their keys, and ours."""

GIT_REDIRECTS = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_CONFIG",
)
"""What a git hook leaves behind that would point git at another repository."""

DISPLAY = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS")

GIT_CONFIG = """\
[user]
    name = A Person
    email = person@example.invalid
[init]
    defaultBranch = main
"""


def _real_cache_path() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


CLIENTS_PATH = Path(os.environ.get("OMX_CLIENTS_DIR") or _real_cache_path() / "omx-autoresearch" / "clients")
"""Where `.ci/clients` installs the real agent CLIs; looked up before the home is exchanged."""


PURE = {"rules", "judge"}
"""Folders of tests that touch no file: 1,400 cases, for which a home each adds up."""


CLIENTS_KEY = "clients_path"


def is_foreign(name: str) -> bool:
    """The variable is one that a test must set itself if it wants it."""
    return name.startswith(CLIENT_PREFIXES) or name in GIT_REDIRECTS or name in DISPLAY


def home_environment(home: Path) -> dict[str, str]:
    """Every variable by which a program finds a person's files, pointing into ``home``."""
    return {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_STATE_HOME": str(home / ".local" / "state"),
        "XDG_DATA_HOME": str(home / ".local" / "share"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_RUNTIME_DIR": str(home / ".run"),
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        "CODEX_HOME": str(home / ".codex"),
        "GIT_CONFIG_NOSYSTEM": "1",
    }


def make_home(home: Path) -> dict[str, str]:
    """Create a home in which git can commit, and the environment that leads there."""
    home.mkdir(parents=True, exist_ok=True)
    (home / ".gitconfig").write_text(GIT_CONFIG, encoding="utf-8")
    (home / ".run").mkdir(mode=0o700, exist_ok=True)
    return home_environment(home)


for _name in [name for name in os.environ if is_foreign(name)]:
    del os.environ[_name]
_PROCESS_HOME = tempfile.TemporaryDirectory(prefix="omx-tests-", ignore_cleanup_errors=True)
os.environ.update(make_home(Path(_PROCESS_HOME.name)))


@pytest.fixture(autouse=True)
def home(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A scratch home for this test alone, already in the environment; for the pure rules that of the process."""
    if PURE & set(request.path.parts):
        yield Path.home()
        return
    path = tmp_path_factory.mktemp("home")
    for name, value in make_home(path).items():
        monkeypatch.setenv(name, value)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(autouse=True)
def _new_process() -> None:
    """Each test begins as a process does: it changed no mission yet."""
    store.changed.clear()


@pytest.fixture
def own_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the test's process the client of every event that it answers itself, whatever started the tests."""
    from omx_autoresearch.missions import sessions
    from omx_autoresearch.system.processes import identify

    monkeypatch.setattr(sessions, "client_process", lambda: identify(os.getpid()))
    monkeypatch.setattr(sessions, "not_from_client", lambda _: "")


@pytest.fixture
def world(tmp_path: Path, own_client: None) -> Scratch:
    """A project in git with a validator, a state home, and nothing started."""
    from tests.support.scratch import Scratch

    return Scratch.make(tmp_path)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit, two files and a settled index."""
    from tests.support.repositories import copy_of, git, settle

    def make(root: Path) -> None:
        git(root, "init", "-q", "-b", "main")
        (root / "a.py").write_text("one\n")
        (root / "pkg").mkdir()
        (root / "pkg" / "b.py").write_text("two\n")
        (root / ".gitignore").write_text("ignored\n")
        git(root, "add", "-A")
        git(root, "commit", "-qm", "first")

    root = copy_of(tmp_path / "repository", "repository", make)
    settle(root)
    return root


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist where the clients are: it begins in the scratch home of the process above it."""
    node.workerinput[CLIENTS_KEY] = str(CLIENTS_PATH)


@pytest.fixture(scope="session")
def clients_path(request: pytest.FixtureRequest) -> Path:
    """The folder with one sub-folder for each installed agent CLI; it need not exist."""
    return Path(getattr(request.config, "workerinput", {}).get(CLIENTS_KEY, CLIENTS_PATH))
