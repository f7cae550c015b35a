"""The runtime examines criteria itself: it runs their commands, reads their files, and believes no claim.

A command runs as a validator does: exactly its argv, in the workspace, in the owner's environment, pinned files
compared before and after, its whole output kept. One that passed while the workspace changed is no evidence. A file is
reached through real folders only and searched within a limit of time. The surface hands in the facts of experiments.
"""

from __future__ import annotations

import os
import sys

from omx_autoresearch.foundation.errors import CommandFault, StepIllegal, UsageError, WorkspaceFault
from omx_autoresearch.foundation.records import dataclass, replace, sha256
from omx_autoresearch.foundation.text import head_and_tail
from omx_autoresearch.journal.safe_files import read_inside
from omx_autoresearch.missions import secrets
from omx_autoresearch.missions.records.work import CriteriaChecked, FindingRecorded, VerificationExcused
from omx_autoresearch.missions.rules.criteria import (
    CriterionCheck,
    Evidence,
    Examination,
    Finding,
    evidence_digest,
)
from omx_autoresearch.missions.rules.evidence import IGNORED_OUTPUT, has_moved, is_passing, unsettled_criteria
from omx_autoresearch.missions.rules.run_reports import RunReport, normalized_output
from omx_autoresearch.missions.store import MissionStore, live_contract, refuse_ended
from omx_autoresearch.missions.validation import newcomers, runs
from omx_autoresearch.missions.validation.output import read_output
from omx_autoresearch.missions.workspace import PinnedRun, snapshot_workspace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.missions.rules.criteria import Criterion, Rule, WorkspaceSnapshot
    from omx_autoresearch.missions.rules.mission import Contract, Mission
    from omx_autoresearch.missions.store import Transaction
    from omx_autoresearch.system.commands import CommandResult

_TAIL_CHARACTERS = 300


def look_at(
    runtime: Runtime,
    mission: Mission,
    criteria: tuple[Criterion, ...],
    *,
    isolation: str,
    look: WorkspaceSnapshot,
) -> tuple[Examination, ...]:
    """Apply the rule of each criterion to the workspace as it is now.

    Raises:
        WorkspaceFault: the workspace cannot be looked at.
        StorageFailed: an output cannot be kept.
    """
    found = []
    for criterion in criteria:
        world = _Workspace(runtime, mission, criterion, isolation, look)
        if look.changed_pins:
            found.append(
                world.missed(f"pinned files changed, so nothing counts: {', '.join(look.changed_pins[:5])}")
            )
            continue
        found.append(criterion.rule.examine(world))
        look = world.after
    return tuple(found)


def evidence_of(
    mission: Mission, criterion: Criterion, look: WorkspaceSnapshot, parts: tuple[str, ...], **more: Any
) -> Evidence:
    """The evidence of a met criterion; ``parts`` identify it."""
    return Evidence(
        criterion_id=criterion.id,
        digest=evidence_digest(criterion.rule.kind, criterion.id, *parts),
        contract_digest=mission.contract_digest,
        head=look.head,
        tree_digest=look.tree_digest,
        **more,
    )


