"""Writing a mission: init, adopt, and the options of a contract, which start and amend take, too."""

from __future__ import annotations

import os
import shlex
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import click

from omx_autoresearch.foundation.clients import CLIENT_NAMES
from omx_autoresearch.foundation.errors import AutoresearchError, MissionInvalid, UsageError
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.foundation.text import count_of
from omx_autoresearch.freezing.manifest import FileClasses
from omx_autoresearch.missions.rules.allowances import Limits
from omx_autoresearch.missions.rules.criteria import (
    Criterion,
    CriterionFault,
    criterion_of,
    example_for,
    rule_forms,
)
from omx_autoresearch.missions.rules.intake import placeholder_reason
from omx_autoresearch.missions.rules.review_reports import ReviewerTrial
from omx_autoresearch.missions.rules.run_reports import RunReport
from omx_autoresearch.surfaces.cli.console import (
    Caller,
    Document,
    json_option,
    may_ask,
    print_json,
    print_rows,
    say,
    tell,
    this_caller,
    verb,
    with_options,
)
from omx_autoresearch.surfaces.cli.file_classes import class_rows

if TYPE_CHECKING:
    from typing import Any

    from omx_autoresearch.compat.adoption import Origin
    from omx_autoresearch.missions.contracts import DryRun
    from omx_autoresearch.missions.rules.intake import MissionDraft
    from omx_autoresearch.missions.rules.mission import Mission


OPERATIONS = ("network", "write", "publish")
MODES = ("mission-validator-script", "prompt-architect-artifact")
_REVIEWERS = ("command", "person", "session")

