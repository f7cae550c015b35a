"""Putting our hooks, status line, tools and skill into a client's settings and taking them out again.

``install`` writes the script in the state home that the hook lines start, what of ours belongs into the client's
settings files, and where the client asks for it (Codex) the hashes that make it trust the hooks. A record beside the
script keeps what each file held before, so that ``uninstall`` gives back the very bytes when nobody changed the file
since, and takes out only ours otherwise.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from omx_autoresearch.agents import hook_settings, hook_trust, settings_parts, skill_files
from omx_autoresearch.agents.installations import (
    HookProgram,
    Installation,
    hook_script,
    path_fault,
    program_of_script,
)
from omx_autoresearch.agents.json_text import JsonTextFault
from omx_autoresearch.agents.settings_files import (
    BOM,
    FileChange,
    InstalledFile,
    InstallRecord,
    apply,
    load_record,
    missing_folders,
    read_bytes,
    record_path,
    remove,
    remove_empty,
    sha256_of,
    text_of,
)
from omx_autoresearch.foundation.errors import CommandFault, UsageError, WorkspaceFault
from omx_autoresearch.journal.safe_files import ensure_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omx_autoresearch.agents.tool_servers import TomlFault

Part = Literal["tools", "skill"]
"""What may be left out: the tools for agents (the MCP server), the skill."""


@dataclass(frozen=True, slots=True)
class InstallReport:
    """What an installation or its removal changed, or would change.

    Attributes:
        client: the client's name.
        settings_path: the client's settings file.
        changes: one for each file that differs; empty when everything was in place.
        notes: what a person has to know or do, one sentence each.
        dry_run: nothing was written.
    """

    client: str
    settings_path: str
    changes: tuple[FileChange, ...]
    notes: tuple[str, ...]
    dry_run: bool

    @property
    def diff(self) -> str:
        """The unified diffs of all files."""
        return "".join(change.diff for change in self.changes)


def install(
    installation: Installation,
    program: HookProgram,
    *,
    environ: Mapping[str, str],
    without: tuple[Part, ...] = (),
    dry_run: bool = False,
) -> InstallReport:
    """Register our hooks, status line, tools and skill with a client; doing it again changes nothing.

    Args:
        installation: where and how, from the client's dialect.
        program: what the hooks run.
        environ: used to find and ask Codex.
        without: what is left out; where an older installation put it in, it goes.
        dry_run: say what would change and write nothing.

    Raises:
        UsageError: the state home's path cannot stand in a hook line.
        CommandFault: the interpreter or the entry is not there.
        WorkspaceFault: a settings file cannot be read as its client reads it; it is left untouched.
        StorageFailed: a file could not be written.
    """
    _check(program)
    where = record_path(program.state_home_path, installation)
    record = load_record(where)
    script = FileChange(program.script_path, read_bytes(program.script_path), hook_script(program).encode())
    plans, added = _planned(installation, program, record, has_server="tools" not in without)
    skill = skill_files.planned(installation, record, has_skill="skill" not in without)
    changes = [*(change for change, _ in plans), *filter(None, (skill.change,))]
    notes = settings_parts.part_notes(
        installation, text_of(installation.settings_path, changes[0].before), program
    )
    if installation.server and "tools" not in without and installation.server.note:
        notes = (*notes, installation.server.note)
    notes = (*notes, *filter(None, (skill.note,)))
    if dry_run:
        trust_notes = _notes(installation, (), changes[0]) if installation.trust_path else ()
        return _report(installation, (script, *changes), (*trust_notes, *notes), dry_run=True)
    ensure_folder(program.state_home_path)
    files = (*(file for _, file in plans), *filter(None, (skill.file,)))
    made = missing_folders((*(file.path for file in files), *filter(None, (installation.trust_path,))))
    folders = tuple(dict.fromkeys((*record.folders, *made)))
    if any(change.before != change.after for change in changes):
        # recorded first: a kill in between leaves files that can be taken back
        InstallRecord(files, added, record.trust_keys, folders).save(where)
    apply(script, mode=0o755)
    for change in changes:
        apply(change, mode=0o644 if installation.scope == "project" else 0o600)
    trust, keys, trust_notes = _trusted(installation, environ, record)
    if trust:
        files = _with_trust(files, trust, record)
    if (saved := InstallRecord(files, added, keys, folders)) != load_record(where):
        saved.save(where)
    return _report(installation, _merged((script, *changes), trust), (*trust_notes, *notes), dry_run=False)


def _planned(
    installation: Installation, program: HookProgram, record: InstallRecord, *, has_server: bool
) -> tuple[list[tuple[FileChange, InstalledFile]], tuple[str, ...]]:
    """Plan every settings file, the hooks' first: its change, and what it held without us; then our variables."""
    plans = []
    added: tuple[str, ...] = ()
    for path in settings_parts.settings_paths(installation):
        current = read_bytes(path)
        text = text_of(path, current)
        try:
            if path == installation.settings_path:
                bare = text.removeprefix(BOM)
                added = hook_settings.added_environment(bare, installation) or record.environment
            wanted = settings_parts.with_ours(text, path, installation, program, has_server=has_server)
            before = record.baseline(path, current, _Stripped(installation, path, added, record.trust_keys))
        except settings_parts.TextFault as fault:
            raise _unreadable(path, fault, installation) from None
        after = current if wanted == text else wanted.encode()
        change = FileChange(path, current, after)
        plans.append((change, InstalledFile(path, before, sha256_of(after or b""))))
    return plans, added


