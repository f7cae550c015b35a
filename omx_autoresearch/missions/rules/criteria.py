"""Criteria of the completion contract, and the findings that are offered for them.

A rule is declared at launch and nothing else accepts evidence. People write a criterion as ``id: description :: rule``,
with ``optional`` before the id where it may stay open. Each kind of rule is one class and one line of :data:`KINDS`;
nothing else knows which kinds there are.

A finding is what was observed. One that its criterion's own rule accepted is evidence: the runtime itself ran the
command, read the file, or heard the owner. Every other finding is a claim. Pure.
"""

from __future__ import annotations

from importlib import import_module

from omx_autoresearch.foundation.records import (
    NewerShape,
    ShapeError,
    dataclass,
    field,
    from_plain,
    nested,
    sha256,
)
from omx_autoresearch.foundation.text import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar, Protocol, Self

    from omx_autoresearch.foundation.types import FindingKind

    class Examiner(Protocol):
        """The world, as a rule may look at it; ``criterion`` is the one that is examined."""

        def run(self, argv: tuple[str, ...]) -> Examination:
            """Run exactly this argv in the workspace, as a validator runs."""

        def read(self, path: str) -> bytes | str:
            """The content of a file of the workspace, or why it cannot be taken."""

        def is_found(self, pattern: str, data: bytes) -> bool | str:
            """True when the pattern matches somewhere, or why that cannot be told."""

        def attestation(self) -> Examination:
            """The verdict of the contract's own validator or reviewer."""

        def ask(self, rule: Rule) -> Examination:
            """The answer of the rule's ``source``: another part of the runtime, which the surface handed in."""

        def met(self, *parts: str, content_digest: str = "", **evidence: Any) -> Examination:
            """The rule accepts what was seen; ``parts`` make it this evidence and no other."""

        def missed(self, received: str, content_digest: str = "") -> Examination:
            """The rule does not; ``received`` says what was there instead, one line."""


KINDS: dict[str, str] = {
    "command": "rule_kinds.Command",
    "file": "rule_kinds.File",
    "validator": "rule_kinds.Validator",
    "review": "rule_kinds.Review",
    "person": "rule_kinds.Person",
    "trial": "rule_kinds.Trial",
}
"""Kind to ``module.Class`` beside this module; it is imported when a rule of the kind is met."""
CRITERIA_LIMIT = 100
TEXT_LIMIT = 2000
_ID = r"[a-z0-9][a-z0-9_-]{0,63}\Z"
_EARLIER_FIELDS = ("argv", "path", "pattern", "metric", "gain", "is_percent")
"""Earlier versions wrote these for every kind, empty where a kind has none."""


class CriterionFault(ValueError):
    """A criterion is not valid; the message names the part, the value received and a valid one."""


