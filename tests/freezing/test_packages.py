"""What packages say of their tests: scripts, members of a workspace, plug-ins, and what only tests need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.freezing import discovery, folders
from omx_autoresearch.freezing.packages import package_scripts

if TYPE_CHECKING:
    from pathlib import Path


def laid(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return str(root)


CASES: dict[str, tuple[str, dict[str, str], set[str]]] = {
    "members of cargo": (
        "cargo test",
        {
            "Cargo.toml": '[workspace]\nmembers = ["crates/*"]\n',
            "crates/a/Cargo.toml": "",
            "other/Cargo.toml": "",
        },
        {"Cargo.toml", "crates/a/Cargo.toml"},
    ),
    "members of npm": (
        "npm test",
        {"package.json": '{"workspaces": ["pkg/*"]}', "pkg/a/package.json": "{}", "old/package.json": "{}"},
        {"package.json", "pkg/a/package.json"},
    ),
    "members of pnpm": (
        "pnpm test",
        {"package.json": "{}", "pnpm-workspace.yaml": "packages:\n  - 'pkg/*'\n", "pkg/a/package.json": "{}"},
        {"package.json", "pkg/a/package.json"},
    ),
    "members of uv": (
        "uv run pytest",
        {
            "pyproject.toml": '[tool.uv.workspace]\nmembers = ["libs/*"]\n',
            "libs/a/pyproject.toml": "",
            "docs/pyproject.toml": "",
        },
        {"pyproject.toml", "libs/a/pyproject.toml"},
    ),
    "a crate that only tests need": (
        "cargo test",
        {
            "Cargo.toml": '[dependencies]\nw = {path = "w"}\n[dev-dependencies]\nmust = {path = "must"}\n'
            'w = {path = "w"}\n',
            "must/Cargo.toml": "",
            "must/src/lib.rs": "",
            "w/src/lib.rs": "",
        },
        {"Cargo.toml", "must/Cargo.toml", "must/src/lib.rs"},
    ),
    "vendored packages": (
        "go test ./...",
        {
            "go.mod": "module x\n",
            "vendor/modules.txt": "",
            "vendor/assert/a.go": "",
            "a.go": "",
            "a_test.go": "",
        },
        {"vendor/modules.txt", "vendor/assert/a.go", "a_test.go"},
    ),
    "a plug-in in options": (
        "pytest -q",
        {
            "pyproject.toml": '[tool.pytest.ini_options]\naddopts = "-q -p devtools.plug"\n',
            "devtools/plug.py": "",
        },
        {"pyproject.toml", "devtools/plug.py"},
    ),
    "a plug-in in a list of options": (
        "pytest -q",
        {"pytest.ini": "[pytest]\naddopts =\n    -q\n    -pplug\nmarkers = a\n", "plug/__init__.py": ""},
        {"pytest.ini", "plug/__init__.py"},
    ),
    "a plug-in in conftest": (
        "pytest -q",
        {"conftest.py": 'pytest_plugins = ["devtools.plug"]\n', "devtools/plug.py": ""},
        {"conftest.py", "devtools/plug.py"},
    ),
    "a plug-in in the environment": ("PYTEST_PLUGINS=plug pytest -q", {"plug.py": ""}, {"plug.py"}),
    "a plug-in of the command": ("python3 -m pytest -p plug", {"plug.py": "", "other.py": ""}, {"plug.py"}),
    "what node is told to load": (
        "node --require ./setup.js --test",
        {"setup.js": "", "a.test.js": "", "index.js": ""},
        {"setup.js", "a.test.js"},
    ),
    "a set-up of jest": (
        "npm test",
        {
            "package.json": '{"main": "index.js", "exports": {"require": "./index.js"}, "jest": {"setupFiles":'
            ' ["<rootDir>/dev/setup"], "testEnvironment": "./env.js"}}',
            "dev/setup.js": "",
            "env.js": "",
            "index.js": "",
        },
        {"package.json", "dev/setup.js", "env.js"},
    ),
    "a set-up of vitest": (
        "npx vitest run",
        {
            "vitest.config.ts": "export default {test: {setupFiles: ['./dev/setup.ts'], alias: {'@': './src/a.ts'}}}",
            "dev/setup.ts": "",
            "src/a.ts": "",
        },
        {"vitest.config.ts", "dev/setup.ts"},
    ),
    "data of tests": (
        "pytest -q",
        {
            "tests/test_a.py": "",
            "tests/data/expected.json": "{}",
            "tests/golden": "",
            "tests/README.md": "",
            "tests/__snapshots__/a.ambr": "",
        },
        {"tests/test_a.py", "tests/data/expected.json", "tests/golden"},
    ),
    "snapshots that a test looks at": (
        "pytest -q",
        {"tests/test_a.py": "def test_a(snapshot): ...\n", "tests/__snapshots__/a.ambr": ""},
        {"tests/test_a.py", "tests/__snapshots__/a.ambr"},
    ),
}


@pytest.mark.requirement("DONE-14")
@pytest.mark.parametrize("case", CASES)
def test_what_decides_a_test_run_is_pinned_and_the_work_is_not(tmp_path: Path, case: str) -> None:
    command, files, expected = CASES[case]
    manifest = discovery.find(laid(tmp_path, files), commands=[command])
    assert {pin.path for pin in manifest.pins if pin.kind == "file"} == expected


def test_data_that_is_too_large_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "CASE_LIMIT", 2)
    files = {f"tests/data/{number}.txt": "" for number in range(3)}
    manifest = discovery.find(laid(tmp_path, {"tests/test_a.py": "", **files}), commands=["pytest"])
    assert manifest.frozen_count == 1
    assert any("--protect tests/data pins it" in note for note in manifest.notes)


def test_a_script_of_a_package_leads_to_those_that_it_calls() -> None:
    text = '{"scripts": {"test": "npm run unit", "preunit": "a", "unit": "b", "build": "c", "check": "d"}}'
    assert set(package_scripts(text, ["npm", "test"])) == {"npm run unit", "a", "b"}
    assert set(package_scripts(text, ["npm", "run", "check"])) == {"npm run unit", "a", "b", "d"}
