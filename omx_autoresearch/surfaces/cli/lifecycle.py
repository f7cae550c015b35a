"""The steps of a mission's life: start, amend, approve, pause, resume, unblock, cancel, unbind, repair."""

from __future__ import annotations

import os
import sys
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import click

from omx_autoresearch.foundation.errors import StorageFailed, UsageError
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.foundation.text import count_of
from omx_autoresearch.missions import lifecycle_commands
from omx_autoresearch.missions.accepted import refuse_edits, take_contract, told_edits
from omx_autoresearch.missions.checkouts import worktree_of
from omx_autoresearch.missions.holds import waiting_text
from omx_autoresearch.missions.lifecycle_commands import require_own_program, require_owner
from omx_autoresearch.missions.views import draft_tasks
from omx_autoresearch.surfaces.cli.console import (
    Caller,
    Document,
    confirm,
    json_option,
    may_ask,
    print_json,
    print_rows,
    say,
    task_argument,
    tell,
    this_caller,
    verb,
    with_options,
)
from omx_autoresearch.surfaces.cli.file_classes import class_rows
from omx_autoresearch.surfaces.cli.init import (
    changed_draft,
    contract_options,
    freezing_options,
)
from omx_autoresearch.surfaces.cli.status import STATUS, print_step, say_unblock, step_verb
from omx_autoresearch.surfaces.documents import StartDocument, start_document

if TYPE_CHECKING:
    from typing import Any

    from omx_autoresearch.missions.accepted import Edit, Take
    from omx_autoresearch.missions.launch import Started
    from omx_autoresearch.missions.rules.intake import MissionDraft


# --- what was edited in the files that the owner approves


take_option = click.option(
    "--take-edits",
    is_flag=True,
    help="Take what was edited in mission.md and sandbox.md since you accepted them.",
)


def taking(task_id: str, verb_name: str, *, takes_edits: bool, as_json: bool) -> Take:
    """Show the edits and ask at a terminal; elsewhere refuse them without ``--take-edits``."""

    def take(edits: tuple[Edit, ...], digest: str) -> None:
        if takes_edits:
            return
        if not may_ask(as_json=as_json):
            refuse_edits(task_id, verb_name)(edits, digest)
        tell(told_edits(task_id), "yellow")
        for edit in edits:
            tell(f"  - {edit}")
        confirm("Take these edits?", "--take-edits", "Nothing was changed.")

    return take


# --- start


START = Document("start", StartDocument)