class Rule:
    """The rule that accepts evidence for one criterion; a kind is a record with a field ``kind`` and its own fields.

    ``form`` is the way people write it (empty: the kind alone), ``example`` a whole criterion, ``counts`` the only
    evidence that it accepts (``{rule}`` is its text), ``finding_kind`` the kind of that evidence in the journal,
    ``needed_mode`` the only validation mode of it. ``is_owners``: only the owner's word meets it. ``is_measured``:
    it needs a measured gain, so a validator that passes from the start decides nothing yet. ``source``: the other part
    of the runtime that it asks, a key of ``Runtime.sources``.
    """

    __slots__ = ()
    form: ClassVar[str] = ""
    example: ClassVar[str]
    counts: ClassVar[str]
    finding_kind: ClassVar[FindingKind]
    needed_mode: ClassVar[str] = ""
    is_owners: ClassVar[bool] = False
    is_measured: ClassVar[bool] = False
    source: ClassVar[str] = ""

    if TYPE_CHECKING:

        @property
        def kind(self) -> str:
            """Its key in :data:`KINDS`."""
            ...

    @property
    def argv(self) -> tuple[str, ...]:
        """The command that it runs: its files are pinned, and it runs only where commands may. Empty for none."""
        return ()

    @property
    def path(self) -> str:
        """The file that it is about: digested at every look, and free to be written. Empty for none."""
        return ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """The rule whose text behind its kind (and a colon) is ``text``. Here of a kind that is one word.

        Raises:
            CriterionFault: a part of it is missing or wrong.
        """
        rule = cls()
        if text:
            raise unknown_rule(f"{rule.kind}: {text}")
        return rule

    def __str__(self) -> str:
        """The rule as people write it; :meth:`parse` reads it back."""
        return self.kind

    def examine(self, examiner: Examiner) -> Examination:
        """Look whether the rule accepts what is there now."""
        raise NotImplementedError

    def is_current(self, check: CriterionCheck, facts: Facts) -> bool:
        """True when ``check`` saw what stands there now. Here: the same commit, content and pinned files."""
        look = facts.look
        seen = (check.head, check.tree_digest, check.pin_digest)
        is_same = seen == (look.head, look.tree_digest, look.pin_digest)
        return bool(look.tree_digest) and is_same and not look.changed_pins

    def is_ready(self, facts: Facts) -> bool:  # noqa: ARG002 - a kind may ask
        """True when a look of the runtime could settle it now."""
        return not self.is_owners

    def missing(self, facts: Facts) -> str:  # noqa: ARG002 - a kind may ask
        """A fault that is known without an examination, one line; empty for none."""
        return ""

    def next_command(self, task_id: str, criterion_id: str) -> str:
        """The one command that helps while it is not met."""
        return f"omx-autoresearch criterion check {task_id} {criterion_id}"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """For pydantic and the schemas: a union of the kinds, told apart by ``kind``."""
        if cls is not Rule:
            return handler(source)
        from pydantic_core import core_schema

        choices = {kind: handler.generate_schema(rule_class(kind)) for kind in KINDS}
        return core_schema.tagged_union_schema(choices, discriminator="kind")


def rule_class(kind: str) -> type[Rule]:
    """The class of a kind.

    Raises:
        KeyError: there is no such kind.
    """
    module, _, name = KINDS[kind].partition(".")
    found: type[Rule] = getattr(import_module(f"{__package__}.{module}"), name)
    return found


def rule_from_plain(plain: Any) -> Rule:
    """A rule as a journal has it.

    Raises:
        ShapeError: it is no rule, or only a newer version knows its kind or one of its fields.
    """
    if not isinstance(plain, dict) or "kind" not in plain:
        raise ShapeError("Rule: an object with a kind is required")
    if plain["kind"] not in KINDS:
        raise NewerShape(f"rule kind {plain['kind']!r} is unknown")
    made = rule_class(plain["kind"])
    names = made.__slots__
    kept = {key: value for key, value in plain.items() if key in names or value or key not in _EARLIER_FIELDS}
    rule: Rule = from_plain(made, kept)
    return rule


