"""The kinds of rule that a criterion can have, one class each.

``missions/rules/criteria.py`` has the registry (``KINDS``) and what the kinds share. A kind says how it is written and
read back, how the runtime examines it, when an older check still counts, and which command helps next. Pure.
"""

from __future__ import annotations

from omx_autoresearch.foundation.records import dataclass, sha256
from omx_autoresearch.missions.rules.criteria import CriterionFault, Rule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.criteria import CriterionCheck, Examination, Examiner, Facts

_PLAIN = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_"
"""Characters that need no quotes in a shell."""


@dataclass(frozen=True, slots=True)
class Command(Rule):
    """Exactly this argv, run by the runtime without a shell, ends with status 0."""

    argv: tuple[str, ...]
    kind: str = "command"
    form = "command: ARGV"
    example = "tests: the corpus passes :: command: pytest -q tests"
    counts = "`{rule}`, run by the runtime, exit status 0"
    finding_kind = "command"

    @classmethod
    def parse(cls, text: str) -> Command:
        """A command line, split as a shell splits it, or a JSON list of its words."""
        import shlex

        try:
            argv = _words_of_json(text) or tuple(shlex.split(text))
        except ValueError as error:
            raise CriterionFault(
                f"the command of a rule cannot be split: {error}; received {text[:200]!r}"
            ) from None
        if not argv:
            raise CriterionFault("the command of a rule is empty; write `command: pytest -q tests`")
        return cls(argv)

    def __str__(self) -> str:
        """As people write it; quoted as by shlex, which a hook does not load."""
        return f"command: {' '.join(map(_quoted, self.argv))}"

    def examine(self, examiner: Examiner) -> Examination:
        """Run it."""
        return examiner.run(self.argv)


def _words_of_json(text: str) -> tuple[str, ...]:
    """The words of a JSON list of texts; empty where it is none, as in ``[ -f notes.md ]``."""
    if not text.startswith("["):
        return ()
    import json

    try:
        words = json.loads(text)
    except ValueError:
        return ()
    return tuple(words) if all(isinstance(word, str) for word in words) else ()


def _quoted(word: str) -> str:
    if word and not word.strip(_PLAIN):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"


@dataclass(frozen=True, slots=True)
class File(Rule):
    """A non-empty regular file of the workspace, with ``pattern`` (a regular expression, or empty) somewhere in it."""

    path: str
    pattern: str = ""
    kind: str = "file"
    form = "file: PATH [~ REGEX]"
    example = "report: findings are written down :: file: report.md ~ ^## Findings"
    counts = "`{rule}`, a non-empty regular file of the workspace"
    finding_kind = "file"

    @classmethod
    def parse(cls, text: str) -> File:
        """A relative path, then `` ~ `` and a pattern where one is wanted."""
        import re

        path, _, pattern = (part.strip() for part in text.partition(" ~ "))
        if not path or path.startswith("/") or ".." in path.split("/") or "\0" in path:
            raise CriterionFault(
                f"the file of a rule is relative and inside the workspace, received {path[:200]!r}"
            )
        try:
            re.compile(pattern, re.MULTILINE)
        except re.error as error:
            raise CriterionFault(f"the pattern of a file rule is not a regular expression: {error}") from None
        return cls(path, pattern)

    def __str__(self) -> str:
        """As people write it."""
        return f"file: {self.path}" + (f" ~ {self.pattern}" if self.pattern else "")

    def examine(self, examiner: Examiner) -> Examination:
        """Read it, and search it."""
        data = examiner.read(self.path)
        if isinstance(data, str):
            return examiner.missed(data)
        if not data:
            return examiner.missed(f"{self.path} is empty")
        found = examiner.is_found(self.pattern, data) if self.pattern else True
        if found is not True:
            return examiner.missed(
                f"{self.path}: {found}"
                if found
                else f"{self.path} ({len(data)} bytes): nothing in it matches {self.pattern!r}"
            )
        digest = sha256(data).hexdigest()
        parts = (self.path, digest, self.pattern)
        return examiner.met(*parts, content_digest=digest, output_digest=digest, size_bytes=len(data))

    def is_current(self, check: CriterionCheck, facts: Facts) -> bool:
        """It depends on the file's content alone."""
        return bool(check.content_digest) and facts.look.file_digests.get(self.path) == check.content_digest

    def missing(self, facts: Facts) -> str:
        """The reason why the file cannot be read."""
        return facts.look.file_faults.get(self.path, "")