class _Workspace:
    """The world as a rule may look at it (``rules.criteria.Examiner``)."""

    def __init__(
        self,
        runtime: Runtime,
        mission: Mission,
        criterion: Criterion,
        isolation: str,
        look: WorkspaceSnapshot,
    ) -> None:
        self._runtime = runtime
        self._mission = mission
        self._criterion = criterion
        self._isolation = isolation
        self._look = look
        self.after = look
        """The workspace after what was run; the next criterion begins with it."""

    def met(self, *parts: str, content_digest: str = "", **evidence: Any) -> Examination:
        """The rule accepts what was seen."""
        made = evidence_of(self._mission, self._criterion, self._look, parts, **evidence)
        return Examination(
            self._criterion,
            self._look,
            evidence=made,
            content_digest=content_digest,
            run_id=made.run_id,
        )

    def missed(self, received: str, content_digest: str = "") -> Examination:
        """The rule does not accept what was seen."""
        return Examination(self._criterion, self._look, received, content_digest=content_digest)

    def run(self, argv: tuple[str, ...]) -> Examination:
        """Run exactly this argv; one that passed while the workspace changed is no evidence."""
        mission, contract = self._mission, self._mission.contract
        assert contract is not None
        folder = self._runtime.home.mission(mission.task_id)
        run_id = f"r-{self._runtime.new_id()}"
        pins = PinnedRun(folder, mission, contract)
        if pins.changed:
            return self.missed(f"pinned files changed: {', '.join(pins.changed[:5])}")
        filled, forms = secrets.for_run(folder, contract)
        output_path = folder.output_path(run_id)
        with pins.in_place():
            result = runs.run_validator(
                argv,
                filled,
                mission.workspace_path,
                output_path,
                os.path.join(folder.root_path, "scratch", run_id),
                isolation=self._isolation,
                mounts=pins.mounts,
                hidden_paths=self._runtime.home.record_paths,
                watch=pins.watch,
            )
        told = newcomers.take_aside(result, mission.workspace_path, run_id) if result.newcomers else ""
        output = read_output(result)
        received = told if result.has_made_newcomers else _why_not(contract, result, output)
        if not received and contract.confirm:
            result, received = self._confirmed(filled, pins, result)
            output = read_output(result) if received else output
        self.after = snapshot_workspace(folder, mission, reads_files=not received)
        received = secrets.masked(received, forms)
        output = secrets.masked_output(output, output_path, forms)
        received = received or _why_not_fresh(mission, self._look, self.after)
        if not received and (changed := pins.changes(result, has_passed=True)):
            received = f"pinned files changed while it ran: {', '.join(changed[:5])}"
        if received:
            is_long = result.duration_seconds >= runs.REUSED_FROM_SECONDS
            return Examination(self._criterion, self._look, received, run_id=run_id, is_reusable=is_long)
        mark = sha256(normalized_output(output.decode("utf-8", "replace")).encode()).hexdigest()
        return self.met(
            *argv,
            mark,
            exit_status=0,
            output_digest=sha256(output).hexdigest(),
            size_bytes=result.output_size_bytes,
            run_id=run_id,
            isolation=result.isolation.backend,
        )

    def _confirmed(
        self, contract: Contract, pins: PinnedRun, passed: CommandResult
    ) -> tuple[CommandResult, str]:
        """The command that passed, once more in a clean copy; with why it does not pass there, if it does not."""
        from omx_autoresearch.missions.validation.confirming import confirmed

        def judge(_path: str, result: CommandResult) -> RunReport:
            why = _why_not(contract, result, read_output(result))
            return RunReport("failed" if why else "passed", "", why)

        failed = confirmed(
            contract,
            pins,
            passed,
            run=runs.run_validator,
            judge=judge,
            isolation=self._isolation,
            hidden_paths=self._runtime.home.record_paths,
        )
        return (failed[0], failed[1].summary) if failed else (passed, "")

    def read(self, path: str) -> bytes | str:
        """A file of the workspace, through real folders only; or why it cannot be taken."""
        try:
            return read_inside(self._mission.workspace_path, path)
        except FileNotFoundError:
            return f"{path}: no such file"
        except WorkspaceFault as error:
            return error.message
        except OSError as error:
            return f"{path}: {error.strerror or type(error).__name__}"

    def is_found(self, pattern: str, data: bytes) -> bool | str:
        """Search within a limit of time; the reason where that is not enough."""
        found = is_found(pattern, data)
        return f"searching for {pattern!r} takes longer than {SEARCH_SECONDS:g} s" if found is None else found

    def attestation(self) -> Examination:
        """An attested pass of this contract, on the workspace as it is now."""
        run = self._mission.attestation
        if run is None or not is_passing(self._mission, self._look):
            if run is not None and run.verdict != "passed":
                return self.missed(f"run {run.run_id}: {run.verdict} ({run.cause})")
            return self.missed("no attested pass on the workspace as it is now")
        return self.met(
            self._mission.contract_digest,
            run.head,
            run.tree_digest,
            run.pin_digest,
            run.output_artifact_digest,
            exit_status=run.exit_status,
            output_digest=run.output_digest,
            run_id=run.run_id,
            isolation=run.isolation,
        )

    def ask(self, rule: Rule) -> Examination:
        """The answer of another part of the runtime, from the mapping that the surface handed in."""
        answered: Examination = self._runtime.sources[rule.source](self._runtime, self._mission, rule, self)
        return answered