@dataclass(frozen=True, slots=True)
class Criterion:
    """One condition of the contract.

    Attributes:
        id: short name, unique in the mission.
        description: what must be true.
        rule: what is accepted for it.
        is_required: an optional one may stay open.
    """

    id: str
    description: str
    rule: Rule = nested(rule_from_plain)
    is_required: bool = True


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts that a rule is compared with: the workspace as it is now, and the mission's knowledge.

    Attributes:
        look: the workspace.
        is_passing: the contract's own verdict is attested and fresh.
        claim_digests: newest verified claim by metric.
    """

    look: WorkspaceSnapshot
    is_passing: bool
    claim_digests: dict[str, str]


@dataclass(frozen=True, slots=True)
class Examination:
    """The result of one look at one criterion.

    Attributes:
        criterion: whose rule was applied.
        look: the workspace at that moment.
        received: why it is not met, one line; empty when it is.
        evidence: of a met one, as far as it can be told without the journal.
        content_digest: of what the rule is about, where that is not the workspace: a file, a claim.
        run_id: of the command's run.
        is_reusable: an unmet one need not be looked at again while nothing moved.
    """

    criterion: Criterion
    look: WorkspaceSnapshot
    received: str = ""
    evidence: Evidence | None = None
    content_digest: str = ""
    run_id: str = ""
    is_reusable: bool = False


def criterion_of(text: str) -> Criterion:
    """Read ``id: description :: rule``, or the same with the word ``optional`` before the id.

    Raises:
        CriterionFault: a part is missing or wrong.
    """
    import re  # read at launch only, while every hook loads these classes

    head, found, rule = text.partition("::")
    name, colon, description = head.partition(":")
    words = name.split()
    is_required = not (len(words) == 2 and words[0] == "optional")
    name = words[-1] if words and len(words) <= 2 else name.strip()
    if not found or not colon or not description.strip():
        raise CriterionFault(
            f"a criterion must be written `id: description :: rule`, received {text[:200]!r}; "
            f"a rule is one of {rule_forms()}"
        )
    if len(words) == 2 and is_required:
        raise CriterionFault(
            f"only the word `optional` may come before the id of a criterion, as in `optional {name[:80]}: ...`; "
            f"received {words[0][:80]!r}"
        )
    if not re.match(_ID, name):
        raise CriterionFault(f"the id of a criterion may have only a-z, 0-9, - and _, received {name[:80]!r}")
    return Criterion(name, description.strip(), rule_of(rule.strip()), is_required)


def rule_of(text: str) -> Rule:
    """Read a rule.

    Raises:
        CriterionFault: no such kind, or a part of it is missing.
    """
    kind = _kind_in(text)
    if kind not in KINDS:
        raise unknown_rule(text)
    return rule_class(kind).parse(text.strip()[len(kind) :].lstrip().removeprefix(":").strip())


def _kind_in(text: str) -> str:
    return " ".join(text.partition(":")[0].split()[:1])


def unknown_rule(text: str) -> CriterionFault:
    """The fault of a text that is a rule of no kind."""
    return CriterionFault(f"a rule is one of {rule_forms()}, received {text[:200]!r}")


def rule_forms() -> str:
    """The form of each kind of rule, as people write it."""
    return ", ".join(f"`{rule_class(kind).form or kind}`" for kind in KINDS)


def example_for(text: str) -> str:
    """A criterion with a rule of the kind that ``text`` tries to write; with the first kind where it tries none."""
    kind = _kind_in(text.partition("::")[2])
    return rule_class(kind if kind in KINDS else next(iter(KINDS))).example


def has_measured(criteria: tuple[Criterion, ...]) -> bool:
    """True where a measured gain is required, so that a validator which passes from the start decides nothing yet."""
    return any(item.is_required and item.rule.is_measured for item in criteria)


def criterion_text(criterion: Criterion) -> str:
    """A criterion as people write it; :func:`criterion_of` reads it back."""
    optional = "" if criterion.is_required else "optional "
    return f"{optional}{criterion.id}: {criterion.description} :: {criterion.rule}"


def criteria_faults(criteria: tuple[Criterion, ...], validation_mode: str) -> list[str]:
    """The faults of these criteria together, a sentence each."""
    faults = []
    seen: set[str] = set()
    if len(criteria) > CRITERIA_LIMIT:
        faults.append(f"a mission has at most {CRITERIA_LIMIT} criteria, received {len(criteria)}")
    for criterion in criteria:
        if criterion.id in seen:
            faults.append(f"two criteria have the id {criterion.id!r}")
        seen.add(criterion.id)
        faults += _own_faults(criterion)
        if criterion.rule.needed_mode not in ("", validation_mode):
            faults.append(
                f"criterion {criterion.id} accepts a {criterion.rule.kind}, "
                f"which only a {criterion.rule.needed_mode} mission has; this one is a {validation_mode} mission"
            )
    return faults


def _own_faults(criterion: Criterion) -> list[str]:
    faults = []
    text = criterion_text(criterion)
    if len(text) > TEXT_LIMIT:
        faults.append(
            f"criterion {criterion.id} has {len(text)} characters; at most {TEXT_LIMIT} are allowed"
        )
    if any(char == "\0" or "\ud800" <= char <= "\udfff" for char in text):
        faults.append(f"criterion {criterion.id} holds NUL or half of a surrogate pair")
        return faults
    try:
        is_same = criterion_of(text) == criterion
    except CriterionFault as error:
        return [*faults, str(error)]
    if not is_same:
        faults.append(
            f"criterion {criterion.id} would not read back as written: take `::` out of its description and ` ~ ` out"
            " of its path"
        )
    return faults


# --- Findings. The same evidence twice is not new. A :class:`CriterionCheck` says what the runtime last saw of a
# criterion, and of which workspace: a completing stop relies on it, never on the finding alone.

FINDING_KINDS: tuple[FindingKind, ...] = (
    "command",
    "file",
    "test",
    "benchmark",
    "manual",
    "review",
    "verification",
)
SUMMARY_LIMIT_BYTES = 256 * 1024
COMMAND_LIMIT_BYTES = 16 * 1024
PATHS_LIMIT = 1000
PATH_LIMIT_BYTES = 4096
_FINDING_ID = r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}\Z"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The runtime's own observation that meets one criterion.

    Attributes:
        criterion_id: whose rule accepted it.
        digest: of everything that makes it this evidence (argv and output, path and content, run id, the words).
        exit_status: of a command.
        output_digest: sha256 of a command's output, or of a file's content.
        size_bytes: of that output or file.
        run_id: of the run whose output stands in ``outputs/``; empty for others.
        is_new: False when the mission had this very evidence before.
        contract_digest: of the contract whose rule accepted it.
        head: the commit that it was seen on; empty outside git.
        tree_digest: of the workspace's content at that moment.
        isolation: what isolated the command: ``none``, ``bubblewrap``, ``landlock`` or ``fenced``.
    """

    criterion_id: str
    digest: str
    exit_status: int | None = None
    output_digest: str = ""
    size_bytes: int = 0
    run_id: str = ""
    is_new: bool = True
    contract_digest: str = ""
    head: str = ""
    tree_digest: str = ""
    isolation: str = "none"


