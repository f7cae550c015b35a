"""The options that describe a mission, for ``init`` and ``amend``, and the questions at a terminal."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.missions.rules.criteria import Criterion, rule_forms

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from omx_autoresearch.missions.rules.intake import MissionDraft

OPERATIONS = ("network", "write", "publish")
MODES = ("mission-validator-script", "prompt-architect-artifact")
_REVIEWERS = ("command", "person", "session")

_FREEZING = (
    click.option(
        "--protect", multiple=True, metavar="GLOB", help="Freeze these files, too; `!glob` takes out."
    ),
    click.option(
        "--unfrozen",
        is_flag=False,
        flag_value="",
        default=None,
        metavar="[WHY]",
        help="Accept that no file of the validator can be frozen; needs a reason, here or by --reason.",
    ),
    click.option("--reason", default="", help="Why; for --unfrozen and for the journal."),
)
"""What ``start`` takes, too."""
_OPTIONS = (
    *_FREEZING,
    click.option(
        "--validator",
        help="Shell command that decides: exit status 0 completes the mission. It runs at the top of the project.",
    ),
    click.option("--prompt", help="What a reviewer is asked (instead of a validator)."),
    click.option("--output", help="The file under review, relative to the workspace."),
    click.option("--reviewer", help="Shell command of the reviewer; reads the prompt on stdin."),
    click.option(
        "--reviewed-by",
        type=click.Choice(_REVIEWERS),
        multiple=True,
        help="Who may review; may be repeated.  [default: command, person]",
    ),
    click.option(
        "--env", multiple=True, metavar="NAME", help="A further variable that the commands may see."
    ),
    click.option("--timeout", type=float, metavar="SECONDS", help="Limit of one run.  [default: 900]"),
    click.option("--score-direction", type=click.Choice(("higher", "lower")), help="Which score is better."),
    click.option("--isolate-home/--no-isolate-home", default=None, help="Run with an empty home folder."),
    click.option(
        "--criterion",
        "criteria",
        multiple=True,
        metavar="'[optional] ID: TEXT :: RULE'",
        help=f"A further condition; RULE is one of {rule_forms()}. May be repeated; one of the same id is replaced.",
    ),
    click.option("--drop-criterion", multiple=True, metavar="ID", help="Take a criterion out again."),
    click.option(
        "--forbid",
        type=click.Choice(OPERATIONS),
        multiple=True,
        help="What the mission does without: the runtime's own runs get no network, or a read-only workspace; "
        "publish is a word to the agent.",
    ),
    click.option("--allow", type=click.Choice(OPERATIONS), multiple=True, help="Take a --forbid back."),
    click.option(
        "--limit", multiple=True, metavar="NAME=VALUE", help="An allowance, such as refusals_total=50."
    ),
)
"""What ``init`` and ``amend`` share."""

_FIELDS = {
    "goal": "goal",
    "task_type": "task_type",
    "slug": "slug",
    "mode": "validation_mode",
    "validator": "validator_command",
    "prompt": "validator_prompt",
    "output": "output_artifact_path",
    "reviewer": "reviewer_command",
    "reviewed_by": "reviewed_by",
    "protect": "protect",
    "env": "environment_names",
    "scope": "scope",
    "non_goal": "non_goals",
    "milestone": "milestones",
    "track": "track",
    "timeout": "timeout_seconds",
    "score_direction": "score_direction",
    "isolate_home": "isolate_home",
}
"""Option to field of the draft."""


def contract_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Every option that describes how a mission is judged."""
    return _with(_OPTIONS, function)


