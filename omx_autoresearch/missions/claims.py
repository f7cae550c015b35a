"""A mission's journal and its files under ``.omx``, brought into step: the one place where either follows the other.

note            journal; where that cannot be written, the inbox; where neither can, the hook (``hook_events``)
take_in         what waits in the inbox and what others wrote into projections becomes records; then the projections
                say what the journal says. At a stop, an owner's verb, a look
write_changed   the same for every mission that this process recorded something in: when it ends, after its answer

Nothing that is taken in is proof. What goes wrong here fails no verb and no stop: what waits goes on waiting, and
projections that could not be written are brought up by the next look.
"""

from __future__ import annotations

import os

from omx_autoresearch.foundation import json_codec
from omx_autoresearch.foundation.errors import (
    AutoresearchError,
    StorageFailed,
    UsageError,
    WorkspaceFault,
)
from omx_autoresearch.foundation.records import dataclass, replace, sha256
from omx_autoresearch.journal.layout import ProjectFolder, Runtime, StateHome
from omx_autoresearch.journal.omx_folder import OmxFolder
from omx_autoresearch.journal.safe_files import storage_failed
from omx_autoresearch.missions import projection_texts
from omx_autoresearch.missions import store as missions
from omx_autoresearch.missions.projections import Projections
from omx_autoresearch.missions.records.work import ClaimRecorded, ProjectionEdited
from omx_autoresearch.missions.store import MissionStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.missions.projections import Edit
    from omx_autoresearch.missions.records import Record
    from omx_autoresearch.missions.records.work import DirectionDeclared, FindingRecorded
    from omx_autoresearch.missions.rules.criteria import Finding
    from omx_autoresearch.missions.rules.mission import Mission

# --- The inbox of a mission: claims that wait to be taken in, one small file each.
#
# A command that may not write the journal drops its claim here, and people may put any text file here. Whatever stands
# here is a claim and nothing more: no verb in it is ever obeyed.

CLAIM_LIMIT_BYTES = 256 * 1024
"""The largest claim, in UTF-8; the rest is cut."""
CLAIMS_AT_ONCE = 64
BYTES_AT_ONCE = 4 * 1024 * 1024
FINDING_VERB = "finding"
"""The verb of a file that holds a finding; ``missions/findings.py`` writes and reads it."""
DIRECTION_VERB = "direction"
"""The verb of a file that says a direction."""
TAKEN_FOLDER = "taken"
"""Sub-folder of what was taken in but is too large to stand in the journal whole."""
TAKEN_LIMIT = 50
_CUT = " [... cut]"
_FILE_LIMIT_BYTES = 8 * CLAIM_LIMIT_BYTES
_KEYS = frozenset(("verb", "text", "at"))
_BY_HAND = "it was added to findings.jsonl by hand; to make it evidence: omx-autoresearch criterion check {}"


@dataclass(frozen=True, slots=True)
class InboxClaim:
    """One waiting claim.

    Attributes:
        text: what is claimed, harmless and bounded (see :func:`bounded`).
        verb: of the command that dropped it; empty when its origin is unknown.
        at: when it was dropped, as the file says; empty when unknown.
        file_path: of the file.
    """

    text: str
    verb: str
    at: str
    file_path: str


def bounded_claim(text: str) -> str:
    """Text as a claim holds it: NUL and lone surrogates become U+FFFD, at most :data:`CLAIM_LIMIT_BYTES` stay.

    What is cut says so at its end. A text that went through this once stays as it is.
    """
    data = json_codec.without_surrogates(text.replace("\0", "\ufffd")).encode("utf-8")
    if len(data) > CLAIM_LIMIT_BYTES:
        kept = data[: CLAIM_LIMIT_BYTES - len(_CUT)].decode("utf-8", "ignore")
        return kept + _CUT
    return data.decode("utf-8")


