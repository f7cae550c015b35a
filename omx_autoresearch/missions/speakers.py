"""Who speaks in a prompt, and what each may command.

A proven prompt may do everything, and so may one that goes by signs, where a client has no proof. An unproven one may
look, pause, and bind what the owner started: its sender may be an agent. What no person wrote commands nothing and
begins no count anew; that includes each text which a model gave to a tool that submits prompts (a scheduled wake-up, a
message to an agent), since the tool's event comes before the prompt. Every surface asks here.
"""

from __future__ import annotations

import os

from omx_autoresearch.agents.events import Origin
from omx_autoresearch.agents.payloads import prompt_key
from omx_autoresearch.agents.registry import has_proof
from omx_autoresearch.foundation.errors import AutoresearchError, StepIllegal
from omx_autoresearch.foundation.records import sha256
from omx_autoresearch.journal.safe_files import (
    ensure_folder,
    read_bounded,
    replace_file,
    storage_failed,
    write_all,
)
from omx_autoresearch.missions import sessions
from omx_autoresearch.missions.lifecycle_commands import pause
from omx_autoresearch.missions.records.lifecycle import UnprovenPrompt
from omx_autoresearch.missions.store import MissionStore
from omx_autoresearch.system.processes import ON_LINUX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.agents.events import HookEvent
    from omx_autoresearch.journal.layout import Runtime, StateHome
    from omx_autoresearch.missions.rules.mission import Mission

HANDED_LIMIT_BYTES = 1024 * 1024
"""Of one of the two files of handed texts, 33 bytes each; the older file goes when the newer one is full."""
_TRIAL_LIMIT_BYTES = 4096


def speaker_of(runtime: Runtime, event: HookEvent) -> Origin:
    """Who speaks in a prompt or at a session's start: what the adapter found, and what this machine knows besides.

    Returns:
        an origin that is never ``forged``: what the client did not send, no person wrote.
    """
    origin = event.origin
    if origin.standing == "no_person":
        return origin
    if origin.standing in ("forged", "unproven") and not proof_works(runtime.home, event.client):
        origin = Origin("by_signs", f"this version of {event.client} fails the proof of its own prompts")
    why = (
        (origin.why if origin.standing == "forged" else "")
        or sessions.not_from_client(event.client)
        or sessions.started_within(runtime)
        or _handed_on(runtime.home, event)
    )
    return Origin("no_person", why) if why else origin


def limit(runtime: Runtime, verb: str, mission: Mission) -> str:
    """What an unproven prompt's command comes to: empty where it may be carried out, else what was done instead.

    Raises:
        StepIllegal: it changes what only a proven one may; the error names the terminal's command for it.
    """
    task_id, phase = mission.task_id, mission.phase
    if verb in ("status", "pause") or (verb == "bind" and phase != "draft"):
        return ""
    if verb == "resume" and phase != "blocked":
        return ""  # it is held again
    command = terminal_command(verb, mission)
    if verb == "cancel" and phase == "running":
        pause(runtime, task_id, reason="unproven prompt command: cancel")
        return f"mission {task_id} is paused, not cancelled: {_UNSURE}. To cancel it, type in a terminal: {command}"
    raise StepIllegal(f"`{verb}` was not carried out for mission {task_id}: {_UNSURE}", next_step=command)


def terminal_command(verb: str, mission: Mission) -> str:
    """The terminal's command for what a prompt command does; empty for taking a session, which no terminal can."""
    if verb in ("bind", "yes", "resume"):
        verb = {"draft": "start", "paused": "resume", "blocked": "unblock"}.get(mission.phase, "")
    return f"omx-autoresearch {verb} {mission.task_id}" if verb else ""


_UNSURE = "it is not proven that a person typed this"


def record_unproven(runtime: Runtime, task_id: str, verb: str, why: str) -> None:
    """Record a command of an unproven prompt, whatever it came to."""
    try:
        with MissionStore(runtime.home).transaction(task_id, runtime.now()) as transaction:
            transaction.record(UnprovenPrompt(f"$autoresearch {verb}", why))
    except AutoresearchError:
        return  # what it may do is limited whether that could be recorded or not


# --- Texts that a model handed to a tool which submits prompts.


def note_handed(runtime: Runtime, event: HookEvent) -> None:
    """Remember the digests of what a tool was handed, before it comes back as a prompt.

    Raises:
        StorageFailed: they cannot be written.
        StateUntrusted: the file has been replaced by something else.
    """
    keys = dict.fromkeys(filter(None, map(prompt_key, event.handed_texts)))
    if not keys:
        return
    path = runtime.home.handed_path
    known = _known(path)
    lines = b"".join(line for line in map(_digest, keys) if line not in known)
    if not lines:
        return
    ensure_folder(runtime.home.root_path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        if len(known) > HANDED_LIMIT_BYTES:
            os.replace(path, f"{path}.old")
        descriptor = os.open(path, flags, 0o600)
        try:
            write_all(descriptor, lines)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise storage_failed("write", path, error) from None


def _handed_on(home: StateHome, event: HookEvent) -> str:
    key, path = prompt_key(event.prompt), home.handed_path
    is_handed = bool(key) and _digest(key) in _known(path) + _known(f"{path}.old")
    return "a model gave this text to a tool that submits prompts" if is_handed else ""


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32].encode() + b"\n"


def _known(path: str) -> bytes:
    try:
        return read_bounded(path, 2 * HANDED_LIMIT_BYTES)
    except FileNotFoundError:
        return b""


# --- Whether the proof works on this machine: ``doctor CLIENT --prompt`` tries it with a real prompt.


def proof_works(home: StateHome, client: str) -> bool:
    """False where the newest trial showed that the client's own prompts fail the proof."""
    return _trial(home, client)[:1] != ["fails"]


def record_trial(runtime: Runtime, client: str, *, is_proven: bool) -> None:
    """Keep what a trial with a real prompt showed.

    Raises:
        StorageFailed: it cannot be written.
    """
    path = runtime.home.trial_path(client)
    ensure_folder(os.path.dirname(path))
    replace_file(path, f"{'holds' if is_proven else 'fails'} {runtime.now()}\n".encode())


def proof_text(home: StateHome, client: str) -> str:
    """How sure it is that a prompt in a client is a person's, in a phrase for ``status``; empty for no client."""
    if not client:
        return ""
    outcome, at = (*_trial(home, client), "", "")[:2]
    if outcome == "fails":
        again = f"omx-autoresearch doctor {client} --prompt"
        return f"by signs (the proof failed at {at}; after an update of the client try again: {again})"
    if not ON_LINUX or not has_proof(client):
        return "by signs (this client has no proof here)"
    return f"proven (tried at {at})" if outcome else "proven"


def _trial(home: StateHome, client: str) -> list[str]:
    try:
        return read_bounded(home.trial_path(client), _TRIAL_LIMIT_BYTES).decode("ascii", "replace").split()
    except (FileNotFoundError, AutoresearchError):
        return []
