"""What each rule of a criterion accepts, seen by the runtime itself: nobody's word is taken for any of it.

A command runs as a validator does: exactly its argv, in the workspace, in the owner's environment, pinned files
compared before and after, its whole output kept. One that passed while the workspace changed is no evidence. A file is
reached through real folders only and searched within a limit of time. Validator and review need an attested pass on the
workspace as it is now. A trial needs the verified claim of an experiment of this mission, computed anew from its log.
"""

from __future__ import annotations

import os
import shutil

from omx_autoresearch.core.digests import sha256
from omx_autoresearch.core.evidence import has_moved, is_passing
from omx_autoresearch.core.findings import Evidence, evidence_digest
from omx_autoresearch.core.stall import masked
from omx_autoresearch.core.values import dataclass
from omx_autoresearch.errors import WorkspaceFault
from omx_autoresearch.runtime import validation
from omx_autoresearch.runtime.looks import PinnedRun, take_look
from omx_autoresearch.storage.inside import FILE_LIMIT_BYTES, open_inside, read_chunks
from omx_autoresearch.storage.outputs import output_path, trim_for_person
from omx_autoresearch.system.sandbox import bubblewrap_fault, isolation_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from omx_autoresearch.core.criteria import Criterion
    from omx_autoresearch.core.evidence import Look
    from omx_autoresearch.core.mission import Contract, Mission
    from omx_autoresearch.runtime.context import Runtime
    from omx_autoresearch.system.commands import CommandResult

_TAIL_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one look at one criterion saw.

    Attributes:
        criterion: whose rule was applied.
        look: the workspace at that moment.
        received: why it is not met, one line; empty when it is.
        evidence: of a met one, as far as it can be told without the journal.
        content_digest: of the file that a file rule names.
        run_id: of the command's run.
        is_reusable: an unmet one need not be looked at again while nothing moved.
    """

    criterion: Criterion
    look: Look
    received: str = ""
    evidence: Evidence | None = None
    content_digest: str = ""
    run_id: str = ""
    is_reusable: bool = False


def look_at(
    runtime: Runtime, mission: Mission, criteria: tuple[Criterion, ...], *, isolation: str, look: Look
) -> tuple[Outcome, ...]:
    """Apply the rule of each criterion to the workspace as it is now; a person's word no look can give.

    Raises:
        WorkspaceFault: the workspace cannot be looked at.
        StorageFailed: an output cannot be kept.
    """
    outcomes: list[Outcome] = []
    for criterion in criteria:
        if look.changed_pins:
            changed = ", ".join(look.changed_pins[:5])
            outcomes.append(Outcome(criterion, look, f"pinned files changed, so nothing counts: {changed}"))
        elif criterion.rule.kind == "command":
            outcome, look = _run_command(runtime, mission, criterion, isolation, look)
            outcomes.append(outcome)
        elif criterion.rule.kind == "file":
            outcomes.append(look_at_file(mission, criterion, look))
        elif criterion.rule.kind == "trial":
            outcomes.append(_look_at_trial(runtime, mission, criterion, look))
        else:
            outcomes.append(_judged(mission, criterion, look))
    return tuple(outcomes)


def evidence_of(
    mission: Mission, criterion: Criterion, look: Look, parts: tuple[str, ...], **more: Any
) -> Evidence:
    """What is to be recorded of a met criterion; ``parts`` make it this evidence and no other."""
    return Evidence(
        criterion_id=criterion.id,
        digest=evidence_digest(criterion.rule.kind, criterion.id, *parts),
        contract_digest=mission.contract_digest,
        head=look.head,
        tree_digest=look.tree_digest,
        **more,
    )


def _run_command(
    runtime: Runtime, mission: Mission, criterion: Criterion, isolation: str, before: Look
) -> tuple[Outcome, Look]:
    """Run exactly the rule's argv; the workspace after it is what the next command begins with."""
    contract = mission.contract
    assert contract is not None
    folder = runtime.home.mission(mission.task_id)
    run_id = f"r-{runtime.new_id()}"
    pins = PinnedRun(folder, mission, contract)
    if pins.changed:
        return Outcome(criterion, before, f"pinned files changed: {', '.join(pins.changed[:5])}"), before
    scratch_path = os.path.join(folder.root_path, "scratch", run_id)
    os.makedirs(os.path.join(scratch_path, "tmp"), mode=0o700, exist_ok=True)
    try:
        result = validation.run_validator(
            criterion.rule.argv,
            contract,
            mission.workspace_path,
            output_path(folder, run_id),
            scratch_path,
            isolation=isolation,
        )
    finally:
        shutil.rmtree(scratch_path, ignore_errors=True)
    after = take_look(folder, mission)
    output = validation.read_output(result)
    received = _why_not(contract, result, output) or _why_not_fresh(mission, before, after)
    if not received and (changed := pins.changes(has_passed=True)):
        received = f"pinned files changed while it ran: {', '.join(changed[:5])}"
    is_long = result.duration_seconds >= validation.REUSED_FROM_SECONDS
    if received:
        outcome = Outcome(criterion, before, received, run_id=run_id, is_reusable=is_long)
        return outcome, after
    mark = sha256(masked(output.decode("utf-8", "replace")).encode()).hexdigest()
    evidence = evidence_of(
        mission,
        criterion,
        before,
        (*criterion.rule.argv, mark),
        exit_status=0,
        output_digest=sha256(output).hexdigest(),
        size_bytes=result.output_size_bytes,
        run_id=run_id,
        isolation=isolation_of(result).backend,
    )
    return Outcome(criterion, before, evidence=evidence, run_id=run_id), after