def drop_claim(inbox_path: str, text: str, *, verb: str, at: str) -> str:
    """Leave one claim and return its file's path; the folder is made where missing.

    Args:
        inbox_path: ``{project}/.omx/autoresearch/{task_id}/inbox``.
        text: the claim.
        verb: what dropped it.
        at: the time, ISO 8601 UTC.

    Raises:
        StorageFailed: the folder cannot be written.
    """
    content = {"verb": verb, "text": bounded_claim(text), "at": at}
    name = f"{_digits(at)}-{os.getpid()}-{os.urandom(4).hex()}.json"
    try:
        with _opened_inbox(inbox_path, make=True) as folder:
            folder.replace(name, json_codec.encode(content) + b"\n")
    except WorkspaceFault as error:
        raise StorageFailed(error.message, next_step=error.next_step) from error
    except OSError as error:
        raise storage_failed("write", os.path.join(inbox_path, name), error) from error
    return os.path.join(inbox_path, name)


def waiting_claims(inbox_path: str) -> tuple[InboxClaim, ...]:
    """The claims that wait, oldest name first, at most :data:`CLAIMS_AT_ONCE` and :data:`BYTES_AT_ONCE`.

    Only regular files count; links, pipes and folders are left where they are. A file that no command dropped is a
    claim of unknown origin. An inbox that is missing or cannot be read holds nothing.
    """
    found: list[InboxClaim] = []
    size_bytes = 0
    try:
        with _opened_inbox(inbox_path) as folder:
            for name in folder.names():
                if len(found) >= CLAIMS_AT_ONCE or size_bytes >= BYTES_AT_ONCE:
                    break
                try:
                    data = folder.read(name, _FILE_LIMIT_BYTES + 1)
                except (OSError, WorkspaceFault):
                    continue
                size_bytes += len(data)
                found.append(_inbox_claim(data, os.path.join(inbox_path, name)))
    except (OSError, WorkspaceFault):
        return tuple(found)
    return tuple(found)


def remove_claims(claims: Iterable[InboxClaim]) -> None:
    """Take files out of the inbox once their claims are recorded.

    A file that the journal holds only in part is kept in ``taken/``. What cannot be removed stays, and is known by
    its digest the next time.
    """
    for claim in claims:
        inbox_path, name = os.path.split(claim.file_path)
        try:
            with _opened_inbox(inbox_path) as folder:
                if claim.text.endswith(_CUT) and not claim.verb:
                    _keep_aside(folder, claim)
                else:
                    folder.drop(name)
        except (OSError, WorkspaceFault):
            continue


def _keep_aside(folder: OmxFolder, claim: InboxClaim) -> None:
    """Move a file to ``taken/``, the time first in its name; the oldest ones there make room."""
    inbox_path, name = os.path.split(claim.file_path)
    with _opened_inbox(os.path.join(inbox_path, TAKEN_FOLDER), make=True) as taken:
        older = taken.names()
        for item in older[: max(0, len(older) - TAKEN_LIMIT + 1)]:
            taken.drop(item)
        folder.move(name, taken, f"{_digits(claim.at)}-{os.urandom(4).hex()}-{name}")


def _digits(at: str) -> str:
    """A time as it begins a file's name, so that the oldest sort first."""
    return "".join(c for c in at if c.isdigit()) or "0"


def _inbox_claim(data: bytes, file_path: str) -> InboxClaim:
    value = _claim_fields(data)
    if value is None:
        text = data.decode("utf-8-sig", "replace").strip()
        return InboxClaim(bounded_claim(text), "", "", file_path)
    return InboxClaim(
        bounded_claim(value.get("text", "")), value["verb"][:40], value.get("at", "")[:40], file_path
    )


def _claim_fields(data: bytes) -> dict[str, str] | None:
    """The fields of a file that :func:`drop` wrote; None for any other."""
    try:
        value = json_codec.decode(data) if len(data) <= _FILE_LIMIT_BYTES else None
    except ValueError:
        return None
    if not isinstance(value, dict) or not value.get("verb") or value.keys() - _KEYS:
        return None
    return value if all(isinstance(item, str) for item in value.values()) else None