@dataclass(frozen=True, slots=True)
class _Stripped:
    """Takes everything of ours out of one file's text."""

    installation: Installation
    path: str
    environment: tuple[str, ...]
    trust_keys: tuple[str, ...]

    def __call__(self, text: str) -> str:
        rest = settings_parts.without_ours(text, self.path, self.installation, environment=self.environment)
        return _untrusted(rest, self.trust_keys) if self.path == self.installation.trust_path else rest


def _with_trust(
    files: tuple[InstalledFile, ...], trust: FileChange, record: InstallRecord
) -> tuple[InstalledFile, ...]:
    """Keep what the file of the trusted hashes held before; it may be one of the settings files too."""
    after = sha256_of(trust.after or b"")
    known = next((file for file in files if file.path == trust.path), None)
    if known is not None:
        rest = tuple(file for file in files if file.path != trust.path)
        return (*rest, InstalledFile(trust.path, known.before, after))
    stripped = record.baseline(trust.path, trust.before, lambda text: _untrusted(text, record.trust_keys))
    return (*files, InstalledFile(trust.path, stripped, after))


def _merged(changes: tuple[FileChange, ...], trust: FileChange | None) -> tuple[FileChange, ...]:
    """One change a file: what was written to it in two steps is told once."""
    if trust is None:
        return changes
    same = next((change for change in changes if change.path == trust.path), None)
    if same is None:
        return (*changes, trust)
    both = FileChange(trust.path, same.before, trust.after)
    return tuple(both if change.path == trust.path else change for change in changes)


def uninstall(installation: Installation, state_home_path: str, *, dry_run: bool = False) -> InstallReport:
    """Take our hooks, status line, tools and skill out of a client's settings.

    A file that nobody changed since gets its old bytes back; from any other only our entries are taken, and what they
    leave empty. A folder that we made goes when it is empty, the script with the last installation that the state home
    knows of.

    Raises:
        WorkspaceFault: a settings file cannot be read; it is left untouched.
        StorageFailed: a file could not be written.
    """
    path = installation.settings_path
    where = record_path(state_home_path, installation)
    record = load_record(where)
    current = read_bytes(path)
    text = text_of(path, current)
    try:
        added = record.environment if record.files else tuple(name for name, _ in installation.environment)
        keys = record.trust_keys or _keys(installation, text)
    except JsonTextFault as fault:
        raise _unreadable(path, fault, installation) from None
    changes = [_removal(installation, record, _Stripped(installation, path, added, keys))]
    before = None if changes[0].after is None else changes[0].after.decode()
    notes = _moved(installation, text, current, before)
    others = [one for one in settings_parts.settings_paths(installation) if one != path]
    if installation.trust_path and installation.trust_path not in others:
        others.append(installation.trust_path)
    changes += [_removal(installation, record, _Stripped(installation, one, added, keys)) for one in others]
    skill = skill_files.removal(installation, record)
    changes += filter(None, (skill.change,))
    notes = (*notes, *filter(None, (skill.note,)))
    if _is_last(where):
        script_path = f"{state_home_path}/hook"
        script = read_bytes(script_path)
        if script and program_of_script(script.decode("utf-8", "replace")):
            changes.append(FileChange(script_path, script, None))
    if not dry_run:
        for change in changes:
            apply(change)
        remove_empty(record.folders)
        remove(where)
    return _report(installation, changes, notes, dry_run=dry_run)