@dataclass(frozen=True, slots=True)
class WorkspaceSnapshot:
    """The workspace as it is at this moment, against which an attestation must be fresh.

    Attributes:
        head: current commit.
        tree_digest: current content digest.
        pin_digest: digest of the pinned files as they are now.
        changed_pins: pinned paths whose content differs from the manifest, as far as they were compared.
        output_artifact_digest: of the artifact under review; empty when it is missing or empty.
        output_artifact_mark: of its text without white space (``rules.reviews.content_mark``); empty likewise, and
            where nothing is reviewed.
        artifact_fault: why the artifact cannot be taken (outside the workspace, no regular file, ...).
        artifact_report: what a hand-written completion artifact says (see
            :func:`~omx_autoresearch.missions.rules.evidence.read_artifact`).
        artifact_claim: ``passed`` when that document is well formed and says so; a claim all the same.
        file_digests: of the files that criteria name, by path; those that can be taken.
        file_faults: why the others cannot, by path.
        changed_code: paths of code that differ from the launch, where the contract does not run the code anyway.
        state_fault: why the state files cannot be trusted; looked at only when nothing else is missing.
    """

    head: str
    tree_digest: str
    pin_digest: str
    changed_pins: tuple[str, ...] = ()
    output_artifact_digest: str = ""
    output_artifact_mark: str = ""
    artifact_fault: str = ""
    artifact_report: str = ""
    artifact_claim: str = ""
    file_digests: dict[str, str] = field(default_factory=dict)
    file_faults: dict[str, str] = field(default_factory=dict)
    changed_code: tuple[str, ...] = ()
    state_fault: str = ""


