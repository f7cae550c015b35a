"""Adding our parts to a client's settings, removing them again, and proving that they work.

``install`` writes the script that the hook lines start to the state home, and every part adds itself to its file. A
record beside the script keeps the earlier content of each file. ``uninstall`` restores that content if the file has not
changed since, and otherwise removes only our entries. ``examine`` checks every part.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from omx_autoresearch.agents.hook_lines import hook_script, path_fault, program_of_script
from omx_autoresearch.agents.parts import Change, Check, Examination
from omx_autoresearch.agents.parts.hooks import hooks_home
from omx_autoresearch.agents.settings_files import (
    InstalledFile,
    InstallRecord,
    SettingsFile,
    load_record,
    missing_folders,
    read_bytes,
    refuse_dangling_links,
    remove,
    remove_empty,
    sha256_of,
)
from omx_autoresearch.agents.settings_text import TextFault
from omx_autoresearch.foundation.clients import KNOWN
from omx_autoresearch.foundation.errors import CommandFault, UsageError, WorkspaceFault
from omx_autoresearch.journal.safe_files import ensure_folder
from omx_autoresearch.system.sandbox import box, can_isolate, told_box

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from omx_autoresearch.agents.hook_lines import HookProgram
    from omx_autoresearch.agents.parts import Installation, Part


@dataclass(frozen=True)
class InstallReport:
    """The changes of an installation or removal, made or planned.

    Attributes:
        client: the client's name.
        settings_path: the client's settings file.
        changes: one for each file that differs; empty if everything was in place.
        notes: things that the person has to know or do, one sentence each.
        dry_run: nothing was written.
    """

    client: str
    settings_path: str
    changes: tuple[SettingsFile, ...]
    notes: tuple[str, ...]
    dry_run: bool

    @property
    def diff(self) -> str:
        """The unified diffs of all files."""
        return "".join(file.diff for file in self.changes)


@dataclass
class _Work:
    """The parts of one installation with their files."""

    change: Change
    record: InstallRecord
    parts: list[tuple[Part, SettingsFile]] = field(default_factory=list)

    def __post_init__(self) -> None:
        installation = self.change.installation
        for part in installation.parts:
            if path := part.path(installation):
                file = SettingsFile(path, read_bytes(path), self.record.file(path))
                self.parts.append((part, self.change.files.setdefault(path, file)))

    @property
    def files(self) -> dict[str, SettingsFile]:
        return self.change.files

    def do(self, step: Callable[[SettingsFile, Change], None], file: SettingsFile) -> None:
        try:
            step(file, self.change)
        except TextFault as fault:
            raise WorkspaceFault(
                f"{file.path}, line {fault.line}: {fault}; the file was not changed",
                next_step="fix that line, then run the command again",
            ) from None

    def remove_all(self) -> None:
        """Remove every part; a file that has not changed since gets its earlier content."""
        for part, file in self.parts:
            self.do(part.remove, file)
        for file in self.files.values():
            if file.is_as_we_left_it and file.known:
                file.after = None if file.known.before is None else file.known.before.encode()

    def without_us(self) -> dict[str, SettingsFile]:
        """The same files without our parts."""
        bare = _Work(replace(self.change, notes=[], files={}), self.record)
        bare.remove_all()
        return bare.files

    def kept(self, bare: dict[str, SettingsFile]) -> tuple[InstalledFile, ...]:
        """The files as the record keeps them."""
        kept = []
        for path, file in self.files.items():
            if file.is_foreign:
                kept += [file.known] if file.known else []
                continue
            before = file.before if file.stood_there else bare[path].after
            if file.after is not None and (file.stood_there or file.after != before):
                text = None if before is None else before.decode()
                kept.append(InstalledFile(path, text, sha256_of(file.after)))
        return tuple(kept)

    def report(self, files: Iterable[SettingsFile]) -> InstallReport:
        changed = tuple(file for file in files if file.before != file.after)
        installation = self.change.installation
        notes = tuple(self.change.notes)
        return InstallReport(
            installation.client.name, installation.settings_path, changed, notes, self.change.is_dry
        )


def install(
    installation: Installation,
    program: HookProgram,
    *,
    environ: Mapping[str, str],
    without: tuple[str, ...] = (),
    dry_run: bool = False,
) -> InstallReport:
    """Add our parts to a client's settings; installing again changes nothing.

    Args:
        installation: the client's settings.
        program: the program that the hooks run.
        environ: the environment in which to look for the client's program and to run it.
        without: names of parts to leave out, and to remove if an older installation added them.
        dry_run: report the changes and write nothing.

    Raises:
        UsageError: the state home's path cannot be part of a hook line.
        CommandFault: the interpreter or the hook program is missing.
        WorkspaceFault: a settings file cannot be read as its client reads it, or its path goes through a symbolic link
            to nothing; it is not changed.
        StorageFailed: a file could not be written.
    """
    _check(program)
    where = installation.record_path(program.state_home_path)
    record = load_record(where)
    work = _Work(Change(installation, environ, program, dict(record.memory), is_dry=dry_run), record)
    script = SettingsFile(program.script_path, read_bytes(program.script_path))
    script.after = hook_script(program).encode()
    files = (script, *work.files.values())
    refuse_dangling_links(file.path for file in files)
    for part, file in work.parts:
        if not part.needs_the_others:
            work.do(part.remove if part.name in without else part.add, file)
    last = [(part, file) for part, file in work.parts if part.needs_the_others]
    bare = work.without_us()
    if not dry_run:
        made = missing_folders(
            file.path for part, file in work.parts if file.after is not None or part.needs_the_others
        )
        record = InstallRecord(
            work.kept(bare), tuple(dict.fromkeys((*record.folders, *made))), work.change.memory
        )
        ensure_folder(program.state_home_path)
        if any(file.before != file.after for file in files[1:]):
            # the record comes first, so that a kill in between leaves files that uninstall can restore
            record.save(where)
        script.write(mode=0o755)
        for file in files:
            file.write(mode=0o644 if installation.scope == "project" else 0o600)
    for part, file in last:
        work.do(part.add, file)
    if not dry_run:
        for _, file in last:
            file.write()
        record = replace(record, files=work.kept(bare))
        if record != load_record(where):
            record.save(where)
    return work.report(files)


def uninstall(installation: Installation, state_home_path: str, *, dry_run: bool = False) -> InstallReport:
    """Remove our parts from a client's settings.

    A file that has not changed since gets its earlier content. From any other file we remove only our entries and
    containers that become empty. We also remove folders that we made, if they are empty, and with the last installation
    of the state home the script.

    Raises:
        WorkspaceFault: a settings file cannot be read; it is not changed.
        StorageFailed: a file could not be written.
    """
    where = installation.record_path(state_home_path)
    record = load_record(where)
    work = _Work(Change(installation, {}, memory=dict(record.memory), is_dry=dry_run), record)
    work.remove_all()
    files = list(work.files.values())
    if _is_last(where):
        script_path = f"{state_home_path}/hook"
        script = SettingsFile(script_path, read_bytes(script_path))
        if script.before and program_of_script(script.before.decode("utf-8", "replace")):
            script.after = None
            files.append(script)
    if not dry_run:
        for file in files:
            file.write()
        remove_empty(record.folders)
        remove(where)
    return work.report(files)


def examine(
    installation: Installation,
    state_home_path: str,
    *,
    environ: Mapping[str, str],
    packages: Mapping[str, str],
    make_held_session: Callable[[str], str],
) -> list[Check]:
    """Check one installation and prove that it holds; see :class:`~omx_autoresearch.agents.parts.Examination`.

    Returns:
        The checks in the order of showing, the box first; if no hooks are installed, only that of the hooks.
    """
    about = Examination(installation, state_home_path, "", environ, packages, make_held_session)
    home_path = hooks_home(installation, about.install)
    if isinstance(home_path, Check):
        return [home_path]
    about = replace(about, hooks_home_path=home_path)
    with ThreadPoolExecutor() as pool:  # the parts wait for programs that they start
        found = pool.map(lambda part: part.check(about), installation.parts)
    return [box_check(installation.client.name), *(check for checks in found for check in checks)]


def box_check(client: str) -> Check:
    """Whether a check of a mission can run with an agent's rights, as it must beside a client that has a sandbox."""
    is_needed = bool(KNOWN[client].sandbox)
    return Check("box", can_isolate() or not is_needed, told_box(), box().cure, is_about_hold=is_needed)


def _check(program: HookProgram) -> None:
    fault = path_fault(program.state_home_path)
    if fault:
        raise UsageError(
            f"the state folder {program.state_home_path!r} cannot be part of a hook's command: {fault}",
            next_step="set OMX_AUTORESEARCH_HOME to an absolute path of plain characters",
        )
    for path, right, what in (
        (program.python_path, os.X_OK, "interpreter"),
        (program.entry_path, os.R_OK, "hook program"),
    ):
        if not os.path.isabs(path) or not os.access(path, right):
            raise CommandFault(
                f"the {what} {path} is missing or not accessible",
                next_step="install the package again, then run the command again",
            )


def _is_last(where: str) -> bool:
    try:
        names = os.listdir(os.path.dirname(where))
    except FileNotFoundError:
        return True
    return all(name.startswith(".") or name == os.path.basename(where) for name in names)
