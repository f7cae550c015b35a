"""Putting our hooks into a client's settings and taking them out again.

``install`` writes three things: the script in the state home that the hook lines start, the lines in the client's
settings file, and where the client asks for it (Codex) the hashes that make it trust them. A record beside the script
keeps what each file held before, so that ``uninstall`` gives back the very bytes when nobody changed the file since,
and takes out only ours otherwise.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from omx_autoresearch.core import hook_settings
from omx_autoresearch.core.installations import hook_script, path_fault, program_of_script
from omx_autoresearch.core.json_text import JsonTextFault
from omx_autoresearch.core.values import dataclass
from omx_autoresearch.errors import CommandFault, UsageError, WorkspaceFault
from omx_autoresearch.runtime import hook_trust
from omx_autoresearch.runtime.installed_files import (
    InstalledFile,
    InstallRecord,
    load_record,
    record_path,
    sha256_of,
)
from omx_autoresearch.storage.atomic import ensure_folder, replace_file, storage_failed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omx_autoresearch.core.installations import HookProgram, Installation

_BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class FileChange:
    """What happens to one file.

    Attributes:
        path: the file.
        before: its bytes now; None when it does not exist.
        after: its bytes then; None when it is removed.
    """

    path: str
    before: bytes | None
    after: bytes | None

    @property
    def diff(self) -> str:
        """A unified diff, for people."""
        import difflib

        sides = (self.before, self.after)
        old, new = ((data or b"").decode("utf-8", "replace").splitlines(keepends=True) for data in sides)
        old_name, new_name = ("/dev/null" if data is None else self.path for data in sides)
        lines = difflib.unified_diff(old, new, old_name, new_name)
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
        )


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
    installation: Installation, program: HookProgram, *, environ: Mapping[str, str], dry_run: bool = False
) -> InstallReport:
    """Register our hooks with a client; doing it again changes nothing.

    Args:
        installation: where and how, from the client's dialect.
        program: what the hooks run.
        environ: used to find and ask Codex.
        dry_run: say what would change and write nothing.

    Raises:
        UsageError: the state home's path cannot stand in a hook line.
        CommandFault: the interpreter or the entry is not there.
        WorkspaceFault: the settings file cannot be read as its client reads it; it is left untouched.
        StorageFailed: a file could not be written.
    """
    _check(program)
    record = load_record(record_path(program.state_home_path, installation))
    settings, file, added = _planned(installation, program, record)
    script = FileChange(program.script_path, _read(program.script_path), hook_script(program).encode())
    if dry_run:
        notes = _notes(installation, (), settings) if installation.trust_path else ()
        return _report(installation, (script, settings), notes, dry_run=True)
    ensure_folder(program.state_home_path)
    where = record_path(program.state_home_path, installation)
    if (
        settings.before != settings.after
    ):  # recorded first: a kill in between leaves a file that can be taken back
        InstallRecord((file,), added, record.trust_keys).save(where)
    _apply(script, mode=0o755)
    _apply(settings, mode=0o644 if installation.scope == "project" else 0o600)
    files: tuple[InstalledFile, ...] = (file,)
    trust, keys, notes = _trusted(installation, environ, record)
    if trust:
        stripped = record.baseline(trust.path, trust.before, lambda text: _untrusted(text, record.trust_keys))
        files = (
            file,
            InstalledFile(trust.path, stripped, sha256_of(trust.after or b"")),
        )
    if (saved := InstallRecord(files, added, keys)) != load_record(where):
        saved.save(where)
    return _report(installation, (script, settings, trust), notes, dry_run=False)


def _planned(
    installation: Installation, program: HookProgram, record: InstallRecord
) -> tuple[FileChange, InstalledFile, tuple[str, ...]]:
    """Plan the settings file: its change, what it held without us, the variables that are ours."""
    path = installation.settings_path
    current = _read(path)
    text = _text(path, current)
    mark = _BOM if text.startswith(_BOM) else ""
    bare = text.removeprefix(_BOM)
    try:
        merged = (mark + hook_settings.merged(bare, installation, program.state_home_path)).encode()
        added = hook_settings.added_environment(bare, installation) or record.environment
        before = record.baseline(path, current, lambda text: _stripped(text, installation, added))
    except JsonTextFault as fault:
        raise _unreadable(path, fault, installation) from None
    return FileChange(path, current, merged), InstalledFile(path, before, sha256_of(merged)), added


def uninstall(installation: Installation, state_home_path: str, *, dry_run: bool = False) -> InstallReport:
    """Take our hooks out of a client's settings.

    A file that nobody changed since gets its old bytes back; from any other only our entries are taken, and what they
    leave empty. The script goes with the last installation that the state home knows of.

    Raises:
        WorkspaceFault: the settings file cannot be read; it is left untouched.
        StorageFailed: a file could not be written.
    """
    path = installation.settings_path
    where = record_path(state_home_path, installation)
    record = load_record(where)
    current = _read(path)
    notes: tuple[str, ...] = ()
    try:
        added = record.environment if record.files else tuple(name for name, _ in installation.environment)
        keys = record.trust_keys or _keys(installation, _text(path, current))
        before = record.baseline(path, current, lambda text: _stripped(text, installation, added))
        notes = _moved(installation, _text(path, current), current, before)
    except JsonTextFault as fault:
        raise _unreadable(path, fault, installation) from None
    changes = [FileChange(path, current, None if before is None else before.encode())]
    if installation.trust_path and (trusted := _read(installation.trust_path)) is not None:
        rest = record.baseline(installation.trust_path, trusted, lambda text: _untrusted(text, keys))
        changes.append(FileChange(installation.trust_path, trusted, None if rest is None else rest.encode()))
    if _is_last(where):
        script_path = f"{state_home_path}/hook"
        script = _read(script_path)
        if script and program_of_script(script.decode("utf-8", "replace")):
            changes.append(FileChange(script_path, script, None))
    if not dry_run:
        for change in changes:
            _apply(change)
        _remove(where)
    return _report(installation, changes, notes, dry_run=dry_run)


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


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as source:
            return source.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise storage_failed("read", path, error) from error


def _text(path: str, data: bytes | None) -> str:
    """Decode a settings file.

    Raises:
        WorkspaceFault: it is not UTF-8; the encoding is named.
    """
    if data is None:
        return ""
    encoding = ""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\x00" in data[:4]:
        encoding = "UTF-16 or UTF-32"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        encoding = encoding or "not UTF-8"
        text = ""
    if encoding:
        raise WorkspaceFault(
            f"{path} is {encoding}, which its client does not read; it was left as it is",
            next_step=f"save {path} as UTF-8, then run the command again",
        )
    return text


def _unreadable(path: str, fault: JsonTextFault, installation: Installation) -> WorkspaceFault:
    return WorkspaceFault(
        f"{path}, line {fault.line}: {fault}; the file was left as it is",
        next_step=f"mend that line, then run `omx-autoresearch install {installation.client.name}` again",
    )


def _stripped(text: str, installation: Installation, environment: tuple[str, ...]) -> str:
    mark = _BOM if text.startswith(_BOM) else ""
    return mark + hook_settings.without_ours(text.removeprefix(_BOM), installation, environment=environment)


def _untrusted(text: str, keys: tuple[str, ...]) -> str:
    rest = hook_trust.without_trust(text, keys)
    return text if rest is None else rest


def _keys(installation: Installation, text: str) -> tuple[str, ...]:
    found = hook_settings.registered(text.removeprefix(_BOM), comments=installation.allows_comments)
    return hook_trust.trust_keys(installation, found)


def _moved(
    installation: Installation, text: str, current: bytes | None, before: str | None
) -> tuple[str, ...]:
    """Say that hooks behind ours lose their trust, since Codex keeps it by their place in the file."""
    if not installation.trust_path or before is None or current is None:
        return ()
    found = hook_settings.registered(text.removeprefix(_BOM), comments=installation.allows_comments)
    if not hook_settings.others_behind(text.removeprefix(_BOM), found):
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
    current = _read(path)
    text = None
    if states:
        stale = tuple(key for key in record.trust_keys if key not in {state.key for state in states})
        text = hook_trust.with_trust(_untrusted(_text(path, current), stale), states)
    if not states or text is None:
        return None, record.trust_keys, (_TRUST_BY_HAND,)
    change = FileChange(path, current, text.encode())
    _apply(change)
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


def _apply(change: FileChange, *, mode: int = 0o600) -> None:
    """Write one file: atomically, through a symbolic link, with the mode that it had.

    Raises:
        WorkspaceFault: somebody changed the file in the meantime.
    """
    if change.before == change.after:
        return
    path = os.path.realpath(change.path)
    if _read(path) != change.before:
        raise WorkspaceFault(
            f"{path} was changed by somebody else just now", next_step="run the command again"
        )
    if change.after is None:
        _remove(change.path)
        return
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        kept = stat.S_IMODE(os.stat(path).st_mode) if change.before is not None else mode
        replace_file(path, change.after, mode=kept)
        if stat.S_IMODE(os.stat(path).st_mode) != kept:  # the umask had its say
            os.chmod(path, kept)
    except OSError as error:
        raise storage_failed("write", path, error) from error


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise storage_failed("remove", path, error) from error


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