def _opened_inbox(inbox_path: str, *, make: bool = False) -> OmxFolder:
    """Open an inbox (or its ``taken/``) from its project on, through real folders only."""
    project_path, mark, rest = inbox_path.rpartition(f"{os.sep}.omx{os.sep}")
    if not mark:
        raise WorkspaceFault(
            f"{inbox_path} is not the inbox of a project", next_step="omx-autoresearch doctor"
        )
    return OmxFolder(project_path, os.path.join(".omx", rest), make=make)


RELAY_MARK = "omx-autoresearch: not recorded here; the hook records it:"
"""Begins the one line by which a command inside a sandbox asks the hook to carry its verb out; the verb follows."""


@dataclass(frozen=True, slots=True)
class Noted:
    """Where a note went.

    Attributes:
        mission: the newest state that could be read.
        inbox_file_path: of the claim that waits in the inbox; empty when the note is in the journal.
    """

    mission: Mission
    inbox_file_path: str = ""


def relay_line(verb: str) -> str:
    """The line that the command prints when it could record its verb nowhere."""
    return f"{RELAY_MARK} {verb}"


def waiting_line(task_id: str, what: str) -> str:
    """The line that a command prints whose claim waits in the inbox."""
    return (
        f"{what} is not recorded yet: it waits in .omx/autoresearch/{task_id}/inbox, where deleting the folder deletes"
        " it, until the next event of this session takes it in as a claim."
    )


def claim_id(text: str) -> str:
    """The id of a claim: a digest of its text, so that the same line counts once whichever way it comes."""
    return f"c-{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def note(runtime: Runtime, task_id: str, text: str, *, origin: str) -> Noted:
    """Record a claim, or leave it in the inbox where the journal cannot be written. The same text counts once.

    Raises:
        UsageError: the text is empty, or there is no such mission.
        StorageFailed: neither can be written; the error says what to do.
    """
    text = bounded_claim(text).strip()
    if not text:
        raise UsageError("a note needs text", next_step=f'omx-autoresearch note {task_id} "..."')
    store = MissionStore(runtime.home)
    mission = store.load(task_id)
    try:
        with store.transaction(task_id, runtime.now()) as transaction:
            claimed = ClaimRecorded(text, origin, claim_id(text))
            fresh = _unknown(store, task_id, [claimed])
            return Noted(transaction.record(*fresh) if fresh else transaction.mission)
    except StorageFailed as error:
        return Noted(mission, _dropped(runtime, mission, text, error))


def _dropped(runtime: Runtime, mission: Mission, text: str, cause: StorageFailed) -> str:
    inbox_path = ProjectFolder(mission.project_path).inbox_path(mission.task_id)
    try:
        return drop_claim(inbox_path, text, verb="note", at=runtime.now())
    except StorageFailed as error:
        raise StorageFailed(
            f"the note was not recorded: {cause.message} {error.message}",
            next_step="run the same command again alone in the held session, where the hook "
            "takes it in; or outside the sandbox",
        ) from error


