"""Criteria: conditions of the completion contract, each with the rule that says what is accepted for it.

A rule is declared at launch and nothing else accepts evidence. ``id: description :: rule`` is how people write one:

    tests: the corpus passes :: command: pytest -q tests/corpus
    report: findings are written down :: file: report.md ~ ^## Findings
    done: the validator agrees :: validator
    look: a person has seen the plots :: person
    good: the reviewer approves :: review
    fast: the parser is faster :: trial total_ms 5%

``optional`` before the id makes a criterion one that may stay open. Pure.
"""

from __future__ import annotations

from omx_autoresearch.core.shape import nested
from omx_autoresearch.core.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.core.words import RuleKind

RULE_KINDS: tuple[RuleKind, ...] = ("command", "file", "validator", "review", "person", "trial")
_NEEDED_MODE = {"validator": "mission-validator-script", "review": "prompt-architect-artifact"}
CRITERIA_LIMIT = 100
TEXT_LIMIT = 2000
_ID = r"[a-z0-9][a-z0-9_-]{0,63}\Z"


@dataclass(frozen=True, slots=True)
class Rule:
    """What is accepted for one criterion.

    Attributes:
        kind: ``command`` (exactly this argv, run by the runtime, exit status 0), ``file`` (a non-empty regular file of
            the workspace, with ``pattern`` in it where one is given), ``validator`` (an attested pass of the
            contract's validator), ``review`` (an attested approval), ``person`` (the owner's word), ``trial`` (the
            verified claim of an experiment of this mission).
        argv: of a command, as the shell splits it.
        path: of a file, relative to the workspace.
        pattern: regular expression that the file's text must match somewhere; empty for none.
        metric: of a trial, the metric that its experiment measures.
        gain: of a trial, the gain that the whole interval of the claim must reach; 0 means any gain at all.
        is_percent: that gain is in percent of the base; otherwise it is in the metric's unit.
    """

    kind: RuleKind
    argv: tuple[str, ...] = ()
    path: str = ""
    pattern: str = ""
    metric: str = ""
    gain: float = 0.0
    is_percent: bool = False

    def __str__(self) -> str:
        """The rule as people write it."""
        import shlex

        if self.kind == "command":
            return f"command: {shlex.join(self.argv)}"
        if self.kind == "file":
            return f"file: {self.path}" + (f" ~ {self.pattern}" if self.pattern else "")
        if self.kind == "trial":
            gain = f"{self.gain:.12f}".rstrip("0").rstrip(".")
            return f"trial {self.metric} {gain}" + ("%" if self.is_percent else "")
        return self.kind


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
    rule: Rule = nested(Rule)
    is_required: bool = True


class CriterionFault(ValueError):
    """A criterion cannot stand; the message says which part, what was received and what would count."""