def _why_not(contract: Contract, result: CommandResult, output: bytes) -> str:
    """The reason why a command that ended is no evidence, one line; empty when it is."""
    if result.outcome == "not_started":
        return f"it could not be started: {result.error}"
    if result.outcome == "timed_out":
        return f"ended after its limit of {contract.timeout_seconds:g} s"
    if result.box_fault:
        return f"the sandbox failed: {result.box_fault}"
    if result.is_truncated and result.error:
        return result.error
    if result.exit_status == 0:
        return ""
    tail = head_and_tail(output, _TAIL_CHARACTERS).strip().rsplit("\n", 1)[-1][-_TAIL_CHARACTERS:]
    return f"exit status {result.exit_status}" + (f", its last line: {tail}" if tail else "")


def _why_not_fresh(mission: Mission, before: WorkspaceSnapshot, after: WorkspaceSnapshot) -> str:
    if after.changed_pins:
        return f"pinned files changed while it ran: {', '.join(after.changed_pins[:5])}"
    seen, now = (before.head, before.tree_digest), (after.head, after.tree_digest)
    if seen != now or has_moved(before, after, mission):
        return f"it passed, but the workspace changed while it ran; {IGNORED_OUTPUT}"
    return ""


# --- Checks: the runtime looks whether criteria are met, and records what it saw.
#
# checking      what follows a passing validator at a stop
# check         the same at once, for ``criterion check`` and ``finding add``
# accept        the owner's word
# Settlement    what one pass saw, recorded under the mission's lock: new evidence, and a check of each criterion

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Settlement:
    """The results of one pass over some criteria.

    Attributes:
        runtime: the world.
        outcomes: one a criterion.
        contract_digest: that they were looked at under; what was seen under another contract is not recorded.
        run_id: of the run that made them; empty where none was needed.
        submission: the finding that is offered for the only criterion; None for none.
    """

    runtime: Runtime
    outcomes: tuple[Examination, ...]
    contract_digest: str
    run_id: str = ""
    submission: Finding | None = None

    def record(self, transaction: Transaction) -> None:
        """Record new evidence, the submission as evidence or claim, and a check of every criterion, in one write."""
        mission = transaction.mission
        # Where the owner amended the contract while we looked, the rule may be another one.
        if mission.contract_digest != self.contract_digest:
            if self.run_id:
                transaction.record(CriteriaChecked((), self.run_id))
            return
        findings, checks = [], []
        with MissionStore(self.runtime.home).journal(mission.task_id) as journal:
            for outcome in self.outcomes:
                finding, check = self._settled(mission, outcome, journal, transaction.ts)
                findings += [FindingRecorded(finding)] if finding is not None else []
                checks.append(check)
        transaction.record(*findings, CriteriaChecked(tuple(checks), self.run_id))

    def _settled(
        self, mission: Mission, outcome: Examination, journal: Any, ts: str
    ) -> tuple[Finding | None, CriterionCheck]:
        criterion, look = outcome.criterion, outcome.look
        check = CriterionCheck(
            criterion_id=criterion.id,
            is_met=outcome.evidence is not None,
            received=outcome.received,
            at=ts,
            contract_digest=mission.contract_digest,
            pin_digest=look.pin_digest,
            head=look.head,
            tree_digest=look.tree_digest,
            content_digest=outcome.content_digest,
            run_id=outcome.run_id,
            is_reusable=outcome.is_reusable,
        )
        if outcome.evidence is None:
            if self.submission is None:
                return None, check
            reason = claim_reason(mission, criterion, outcome.received)
            return replace(self.submission, claim_reason=reason), check
        known = journal.by_id(f"evidence:{outcome.evidence.digest}")
        known_id = known.data["finding"]["id"] if known is not None else ""
        if self.submission is None and known_id in mission.evidence_ids.get(criterion.id, ()):
            return None, replace(check, finding_id=known_id)
        finding = self.submission or self._own_finding(mission, criterion)
        evidence = replace(outcome.evidence, is_new=known is None)
        return replace(finding, evidence=evidence, claim_reason=""), replace(check, finding_id=finding.id)

    def _own_finding(self, mission: Mission, criterion: Criterion) -> Finding:
        rule = criterion.rule
        import shlex

        return Finding(
            id=f"f-{self.runtime.new_id()}",
            kind=rule.finding_kind,
            summary=f"{criterion.description}: seen by the runtime",
            source="runtime",
            command=shlex.join(rule.argv) if rule.argv else "",
            paths=(rule.path,) if rule.path else (),
            criterion_id=criterion.id,
            iteration=mission.iteration + 1,
            direction=mission.recent_directions[-1].fingerprint if mission.recent_directions else "",
        )


