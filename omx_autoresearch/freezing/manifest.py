"""The manifest of an evaluator's pinned files, and the files that each known runner loads by itself.

A pin freezes one path of the workspace: its content, or (a guard) its absence. A table lists for each runner its test
files, the files that decide how it runs, and the files that it would load merely because an agent added them. New test
files are welcome everywhere; only an addition of the last kind tampers.
"""

from __future__ import annotations

from omx_autoresearch.foundation.records import dataclass, nested

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re

    from omx_autoresearch.foundation.types import PinKind


@dataclass(frozen=True, slots=True)
class Pin:
    """One path of the workspace as it was at launch.

    Attributes:
        path: relative to the workspace, with ``/``.
        kind: ``file``, ``symlink`` (its own text, not what it leads to) or ``absent-guard`` (nothing may stand there).
        sha256: of the content, or of the link's text; empty for a guard.
        size_bytes: of the content or the link's text.
        mode: permission bits; only whether the owner may execute it is compared, since checkouts differ in the rest.
    """

    path: str
    kind: PinKind
    sha256: str = ""
    size_bytes: int = 0
    mode: int = 0


@dataclass(frozen=True, slots=True)
class Fact:
    """Something else that judges than a whole file: a test inside a file of the work (``src/lib.rs::tests::adds``).

    Attributes:
        name: as the owner is told.
        sha256: of its content.
    """

    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class PinManifest:
    """Everything that is pinned for one contract.

    Attributes:
        pins: sorted by path.
        runners: known runners that the evaluator calls; they decide which additions tamper.
        digest: sha256 of pins and runners; a verdict counts only under its own.
        notes: for the owner: paths named but not pinned, links that lead outside, globs without a match.
        import_folders: folders from which scripts of the evaluator import: a new module there that is named like one of
            the standard library would be loaded in its place.
        known_modules: paths that were such modules at launch, and may stay; files that a runner would load and that
            the owner took out of the search.
        programs: pinned paths that are programs of the workspace on the owner's PATH; alone they judge nothing.
        taken_names: modules beyond the standard library's for which a new one in those folders would stand in.
        facts: what else judges than whole files, by its name.
        loaded_globs: names with wildcards in one folder each (``mk/*.mk``): what matches is loaded by itself, so a new
            match tampers.
        opened: files of the project outside the work that the check was seen to open at the baseline.
    """

    pins: tuple[Pin, ...] = nested(Pin, default=())
    runners: tuple[str, ...] = ()
    digest: str = ""
    notes: tuple[str, ...] = ()
    import_folders: tuple[str, ...] = ()
    known_modules: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    taken_names: tuple[str, ...] = ()
    loaded_globs: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = nested(Fact, default=())
    opened: tuple[str, ...] = ()

    @property
    def frozen_count(self) -> int:
        """Pins that hold content; guards alone freeze no evaluator."""
        return sum(pin.kind != "absent-guard" for pin in self.pins)

    @property
    def judging_count(self) -> int:
        """Pins that decide a verdict: a runner's configuration without a single test judges nothing."""
        configuration = loaded_names(self.runners)
        for runner in self.runners:
            if runner != "make":  # a makefile is the check itself
                configuration |= set(DEFAULTS[runner].configuration)
        programs = set(self.programs)
        paths = [pin.path for pin in self.pins if pin.kind != "absent-guard" and pin.path not in programs]
        return sum("::" in fact.name for fact in self.facts) + sum(
            path not in configuration and path.rpartition("/")[2] not in configuration for path in paths
        )


@dataclass(frozen=True, slots=True)
class PinCheck:
    """How the pinned paths stand now.

    Attributes:
        digest: the manifest's own if and only if nothing changed and nothing was added; otherwise of what is there.
        changed: pinned paths whose content, kind or execute bit differs, or that are missing.
        added: paths that a runner loads by itself and that were not there at launch.
        writable: pinned files that a process holds open for writing; known only where the files were read.
        edited: files that were formatted and tests that were renamed, which judge as before; each with the path where
            it stands now.
    """

    digest: str
    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    edited: tuple[tuple[str, str], ...] = ()

    @property
    def is_intact(self) -> bool:
        """True when nothing changed and nothing was added."""
        return not self.changed and not self.added


@dataclass(frozen=True, slots=True)
class FileClasses:
    """The files of a project by what a mission does with them, each a sorted list of paths.

    Attributes:
        work: the agent may change them; the owner named them.
        frozen: they judge, so a change is tampering.
        shown: they may change and are no tampering.
        unknown: the check was seen to open them, and they are neither named as work nor frozen.
        opened: those outside the work that the check was seen to open at the baseline, up to its first failure.
    """

    work: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunnerDefaults:
    """The files that a runner takes from the workspace by itself.

    Attributes:
        tests: names of test files, one ``*`` each; existing ones are pinned.
        test_folders: folders whose files are pinned too: what tests import and read.
        suffixes: of files there that are code of the tests; the others are their data. Empty means every file.
        configuration: paths from the root that it reads by itself: pinned where present, guarded where absent.
        loaded: file names that it loads in any folder: pinned where present, an addition tampers.
    """

    tests: tuple[str, ...] = ()
    test_folders: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()
    configuration: tuple[str, ...] = ()
    loaded: tuple[str, ...] = ()