class _Verdict(Rule):
    __slots__ = ()
    verb = ""

    def examine(self, examiner: Examiner) -> Examination:
        """Nothing runs for it: the newest attestation is judged anew."""
        return examiner.attestation()

    def is_current(self, check: CriterionCheck, facts: Facts) -> bool:  # noqa: ARG002 - the attestation has its own freshness
        """It depends on what the attestation depends on."""
        return facts.is_passing

    def is_ready(self, facts: Facts) -> bool:
        """Before a pass no look can settle it."""
        return facts.is_passing

    def next_command(self, task_id: str, criterion_id: str) -> str:  # noqa: ARG002 - one verdict for all
        """Have it judged."""
        return f"omx-autoresearch {self.verb} {task_id}"


@dataclass(frozen=True, slots=True)
class Validator(_Verdict):
    """An attested pass of the contract's validator."""

    kind: str = "validator"
    example = "done: the validator agrees :: validator"
    counts = "an attested pass of the validator on the workspace as it is"
    finding_kind = "verification"
    needed_mode = "mission-validator-script"
    verb = "validate"


@dataclass(frozen=True, slots=True)
class Review(_Verdict):
    """An attested approval of the artifact."""

    kind: str = "review"
    example = "good: the reviewer approves :: review"
    counts = "an attested approval of the artifact as it is"
    finding_kind = "review"
    needed_mode = "prompt-architect-artifact"
    verb = "review"


@dataclass(frozen=True, slots=True)
class Person(Rule):
    """The owner's word; it stands for the contract that it was given for."""

    kind: str = "person"
    example = "look: a person has seen the plots :: person"
    counts = "the owner's word"
    finding_kind = "manual"
    is_owners = True

    def is_current(self, check: CriterionCheck, facts: Facts) -> bool:  # noqa: ARG002 - it depends on nothing that moves
        """It depends on the contract alone."""
        return True

    def missing(self, facts: Facts) -> str:  # noqa: ARG002 - it depends on nothing that moves
        """The missing word of the owner."""
        return "the owner has not confirmed it under this contract"

    def next_command(self, task_id: str, criterion_id: str) -> str:
        """The owner's command."""
        return f'omx-autoresearch criterion accept {task_id} {criterion_id} --reason "..."'


@dataclass(frozen=True, slots=True)
class Trial(Rule):
    """The verified claim of an experiment of this mission; its whole interval reaches the gain.

    Attributes:
        metric: that the experiment measures.
        gain: that the interval must reach; 0 means any gain at all.
        is_percent: the gain is in percent of the base; otherwise it is in the metric's unit.
    """

    metric: str
    gain: float
    is_percent: bool = False
    kind: str = "trial"
    form = "trial METRIC GAIN[%]"
    example = "fast: the parser is faster :: trial total_ms 5%"
    counts = "`{rule}`, the verified claim of an experiment of this mission"
    finding_kind = "benchmark"
    is_measured = True
    source = "trial"

    @classmethod
    def parse(cls, text: str) -> Trial:
        """A metric and a gain."""
        import re

        from omx_autoresearch.foundation.metric_texts import name_faults

        found = re.fullmatch(
            r"(?P<name>\S+)\s+(?P<gain>[0-9]{1,12}(?:\.[0-9]{1,12})?)\s*(?P<percent>%?)",
            text,
        )
        if found is None:
            raise CriterionFault(
                f"the rule of a trial is `{cls.form}`, such as `trial total_ms 5%`, received {text[:200]!r}"
            )
        if faults := name_faults(found["name"]):
            raise CriterionFault(faults[0])
        return cls(found["name"], float(found["gain"]), bool(found["percent"]))

    def __str__(self) -> str:
        """As people write it."""
        gain = f"{self.gain:.12f}".rstrip("0").rstrip(".")
        return f"trial {self.metric} {gain}" + ("%" if self.is_percent else "")

    def examine(self, examiner: Examiner) -> Examination:
        """Ask the experiments for the newest claim about the metric."""
        return examiner.ask(self)

    def is_current(self, check: CriterionCheck, facts: Facts) -> bool:
        """It depends on the newest claim about the metric: that is of the experiment's commits, not the workspace."""
        return bool(check.content_digest) and facts.claim_digests.get(self.metric) == check.content_digest