def claim_reason(mission: Mission, criterion: Criterion, received: str) -> str:
    """The reason why a finding stays a claim: the field, the value received, what would count, the command."""
    rule = criterion.rule
    who = "the owner types" if rule.is_owners else "then"
    return (
        f"criterion: {criterion.id} accepts only {rule.counts.format(rule=rule)}; received: {received}; "
        f"{who}: {rule.next_command(mission.task_id, criterion.id)}"
    )


# --- use


def checking(
    runtime: Runtime, isolation: str, *, names: tuple[str, ...] = (), submission: Finding | None = None
) -> Callable[[Mission, str], Callable[[Transaction], None]]:
    """The callback of :class:`runs.Ask` that looks at these criteria (without names, at all that a look can settle)."""

    def then(mission: Mission, run_id: str) -> Callable[[Transaction], None]:
        if mission.experiments and "news" in runtime.sources:
            mission = runtime.sources["news"](runtime, mission.task_id)
        look = snapshot_workspace(runtime.home.mission(mission.task_id), mission)
        criteria = named(mission, names) if names else unsettled_criteria(mission, look)
        outcomes = look_at(runtime, mission, criteria, isolation=isolation, look=look)
        return Settlement(runtime, outcomes, mission.contract_digest, run_id, submission).record

    return then


def check(
    runtime: Runtime,
    task_id: str,
    names: tuple[str, ...],
    *,
    wait_seconds: float,
    submission: Finding | None = None,
) -> bool:
    """Look at criteria now, without a validator run; their commands run as the owner approved them.

    Returns:
        True when every one was looked at within ``wait_seconds``; False: it goes on by itself.

    Raises:
        UsageError: the contract has no such criterion.
        StepIllegal: the mission is a draft or has ended.
        CommandFault: a command may not run without the owner's approval, or no result came.
    """
    store = MissionStore(runtime.home)
    mission = store.load(task_id)
    criteria = named(mission, names)
    permit = runs.permission(runtime, mission)
    if not permit.may_run and any(item.rule.argv for item in criteria):
        raise CommandFault(permit.why, next_step=f"the owner types: {permit.command}")
    deadline = runtime.clock.monotonic() + wait_seconds
    began_at = runtime.now()
    then = checking(
        runtime, permit.isolation, names=tuple(item.id for item in criteria), submission=submission
    )
    ask = runs.Ask(isolation=permit.isolation, runs_command=False, then=then)
    for _ in range(_ATTEMPTS):  # another run may have been under way, and was waited for
        ended = runs.validate(
            runtime, task_id, ask, wait_seconds=max(0.0, deadline - runtime.clock.monotonic())
        )
        newest = {item.criterion_id: item.at for item in store.load(task_id).checks}
        if all(newest.get(item.id, "") >= began_at for item in criteria):
            return True
        if not ended or runtime.clock.monotonic() >= deadline:
            return False
    raise CommandFault(
        "the check left no result", next_step=f"omx-autoresearch criterion check {task_id} {' '.join(names)}"
    )


def examine_now(runtime: Runtime, mission: Mission, criterion: Criterion, submission: Finding) -> None:
    """Examine a criterion that needs no command (a file, an attested verdict) for a finding, and record the result.

    Raises:
        StepIllegal: the mission has ended, or its contract was amended meanwhile.
    """
    look = snapshot_workspace(runtime.home.mission(mission.task_id), mission)
    outcomes = look_at(runtime, mission, (criterion,), isolation="none", look=look)
    _settle(runtime, mission, outcomes, submission)


def _settle(
    runtime: Runtime, mission: Mission, outcomes: tuple[Examination, ...], submission: Finding
) -> Mission:
    with MissionStore(runtime.home).transaction(mission.task_id, runtime.now()) as transaction:
        refuse_ended(transaction.mission, "nothing can be added to it")
        _refuse_amended(transaction.mission, mission)
        Settlement(runtime, outcomes, mission.contract_digest, submission=submission).record(transaction)
        return transaction.mission


def _refuse_amended(newest: Mission, seen: Mission) -> None:
    """Refuse the results of a look under an older contract.

    Raises:
        StepIllegal: the contract was amended since.
    """
    if newest.contract_digest != seen.contract_digest:
        raise StepIllegal(
            f"the contract of {seen.task_id} was amended a moment ago; its criteria may have changed",
            next_step=f"omx-autoresearch criterion list {seen.task_id}",
        )


