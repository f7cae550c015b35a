"""Manifests of packages, as far as they decide what a test run does: scripts, members of a workspace, plug-ins."""

from __future__ import annotations

import json
import os
import re
import tomllib
from glob import glob
from typing import TYPE_CHECKING, Any

from omx_autoresearch.journal.safe_files import script_text

if TYPE_CHECKING:
    from collections.abc import Sequence

_TEST_SCRIPTS = ("pretest", "test", "posttest")
_TOOLS = ("jest", "mocha", "ava", "vitest", "tap")
"""Keys of a package.json under which runners of tests find their options."""
_PLUGIN = re.compile(
    r"(?:^|[\s\"',\[])(?:-p[\s=\"',]*|PYTEST_PLUGINS=|(?:--plugins?|-r|--require|--import|--loader)[\s=\"',]+)(?!no:)([\w./@-]+)"
)
_ADDED_OPTIONS = re.compile(r"(?ms)^[ \t]*addopts[ \t]*=[ \t]*(.*?)(?=^[ \t]*[\w-]+[ \t]*=|^\[|\Z)")
_LOADED = re.compile(
    r"(?:setup\w*|global(?:Setup|Teardown)|testEnvironment|transform|reporters?|runner|preset|resolver|require|file|"
    r"snapshotSerializers)[\"']?\s*:\s*(\[[^\]]*\]|\{[^}]*\}|[\"'][^\"'\n]+[\"'])"
)
_PYTEST_PLUGINS = re.compile(r"(?m)^pytest_plugins[^=\n]*=\s*([\[(][^\])]*[\])]|[^\n]+)")
_QUOTED = re.compile(r"[\"']([^\"'\n]+)[\"']")


def package_scripts(package: str, words: Sequence[str]) -> list[str]:
    """The commands of a package.json that its tests run, and those that these words or commands call by name.

    Raises:
        ValueError: it is not an object of JSON with scripts.
    """
    scripts = _scripts_of(package)
    waiting = [*_TEST_SCRIPTS, *words]
    lines: dict[str, str] = {}
    while waiting:
        name = waiting.pop(0)
        if name in scripts and name not in lines:
            lines[name] = scripts[name]
            waiting += [f"pre{name}", f"post{name}", *re.findall(r"[\w:.-]+", scripts[name])]
    return list(lines.values())


def _scripts_of(package: str) -> dict[str, str]:
    value = json.loads(package.lstrip("\ufeff"))
    scripts = value.get("scripts", {}) if isinstance(value, dict) else None
    if not isinstance(scripts, dict):
        raise ValueError("no object of scripts")  # noqa: TRY004  # of the text, not of an argument
    return {name: str(line) for name, line in scripts.items()}


def members(workspace_path: str) -> list[str]:
    """Manifests of the members of cargo, npm, pnpm, uv and go workspaces, as the workspace's root names them."""
    found: list[str] = []
    cargo = _toml(workspace_path, "Cargo.toml").get("workspace")
    uv = _at(_toml(workspace_path, "pyproject.toml"), "tool", "uv", "workspace")
    package = _json(workspace_path, "package.json").get("workspaces")
    npm = package.get("packages") if isinstance(package, dict) else package
    pnpm = _QUOTED.findall(script_text(workspace_path, "pnpm-workspace.yaml"))
    pnpm += re.findall(r"(?m)^\s*-\s*([^\s\"'#]+)", script_text(workspace_path, "pnpm-workspace.yaml"))
    go = re.findall(r"(?m)^\s*(?:use\s+)?(\.[\w./-]*)", script_text(workspace_path, "go.work"))
    for folders, name in (
        (_at({"": cargo}, "", "members"), "Cargo.toml"),
        (_at({"": uv}, "", "members"), "pyproject.toml"),
        (npm, "package.json"),
        (pnpm, "package.json"),
        (go, "go.mod"),
    ):
        for folder in folders if isinstance(folders, list) else ():
            if (
                isinstance(folder, str)
                and not folder.startswith(("!", "/"))
                and ".." not in folder.split("/")
            ):
                pattern = os.path.normpath(os.path.join(folder, name))
                found += glob(pattern, root_dir=workspace_path, recursive=True)
    return [path for path in dict.fromkeys(sorted(found)) if "node_modules" not in path.split("/")]


def test_dependencies(workspace_path: str, manifest_path: str) -> list[str]:
    """Folders of the workspace that a package needs for its tests alone: dev-dependencies by path.

    Args:
        workspace_path: where the files stand.
        manifest_path: of a Cargo.toml or package.json, relative.
    """
    folder = os.path.dirname(manifest_path)
    places: list[object] = []
    if manifest_path.endswith("Cargo.toml"):
        tables = _toml(workspace_path, manifest_path)
        used = set(tables.get("dependencies") or {})
        for name, value in (tables.get("dev-dependencies") or {}).items():
            if name not in used and isinstance(value, dict):
                places.append(value.get("path"))
    else:
        package = _json(workspace_path, manifest_path)
        used = set(package.get("dependencies") or {})
        for name, value in (package.get("devDependencies") or {}).items():
            if name not in used and isinstance(value, str) and value.startswith(("file:", "link:")):
                places.append(value.partition(":")[2])
    found = [os.path.normpath(os.path.join(folder, place)) for place in places if isinstance(place, str)]
    return [place for place in found if not place.startswith(("..", "/")) and place != "."]


def plug_ins(text: str) -> list[str]:
    """Modules and files that options of a command name for a runner to load (``-p plug``, ``--require ./setup.js``)."""
    return list(dict.fromkeys(_PLUGIN.findall(text)))


def configured(workspace_path: str, path: str) -> list[str]:
    """Modules and files that a runner's configuration has it load."""
    text = script_text(workspace_path, path)
    name = path.rpartition("/")[2]
    if name.endswith((".ini", ".cfg", ".toml")):
        return [word for options in _ADDED_OPTIONS.findall(text) for word in plug_ins(f" {options}")]
    if name == "package.json":
        package = _json(workspace_path, path)
        text = json.dumps({tool: package.get(tool) for tool in _TOOLS})
    if name == "conftest.py":
        return [word for value in _PYTEST_PLUGINS.findall(text) for word in _QUOTED.findall(value)]
    words = [word for value in _LOADED.findall(text) for word in _QUOTED.findall(value)]
    return [word.removeprefix("<rootDir>/") for word in words]


def _at(value: object, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _toml(workspace_path: str, path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(script_text(workspace_path, path))
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}


def _json(workspace_path: str, path: str) -> dict[str, Any]:
    try:
        value = json.loads(script_text(workspace_path, path).lstrip("\ufeff") or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