freezing_options = with_options(
    click.option(
        "--work",
        multiple=True,
        metavar="GLOB",
        help="What the agent is to change, such as 'src/**': it is never frozen, and every other file that the check "
        "reads is. `!glob` takes files out; may be repeated.",
    ),
    click.option(
        "--protect", multiple=True, metavar="GLOB", help="Also freeze these files; `!glob` excludes some."
    ),
    click.option(
        "--unfrozen",
        is_flag=False,
        flag_value="",
        default=None,
        metavar="[WHY]",
        help="Accept that no file of the validator can be frozen; needs a reason, here or with --reason.",
    ),
    click.option(
        "--accept-foreign-install",
        is_flag=True,
        help="Judge although the check imports the project from another checkout, where it is installed.",
    ),
    click.option("--reason", default="", help="Why; for --unfrozen and for the journal."),
)
"""What ``start`` takes, too."""
contract_options = with_options(
    freezing_options,
    click.option(
        "--validator",
        help="Shell command that decides: exit status 0 completes the mission. It runs at the project's top.",
    ),
    click.option("--prompt", help="The question to a reviewer (instead of a validator)."),
    click.option("--output", help="The file under review, relative to the workspace."),
    click.option(
        "--reviewer",
        help=f"Who reviews: {', '.join(CLIENT_NAMES)}, or a shell command that reads the prompt on stdin and prints a "
        "verdict; specs/reviewers.md has the protocol.",
    ),
    click.option(
        "--reviews",
        multiple=True,
        metavar="GLOB",
        help="Files that the reviewer gets beside the one under review; `!glob` takes some out. May be repeated.  "
        "[default: what changed since the launch]",
    ),
    click.option(
        "--reviewed-by",
        type=click.Choice(_REVIEWERS),
        multiple=True,
        help="Who may review; may be repeated.  [default: command, person]",
    ),
    click.option(
        "--env", multiple=True, metavar="NAME", help="Another environment variable for the commands."
    ),
    click.option("--timeout", type=float, metavar="SECONDS", help="Time limit of one run.  [default: 900]"),
    click.option(
        "--score-direction",
        type=click.Choice(("higher", "lower")),
        help="Whether a higher or a lower score is better.",
    ),
    click.option("--isolate-home/--no-isolate-home", default=None, help="Run with an empty home folder."),
    click.option(
        "--mounts/--no-mounts",
        default=None,
        help="Mount the frozen files over their places while a check runs, or hash them.  [default: mount]",
    ),
    click.option(
        "--confirm",
        type=click.Choice(("clean", "none")),
        help="Ask for one more pass in a clean copy of what git tracks.  [default: none]",
    ),
    click.option(
        "--keep", multiple=True, metavar="PATH", help="Copy this into the clean copy, too. May be repeated."
    ),
    click.option(
        "--link", multiple=True, metavar="PATH", help="Link to this from the clean copy. May be repeated."
    ),
    click.option(
        "--criterion",
        "criteria",
        multiple=True,
        metavar="'ID: TEXT :: RULE'",
        help=f"Another condition; RULE is one of {rule_forms()}. With the word `optional` before ID it may stay "
        "open. May be repeated; an existing one with the same id is replaced.",
    ),
    click.option("--drop-criterion", multiple=True, metavar="ID", help="Remove a criterion."),
    click.option(
        "--forbid",
        type=click.Choice(OPERATIONS),
        multiple=True,
        help="Forbid an operation: the runtime's own runs get no network, or a read-only workspace; publish is "
        "only a request to the agent.",
    ),
    click.option("--allow", type=click.Choice(OPERATIONS), multiple=True, help="Undo a --forbid."),
    click.option(
        "--limit",
        multiple=True,
        metavar="NAME=VALUE",
        help="Set an allowance, such as refusals_total=50; NAME is one of "
        f"{', '.join(item.name for item in fields(Limits))}.",
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
    "reviews": "reviews",
    "work": "work",
    "accept_foreign_install": "accept_foreign_install",
    "protect": "protect",
    "env": "environment_names",
    "scope": "scope",
    "non_goal": "non_goals",
    "milestone": "milestones",
    "track": "track",
    "timeout": "timeout_seconds",
    "score_direction": "score_direction",
    "isolate_home": "isolate_home",
    "mounts": "mounts",
    "confirm": "confirm",
    "keep": "keep",
    "link": "link",
}
"""Option to field of the draft."""


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
    if given.get("mounts") is False:
        values["mounts"] = False
    if given.get("confirm") == "none":
        values |= {"confirm": "", "keep": (), "link": ()}
    if given.get("limit"):
        values["limits"] = {**draft.limits, **dict(map(_limit, given["limit"]))}
    if given.get("criteria") or given.get("drop_criterion"):
        values["criteria"] = _criteria(draft, given["criteria"], given["drop_criterion"])
    if given.get("without_test"):
        values["without_tests"] = tuple(dict.fromkeys((*draft.without_tests, *given["without_test"])))
    if given.get("forbid") or given.get("allow"):
        wanted = {*draft.forbid, *given["forbid"]} - set(given["allow"])
        values["forbid"] = tuple(name for name in OPERATIONS if name in wanted)
    if given.get("unfrozen") is not None:
        values["unfrozen_reason"] = given["unfrozen"] or given.get("reason") or ""
        if not values["unfrozen_reason"]:
            raise UsageError("--unfrozen needs a reason", next_step="--unfrozen --reason 'WHY'")
    return replace(draft, **values)


def _criteria(draft: MissionDraft, texts: tuple[str, ...], dropped: tuple[str, ...]) -> tuple[Criterion, ...]:
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
            f"--limit {text[:80]!r} is not NAME=NUMBER", next_step="--limit refusals_total=50"
        ) from None


# --- questions


def ask_missing(draft: MissionDraft) -> MissionDraft:
    """Ask for what a draft lacks; an answer that is no answer is asked for again, with the reason."""
    if not draft.goal:
        draft = replace(draft, goal=_ask("What should be true in the end?"))
    if not draft.validator_command and not draft.validator_prompt:
        by_command = draft.validation_mode != MODES[1] and (
            draft.validation_mode == MODES[0] or _choose_command()
        )
        if by_command:
            draft = replace(draft, validator_command=_ask("Which command decides? Exit status 0 means done"))
        else:
            draft = replace(draft, validator_prompt=_ask("What should the reviewer judge?"))
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