def criterion_named(mission: Mission, name: str) -> Criterion:
    """The criterion of this id.

    Raises:
        StepIllegal: the mission has no contract, or has ended.
        UsageError: the contract has no such criterion.
    """
    contract = live_contract(mission, "no criterion is judged")
    for criterion in contract.criteria:
        if criterion.id == name:
            return criterion
    known = ", ".join(criterion.id for criterion in contract.criteria)
    raise UsageError(
        f"criterion: {name[:80]!r} is not in this contract; "
        + (f"it has {known}" if known else "it has none"),
        next_step=f"omx-autoresearch criterion list {mission.task_id}",
    )


def named(mission: Mission, names: tuple[str, ...]) -> tuple[Criterion, ...]:
    """The criteria of these ids; without a name all that a look can settle.

    Raises:
        StepIllegal: the mission has no contract, or has ended; or a named one accepts a person's word alone.
        UsageError: one of the names is no criterion of the contract.
    """
    if not names:
        criteria = mission.contract.criteria if mission.contract else ()
        return tuple(item for item in criteria if not item.rule.is_owners)
    found = tuple(criterion_named(mission, name) for name in dict.fromkeys(names))
    for criterion in found:
        if criterion.rule.is_owners:
            raise StepIllegal(
                f"criterion {criterion.id} accepts only the owner's word, which the runtime cannot check",
                next_step=f"the owner types: {criterion.rule.next_command(mission.task_id, criterion.id)}",
            )
    return found


def accept(runtime: Runtime, task_id: str, name: str, reason: str) -> Mission:
    """The owner's word for a criterion that accepts a person's.

    Raises:
        StepIllegal: the criterion accepts something else, or the mission is over.
        UsageError: no such criterion, or no reason.
    """
    mission = MissionStore(runtime.home).load(task_id)
    criterion = criterion_named(mission, name)
    if not criterion.rule.is_owners:
        raise StepIllegal(
            f"criterion {name} accepts only `{criterion.rule}`, not a person's word",
            next_step=f"omx-autoresearch criterion check {task_id} {name}",
        )
    if not reason.strip():
        raise UsageError(
            "an acceptance needs a reason: say what you saw",
            next_step=f'omx-autoresearch criterion accept {task_id} {name} --reason "..."',
        )
    look = snapshot_workspace(runtime.home.mission(task_id), mission)
    evidence = evidence_of(mission, criterion, look, (mission.contract_digest, reason))
    finding = Finding(
        id=f"f-{runtime.new_id()}",
        kind="manual",
        summary=reason,
        source="owner",
        criterion_id=name,
        iteration=mission.iteration,
    )
    return _settle(runtime, mission, (Examination(criterion, look, evidence=evidence),), finding)


def excuse(runtime: Runtime, task_id: str, reason: str) -> Mission:
    """The owner accepts a reason why changed code could not be verified; it stands until the contract is amended.

    Raises:
        UsageError: no reason.
        StepIllegal: the mission is a draft or has ended.
    """
    if not reason.strip():
        raise UsageError(
            "an excuse needs a reason: say why nothing could verify the code",
            next_step=f'omx-autoresearch excuse {task_id} --reason "..."',
        )
    with MissionStore(runtime.home).transaction(task_id, runtime.now()) as transaction:
        live_contract(transaction.mission, "nothing is verified")
        return transaction.record(VerificationExcused(reason))


# --- searching a text

SEARCH_SECONDS = 5.0
_SEARCH_PROGRAM = (
    "import re, sys; data = sys.stdin.buffer.read(); "
    "found = re.search(sys.argv[1], data.decode('utf-8', 'replace'), re.MULTILINE); sys.exit(0 if found else 3)"
)
_FOUND_NOTHING = 3


def is_found(pattern: str, data: bytes, *, timeout_seconds: float = SEARCH_SECONDS) -> bool | None:
    """True when ``pattern`` matches somewhere in the text (UTF-8, ``^`` and ``$`` at every line); None for no answer.

    None means that the search took longer than ``timeout_seconds``, or could not be made at all. The pattern is foreign
    and ``re`` has no limit of time, so the search runs in a process that can be ended and imports nothing else.
    """
    import subprocess  # most looks search for nothing

    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _SEARCH_PROGRAM, pattern],
            input=data,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=timeout_seconds,
            check=False,
            env={},
        )
    except (subprocess.TimeoutExpired, OSError, ValueError):
        return None
    return done.returncode == 0 if done.returncode in (0, _FOUND_NOTHING) else None