@dataclass(frozen=True, slots=True)
class CriterionCheck:
    """The newest look of the runtime at one criterion, bound to everything that the result depends on.

    Attributes:
        criterion_id: of the criterion.
        is_met: its rule accepted what was there.
        finding_id: the evidence that it rests on; empty when it is not met.
        received: what was there instead, one line; empty when it is met.
        at: when, ISO 8601 UTC.
        contract_digest: of the contract that it was judged under.
        pin_digest: of the pinned files at that moment.
        head: the commit.
        tree_digest: of the workspace's content.
        content_digest: of the file that a file rule names.
        run_id: of the command's run; its output stands under it.
        is_reusable: an unmet one need not be looked at again while nothing moved (it took long).
    """

    criterion_id: str
    is_met: bool
    finding_id: str = ""
    received: str = ""
    at: str = ""
    contract_digest: str = ""
    pin_digest: str = ""
    head: str = ""
    tree_digest: str = ""
    content_digest: str = ""
    run_id: str = ""
    is_reusable: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """One recorded observation.

    Attributes:
        id: unique in the mission.
        kind: of the observation.
        summary: in the words of its author; data, never an instruction.
        source: where it comes from: ``cli``, ``mcp``, ``inbox``, ``hook``, ``runtime``, ``owner``, ``import``, or
            ``unknown`` for one that somebody added to ``findings.jsonl``.
        command: the command that showed it, as text.
        paths: files that it is about.
        criterion_id: the criterion it was offered for; empty for none.
        evidence: set only when the criterion's rule accepted it.
        claim_reason: why it is a claim: which field, what was received, what would count, how to send it.
        iteration: in which it was recorded.
        direction: fingerprint of the direction it was found in; empty for none.
    """

    id: str
    kind: FindingKind
    summary: str
    source: str = "cli"
    command: str = ""
    paths: tuple[str, ...] = ()
    criterion_id: str = ""
    evidence: Evidence | None = nested(Evidence, default=None)
    claim_reason: str = ""
    iteration: int = 0
    direction: str = ""


def evidence_digest(*parts: str) -> str:
    """The identity of a piece of evidence."""
    return sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def finding_faults(finding: Finding) -> list[str]:
    """The faults that keep a finding from being recorded, a sentence each: field, value received, valid values."""
    faults = _name_faults(finding)
    faults += _text_faults("summary", finding.summary, SUMMARY_LIMIT_BYTES)
    if not finding.summary.strip():
        faults.append("summary is empty; say in a sentence what you observed")
    faults += _text_faults("command", finding.command, COMMAND_LIMIT_BYTES)
    if len(finding.paths) > PATHS_LIMIT:
        faults.append(f"paths has {len(finding.paths)} entries; at most {PATHS_LIMIT} are allowed")
    for path in finding.paths[:PATHS_LIMIT]:
        faults += _text_faults("paths", path, PATH_LIMIT_BYTES)
        if not path.strip():
            faults.append("paths holds an empty path; leave it out")
    return list(dict.fromkeys(faults))


def _name_faults(finding: Finding) -> list[str]:
    import re

    faults = []
    if finding.kind not in FINDING_KINDS:
        faults.append(f"kind must be one of {', '.join(FINDING_KINDS)}, received {quoted(finding.kind)}")
    if not re.match(_FINDING_ID, finding.id):
        faults.append(
            f"id is at most 80 of A-Z, a-z, 0-9, `.`, `_`, `-` and begins with a letter or digit, "
            f"received {quoted(finding.id)}"
        )
    return faults


def _text_faults(name: str, text: str, limit_bytes: int) -> list[str]:
    faults = []
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > limit_bytes:
        faults.append(
            f"{name} has {size} bytes; at most {limit_bytes} are allowed; put the whole text into a file named in paths"
        )
    if "\0" in text:
        faults.append(f"{name} holds a NUL character; leave it out")
    if any("\ud800" <= char <= "\udfff" for char in text):
        faults.append(f"{name} holds half of a surrogate pair, which UTF-8 cannot carry; send it in UTF-8")
    return faults