def _ask_work(draft: MissionDraft, workspace_path: str) -> MissionDraft:
    """Ask whether what the project's shape suggests is the work; without a yes no work is named."""
    from omx_autoresearch.freezing.runners import runners_of
    from omx_autoresearch.freezing.work import project_files, proposed_work

    globs = proposed_work(project_files(workspace_path), runners_of(draft.validator_command))
    if draft.work or draft.validator_prompt or not globs:
        return draft
    question = f"Is the agent to change {' '.join(globs)}, and is every other file that the check reads to be frozen?"
    return replace(draft, work=globs) if click.confirm(question, default=False, err=True) else draft


def _ask(question: str) -> str:
    while True:
        answer: str = click.prompt(question, err=True, prompt_suffix=" ").strip()
        reason = placeholder_reason(answer)
        if not reason:
            return answer
        click.echo(f"  that is not an answer: {reason}", err=True)


@dataclass(frozen=True, slots=True)
class DraftDocument:
    """``init``.

    Attributes:
        task_id: of the new mission; empty after a dry run.
        slug: its short name.
        mission_path: mission.md; empty after a dry run.
        sandbox_path: sandbox.md; empty after a dry run.
        dry_run: nothing was written.
        baseline: what the validator said in a dry run.
        output_tail: the end of what it printed.
        reviewer: what one call of the reviewer brought, where it was tried.
        pinned: the files that a start would freeze, as far as a dry run looked.
        files: the project's files by what a start would do with them; null without a dry run.
        proposed_work: globs for ``--work`` by the shape of the project, where a dry run was given none.
        warnings: what the owner should fix before the start.
        next: the command that follows.
    """

    task_id: str
    slug: str
    mission_path: str
    sandbox_path: str
    dry_run: bool
    baseline: RunReport | None
    output_tail: str
    reviewer: ReviewerTrial | None
    pinned: tuple[str, ...]
    warnings: tuple[str, ...]
    next: str
    files: FileClasses | None = None
    proposed_work: tuple[str, ...] = ()


# --- init


@verb("init", Document("init", DraftDocument))
@click.option("--goal", help="What should be true in the end.")
@click.option("--slug", help="Short name of the mission.  [default: from the goal]")
@click.option(
    "--type",
    "task_type",
    type=click.Choice(("standard", "experiment")),
    help="The kind of mission; an experiment needs a criterion `... :: trial METRIC GAIN%`.",
)
@click.option("--mode", type=click.Choice(MODES), help="How it is judged.  [default: from the other options]")
@contract_options
@click.option("--scope", multiple=True, help="A part that belongs to the mission; may be repeated.")
@click.option("--non-goal", multiple=True, help="A part that does not; may be repeated.")
@click.option("--milestone", multiple=True, help="A step on the way; may be repeated, in order.")
@click.option("--track", is_flag=True, help="Let git track the specs folder.")
@click.option(
    "--dry-run", is_flag=True, help="Run the validator once and show what would be pinned; write nothing."
)
@click.option(
    "--try-reviewer",
    is_flag=True,
    help="A dry run that also calls the reviewer once, on the file under review or one that stands for it, and says "
    "what it answers and what that costs.",
)
@json_option
def init_verb(dry_run: bool, try_reviewer: bool, as_json: bool, **given: Any) -> int:
    """Write a mission: its goal, and the check that completes it.

    A mission is judged in exactly one way: by a command (--validator) or a review of a file (--prompt and --output). At
    a terminal you are asked for missing options.
    """
    from omx_autoresearch.missions.rules.intake import MissionDraft

    caller = this_caller()
    project_path = caller.project_path()
    caller.new_workspace_path()  # refused before anything is asked or written
    draft = changed_draft(MissionDraft(), given)
    if may_ask(as_json=as_json) and (asked := ask_missing(draft)) != draft:
        draft = _ask_work(asked, caller.new_workspace_path())
    _check_draft(draft)
    if dry_run or try_reviewer:
        return _try_out(caller, draft, calls_reviewer=try_reviewer, as_json=as_json)
    return _write_down(caller, project_path, draft, as_json=as_json)