@verb("start", START)
@task_argument
@click.option("--session", default="", metavar="ID", help="Bind this session of an agent CLI at once.")
@click.option(
    "--no-baseline",
    is_flag=True,
    help="Skip the first run of the validator; also starts a mission whose validator passes already.",
)
@click.option(
    "--unsandboxed", is_flag=True, help="Also approve runs outside a sandbox if the agent CLI is sandboxed."
)
@take_option
@freezing_options
@json_option
def start_verb(  # noqa: PLR0913 - an option each
    task: str,
    *,
    session: str,
    no_baseline: bool,
    unsandboxed: bool,
    take_edits: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Launch a mission: compile its contract, freeze its evaluators, and run the validator once as a baseline.

    Prints the line to type in the agent. If an agent runs this verb, its own session is bound. Fields of mission.md
    and sandbox.md that you have not given or accepted are shown first, and you are asked to take them.
    """
    from omx_autoresearch.missions.launch import StartOptions, start

    caller = this_caller()
    task_id = _startable(caller, task)
    is_agent = caller.is_agent()
    if is_agent and (unsandboxed or session not in ("", caller.session_id)):
        require_owner(caller.runtime, "start", task_id)
    if not is_agent:
        require_own_program(caller.runtime, "start", task_id)
    if is_agent and not caller.can_write(task_id):
        raise StorageFailed(
            "this sandbox cannot write to the state home, so no session can be bound from here",
            next_step=f"ask your person to type: $autoresearch {task_id}",
        )
    if (
        any(given[name] for name in ("work", "protect", "accept_foreign_install"))
        or given["unfrozen"] is not None
    ):
        from omx_autoresearch.missions.amending import amend_draft

        amend_draft(caller.runtime, task_id, lambda draft: changed_draft(draft, given), is_agent=is_agent)
    options = StartOptions(
        reason=given["reason"],
        session_id=session or (caller.session_id if is_agent else ""),
        client=caller.client if is_agent else "",
        has_baseline=not no_baseline,
        is_agent=is_agent,
        is_unsandboxed=unsandboxed,
        workspace_path=_worktree(caller, task_id),
        take=taking(task_id, "start", takes_edits=take_edits, as_json=as_json),
    )
    if options.has_baseline and sys.stderr.isatty() and not as_json:
        tell("Running the validator once, before any work ...", "dim")
    print_started(caller, start(caller.runtime, task_id, options), is_agent=is_agent, as_json=as_json)


def _worktree(caller: Caller, task_id: str) -> str:
    """The linked work tree of the mission's project that ``start`` is typed in; empty elsewhere."""
    mission = caller.mission(task_id)
    found = worktree_of(mission, caller.cwd)
    return "" if found == mission.workspace_path else found


def _startable(caller: Caller, named: str) -> str:
    """The mission to start: the named one, else the only draft of this project, else its only one under way."""
    if named:
        return caller.task(named)
    found = draft_tasks(caller.runtime, caller.cwd)
    if len(found) > 1:
        raise UsageError(
            f"which mission? {len(found)} are written down: {', '.join(found[:8])}",
            next_step=f"omx-autoresearch start {found[0]}",
        )
    return found[0] if found else caller.task("")


def print_started(caller: Caller, started: Started, *, is_agent: bool, as_json: bool) -> None:
    """Say what ``start`` or ``amend`` did."""
    document = start_document(caller.runtime, started)
    if as_json:
        print_json(document)
    elif is_agent:
        _print_to_agent(document)
    else:
        _print_to_owner(caller, document)


def _print_to_agent(document: StartDocument) -> None:
    """Short, and the bind token last: an agent CLI may cut a long output, and its hook looks for that word."""
    say(
        f"Mission {document.task_id} is {document.phase}; it holds this session once its agent CLI confirms it."
    )
    say(limits_text(document))
    if document.forbidden:
        say(f"forbidden: {_forbidden_line(document)}")
    if document.bind_token:
        say(document.bind_token)


def _print_to_owner(caller: Caller, document: StartDocument) -> None:
    if document.phase == "draft":
        say(f"Mission {document.task_id} is a draft; the change is in its sandbox.md.")
        say(f"  next: omx-autoresearch start {document.task_id}", "dim")
        return
    say(f"Mission {document.task_id} is {document.phase}.", "bold")
    baseline = document.baseline
    said = f"{baseline.verdict} ({baseline.cause}): {baseline.summary}" if baseline else ""
    is_broken = baseline is not None and baseline.verdict == "error"
    print_rows(
        [
            ("  judged by", f"{document.judged_by} ({count_of(document.pinned_count, 'file')} frozen)", ""),
            *class_rows(document.files, has_work=bool(document.work)),
            ("  criteria", "\n".join(document.criteria), ""),
            ("  experiment", "\n".join(document.experiment), ""),
            ("  forbidden", _forbidden_line(document), ""),
            ("  baseline", said, "yellow" if is_broken else ""),
            ("  fix it", f"then: omx-autoresearch amend {document.task_id}" if is_broken else "", "yellow"),
            ("  limits", limits_text(document), ""),
            ("  hold", *_hold(caller, document)),
            *(("  note", note, "yellow") for note in document.notes),
        ]
    )
    if document.phase == "running" and not document.session_id:
        say("\nType this in your agent:\n")
        say(f"    {document.prompt_line}", "bold")
        if document.task_variable:
            say("\nor start the agent with this in its environment; its first session is bound:\n")
            say(f"    OMX_AUTORESEARCH_TASK={document.task_variable}")


def _forbidden_line(document: StartDocument) -> str:
    """What the mission does without, and whom each word binds; empty when nothing is forbidden."""
    kept = [name for name in document.forbidden if name != "publish"]
    said = [f"{', '.join(kept)} (in the runtime's own runs)"] if kept else []
    said += ["publish (a request to the agent)"] if "publish" in document.forbidden else []
    return ", ".join(said)


def _hold(caller: Caller, document: StartDocument) -> tuple[str, str]:
    """The hold in words, and its colour."""
    if document.session_id and document.hold.startswith("unproven"):
        text = f"{document.session_id}: no stop of that session was answered yet"
        return f"UNPROVEN for {text}; prove the hook with: omx-autoresearch doctor", "yellow"
    text = document.hold if document.session_id else waiting_text(caller.runtime)
    return text, "green" if "UNPROVEN" not in text and "proven" in text else "yellow"


_LIMITS = """\
{refusals_total:g} refusals and {wall_clock_hours:g} h in all
{idle_refusals:g} refusals in a row without a tool call
{stale_stalled:g} iterations without progress: a pivot is due at {stale_pivot:g}, a fresh direction at {stale_fresh:g}
{weak_holds:g} weak signs of progress that count as some
{background_allows:g} stops for work in the background, {wait_refusals:g} for a running check
{session_idle_hours:g} h of a silent session"""
_REVIEWS = (
    "\n{reviews:g} reviews by the reviewer command or other sessions; each call costs what its model costs"
)


def limits_text(document: StartDocument) -> str:
    """Every allowance, none hidden, a line for each kind."""
    limits = document.limits
    lines = _LIMITS + ("" if document.validator_command else _REVIEWS)
    return lines.format(**{item.name: getattr(limits, item.name) for item in fields(limits)})


@dataclass(frozen=True, slots=True)
class ApprovalDocument:
    """``approve``.

    Attributes:
        task_id: of the mission.
        key: what was approved: project, task, contract and pins.
        is_unsandboxed: for a sandboxed client, too.
    """

    task_id: str
    key: str
    is_unsandboxed: bool


@verb("approve", Document("approval", ApprovalDocument))
@task_argument
@click.option("--unsandboxed", is_flag=True, help="Also if the agent CLI runs in a sandbox.")
@take_option
@json_option
def approve_verb(task: str, unsandboxed: bool, take_edits: bool, as_json: bool) -> None:
    """Allow the mission's commands to run outside a sandbox, as long as its pins do not change.

    If an agent started the mission, what you have not given or accepted of it is shown first.
    """
    caller = this_caller()
    task_id = caller.owned_task("approve", task)
    take = taking(task_id, "approve", takes_edits=take_edits, as_json=as_json)
    take_contract(caller.runtime, caller.mission(task_id), take)
    key = lifecycle_commands.approve(caller.runtime, task_id, is_unsandboxed=unsandboxed)
    if as_json:
        print_json(ApprovalDocument(task_id, key, unsandboxed))
    else:
        where = "outside any sandbox" if unsandboxed else "with your rights, in a client without a sandbox"
        say(f"The commands of {task_id} may run {where}, until contract or pinned files change.")
        say_unblock(caller, task_id)


_extension_options = with_options(
    click.option(
        "--add-hours", type=float, default=0.0, metavar="H", help="Add to the mission's wall clock."
    ),
    click.option("--add-refusals", type=int, default=0, metavar="N", help="Add to the mission's refusals."),
)
pause_verb = step_verb(
    "pause",
    lifecycle_commands.pause,
    "paused; it holds no session",
    text="Pause a mission: it holds no session until it is resumed.",
)
resume_verb = step_verb(
    "resume",
    lifecycle_commands.resume,
    "running again",
    _extension_options,
    text="Let a paused mission go on, with fresh stall allowances.",
)
unblock_verb = step_verb(
    "unblock",
    lifecycle_commands.unblock,
    "running again",
    _extension_options,
    text="Let a blocked mission go on, with fresh stall allowances.",
)
cancel_verb = step_verb(
    "cancel",
    lifecycle_commands.cancel,
    "cancelled; it holds no session",
    text="Give a mission up; nothing reopens it.",
)
unbind_verb = step_verb(
    "unbind",
    lifecycle_commands.unbind,
    "bound to no session any more",
    text="Release the mission's session; the mission stays and can be bound again.",
)


@verb("repair", STATUS)
@task_argument
@click.option(
    "--accept",
    is_flag=True,
    help="Accept the loss of acknowledged records and continue with the rest; only the owner may decide this.",
)
@json_option
def repair_verb(task: str, accept: bool, as_json: bool) -> None:
    """Rebuild everything derived from the journal: state, projections, and registry."""
    caller = this_caller()
    task_id = caller.owned_task("repair --accept", task) if accept else caller.task(task)
    lifecycle_commands.repair(caller.runtime, task_id, accept_loss=accept)
    print_step(caller, task_id, "rebuilt from its journal", as_json=as_json)


# --- ``amend``: the owner changes what a live mission is held to.


@verb("amend", START)
@task_argument
@take_option
@contract_options
@click.option(
    "--without-test",
    multiple=True,
    metavar="NAME",
    help="A test of the baseline that need not pass any more (removed, renamed). May be repeated.",
)
@click.option("--workspace", default="", metavar="PATH", help="The new path of the workspace.")
@json_option
def amend_verb(task: str, workspace: str, take_edits: bool, as_json: bool, **given: Any) -> None:
    """Change the contract of a mission, by these options or by what was edited in its files.

    Options change the fields that they name and nothing else, in the contract and in sandbox.md. Without options, the
    edits of mission.md and sandbox.md are shown, and you are asked to take them. Files are pinned again, and stall
    allowances start over. Old verdicts no longer count, unless only allowances change.
    """
    from omx_autoresearch.missions.amending import AmendOptions, amend_mission

    caller = this_caller()
    task_id = caller.owned_task("amend", task)
    workspace_path = os.path.abspath(workspace) if workspace else ""
    started = amend_mission(
        caller.runtime,
        task_id,
        lambda draft: changed_draft(_of_one_mode(draft, given), given),
        AmendOptions(
            given["reason"],
            workspace_path,
            takes_edits=take_edits,
            take=taking(task_id, "amend", takes_edits=take_edits, as_json=as_json),
        ),
    )
    print_started(caller, started, is_agent=False, as_json=as_json)
    if not as_json:
        say_unblock(caller, task_id)


def _of_one_mode(draft: MissionDraft, given: dict[str, Any]) -> MissionDraft:
    """Drop the other mode's fields when the options choose a new one."""
    if given["validator"] and not given["prompt"] and draft.validator_prompt:
        return replace(
            draft, validation_mode="", validator_prompt="", output_artifact_path="", reviewer_command=""
        )
    if given["prompt"] and not given["validator"] and draft.validator_command:
        return replace(draft, validation_mode="", validator_command="")
    return draft
