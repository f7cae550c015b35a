"""The world as the rules of criteria look at it; nobody's word is taken for any of it.

A command runs as a validator does: exactly its argv, in the workspace, in the owner's environment, pinned files
compared before and after, its whole output kept. One that passed while the workspace changed is no evidence. A file is
reached through real folders only and searched within a limit of time. What only experiments know the door hands in.
"""

from __future__ import annotations

import os
import shutil

from omx_autoresearch.core.criteria import Examination
from omx_autoresearch.core.digests import sha256
from omx_autoresearch.core.evidence import has_moved, is_passing
from omx_autoresearch.core.findings import Evidence, evidence_digest
from omx_autoresearch.core.stall import masked
from omx_autoresearch.errors import WorkspaceFault
from omx_autoresearch.runtime import validation
from omx_autoresearch.runtime.looks import PinnedRun, take_look
from omx_autoresearch.storage.inside import FILE_LIMIT_BYTES, open_inside, read_chunks
from omx_autoresearch.storage.outputs import output_path, trim_for_person
from omx_autoresearch.system.sandbox import bubblewrap_fault, isolation_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from omx_autoresearch.core.criteria import Criterion, Rule
    from omx_autoresearch.core.findings import Look
    from omx_autoresearch.core.mission import Contract, Mission
    from omx_autoresearch.runtime.context import Runtime
    from omx_autoresearch.system.commands import CommandResult

_TAIL_CHARACTERS = 300


def look_at(
    runtime: Runtime, mission: Mission, criteria: tuple[Criterion, ...], *, isolation: str, look: Look
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


class _Workspace:
    """The world as a rule may look at it (``core.criteria.Examiner``)."""

    def __init__(
        self, runtime: Runtime, mission: Mission, criterion: Criterion, isolation: str, look: Look
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
        scratch_path = os.path.join(folder.root_path, "scratch", run_id)
        os.makedirs(os.path.join(scratch_path, "tmp"), mode=0o700, exist_ok=True)
        try:
            result = validation.run_validator(
                argv,
                contract,
                mission.workspace_path,
                output_path(folder, run_id),
                scratch_path,
                isolation=self._isolation,
            )
        finally:
            shutil.rmtree(scratch_path, ignore_errors=True)
        self.after = take_look(folder, mission)
        output = validation.read_output(result)
        received = _why_not(contract, result, output) or _why_not_fresh(mission, self._look, self.after)
        if not received and (changed := pins.changes(has_passed=True)):
            received = f"pinned files changed while it ran: {', '.join(changed[:5])}"
        if received:
            is_long = result.duration_seconds >= validation.REUSED_FROM_SECONDS
            return Examination(self._criterion, self._look, received, run_id=run_id, is_reusable=is_long)
        mark = sha256(masked(output.decode("utf-8", "replace")).encode()).hexdigest()
        return self.met(
            *argv,
            mark,
            exit_status=0,
            output_digest=sha256(output).hexdigest(),
            size_bytes=result.output_size_bytes,
            run_id=run_id,
            isolation=isolation_of(result).backend,
        )

    def read(self, path: str) -> bytes | str:
        """A file of the workspace, through real folders only; or why it cannot be taken."""
        try:
            descriptor = open_inside(self._mission.workspace_path, path)
            try:
                return b"".join(read_chunks(descriptor, FILE_LIMIT_BYTES))
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            return f"{path}: no such file"
        except WorkspaceFault as error:
            return error.message
        except OSError as error:
            return f"{path}: {error.strerror or type(error).__name__}"

    def is_found(self, pattern: str, data: bytes) -> bool | str:
        """Search within a limit of time; the reason where that is not enough."""
        from omx_autoresearch.system.patterns import SEARCH_SECONDS, is_found

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
        """What another part of the runtime knows, by the mapping that the door handed in."""
        answered: Examination = self._runtime.sources[rule.source](self._runtime, self._mission, rule, self)
        return answered


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