def _why_not(contract: Contract, result: CommandResult, output: bytes) -> str:
    """Why an ended command is no evidence by itself, one line; empty when it is."""
    if result.outcome == "not_started":
        return f"it could not be started: {result.error}"
    if result.outcome == "timed_out":
        return f"ended after its limit of {contract.timeout_seconds:g} s"
    if fault := bubblewrap_fault(result):
        return f"the sandbox failed: {fault}"
    if result.exit_status == 0:
        return ""
    tail = trim_for_person(output, _TAIL_CHARACTERS).strip().rsplit("\n", 1)[-1][-_TAIL_CHARACTERS:]
    return f"exit status {result.exit_status}" + (f", its last line: {tail}" if tail else "")


def _why_not_fresh(mission: Mission, before: Look, after: Look) -> str:
    if after.changed_pins:
        return f"pinned files changed while it ran: {', '.join(after.changed_pins[:5])}"
    if has_moved(before, after, mission) or (before.head, before.tree_digest) != (
        after.head,
        after.tree_digest,
    ):
        return (
            "it passed, but the workspace changed while it ran; what a run writes belongs in an ignored path"
        )
    return ""


def look_at_file(mission: Mission, criterion: Criterion, look: Look) -> Outcome:
    """Read the file that a rule names, through real folders only, and search it within a limit of time."""
    path, pattern = criterion.rule.path, criterion.rule.pattern
    try:
        data = _content(mission.workspace_path, path)
    except FileNotFoundError:
        return Outcome(criterion, look, f"{path}: no such file")
    except WorkspaceFault as error:
        return Outcome(criterion, look, error.message)
    except OSError as error:
        return Outcome(criterion, look, f"{path}: {error.strerror or type(error).__name__}")
    if not data:
        return Outcome(criterion, look, f"{path} is empty")
    digest = sha256(data).hexdigest()
    if pattern:
        from omx_autoresearch.system.patterns import SEARCH_SECONDS, is_found

        found = is_found(pattern, data)
        if found is None:
            return Outcome(
                criterion, look, f"{path}: searching for {pattern!r} takes longer than {SEARCH_SECONDS:g} s"
            )
        if not found:
            return Outcome(criterion, look, f"{path} ({len(data)} bytes): nothing in it matches {pattern!r}")
    evidence = evidence_of(
        mission, criterion, look, (path, digest, pattern), output_digest=digest, size_bytes=len(data)
    )
    return Outcome(criterion, look, evidence=evidence, content_digest=digest)


def _content(workspace_path: str, path: str) -> bytes:
    descriptor = open_inside(workspace_path, path)
    try:
        return b"".join(read_chunks(descriptor, FILE_LIMIT_BYTES))
    finally:
        os.close(descriptor)


def _look_at_trial(runtime: Runtime, mission: Mission, criterion: Criterion, look: Look) -> Outcome:
    """The newest claim about the rule's metric; it is about commits of the experiment, not about the workspace."""
    from omx_autoresearch.runtime.trials import claim_about

    found = claim_about(runtime, mission, criterion.rule)
    if found.received:
        return Outcome(criterion, look, found.received, content_digest=found.digest)
    evidence = evidence_of(
        mission, criterion, look, (found.digest, criterion.rule.metric), output_digest=found.digest
    )
    return Outcome(criterion, look, evidence=evidence, content_digest=found.digest)


def _judged(mission: Mission, criterion: Criterion, look: Look) -> Outcome:
    """A validator or review rule: an attested pass of this contract, on the workspace as it is now."""
    run = mission.attestation
    if run is None or not is_passing(mission, look):
        received = (
            f"run {run.run_id}: {run.verdict} ({run.cause})"
            if run is not None and run.verdict != "passed"
            else "no attested pass on the workspace as it is now"
        )
        return Outcome(criterion, look, received)
    parts = (mission.contract_digest, run.head, run.tree_digest, run.pin_digest, run.output_artifact_digest)
    evidence = evidence_of(
        mission,
        criterion,
        look,
        parts,
        exit_status=run.exit_status,
        output_digest=run.output_digest,
        run_id=run.run_id,
        isolation=run.isolation,
    )
    return Outcome(criterion, look, evidence=evidence, run_id=run.run_id)
