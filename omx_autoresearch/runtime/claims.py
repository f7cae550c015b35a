"""Claims: notes, what waits in the inbox, and what somebody edited into a projection. None of them is proof.

note       journal; where that cannot be written, the inbox; where neither can, the hook (``runtime/relay.py``)
take_in    at the next stop or owner command: inbox and hand edits become records, the projections are restored
"""

from __future__ import annotations

from omx_autoresearch.core.digests import sha256
from omx_autoresearch.core.records.claims import ClaimRecorded, ProjectionEdited
from omx_autoresearch.core.values import dataclass
from omx_autoresearch.errors import AutoresearchError, StorageFailed, UsageError
from omx_autoresearch.storage import inbox
from omx_autoresearch.storage.layout import ProjectFolder
from omx_autoresearch.storage.missions import MissionStore
from omx_autoresearch.storage.projections import Projections

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.core.mission import Mission
    from omx_autoresearch.core.records import Record
    from omx_autoresearch.core.records.directions import DirectionDeclared
    from omx_autoresearch.core.records.findings import FindingRecorded
    from omx_autoresearch.runtime.context import Runtime
    from omx_autoresearch.storage.inbox import Claim

RELAY_MARK = "omx-autoresearch: not recorded here; the hook takes it in:"
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


def claim_id(text: str) -> str:
    """The id of a claim: a digest of its text, so that the same line counts once whichever way it comes."""
    return f"c-{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def note(runtime: Runtime, task_id: str, text: str, *, origin: str) -> Noted:
    """Record a claim, or leave it in the inbox where the journal cannot be written. The same text counts once.

    Raises:
        UsageError: the text is empty, or there is no such mission.
        StorageFailed: neither can be written; the error says what to do.
    """
    text = inbox.bounded(text).strip()
    if not text:
        raise UsageError("a note needs a text", next_step=f'omx-autoresearch note {task_id} "..."')
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
        return inbox.drop(inbox_path, text, verb="note", at=runtime.now())
    except StorageFailed as error:
        raise StorageFailed(
            f"the note is recorded nowhere: {cause.message} {error.message}",
            next_step="run the same command again as a command of its own in the held session, where the hook "
            "takes it in; or outside the sandbox",
        ) from error


def take_in(runtime: Runtime, task_id: str, mission: Mission | None = None) -> int:
    """Take in what waits: the inbox and hand edits; edited and missing projections are restored.

    Costs a few system calls when nothing waits.

    Args:
        runtime: the world.
        task_id: of the mission.
        mission: its state, where the caller has just loaded it.

    Returns:
        how many claims were recorded.

    Raises:
        StateUntrusted: the journal cannot be believed or written; what waits goes on waiting.
    """
    store = MissionStore(runtime.home)
    mission = mission or store.load(task_id)
    inbox_path = ProjectFolder(mission.project_path).inbox_path(task_id)
    needs_care = Projections(runtime.home.mission(task_id), mission).needs_care()
    if not needs_care and not inbox.waiting(inbox_path):
        return 0
    with store.transaction(task_id, runtime.now()) as transaction:
        if needs_care:
            try:
                transaction.restore_projections()
            except AutoresearchError:
                needs_care = (
                    False  # a project that cannot be written is no fault; what waits is taken in all the same
                )
        claims = inbox.waiting(inbox_path)
        findings = _findings(store, task_id, claims)
        records = _records(tuple(claim for claim in claims if claim.file_path not in findings))
        fresh = _unknown(store, task_id, [record for record in records if isinstance(record, ClaimRecorded)])
        edits = [record for record in records if isinstance(record, ProjectionEdited)]
        directions = _directions(transaction.mission, claims, fresh)
        found = [record for record in findings.values() if record is not None]
        if fresh or found or edits:
            transaction.record(*fresh, *found, *directions, *edits)
        inbox.remove(claims)
    return len(fresh) + len(found)


def take_in_quietly(runtime: Runtime, task_id: str, mission: Mission | None = None) -> None:
    """As :func:`take_in`, for a stop: whatever goes wrong here neither holds nor releases anybody."""
    try:
        take_in(runtime, task_id, mission)
    except (AutoresearchError, OSError, ValueError):
        return


def _records(claims: tuple[Claim, ...]) -> list[Record]:
    """What claims become. Their verbs are not obeyed: a file in the inbox is anybody's word.

    One that says a direction is remembered as such as well, see :func:`_directions`.
    """
    records: list[Record] = []
    for claim in claims:
        is_edit = claim.verb == inbox.HAND_EDIT
        origin = inbox.HAND_EDIT if is_edit else "inbox" if claim.verb else "unknown"
        texts = [text.strip() for text in (claim.text.split("\n") if is_edit else (claim.text,))]
        records += [ClaimRecorded(text, origin, claim_id(text)) for text in texts if text]
        if is_edit:
            records.append(ProjectionEdited(claim.path, claim.moved_to))
    return records


def _directions(
    mission: Mission, claims: tuple[Claim, ...], fresh: list[ClaimRecorded]
) -> list[DirectionDeclared]:
    """What the claims that say a direction are remembered as: tried, and nothing more."""
    texts = {claim.text.strip() for claim in claims if claim.verb == inbox.DIRECTION}
    if not texts:
        return []
    from omx_autoresearch.core.directions import claimed_direction
    from omx_autoresearch.core.records.directions import claimed

    said = [claimed(mission, claimed_direction(item.text)) for item in fresh if item.text in texts]
    return [record for record in said if record is not None]


def _findings(
    store: MissionStore, task_id: str, claims: tuple[Claim, ...]
) -> dict[str, FindingRecorded | None]:
    """The files that hold a finding, each with its record as a claim: None for one that the journal has already."""
    said = [claim for claim in claims if claim.verb == inbox.FINDING]
    if not said:
        return {}
    from omx_autoresearch.core.records.findings import FindingRecorded
    from omx_autoresearch.runtime.findings import claimed

    read = {claim.file_path: finding for claim in said if (finding := claimed(claim.text)) is not None}
    journal = store.journal(task_id)
    try:
        known = set(journal.by_ids([f"finding:{finding.id}" for finding in read.values()]))
    finally:
        journal.close()
    records: dict[str, FindingRecorded | None] = {}
    for path, finding in read.items():
        name = f"finding:{finding.id}"
        records[path] = None if name in known else FindingRecorded(finding)
        known.add(name)
    return records


def _unknown(store: MissionStore, task_id: str, claims: list[ClaimRecorded]) -> list[ClaimRecorded]:
    """The claims that the journal does not hold yet, each once."""
    waiting = {claim.claim_id: claim for claim in reversed(claims)}
    journal = store.journal(task_id)
    try:
        for known in journal.by_ids([f"claim:{one}" for one in waiting]):
            del waiting[known.removeprefix("claim:")]
    finally:
        journal.close()
    return list(reversed(waiting.values()))