def freezing_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--protect``, ``--unfrozen`` and ``--reason``."""
    return _with(_FREEZING, function)


def _with(options: tuple[Callable[..., Any], ...], function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(options):
        function = option(function)
    return function


def changed_draft(draft: MissionDraft, given: dict[str, Any]) -> MissionDraft:
    """``draft`` with the options that were given; one that was left out changes nothing.

    Args:
        draft: what stands so far.
        given: click's parameters by name; None, an empty text and an empty tuple mean "not given".

    Raises:
        UsageError: ``--limit`` is no ``name=number``, or ``--unfrozen`` has no reason.
    """
    values = {
        field: given[option]
        for option, field in _FIELDS.items()
        if given.get(option) is not None and given[option] != () and given[option] is not False
    }
    if given.get("isolate_home") is False:
        values["isolate_home"] = False
    if given.get("limit"):
        values["limits"] = {**draft.limits, **dict(map(_limit, given["limit"]))}
    if given.get("criteria") or given.get("drop_criterion"):
        values["criteria"] = _criteria(draft, given["criteria"], given["drop_criterion"])
    if given.get("forbid") or given.get("allow"):
        wanted = {*draft.forbid, *given["forbid"]} - set(given["allow"])
        values["forbid"] = tuple(name for name in OPERATIONS if name in wanted)
    if given.get("unfrozen") is not None:
        values["unfrozen_reason"] = given["unfrozen"] or given.get("reason") or ""
        if not values["unfrozen_reason"]:
            raise UsageError("--unfrozen needs a reason", next_step="--unfrozen --reason 'WHY'")
    return replace(draft, **values)


def _criteria(draft: MissionDraft, texts: tuple[str, ...], dropped: tuple[str, ...]) -> tuple[Criterion, ...]:
    from omx_autoresearch.missions.rules.criteria import CriterionFault, criterion_of, example_for

    known = {criterion.id: criterion for criterion in draft.criteria}
    new = []
    for text in texts:
        try:
            new.append(criterion_of(text))
        except CriterionFault as error:
            raise UsageError(
                f"--criterion: {error}",
                next_step=f"--criterion '{example_for(text)}'",
            ) from None
    for name in dropped:
        if known.pop(name, None) is None:
            raise UsageError(
                f"--drop-criterion: there is no {name[:80]!r}; there is {', '.join(known) or 'none'}",
                next_step="omx-autoresearch criterion list",
            )
    replaced = {criterion.id: criterion for criterion in new}
    kept = [replaced.pop(criterion.id, criterion) for criterion in known.values()]
    if len(new) != len({criterion.id for criterion in new}):
        return (*known.values(), *new)  # one id twice: told with every other fault of the draft
    return (*kept, *(criterion for criterion in new if criterion.id in replaced))


def _limit(text: str) -> tuple[str, int | float]:
    name, _, value = text.partition("=")
    try:
        return name.strip().replace("-", "_"), int(value) if value.strip().lstrip("-").isdigit() else float(
            value
        )
    except ValueError:
        raise UsageError(
            f"--limit {text[:80]!r} is no NAME=NUMBER", next_step="--limit refusals_total=50"
        ) from None


# --- questions


def may_ask(*, as_json: bool) -> bool:
    """True where a person can answer: a terminal on both sides, and no program that reads the output."""
    return not as_json and sys.stdin.isatty() and sys.stderr.isatty()


def ask_missing(draft: MissionDraft) -> MissionDraft:
    """Ask for what a draft lacks; an answer that is no answer is asked for again, with the reason."""
    if not draft.goal:
        draft = replace(draft, goal=_ask("What shall be true in the end?"))
    if not draft.validator_command and not draft.validator_prompt:
        by_command = draft.validation_mode != MODES[1] and (
            draft.validation_mode == MODES[0] or _choose_command()
        )
        if by_command:
            draft = replace(draft, validator_command=_ask("Which command decides? Exit status 0 means done"))
        else:
            draft = replace(draft, validator_prompt=_ask("What shall a reviewer judge?"))
    if draft.validator_prompt and not draft.output_artifact_path:
        draft = replace(draft, output_artifact_path=_ask("Which file is under review? (relative path)"))
    return draft


def _choose_command() -> bool:
    answer = click.prompt(
        "Who decides that it is done: a command (1) or a review of a file (2)?",
        type=click.Choice(("1", "2")),
        default="1",
        show_choices=False,
        err=True,
    )
    return bool(answer == "1")


def _ask(question: str) -> str:
    from omx_autoresearch.missions.rules.intake import placeholder_reason

    while True:
        answer: str = click.prompt(question, err=True, prompt_suffix=" ").strip()
        reason = placeholder_reason(answer)
        if not reason:
            return answer
        click.echo(f"  that does not do: {reason}", err=True)