def _removal(installation: Installation, record: InstallRecord, stripped: _Stripped) -> FileChange:
    """Plan one file without us."""
    current = read_bytes(stripped.path)
    text_of(stripped.path, current)  # an unreadable encoding is said before anything is changed
    try:
        before = record.baseline(stripped.path, current, stripped)
    except settings_parts.TextFault as fault:
        raise _unreadable(stripped.path, fault, installation) from None
    return FileChange(stripped.path, current, None if before is None else before.encode())


def _check(program: HookProgram) -> None:
    fault = path_fault(program.state_home_path)
    if fault:
        raise UsageError(
            f"the state folder {program.state_home_path!r} cannot stand in a hook's command: {fault}",
            next_step="set OMX_AUTORESEARCH_HOME to an absolute path of plain characters",
        )
    for path, right, what in (
        (program.python_path, os.X_OK, "interpreter"),
        (program.entry_path, os.R_OK, "hook program"),
    ):
        if not os.path.isabs(path) or not os.access(path, right):
            raise CommandFault(
                f"the {what} {path} is not there or may not be used",
                next_step="install the package again, then run `omx-autoresearch install`",
            )


def _unreadable(path: str, fault: JsonTextFault | TomlFault, installation: Installation) -> WorkspaceFault:
    return WorkspaceFault(
        f"{path}, line {fault.line}: {fault}; the file was left as it is",
        next_step=f"mend that line, then run `omx-autoresearch install {installation.client.name}` again",
    )


def _untrusted(text: str, keys: tuple[str, ...]) -> str:
    rest = hook_trust.without_trust(text, keys)
    return text if rest is None else rest


def _keys(installation: Installation, text: str) -> tuple[str, ...]:
    found = hook_settings.registered(text.removeprefix(BOM), comments=installation.allows_comments)
    return hook_trust.trust_keys(installation, found)


def _moved(
    installation: Installation, text: str, current: bytes | None, before: str | None
) -> tuple[str, ...]:
    """Say that hooks behind ours lose their trust, since Codex keeps it by their place in the file."""
    if not installation.trust_path or before is None or current is None:
        return ()
    found = hook_settings.registered(text.removeprefix(BOM), comments=installation.allows_comments)
    if not hook_settings.others_behind(text.removeprefix(BOM), found):
        return ()
    return (
        f"hooks behind ours in {installation.settings_path} moved up: run /hooks in Codex and trust them again.",
    )


def _trusted(
    installation: Installation, environ: Mapping[str, str], record: InstallRecord
) -> tuple[FileChange | None, tuple[str, ...], tuple[str, ...]]:
    """Write the hashes that Codex asks for: the change, the keys, and what is left for a person to do."""
    path = installation.trust_path
    if not path:
        return None, (), ()
    states = hook_trust.trust_states(installation, environ)
    current = read_bytes(path)
    text = None
    if states:
        stale = tuple(key for key in record.trust_keys if key not in {state.key for state in states})
        text = hook_trust.with_trust(_untrusted(text_of(path, current), stale), states)
    if not states or text is None:
        return None, record.trust_keys, (_TRUST_BY_HAND,)
    change = FileChange(path, current, text.encode())
    apply(change)
    return change, tuple(state.key for state in states), _notes(installation, tuple(states), None)


_TRUST_BY_HAND = (
    "Codex skips hooks that it does not trust: run /hooks in Codex and trust the entries of omx-autoresearch."
)


def _notes(
    installation: Installation, states: tuple[hook_trust.HookTrust, ...], planned: FileChange | None
) -> tuple[str, ...]:
    notes = []
    if planned and planned.before != planned.after:
        notes.append(
            f"the hashes that make Codex trust these hooks are then written to {installation.trust_path}."
        )
    if installation.scope == "project" and (states or planned):
        notes.append("Codex reads a project's hooks only in a project that it trusts.")
    return tuple(notes)


def _is_last(where: str) -> bool:
    try:
        names = os.listdir(os.path.dirname(where))
    except FileNotFoundError:
        return True
    return all(name.startswith(".") or name == os.path.basename(where) for name in names)


def _report(
    installation: Installation,
    changes: tuple[FileChange | None, ...] | list[FileChange],
    notes: tuple[str, ...],
    *,
    dry_run: bool,
) -> InstallReport:
    changed = tuple(change for change in changes if change and change.before != change.after)
    return InstallReport(installation.client.name, installation.settings_path, changed, notes, dry_run)
