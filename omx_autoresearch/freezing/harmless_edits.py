"""Edits of frozen files that change nothing of what they judge: Python that was formatted, a test that was renamed.

They are let pass only where a run sees the frozen copies (:mod:`omx_autoresearch.system.mounts`), so what judges is the
frozen file in any case. Every file of Python may be formatted, since formatters run over a whole repository. Only a
test that a known runner finds by its name may be renamed: what a command names would be missing there.
"""

from __future__ import annotations

import os
import stat
from fnmatch import fnmatchcase

from omx_autoresearch.foundation.errors import AutoresearchError
from omx_autoresearch.foundation.records import sha256
from omx_autoresearch.freezing.manifest import DEFAULTS
from omx_autoresearch.journal.safe_files import FILE_LIMIT_BYTES, open_inside, read_bounded, read_chunks

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
    from collections.abc import Callable, Iterable

    from omx_autoresearch.freezing.manifest import Pin, PinManifest

_SCRIPT_LIMIT_BYTES = 1024 * 1024
_NAMES_LIMIT = 10_000


def is_test(manifest: PinManifest, path: str) -> bool:
    """Whether a runner of the manifest finds the file by its name."""
    name = path.rpartition("/")[2]
    return any(fnmatchcase(name, glob) for runner in manifest.runners for glob in DEFAULTS[runner].tests)


def harmless_edits(
    manifest: PinManifest, workspace_path: str, changed: Iterable[str], copy_path: Callable[[Pin], str]
) -> tuple[tuple[str, str], ...]:
    """Those of the changed paths that judge as they did, each with the path where the test stands now.

    Args:
        manifest: of the contract.
        workspace_path: where the files stand now.
        changed: pinned paths that differ.
        copy_path: where the frozen copy of a pin stands.
    """
    by_path = {pin.path: pin for pin in manifest.pins}
    found = []
    taken: set[str] = set(by_path)
    for path in changed:
        pin = by_path[path]
        full_path = os.path.join(workspace_path, path)
        if pin.kind != "file":
            continue
        if os.path.lexists(full_path):
            may_still_run = os.access(full_path, os.X_OK) or not pin.mode & stat.S_IXUSR
            if path.endswith(".py") and may_still_run and _reads_alike(workspace_path, path, copy_path(pin)):
                found.append((path, path))
        elif is_test(manifest, path) and (new_path := _renamed(manifest, workspace_path, pin, taken)):
            taken.add(new_path)
            found.append((path, new_path))
    return tuple(found)


def _renamed(manifest: PinManifest, workspace_path: str, pin: Pin, taken: set[str]) -> str:
    """Where in its folder the test stands under another name that its runner finds; empty for nowhere."""
    folder, _, _ = pin.path.rpartition("/")
    try:
        names = sorted(os.listdir(os.path.join(workspace_path, folder)))[:_NAMES_LIMIT]
    except OSError:
        return ""
    for name in names:
        path = f"{folder}/{name}" if folder else name
        if path not in taken and is_test(manifest, path) and _digest(workspace_path, path, pin) == pin.sha256:
            return path
    return ""


def _digest(workspace_path: str, path: str, pin: Pin) -> str:
    """The digest of a file of the pin's size; empty for any other."""
    try:
        descriptor = open_inside(workspace_path, path)
        try:
            if os.fstat(descriptor).st_size != pin.size_bytes:
                return ""
            return sha256(b"".join(read_chunks(descriptor, FILE_LIMIT_BYTES))).hexdigest()
        finally:
            os.close(descriptor)
    except (OSError, AutoresearchError):
        return ""


def _reads_alike(workspace_path: str, path: str, copy_path: str) -> bool:
    """Whether Python reads the same program from both, whatever their spaces, quotes, comments and order of imports."""
    try:
        descriptor = open_inside(workspace_path, path)
        try:
            now = b"".join(read_chunks(descriptor, _SCRIPT_LIMIT_BYTES))
        finally:
            os.close(descriptor)
        return _program(now) == _program(read_bounded(copy_path, _SCRIPT_LIMIT_BYTES))
    except (OSError, AutoresearchError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _program(data: bytes) -> tuple[bytes, str]:
    """What starts a script, and what Python makes of it, without what a formatter may change.

    Raises:
        SyntaxError: it is no Python.
        ValueError: likewise.
    """
    import ast
    import inspect

    tree = ast.parse(data)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            node.kind = None  # a u before a string means nothing
        body = getattr(node, "body", None)
        if not isinstance(body, list) or not body:
            continue
        first = body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            value = first.value.value
            if isinstance(value, str):  # a formatter indents a docstring anew
                lines = (line.rstrip() for line in inspect.cleandoc(value).splitlines())
                first.value.value = "\n".join(lines).strip()
        body[:] = _with_sorted_imports(body)
    shebang = data.partition(b"\n")[0].rstrip() if data.startswith(b"#!") else b""
    return shebang, ast.dump(tree)


def _with_sorted_imports(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements with one import for each name, those that follow each other in one order."""
    import ast

    found: list[ast.stmt] = []
    block: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, ast.Import):
            block += [ast.Import([name]) for name in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            block += [ast.ImportFrom(statement.module, [name], statement.level) for name in statement.names]
        else:
            found += [*sorted(block, key=ast.dump), statement]
            block = []
    return [*found, *sorted(block, key=ast.dump)]