def _check_draft(draft: MissionDraft) -> None:
    """Refuse a draft that cannot stand, with the options that are missing."""
    from omx_autoresearch.missions.intake import check_draft

    missing = [] if draft.goal else ["--goal"]
    if not draft.validator_command and not draft.validator_prompt:
        missing.append("--validator (or --prompt with --output)")
    if missing:
        raise UsageError(
            f"missing: {', '.join(missing)}",
            next_step='omx-autoresearch init --goal "what should be true" --validator "./check.sh"',
        )
    if faults := check_draft(draft):
        raise MissionInvalid("\n".join(faults), next_step="run init again with these fixed")


def _write_down(caller: Caller, project_path: str, draft: MissionDraft, *, as_json: bool) -> int:
    from omx_autoresearch.missions.launch import create_mission

    mission = create_mission(caller.runtime, project_path, draft)
    document = DraftDocument(
        task_id=mission.task_id,
        slug=mission.slug,
        mission_path=os.path.join(project_path, mission.specs_path, "mission.md"),
        sandbox_path=os.path.join(project_path, mission.specs_path, "sandbox.md"),
        dry_run=False,
        baseline=None,
        output_tail="",
        reviewer=None,
        pinned=(),
        warnings=_warnings(caller, draft),
        next=f"omx-autoresearch start {mission.task_id}",
    )
    if as_json:
        print_json(document)
        return 0
    say(f"Mission {mission.task_id} is written; no session is held yet.")
    print_rows(
        [
            ("  mission", document.mission_path, ""),
            ("  judged by", document.sandbox_path, ""),
            (
                "  confirmed",
                "by one more pass in a clean copy of what git tracks" if draft.confirm else "",
                "",
            ),
        ]
    )
    for warning in document.warnings:
        tell(f"warning: {warning}", "yellow")
    say(f"  next: {document.next}")
    return 0


def _warnings(caller: Caller, draft: MissionDraft) -> tuple[str, ...]:
    """What the owner should fix before the start, which would refuse it or hardly work."""
    from omx_autoresearch.missions.contracts import compile_contract, draft_warnings

    workspace_path = caller.new_workspace_path()
    found = list(draft_warnings(caller.runtime, workspace_path, draft))
    try:
        _, manifest = compile_contract(caller.runtime, workspace_path=workspace_path, draft=draft)
        found += manifest.notes
    except AutoresearchError as error:
        found.append(f"start will refuse this: {error.message}\n  fix it: {error.next_step}")
    return tuple(dict.fromkeys(found))


def _try_out(caller: Caller, draft: MissionDraft, *, calls_reviewer: bool, as_json: bool) -> int:
    from omx_autoresearch.missions.contracts import dry_run

    reviewer = None
    if calls_reviewer:
        from omx_autoresearch.missions.reviewer_trial import try_reviewer

        reviewer = try_reviewer(caller.runtime, caller.new_workspace_path(), draft)
    found = dry_run(caller.runtime, caller.new_workspace_path(), draft)
    document = DraftDocument(
        task_id="",
        slug=draft.slug,
        mission_path="",
        sandbox_path="",
        dry_run=True,
        baseline=found.tryout.report if found.tryout else None,
        output_tail=found.tryout.output if found.tryout else "",
        reviewer=reviewer,
        pinned=found.pinned_paths,
        warnings=_warnings_of(found),
        next="the same command without --dry-run",
        files=found.classes,
        proposed_work=found.proposed_work,
    )
    if as_json:
        print_json(document)
        return 0
    if found.tryout is not None:
        report = found.tryout.report
        say("\n".join(f"| {line}" for line in found.tryout.output.splitlines()) or "| (no output)")
        say(f"The validator says: {report.verdict} ({report.cause}): {report.summary}")
    if reviewer is not None:
        report = reviewer.report
        say("\n".join(f"| {line}" for line in reviewer.output.splitlines()) or "| (no output)")
        say(f"The reviewer says: {report.verdict} ({report.cause}): {report.summary}")
        say(f"  it took {reviewer.told_cost}")
    say(
        f"A start would freeze {count_of(len(found.pinned_paths), 'file')}"
        + (":" if found.pinned_paths else ".")
    )
    for path in found.pinned_paths:
        say(f"  {path}")
    others = [row for row in class_rows(found.classes, has_work=bool(draft.work)) if row[0] != "  frozen"]
    print_rows(others)
    if found.proposed_work:
        from omx_autoresearch.freezing.work import work_options

        say(f"If this is the work, name it: {work_options(found.proposed_work)}")
    for warning in document.warnings:
        tell(f"warning: {warning}", "yellow")
    say("Nothing was written.")
    return 0


