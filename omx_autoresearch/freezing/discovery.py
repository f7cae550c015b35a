"""Find the files of an evaluator in a workspace: :func:`find` answers with a manifest of them.

It runs at launch and at ``amend``, never at a stop. ``evaluator_commands`` says which paths a command names, and
``manifest`` which files a runner loads by itself; this module looks for those files on disk.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from functools import cached_property
from glob import glob

from omx_autoresearch.freezing import evaluator_commands, facts, import_path, judging, makefiles, packages
from omx_autoresearch.freezing.folders import (
    are_few,
    is_foreign,
    is_snapshot,
    literal_folder,
    paths_below,
    programs_inside,
    real_folder,
)
from omx_autoresearch.freezing.manifest import (
    DEFAULTS,
    PYTHON_START,
    Fact,
    Pin,
    PinManifest,
    glob_pattern,
    is_pruned,
    is_test,
    is_test_data,
    loaded_names,
)
from omx_autoresearch.freezing.new_pins import PIN_LIMIT, check_bounds, pin_of, too_many
from omx_autoresearch.freezing.pins import manifest_of, with_modules, with_pins
from omx_autoresearch.freezing.readings import SHOWN, node_guards, readings_of, unpinned_imports
from omx_autoresearch.freezing.runners import runners_of
from omx_autoresearch.freezing.work import Work, files_at, is_lock_file, project_files
from omx_autoresearch.journal.safe_files import (
    Place,
    path_faults,
    resolve,
    script_text,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_FOLLOW_DEPTH = 8
_CALLS_SCRIPTS = re.compile(r"\b(?:npm|pnpm|yarn|npx|bun)\b")
_NEVER = frozenset({".git", ".omx"})


def find(  # noqa: PLR0913  # what a contract says of its evaluator
    workspace_path: str,
    *,
    commands: Sequence[str],
    protect: Sequence[str] = (),
    work: Sequence[str] = (),
    runner: str = "",
    exempt: Sequence[str] = (),
    search_path: str = "",
    python_folders: Sequence[str] = (),
    files: Sequence[str] = (),
    goal: str = "",
    is_told_by_git: bool = False,
) -> PinManifest:
    """Find the files that the commands name, those that their runners load, and those that the owner protects.

    Args:
        workspace_path: where the files stand.
        commands: shell commands of validator or reviewer.
        protect: globs of the owner (see `manifest.glob_pattern`); ``!glob`` takes paths out again.
        work: globs of what is never pinned; where there are any, what pinned files read besides is pinned, too.
        runner: the known runner of the commands; others that their scripts call are found here.
        exempt: paths that are never pinned: the artifact under review.
        search_path: the PATH that the commands will have.
        python_folders: folders of the workspace on the commands' PYTHONPATH, relative; the root is empty.
        files: of the project, where the caller has listed them already (see `work.project_files`).
        goal: of the mission: a path that it names is no data of the check.
        is_told_by_git: keep what decides the answers of git, where the commands ask it in this repository.

    Raises:
        MissionInvalid: a glob protects nothing but work.
        WorkspaceFault: more files or bytes than can be pinned, or a file that cannot be read.
    """
    search = _Search(workspace_path, protect, exempt, runner, Work(work))
    search.listed = files
    search.subjects = {
        word.strip("./") for word in re.findall(r"[\w./-]+", goal) if {"/", "."} & set(word)
    } - {""}
    for command in commands:
        search.follow_command(command)
    search.add_defaults()
    search.add_protected()
    programs = (*search.add_programs(search_path), *search.add_environments(search_path))
    search.add_start_files(python_folders)
    if is_told_by_git:
        search.add_answers_of_git()
    search.add_what_pins_read()
    pins = [pin_of(workspace_path, path) for path in sorted(search.paths)]
    check_bounds(pins)
    pins += search.guards()
    search.warn_of_unnamed()
    search.warn_of_judging_work()
    notes = [*search.notes, *search.notes_of_the_unpinned()]
    manifest = replace(
        manifest_of(pins, search.runners, dict.fromkeys(notes)),
        programs=programs,
        taken_names=search.taken_names(search_path),
        loaded_globs=tuple(sorted(set(search.globs))),
        facts=(*search.tests_inside, *search.answers),
    )
    folders = search.import_folders() | set(python_folders)
    names = loaded_names(manifest.runners)
    welcome = [
        glob[1:] for glob in protect if glob[0] == "!" and glob.rpartition("/")[2].lstrip("!") in names
    ]
    welcome += [path for path in search.judging_work if path.rpartition("/")[2] in names]
    return with_modules(manifest, tuple(sorted(folders)), workspace_path, welcome)


def with_opened(
    manifest: PinManifest,
    workspace_path: str,
    opened: Iterable[str],
    *,
    work: Sequence[str],
    files: Sequence[str] = (),
) -> PinManifest:
    """The manifest with the files that a check was seen to open.

    Where the work is named, those of the project outside it are pinned, with what else of it they import or read.

    Raises:
        WorkspaceFault: as for `find`.
    """
    search = _Search(workspace_path, (), (), "", Work(work))
    search.listed = files
    search.paths = {pin.path for pin in manifest.pins}
    known = set(search.paths)
    found = sorted(path for path in opened if path not in known and path not in search.work)
    manifest = replace(manifest, opened=tuple(found))
    if not work:
        return manifest
    for path in sorted(search.project_files.intersection(found)):
        if not is_lock_file(path):
            search.add_file(path)
    search.add_what_pins_read()
    pins = [pin_of(workspace_path, path) for path in sorted(search.paths - known)]
    check_bounds([*manifest.pins, *pins])
    return with_pins(manifest, pins)


def named_files(workspace_path: str, command: str) -> list[str]:
    """Existing files of the workspace that a command names, real paths, in its order."""
    found = []
    for named in evaluator_commands.command_paths(command):
        place = resolve(workspace_path, named.word, named.folder)
        if place.path and place.path not in found:
            found.append(place.path)
    return found


class _Search:
    """A search in progress: the paths and runners found so far, and notes for the owner."""

    def __init__(
        self, workspace_path: str, protect: Sequence[str], exempt: Sequence[str], runner: str, work: Work
    ) -> None:
        self.workspace_path = workspace_path
        self.work = work
        self.listed: Sequence[str] = ()
        self.imports: dict[str, tuple[str, ...]] = {}
        self.named: dict[str, str] = {}
        self.subjects: set[str] = set()
        self.named_places: list[str] = []
        self.judging_work: list[str] = []
        self.protect = [glob for glob in protect if not glob.startswith("!")]
        self.released = [glob_pattern(glob[1:]) for glob in protect if glob.startswith("!")]
        self.exempt = {os.path.normpath(path) for path in exempt if path}
        self.runners = {runner} & DEFAULTS.keys()
        self.paths: set[str] = set()
        self.notes: list[str] = []
        self.unnamed: list[str] = []
        self.scripts: set[str] = set()
        self.texts: list[str] = []
        self.folders: set[str] = set()
        self.absent: list[str] = []
        self.globs: list[str] = []
        self.bin_folders: list[str] = []
        self.answers: tuple[Fact, ...] = ()
        self.tests_inside: tuple[Fact, ...] = ()

    # --- what commands name

    def follow_command(self, command: str) -> None:
        """Pin every file that a command names, and what these name in turn."""
        self.runners |= set(runners_of(command))
        only_reads = evaluator_commands.only_reads(command)
        self._follow_folders(command, "", only_reads=only_reads)
        words = evaluator_commands.command_paths(command)
        for named in words:
            place = resolve(self.workspace_path, named.word, named.folder)
            is_work = bool(place.path) and not self.work and self._may_be_work(place.path)
            if is_work and only_reads:
                self.notes.append(
                    f"{place.path} is read by `{command}`, treated as the work itself and not pinned"
                    f" (--protect {place.path} pins it)"
                )
                continue
            self._add_word(named.word, named.folder, command, depth=0)
            if is_work and place.path in self.paths:
                self.notes.append(
                    f"{place.path} is frozen, since `{command}` names it; if the agent is to change it, leave it free:"
                    f" --protect '!{place.path}'"
                )
        self._follow_runner_files(command, [named.word for named in words], words)

    def _may_be_work(self, path: str) -> bool:
        """Whether a file that a command names could be what the agent is to write: no script and no test."""
        full_path = os.path.join(self.workspace_path, path)
        is_configuration = any(path in DEFAULTS[runner].configuration for runner in self.runners)
        return not (
            is_configuration
            or os.access(full_path, os.X_OK)
            or evaluator_commands.looks_like_evaluator(path, "")
            or evaluator_commands.is_script(path, b"")
        )

    def _follow_runner_files(
        self, command: str, words: list[str], named: list[evaluator_commands.NamedPath]
    ) -> None:
        """A makefile's recipes and package.json's scripts are commands that stand elsewhere."""
        for folder in dict.fromkeys(["", *(each.folder for each in named)]):
            if {"make", "gmake"} & set(words):
                for name in (*makefiles.named_by(words), *DEFAULTS["make"].configuration):
                    self._follow_makefile(resolve(self.workspace_path, name, folder).path, folder, words)
            if _CALLS_SCRIPTS.search(command):
                self._follow_package(resolve(self.workspace_path, "package.json", folder).path, words)

    def _follow_lines(self, text: str, folder: str) -> None:
        """Lines of a script or recipe that call commands which stand elsewhere."""
        for line in text.splitlines():
            if re.search(r"\bmake\b", line) or _CALLS_SCRIPTS.search(line):
                named = evaluator_commands.command_paths(line, folder=folder)
                self._follow_runner_files(line, [each.word for each in named], named)

    def _follow_makefile(self, path: str, folder: str, targets: list[str]) -> None:
        if not path or not self._is_new(f"{path} as of make"):
            return
        self._add(path)
        make = self._read_makefile(path, folder)
        recipe = evaluator_commands.recipe_of(make.text, targets)
        self.runners |= set(runners_of(recipe))
        self._follow_single(recipe, path, 1, folder)
        self._follow_named(recipe, path, depth=1)
        self._follow_lines(evaluator_commands.expanded(recipe.replace("$$", "$")), folder)

    def _read_makefile(self, path: str, folder: str) -> makefiles.MakeText:
        """Read a makefile, and pin or guard all that it includes."""
        make = makefiles.read(self.workspace_path, path, folder)
        for included in make.paths:
            self._is_new(included)
            self.add_file(included)
        self.absent += make.absent
        self.globs += make.globs
        return make

    def _follow_single(self, text: str, path: str, depth: int, folder: str = "") -> None:
        """The program of a script or recipe of one command judges: its exit status is the verdict."""
        for word in evaluator_commands.program_of(evaluator_commands.single_command(text)):
            place = resolve(self.workspace_path, word, folder).path if "/" in word or "." in word else ""
            start = script_text(self.workspace_path, place)[:2] if place else ""
            if evaluator_commands.is_script(
                place, start.encode("utf-8", "replace")
            ):  # no program that a build makes
                self._add_word(word, folder, path, depth=depth + 1)

    def _follow_package(self, path: str, words: list[str]) -> None:
        if not path or not self._is_new(f"{path} as of {words}"):
            return
        self._add(path)
        # npm puts the programs of installed packages in front of the owner's PATH.
        self.bin_folders.append(os.path.join(os.path.dirname(path), "node_modules", ".bin"))
        try:
            lines = packages.package_scripts(script_text(self.workspace_path, path), words)
        except ValueError:
            self.notes.append(f"{path} is not readable JSON; the files that its scripts name are not pinned")
            return
        text = "\n".join(lines)
        self.runners |= set(runners_of(text))
        self._follow_named(text, path, depth=1)
        self._follow_lines(text, os.path.dirname(path))

    # --- what scripts name

    def _is_new(self, path: str) -> bool:
        is_new = path not in self.scripts
        self.scripts.add(path)
        return is_new

    def _add_word(self, word: str, folder: str, where: str, *, depth: int) -> bool:
        path = self._add_resolved(word, folder, f"{word} (in {where})")
        if path and depth < _FOLLOW_DEPTH and self._is_new(path):
            self._follow_script(path, depth)
        return bool(path)

    def _add_resolved(self, word: str, folder: str = "", named: str = "") -> str:
        """Pin the file that a word means and the links on the way; the file's path, or empty.

        A note says under the name ``named`` where a word leads out of the workspace.
        """
        place = resolve(self.workspace_path, word, folder)
        for path in (*place.links, place.path):
            self._add(path)
        if place.leaves and named:
            self.notes.append(f"{named} leads outside the workspace: its content is not pinned")
        return place.path

    def _follow_script(self, path: str, depth: int) -> None:
        text = script_text(self.workspace_path, path)
        if not text or not evaluator_commands.is_script(path, text[:2].encode("utf-8", "replace")):
            return
        if evaluator_commands.is_makefile(path):
            text = self._read_makefile(path, os.path.dirname(path)).text
        self.runners |= set(runners_of(text))
        if evaluator_commands.is_shell(path, text):
            self._follow_single(text, path, depth)
            text = evaluator_commands.expanded(text)
            self._follow_lines(text, "")
        for word in evaluator_commands.sourced_paths(text):
            places = [os.path.normpath(os.path.join(folder, word)) for folder in self._folders_beside(path)]
            if set("*?[") & set(word):
                self.globs += places
                for place in places:
                    for found in sorted(glob(place, root_dir=self.workspace_path)):
                        self._add_word(found, "", path, depth=depth + 1)
            elif not self._add_beside(word, path, depth + 1) and evaluator_commands.is_optional(word, text):
                self.absent += places
        self._follow_named(text, path, depth)

    def _follow_folders(self, text: str, script_path: str, *, only_reads: bool = False) -> None:
        """Pin the files of folders that a check walks."""
        self.texts.append(text)
        for word in evaluator_commands.folder_words(text):
            path = real_folder(self.workspace_path, word, self._folders_beside(script_path))
            if not path or path in self.folders:
                continue
            if evaluator_commands.is_case_folder(path, script_path):
                self.folders.add(path)
                self._add_folder(path)
            elif not only_reads:
                self.named_places.append(path)

    def _follow_named(self, text: str, script_path: str, depth: int) -> None:
        self._follow_folders(text, script_path)
        for word in evaluator_commands.literal_paths(text):
            path = self._beside(word, script_path).path
            if not path or path in self.paths or path in self.work:
                continue
            is_read = bool(self.work) and path in self.project_files and not is_lock_file(path)
            if is_read or evaluator_commands.looks_like_evaluator(path, script_path):
                self._add_beside(word, script_path, depth + 1)
            else:
                self.named.setdefault(path, script_path)

    def _folders_beside(self, script_path: str) -> tuple[str, ...]:
        folder = os.path.dirname(script_path)
        return ("", folder) if folder else ("",)

    def _beside(self, word: str, script_path: str) -> Place:
        """A script's word is looked for from the root, where commands run, and from the script's own folder."""
        place = Place("", (), leaves=False)
        for folder in self._folders_beside(script_path):
            place = resolve(self.workspace_path, word, folder)
            if place.path:
                return place
        return place

    def _add_beside(self, word: str, script_path: str, depth: int) -> bool:
        return any(
            self._add_word(word, folder, script_path, depth=depth)
            for folder in self._folders_beside(script_path)
        )

    # --- what runners take, what the owner protects

    def add_defaults(self) -> None:
        """Pin existing tests, their helpers and data, and the configuration of every runner found."""
        for runner in sorted(self.runners):
            for path in DEFAULTS[runner].configuration:
                self.add_file(path)
        self._add_packages()
        count = self._add_tests()
        self._add_plug_ins()
        if "cargo" in self.runners:
            for path in facts.test_modules(self.workspace_path, self.project_files):
                self._add_resolved(path)
            count += self._keep_tests_inside()
        self._warn_of_absent_tests(count)

    def _keep_tests_inside(self) -> int:
        """Keep the tests inside sources of Rust that are not pinned, and name them for the owner."""
        sources = {path for path in self.project_files if path.endswith(".rs")} - self.paths
        self.tests_inside = facts.facts_of(self.workspace_path, sorted(sources))
        names = [fact.name for fact in self.tests_inside]
        if names:
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            self.notes.append(
                f"{', '.join(names[:SHOWN])}{more}: kept as they are inside their source, which may change"
            )
        return len(names)

    def _add_packages(self) -> None:
        """Pin the manifests of a workspace's members, and packages that only tests need."""
        if not self.runners & {"cargo", "go", "npm", "pytest", "unittest"}:
            return
        for path in packages.members(self.workspace_path):
            self.add_file(path)
        manifests = [path for path in self.paths if path.endswith(("Cargo.toml", "package.json"))]
        for path in sorted(manifests):
            for folder in packages.test_dependencies(self.workspace_path, path):
                self._add_folder(folder)
        if self.runners & {"cargo", "go"} and real_folder(self.workspace_path, "vendor", ("",)):
            self._add_folder("vendor")

    def _add_plug_ins(self) -> None:
        """Pin what options and configuration have a runner load."""
        names = {name for runner in self.runners for name in DEFAULTS[runner].configuration}
        names |= loaded_names(tuple(self.runners))
        words = [("", word) for text in self.texts for word in packages.plug_ins(text)]
        for path in sorted(self.paths):
            if path in names or path.rpartition("/")[2] in names:
                folder = os.path.dirname(path)
                words += [(folder, word) for word in packages.configured(self.workspace_path, path)]
        for folder, word in words:
            stem = word.replace(".", "/") if "/" not in word else word
            for each in (
                word,
                f"{stem}.py",
                f"{stem}/__init__.py",
                f"{word}.js",
                f"{word}.ts",
                f"{word}/index.js",
            ):
                self._add_resolved(each, folder)

    def _add_tests(self) -> int:
        loaded = loaded_names(tuple(self.runners))
        data: list[str] = []
        count = 0
        for path in paths_below(self.workspace_path, "", is_pruned) if self.runners else ():
            tests = any(is_test(path, runner) for runner in self.runners)
            if tests or path.rpartition("/")[2] in loaded:
                count += tests
                self.add_file(path)
            elif any(is_test_data(path, runner) for runner in self.runners):
                data.append(path)
            elif os.path.islink(os.path.join(self.workspace_path, path)):
                self._add_link_that_loads(path, loaded)
        if data:
            self._add_data(sorted(self.project_files.intersection(data)))
        return count

    def _add_data(self, paths: list[str]) -> None:
        """Pin the data of tests; snapshots only where a test looks at them."""
        looks = any(
            "snapshot" in script_text(self.workspace_path, path, errors="replace")
            for path in sorted(self.paths)
            if not is_snapshot(path)
        )
        self._add_few("the data of the tests", [path for path in paths if looks or not is_snapshot(path)])

    def _add_folder(self, folder: str) -> None:
        self._add_few(folder, list(paths_below(self.workspace_path, folder, is_foreign)))

    def _add_few(self, what: str, paths: list[str]) -> None:
        """Pin these files, unless they are too many to be pinned unasked."""
        if are_few(self.workspace_path, paths):
            for path in paths:
                self.add_file(path)
        else:
            folder = os.path.commonpath(paths) or "GLOB"
            self.notes.append(f"{what} is too large to be pinned by default (--protect {folder} pins it)")

    def _add_link_that_loads(self, path: str, loaded: frozenset[str]) -> None:
        """A link to a folder whose files a runner would load is pinned itself."""
        if any(os.path.lexists(os.path.join(self.workspace_path, path, name)) for name in loaded):
            self._add(path)

    def _warn_of_absent_tests(self, count: int) -> None:
        names = sorted(name for name in self.runners if DEFAULTS[name].tests or DEFAULTS[name].test_folders)
        if names and not count:
            self.notes.append(f"no test files of {', '.join(names)} were found to pin")

    def add_file(self, path: str) -> None:
        """Pin a file that is there, and the links on the way to it; work is not pinned."""
        if path_faults(path):
            self.unnamed.append(path)
        self._add_resolved(path, named=path)

    def warn_of_unnamed(self) -> None:
        """Tell of files whose names no list can hold."""
        if names := list(dict.fromkeys(map(ascii, self.unnamed))):
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            self.notes.append(
                f"{', '.join(names[:SHOWN])}{more}: not frozen, because the name is not UTF-8, holds a control "
                "character or is too long (rename it, then start or amend again)"
            )

    def add_protected(self) -> None:
        """Pin whatever the owner's globs match now."""
        for each in self.protect:
            pattern = glob_pattern(each)
            start = literal_folder(self.workspace_path, each)
            found = [
                path
                for path in paths_below(self.workspace_path, start, is_foreign)
                if pattern.fullmatch(path)
            ]
            self.work.refuse_protected(each, found)
            for path in found:
                self.add_file(path)
            if not found:
                self.notes.append(f"protect: {each} matches no file")

    def add_programs(self, search_path: str) -> tuple[str, ...]:
        """Pin the programs of the workspace that PATH leads to, and guard the places in front of the system's."""
        words = frozenset[str]().union(*map(evaluator_commands.program_words, self.texts))
        own = [os.path.join(os.path.abspath(self.workspace_path), folder) for folder in self.bin_folders]
        search_path = os.pathsep.join([*own, search_path])
        present, absent = programs_inside(self.workspace_path, search_path, words)
        self.absent += absent
        before = set(self.paths)
        for path in present:
            self._add_resolved(path)
        return tuple(sorted(self.paths - before))

    def add_start_files(self, folders: Sequence[str]) -> None:
        """Pin the start files of Python in these folders, and guard the places of absent ones."""
        for path in (os.path.join(folder, name) for folder in folders for name in PYTHON_START):
            if os.path.lexists(os.path.join(self.workspace_path, path)):
                self.add_file(path)
            else:
                self.absent.append(path)

    def add_what_pins_read(self) -> None:
        """Pin what else of the project judges, among what the pinned files import or read, and so on.

        Where the work is named, that is all of it; elsewhere, what looks like a helper of tests or like their data.
        """
        waiting = sorted(self.paths)
        seen = set(waiting)
        for place in self.named_places:
            waiting += self._add_read(place, seen)
        while waiting:
            path = waiting.pop()
            readings = readings_of(self.workspace_path, path)
            self.imports[path] = readings.imports
            for place in readings.imports:
                if place not in seen and self._judges(place, place, is_imported=True):
                    waiting += self._add_read(place, seen, is_imported=True)
            for place in readings.paths:
                waiting += self._add_read(place, seen)
        for path in sorted(self.paths):
            self.absent += node_guards(self.workspace_path, path, self.paths)

    def _add_read(self, place: str, seen: set[str], *, is_imported: bool = False) -> list[str]:
        """Pin a file, or those of a folder, that a pinned one reads; answers with what is new."""
        files = files_at(self.sorted_files, place) if place not in seen else []
        found = [
            path for path in files if path not in seen and self._judges(path, place, is_imported=is_imported)
        ]
        if len(files) > 1 and not self.work and any(map(judging.is_source, files)):
            found = []  # a folder with sources is the work, or is walked to look at it
        seen.update(found)
        if len(found) == 1 or are_few(self.workspace_path, found):
            for path in found:
                self.add_file(path)
            return found
        self.notes.append(f"{place} is too large to be pinned by default (--protect {place} pins it)")
        return []

    def _judges(self, path: str, named: str, *, is_imported: bool) -> bool:
        if path in self.work or is_lock_file(path):
            return False
        if self.work and path == named:
            return True
        if is_imported:
            return judging.is_helper(path, script_text(self.workspace_path, path, errors="replace"))
        return judging.is_data(path, named) and not any(
            path == free or path.startswith(f"{free}/") for free in (*self.exempt, *self.subjects)
        )

    @cached_property
    def project_files(self) -> frozenset[str]:
        """The files of the project: see `work.project_files`."""
        return frozenset(self.listed or project_files(self.workspace_path))

    @cached_property
    def sorted_files(self) -> list[str]:
        """The same in their order."""
        return sorted(self.project_files)

    def add_answers_of_git(self) -> None:
        """Keep what decides the answers of git, where the evaluator asks it, and name it for the owner."""
        self.answers = facts.told_by_git(self.workspace_path, self.texts)
        if self.answers:
            self.absent.append(".gitattributes")
            self.add_file(".gitattributes")
            names = ", ".join(fact.name.removeprefix("git: ") for fact in self.answers)
            self.notes.append(
                f"the check asks git: {names} are kept as they are; HEAD and the branch that is checked out move with"
                " the agent's commits"
            )

    def notes_of_the_unpinned(self) -> list[str]:
        """Notes of what pinned files import or name and what is not pinned, where the owner did not name the work."""
        if self.work:
            return []
        named = [
            f"{path} is named in {script_path} but treated as the work itself and not pinned (--protect {path} pins it)"
            for path, script_path in self.named.items()
            if path not in self.paths
        ]
        return [*named, *unpinned_imports(self.imports, self.paths)]

    def warn_of_judging_work(self) -> None:
        """Tell of work that the check names or that its runner loads: the owner leaves it free all the same."""
        if paths := list(dict.fromkeys(self.judging_work)):
            more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
            self.notes.append(
                f"{', '.join(paths[:SHOWN])}{more}: named as work, so the agent may change how it is judged"
                f" ({self.work.options_without(paths[0])} freezes it)"
            )

    def import_folders(self) -> set[str]:
        """Folders from which the evaluator's own scripts import first."""
        scripts = {path for path in self.scripts & self.paths if path.endswith(".py")}
        root = {""} if any(map(evaluator_commands.imports_from_root, self.texts)) else set()
        named = import_path.import_folders(self.workspace_path, self.paths, self.runners)
        return root | named | {path.rpartition("/")[0] for path in scripts}

    def taken_names(self, search_path: str) -> tuple[str, ...]:
        """Names that the evaluator imports from what is installed, or from its own files."""
        return tuple(
            sorted(
                import_path.taken_names(
                    self.workspace_path, sorted(self.paths), self.runners, self.texts, search_path
                )
            )
        )

    def add_environments(self, search_path: str) -> tuple[str, ...]:
        """Pin what an interpreter of the workspace's virtual environments runs by itself, and guard the rest."""
        before = set(self.paths)
        for environment in import_path.environments(self.workspace_path, self.texts, search_path):
            present, absent, globs = import_path.start_files(self.workspace_path, environment)
            for path in present:
                self.add_file(path)
            self.absent += absent
            self.globs += globs
        return tuple(sorted(self.paths - before))

    def guards(self) -> list[Pin]:
        """Absent configuration of the runners, and programs: adding one changes how they run."""
        names = {path for runner in self.runners for path in DEFAULTS[runner].configuration} | set(
            self.absent
        )
        absent = [
            path for path in sorted(names) if not os.path.lexists(os.path.join(self.workspace_path, path))
        ]
        return [Pin(path, "absent-guard") for path in absent if not self._is_released(path)]

    def _is_released(self, path: str) -> bool:
        return path in self.exempt or any(pattern.fullmatch(path) for pattern in self.released)

    def _add(self, path: str) -> None:
        if not path or path in self.paths or path.split("/", 1)[0] in _NEVER or self._is_released(path):
            return
        if path in self.work:
            self.judging_work.append(path)
            return
        self.paths.add(path)
        if len(self.paths) > PIN_LIMIT:
            raise too_many(f"more than {PIN_LIMIT} files would be pinned", list(self.paths))
