"""Whether a file that pinned files import or read judges or is judged, where the owner did not name the work.

A name, a folder and a kind of file say it, never more. Sources, prose and configuration are what missions are about, so
they are the work unless they look like a helper of tests; other files in a folder of their own are data that a check
compares with, unless the folder looks like output or like the work. `start` shows what was frozen so.
"""

from __future__ import annotations

import re

from omx_autoresearch.freezing.evaluator_commands import is_output, looks_like_evaluator

_SOURCES = frozenset((
    "py", "pyi", "js", "mjs", "cjs", "jsx", "ts", "mts", "cts", "tsx", "go", "rs", "c", "h", "cc", "cpp",
    "cxx", "hpp", "java", "kt", "swift", "rb", "php", "lua", "jl", "r", "sh", "bash", "zsh", "pl", "pm", "cs",
    "scala", "zig", "nim", "ex", "exs", "erl", "hs", "ml", "clj", "dart", "vue", "svelte", "f90", "m", "mm",
    "sql", "proto", "mk", "cmake",
))  # fmt: skip
_PROSE = frozenset(
    ["md", "rst", "adoc", "tex", "org", "html", "htm", "css", "scss", "less", "ipynb", "docx", "po", "pot"]
)
_CONFIGURATION = frozenset(["yaml", "yml", "toml", "ini", "cfg", "conf", "tf", "tfvars", "env", "lock"])
_WORK_FOLDERS = frozenset((
    "src", "lib", "app", "apps", "pkg", "packages", "cmd", "internal", "crates", "include", "docs", "doc",
    "content", "posts", "site", "www", "public", "static", "web", "frontend", "backend", "server", "client",
    "locale", "locales", "i18n", "translations", "lang", "notes", "paper", "papers", "chapters", "drafts",
    "assets", "templates", "migrations", "config", "conf", "configs", "bin", "deploy", "charts",
    "node_modules",
))  # fmt: skip
_HELPER = re.compile(
    r"(?:^|[/_.-])(?:assert\w*|must|require|expect\w*|should|test\w*|spec|helpers?|harness|fixtures?|mocks?|fakes?|"
    r"judge\w*|oracle|golden|verify|verifier)(?:[/_.-]|$)"
)
_USES_TESTING = re.compile(
    r"(?m)^\s*(?:import|from)\s+(?:unittest|pytest|hypothesis)\b|raise AssertionError|"
    r"^\s*(?:import\s+)?\"testing\"\s*$|"
    r"(?:require\(|from\s+)['\"](?:node:)?(?:assert|test|chai|vitest|@jest/globals)\b"
)


def _suffix(path: str) -> str:
    name = path.rpartition("/")[2]
    return name.rpartition(".")[2].lower() if "." in name else ""


def is_source(path: str) -> bool:
    """True for a file of a programming language, by its suffix."""
    return _suffix(path) in _SOURCES


def is_helper(path: str, text: str) -> bool:
    """True for a module that helps tests: by a name on its path, or because it uses a library of tests.

    Args:
        path: of the module, relative to the workspace.
        text: its content.
    """
    *folders, name = path.split("/")
    stem = name.rpartition(".")[0]
    is_named = bool(_HELPER.search("/".join((*folders, stem)).lower()))
    if path.endswith(
        ".go"
    ):  # a package of Go is called by the folder, and imports testing for its tests alone
        return is_named or bool(_USES_TESTING.search(text))
    return is_named or (not _WORK_FOLDERS.intersection(folders) and bool(_USES_TESTING.search(text)))


def is_data(path: str, named: str) -> bool:
    """True for a file that a check compares with.

    Args:
        path: of the file, relative to the workspace.
        named: the file itself, or the folder above it, as a pinned file names it.
    """
    folders = path.split("/")[:-1]
    if is_source(path) or not folders or _WORK_FOLDERS.intersection(folder.lower() for folder in folders):
        return False
    if looks_like_evaluator(named, ""):
        return True
    return not is_output(path) and _suffix(path) not in _PROSE | _CONFIGURATION