def _warnings_of(found: DryRun) -> tuple[str, ...]:
    changed = [f"the validator itself changes {path}, so it can never pass" for path in found.changed_by_run]
    passing = (
        ["the validator already passes, so start will refuse it: make it check the missing work"]
        if found.tryout is not None and found.tryout.report.verdict == "passed"
        else []
    )
    return (*found.warnings, *found.notes, *changed, *passing)


@dataclass(frozen=True, slots=True)
class AdoptDocument:
    """``adopt``.

    Attributes:
        task_id: of the new mission.
        phase: ``draft``.
        origin_path: the folder that it was taken from, which stays as it was.
        layout: ``host``, ``own`` (our own projections) or ``protocol``.
        origin_status: what the folder said of its task.
        findings: taken over, all of them as claims.
        directions: taken over, as tried.
        criteria: ids of the criteria taken over.
        notes: what was left out, a line each.
        sandbox_path: sandbox.md, which says how the mission is judged.
        next: the command that follows.
    """

    task_id: str
    phase: str
    origin_path: str
    layout: str
    origin_status: str
    findings: int
    directions: int
    criteria: tuple[str, ...]
    notes: tuple[str, ...]
    sandbox_path: str
    next: str


@verb("adopt", Document("adopt", AdoptDocument))
@click.argument("path", type=click.Path())
@click.option("--slug", help="Short name of the mission.  [default: from the goal]")
@contract_options
@json_option
def adopt_verb(path: str, as_json: bool, **given: Any) -> None:
    """Begin a mission from PATH: a `.reasonix/autoresearch/ID` folder, or one of the long-horizon protocol.

    The folder is only read. Its findings become claims, its directions count as tried, and its criteria wait for your
    confirmation unless --criterion gives them a rule. Such a folder does not say what completes the mission, so give
    --validator, or --prompt with --output.
    """
    from omx_autoresearch.compat.adoption import adopt, draft_of, read_origin

    caller = this_caller()
    project_path = caller.project_path()
    origin = read_origin(os.path.join(caller.cwd, os.path.expanduser(path)))
    draft = changed_draft(draft_of(origin, project_path), given)
    _check_adopted(draft, path)
    document = _adopted_document(adopt(caller.runtime, project_path, origin, draft), origin, draft)
    if as_json:
        print_json(document)
        return
    say(f"Mission {document.task_id} is written; {document.origin_path} was not changed.")
    print_rows(
        [
            ("  findings", str(document.findings), "claims, not evidence"),
            ("  directions", str(document.directions), "counted as tried"),
            ("  judged by", document.sandbox_path, ""),
        ]
    )
    for note in document.notes:
        tell(f"note: {note}", "yellow")
    say(f"  next: {document.next}")


def _check_adopted(draft: MissionDraft, path: str) -> None:
    from omx_autoresearch.missions.intake import check_draft

    if faults := check_draft(draft):
        how = "" if draft.validator_command or draft.validator_prompt else " --validator './check.sh'"
        raise MissionInvalid("\n".join(faults), next_step=f"omx-autoresearch adopt {shlex.quote(path)}{how}")


def _adopted_document(mission: Mission, origin: Origin, draft: MissionDraft) -> AdoptDocument:
    return AdoptDocument(
        task_id=mission.task_id,
        phase=mission.phase,
        origin_path=origin.path,
        layout=origin.layout,
        origin_status=origin.status,
        findings=len(origin.findings),
        directions=len(origin.directions),
        criteria=tuple(criterion.id for criterion in draft.criteria),
        notes=origin.notes,
        sandbox_path=os.path.join(mission.project_path, mission.specs_path, "sandbox.md"),
        next=f"omx-autoresearch start {mission.task_id}",
    )