def take_in(
    runtime: Runtime,
    task_id: str,
    mission: Mission | None = None,
    *,
    is_changed: bool = False,
    is_thorough: bool = False,
) -> int:
    """Take in what waits in the inbox and what others wrote into projections, then write the projections.

    Costs a few system calls when nothing waits and the projections are current.

    Args:
        runtime: the world.
        task_id: of the mission.
        mission: its state, where the caller has just loaded it.
        is_changed: something was recorded since the projections were written; they are not asked whether.
        is_thorough: compare every byte of every projection, whatever inode, size and time say.

    Returns:
        how many claims were recorded.

    Raises:
        StateUntrusted: the journal cannot be trusted or written; what waits goes on waiting.
        StorageFailed: the project or the state home cannot be written. Claims are taken in all the same.
        WorkspaceFault: a symbolic link stands in the project's ``.omx``. Claims are taken in all the same.
    """
    store, folder = MissionStore(runtime.home), runtime.home.mission(task_id)
    mission = mission or store.load(task_id)
    inbox_path = ProjectFolder(mission.project_path).inbox_path(task_id)
    projections = Projections(folder, mission)
    if not (is_changed or is_thorough) and projections.are_current() and not waiting_claims(inbox_path):
        return 0
    with store.transaction(task_id, runtime.now()) as transaction:
        projections = Projections(folder, transaction.mission)
        claims = waiting_claims(inbox_path)
        try:
            edits = projections.find_edits(transaction.tail, transaction.ts, is_thorough=is_thorough)
            fresh = _fresh(store, transaction.mission, claims, edits)
            if fresh:
                transaction.record(*fresh)
            remove_claims(claims)
            missions.changed.pop(folder.root_path, None)
            projections.write(transaction.mission, transaction.tail)
        except OSError as error:
            task_path = os.path.join(os.path.dirname(inbox_path), "")
            raise storage_failed("write the mission's files in", task_path, error) from error
    return sum(record.kind in ("claim_recorded", "finding_recorded") for record in fresh)


def take_in_waiting(runtime: Runtime, mission: Mission) -> None:
    """Take in what waits in the inbox, where anything does: after the command that left it there."""
    try:
        names = os.listdir(ProjectFolder(mission.project_path).inbox_path(mission.task_id))
    except OSError:
        return
    if any(name != TAKEN_FOLDER for name in names):
        take_in_quietly(runtime, mission.task_id)


def take_in_quietly(runtime: Runtime, task_id: str, mission: Mission | None = None) -> None:
    """As :func:`take_in`, for a stop or a look: a failure here neither holds nor releases the session."""
    try:
        take_in(runtime, task_id, mission)
    except (AutoresearchError, OSError, ValueError):
        return


def write_changed(runtime: Runtime) -> tuple[str, ...]:
    """Bring every mission that this process recorded something in into step; returns a warning for each that is not.

    Every process calls it after its answer: the hook, a verb, a tool call, a method of the API, a forked child.
    """
    warnings = []
    while missions.changed:
        root_path, folder = missions.changed.popitem()
        if not os.path.exists(folder.journal_path):
            continue  # a mission of a demonstration, and gone by now
        home = StateHome(os.path.dirname(os.path.dirname(root_path)))
        try:
            take_in(replace(runtime, home=home), folder.task_id, is_changed=True)
        except (AutoresearchError, OSError, ValueError) as error:
            said = error.message if isinstance(error, AutoresearchError) else str(error)
            warnings.append(
                f"the files of mission {folder.task_id} under .omx are older than its journal: {said}"
            )
        missions.changed.pop(root_path, None)
    return tuple(warnings)


def _fresh(
    store: MissionStore, mission: Mission, claims: tuple[InboxClaim, ...], edits: tuple[Edit, ...]
) -> list[Record]:
    """The records of claims and edits that the journal lacks. A verb in a file of the inbox is never obeyed."""
    if not claims and not edits:
        return []
    added = [(edit.name, bounded_claim(text)) for edit in edits for text in edit.added]
    findings = _findings(store, mission, claims, added)
    said = [
        (claim.text.strip(), "inbox" if claim.verb else "unknown", claim.verb == DIRECTION_VERB)
        for claim in claims
        if claim.file_path not in findings
    ]
    said += [
        (text, "unknown", name == projection_texts.DIRECTIONS) for name, text in added if text not in findings
    ]
    texts = {text for text, _, is_direction in said if is_direction}
    fresh = _unknown(
        store,
        mission.task_id,
        [ClaimRecorded(text, origin, claim_id(text)) for text, origin, _ in said if text],
    )
    return [
        *fresh,
        *(record for record in findings.values() if record is not None),
        *_directions(mission, [claim.text for claim in fresh if claim.text in texts]),
        *(ProjectionEdited(edit.name, edit.moved_to) for edit in edits if edit.moved_to),
    ]