def criterion_of(text: str) -> Criterion:
    """Read ``[optional] id: description :: rule``.

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
            f"a criterion is written `id: description :: rule`, received {text[:200]!r}; a rule is one of {_forms()}"
        )
    if not re.match(_ID, name) or (len(words) == 2 and is_required):
        raise CriterionFault(f"the id of a criterion is a-z, 0-9, - and _, received {name[:80]!r}")
    return Criterion(name, description.strip(), rule_of(rule.strip()), is_required)


def rule_of(text: str) -> Rule:
    """Read a rule.

    Raises:
        CriterionFault: no such kind, or a part of it is missing.
    """
    kind, _, rest = text.partition(":")
    kind, rest = kind.strip(), rest.strip()
    if kind == "command":
        return Rule("command", argv=_argv(rest))
    if kind == "file":
        path, _, pattern = rest.partition(" ~ ")
        return _file_rule(path.strip(), pattern.strip())
    if kind == "trial" or kind.startswith("trial "):
        return _trial_rule(text.strip())
    for plain in ("validator", "review", "person"):
        if kind == plain and not rest:
            return Rule(plain)
    raise CriterionFault(f"a rule is one of {_forms()}, received {text[:200]!r}")


def _argv(text: str) -> tuple[str, ...]:
    import shlex

    try:
        argv = tuple(shlex.split(text))
    except ValueError as error:
        raise CriterionFault(
            f"the command of a rule cannot be split: {error}; received {text[:200]!r}"
        ) from None
    if not argv:
        raise CriterionFault("the command of a rule is empty; write `command: pytest -q tests`")
    return argv


def _file_rule(path: str, pattern: str) -> Rule:
    if not path or path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise CriterionFault(
            f"the file of a rule is relative and inside the workspace, received {path[:200]!r}"
        )
    import re

    try:
        re.compile(pattern, re.MULTILINE)
    except re.error as error:
        raise CriterionFault(f"the pattern of a file rule is no regular expression: {error}") from None
    return Rule("file", path=path, pattern=pattern)


def _trial_rule(text: str) -> Rule:
    """``trial METRIC GAIN`` or ``trial METRIC GAIN%``; a colon behind the first word is taken, too."""
    import re

    from omx_autoresearch.core.metric_names import name_faults

    found = re.fullmatch(
        r"trial:?\s+(?P<name>\S+)\s+(?P<gain>[0-9]{1,12}(?:\.[0-9]{1,12})?)\s*(?P<percent>%?)", text
    )
    if found is None:
        raise CriterionFault(
            f"the rule of a trial is `trial METRIC GAIN`, such as `trial total_ms 5%`, received {text[:200]!r}"
        )
    if faults := name_faults(found["name"]):
        raise CriterionFault(faults[0])
    return Rule("trial", metric=found["name"], gain=float(found["gain"]), is_percent=bool(found["percent"]))


def _forms() -> str:
    return "`command: ARGV`, `file: PATH [~ REGEX]`, `validator`, `review`, `person`, `trial METRIC GAIN%`"


def has_trial(criteria: tuple[Criterion, ...]) -> bool:
    """True where a measured gain is required, so that a validator which passes from the start decides nothing yet."""
    return any(item.is_required and item.rule.kind == "trial" for item in criteria)


def criterion_text(criterion: Criterion) -> str:
    """A criterion as people write it; :func:`criterion_of` reads it back."""
    optional = "" if criterion.is_required else "optional "
    return f"{optional}{criterion.id}: {criterion.description} :: {criterion.rule}"


def criteria_faults(criteria: tuple[Criterion, ...], validation_mode: str) -> list[str]:
    """Why these criteria cannot stand together, a sentence a fault."""
    faults = []
    seen: set[str] = set()
    if len(criteria) > CRITERIA_LIMIT:
        faults.append(f"a mission has at most {CRITERIA_LIMIT} criteria, received {len(criteria)}")
    for criterion in criteria:
        if criterion.id in seen:
            faults.append(f"two criteria are called {criterion.id!r}")
        seen.add(criterion.id)
        faults += _own_faults(criterion)
        if _NEEDED_MODE.get(criterion.rule.kind, validation_mode) != validation_mode:
            faults.append(
                f"criterion {criterion.id} accepts a {criterion.rule.kind}, which a {validation_mode} mission has not"
            )
    return faults


def _own_faults(criterion: Criterion) -> list[str]:
    faults = []
    text = criterion_text(criterion)
    if len(text) > TEXT_LIMIT:
        faults.append(f"criterion {criterion.id} has {len(text)} characters, {TEXT_LIMIT} at most")
    if any(char == "\0" or "\ud800" <= char <= "\udfff" for char in text):
        faults.append(f"criterion {criterion.id} holds NUL or half of a surrogate pair")
        return faults
    try:
        is_same = criterion_of(text) == criterion
    except CriterionFault as error:
        return [*faults, str(error)]
    if not is_same:
        faults.append(
            f"criterion {criterion.id} cannot be written down so that it is read back: no `::` in the description,"
            " no ` ~ ` in the path"
        )
    return faults