def _each(stems: tuple[str, ...], suffixes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{stem}.{suffix}" for stem in stems for suffix in suffixes)


_SCRIPTS = ("js", "cjs", "mjs", "jsx", "ts", "cts", "mts", "tsx")
_MODULES = ("js", "cjs", "mjs", "ts", "cts", "mts")
PYTHON_START = ("sitecustomize.py", "usercustomize.py")
"""An interpreter imports these by itself from every folder on its path."""
_PYTEST_FILES = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini")

DEFAULTS: dict[str, RunnerDefaults] = {
    "pytest": RunnerDefaults(
        tests=("test_*.py", "*_test.py"),
        test_folders=("tests", "test"),
        suffixes=(".py",),
        # `python -m pytest` puts the workspace first on the path: a module named like the runner replaces it.
        configuration=(*_PYTEST_FILES, "pyproject.toml", "tox.ini", "setup.cfg", *PYTHON_START,
                       "pytest", "pytest.py", "_pytest", "_pytest.py", "pluggy", "pluggy.py"),
        loaded=("conftest.py", *_PYTEST_FILES),
    ),
    "unittest": RunnerDefaults(
        tests=("test*.py",),
        test_folders=("tests", "test"),
        suffixes=(".py",),
        configuration=(*PYTHON_START, "unittest", "unittest.py"),
    ),
    "npm": RunnerDefaults(
        tests=(*_each(("*.test", "*.spec"), _SCRIPTS), *_each(("test-*", "*-test", "*_test", "test"), _MODULES)),
        test_folders=("__tests__", "__mocks__", "__snapshots__", "test", "tests", "spec"),
        suffixes=(*(f".{suffix}" for suffix in _SCRIPTS), ".snap"),
        configuration=("package.json", ".npmrc", ".yarnrc.yml", ".pnpmfile.cjs", "__mocks__", ".babelrc", ".swcrc",
                       *_each(("jest.config", "babel.config", ".babelrc"), (*_MODULES, "json")),
                       *_each(("vitest.config", "vitest.workspace", "vite.config", "playwright.config"), _MODULES),
                       *_each((".mocharc",), ("js", "cjs", "mjs", "json", "jsonc", "yml", "yaml"))),
    ),
    "cargo": RunnerDefaults(
        test_folders=("tests",),
        suffixes=(".rs",),
        configuration=("Cargo.toml", ".cargo/config.toml", ".cargo/config", ".config/nextest.toml",
                       "rust-toolchain", "rust-toolchain.toml"),
    ),
    "go": RunnerDefaults(tests=("*_test.go",), test_folders=("testdata",),
                         configuration=("go.work", "vendor/modules.txt")),
    "make": RunnerDefaults(configuration=("GNUmakefile", "makefile", "Makefile")),
}  # fmt: skip
"""Known runners, by the names of ``runners.RUNNERS``. No row has lock files: only ``protect`` pins them."""

PRUNED = frozenset({"node_modules", "__pycache__", "venv", "site-packages", "build", "dist", "target"})
"""Folders in which no runner looks for tests by itself, beside every one whose name begins with a dot."""


def is_pruned(name: str) -> bool:
    """True for a folder that a runner does not enter by itself."""
    return name.startswith(".") or name in PRUNED or name.endswith((".egg-info", ".dist-info"))


def is_test(path: str, runner: str) -> bool:
    """True when an existing file at ``path`` is one of the runner's tests or a file that tests import."""
    from fnmatch import fnmatchcase  # loads re: a hook asks this never

    defaults = DEFAULTS[runner]
    *folders, name = path.split("/")
    if any(fnmatchcase(name, pattern) for pattern in defaults.tests):
        return True
    if not any(folder in defaults.test_folders for folder in folders):
        return False
    return not defaults.suffixes or name.endswith(defaults.suffixes)


_NO_DATA = ("README", ".git", ".DS_Store", ".editorconfig")


def is_test_data(path: str, runner: str) -> bool:
    """True when an existing file at ``path`` stands among the runner's tests, which may read it."""
    *folders, name = path.split("/")
    return any(folder in DEFAULTS[runner].test_folders for folder in folders) and not name.startswith(
        _NO_DATA
    )


def loaded_names(runners: tuple[str, ...]) -> frozenset[str]:
    """File names that one of these runners loads by itself in whatever folder they stand."""
    return frozenset(name for runner in runners if runner in DEFAULTS for name in DEFAULTS[runner].loaded)


_MODULE_SUFFIXES = (".py", ".pyc", ".so", ".pyd")


def module_name(file_name: str) -> str:
    """The module that a file, or a folder that is a package, would be imported as; empty for any other file."""
    stem, dot, _ = file_name.partition(".")
    return stem if not dot or file_name.endswith(_MODULE_SUFFIXES) else ""


def glob_pattern(glob: str) -> re.Pattern[str]:
    """A compiled ``protect`` glob, to be matched against whole relative paths.

    As in a .gitignore: ``*`` and ``?`` stay within a name, ``**`` crosses folders, a glob without ``/`` means a name
    in any folder, and a folder's name means everything below it.
    """
    import re

    text = glob.strip("/")
    parts = [] if "/" in glob.rstrip("/") else ["(?:.*/)?"]
    at = 0
    while at < len(text):
        if text.startswith("**/", at):
            parts.append("(?:.*/)?")
            at += 3
        elif text.startswith("**", at):
            parts.append(".*")
            at += 2
        else:
            parts.append({"*": "[^/]*", "?": "[^/]"}.get(text[at], re.escape(text[at])))
            at += 1
    return re.compile("".join(parts) + "(?:/.*)?", re.DOTALL)


def glob_faults(glob: str, name: str = "protect") -> list[str]:
    """The reasons why a glob of the field ``name`` is invalid; none for a valid one. ``!glob`` takes paths out."""
    body = glob.removeprefix("!")
    if not body.strip("/").strip():
        return [f"{name}: {glob!r} names nothing"]
    if body.startswith(("/", "~")) or ".." in body.split("/"):
        return [f"{name}: {glob!r} must be relative to the workspace and stay inside it"]
    if any(ord(c) < 32 or ord(c) == 127 for c in body):
        return [f"{name}: {glob!r} holds a control character"]
    return []