def _directions(mission: Mission, texts: list[str]) -> list[DirectionDeclared]:
    """Claims that name a direction, as directions that were tried."""
    if not texts:
        return []
    from omx_autoresearch.foundation.json_codec import decode
    from omx_autoresearch.missions.records.work import claimed
    from omx_autoresearch.missions.rules.directions import claimed_direction, entry_words

    said = []
    for text in texts:
        try:
            words = entry_words(decode(text.encode()))  # an object that was added to the list
        except ValueError:
            words = ""
        said.append(claimed(mission, claimed_direction(words or text)))
    return [record for record in said if record is not None]


def _findings(
    store: MissionStore, mission: Mission, claims: tuple[InboxClaim, ...], added: list[tuple[str, str]]
) -> dict[str, FindingRecorded | None]:
    """Inbox files (by path) and added lines (by text) that hold a finding, each with its record as a claim.

    None for one that the journal has already. A line whose id another finding has gets one of its own.
    """
    offered = [(claim.file_path, claim.text, "inbox") for claim in claims if claim.verb == FINDING_VERB]
    offered += [
        (text, text, "unknown")
        for name, text in added
        if name == projection_texts.FINDINGS and text.startswith("{")
    ]
    if not offered:
        return {}
    from omx_autoresearch.missions.records.work import FindingRecorded

    read = {key: found for key, text, source in offered if (found := _finding_in(mission, text, source))}
    with store.journal(mission.task_id) as journal:
        names = [f"finding:{one}" for key, found in read.items() for one in (found.id, claim_id(key))]
        known = {name: entry.data["finding"]["summary"] for name, entry in journal.by_ids(names).items()}
    records: dict[str, FindingRecorded | None] = {}
    for key, finding in read.items():
        is_taken = known.get(f"finding:{finding.id}", finding.summary) != finding.summary
        found = replace(finding, id=claim_id(key)) if is_taken and finding.source == "unknown" else finding
        name = f"finding:{found.id}"
        records[key] = None if name in known else FindingRecorded(found)
        known[name] = found.summary
    return records


def _finding_in(mission: Mission, text: str, source: str) -> Finding | None:
    """The finding that an inbox file or an added line holds, as a claim, whatever it says of itself; None for none."""
    from omx_autoresearch.foundation.records import fields, from_plain
    from omx_autoresearch.missions.rules.criteria import Finding, finding_faults

    try:
        value = json_codec.decode(text.encode("utf-8", "replace"))
        if source == "inbox":
            given = {**value["finding"], "evidence": None, "source": source}
        else:
            names = {item.name for item in fields(Finding)}
            given = {"id": claim_id(text), "kind": "manual"} | {k: value[k] for k in names & value.keys()}
            contract = mission.contract
            known = [item.id for item in contract.criteria] if contract is not None else []
            given |= {"evidence": None, "source": source, "iteration": mission.iteration, "direction": ""}
            given["claim_reason"] = _BY_HAND.format(mission.task_id)
            if given.get("criterion_id") not in known:
                given["criterion_id"] = ""
        finding: Finding = from_plain(Finding, given)
        is_sound = isinstance(given.get("paths", []), list) and not finding_faults(finding)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return finding if is_sound else None


def _unknown(store: MissionStore, task_id: str, claims: list[ClaimRecorded]) -> list[ClaimRecorded]:
    """The claims that the journal does not hold yet, each once."""
    waiting = {claim.claim_id: claim for claim in reversed(claims)}
    with store.journal(task_id) as journal:
        for known in journal.by_ids([f"claim:{one}" for one in waiting]):
            del waiting[known.removeprefix("claim:")]
    return list(reversed(waiting.values()))
