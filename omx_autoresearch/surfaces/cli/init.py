"""How a mission begins: init and start."""

from __future__ import annotations

import os
import sys
from dataclasses import fields
from typing import TYPE_CHECKING

import click

from omx_autoresearch.foundation.errors import AutoresearchError, MissionInvalid, StorageFailed, UsageError
from omx_autoresearch.surfaces.cli.caller import Caller, json_option, task_argument, this_caller
from omx_autoresearch.surfaces.cli.display import count_of, print_json, print_rows, say, tell
from omx_autoresearch.surfaces.cli.mission_options import (
    MODES,
    ask_missing,
    changed_draft,
    contract_options,
    freezing_options,
    may_ask,
)

if TYPE_CHECKING:
    from typing import Any

    from omx_autoresearch.missions.contracts import DryRun
    from omx_autoresearch.missions.launch import Started
    from omx_autoresearch.missions.rules.intake import MissionDraft
    from omx_autoresearch.missions.rules.mission import Limits
    from omx_autoresearch.surfaces.documents import StartDocument

START = "omx-autoresearch start"


# --- init


@click.command("init")
@click.option("--goal", help="What shall be true in the end.")
@click.option("--slug", help="Short name of the mission.  [default: from the goal]")
@click.option(
    "--type",
    "task_type",
    type=click.Choice(("standard", "experiment")),
    help="The kind of mission; an experiment needs a criterion `... :: trial METRIC GAIN%`.",
)
@click.option("--mode", type=click.Choice(MODES), help="How it is judged.  [default: from the other options]")
@contract_options
@click.option("--scope", multiple=True, help="What belongs to the mission; may be repeated.")
@click.option("--non-goal", multiple=True, help="What does not; may be repeated.")
@click.option("--milestone", multiple=True, help="What is reached on the way; may be repeated, in order.")
@click.option("--track", is_flag=True, help="Leave the specs folder to be committed.")
@click.option(
    "--dry-run", is_flag=True, help="Run the validator once and show what would be pinned; write nothing."
)
@json_option
def init_verb(dry_run: bool, as_json: bool, **given: Any) -> int:
    """Write down a mission: its goal, and what completes it.

    Exactly one way to be judged is needed: a command (--validator) or a review of a file (--prompt and --output). At a
    terminal you are asked for what is missing.
    """
    from omx_autoresearch.missions.rules.intake import MissionDraft

    caller = this_caller()
    project_path = caller.project_path()
    caller.new_workspace_path()  # refused before anything is asked or written
    draft = changed_draft(MissionDraft(), given)
    if may_ask(as_json=as_json):
        draft = ask_missing(draft)
    _check(draft)
    if dry_run:
        return _try_out(caller, draft, as_json=as_json)
    return _write_down(caller, project_path, draft, as_json=as_json)


def _check(draft: MissionDraft) -> None:
    """Refuse a draft that cannot stand, with the options that are missing."""
    from omx_autoresearch.missions.intake import check_draft

    missing = [] if draft.goal else ["--goal"]
    if not draft.validator_command and not draft.validator_prompt:
        missing.append("--validator (or --prompt with --output)")
    if missing:
        raise UsageError(
            f"missing: {', '.join(missing)}",
            next_step='omx-autoresearch init --goal "what shall be true" --validator "./check.sh"',
        )
    if faults := check_draft(draft):
        raise MissionInvalid("\n".join(faults), next_step="run init again with these mended")


def _write_down(caller: Caller, project_path: str, draft: MissionDraft, *, as_json: bool) -> int:
    from omx_autoresearch.missions.launch import create_mission
    from omx_autoresearch.surfaces.documents import DraftDocument

    mission = create_mission(caller.runtime, project_path, draft)
    document = DraftDocument(
        task_id=mission.task_id,
        slug=mission.slug,
        mission_path=os.path.join(project_path, mission.specs_path, "mission.md"),
        sandbox_path=os.path.join(project_path, mission.specs_path, "sandbox.md"),
        dry_run=False,
        baseline=None,
        output_tail="",
        pinned=(),
        warnings=_warnings(caller, draft),
        next=f"{START} {mission.task_id}",
    )
    if as_json:
        print_json(document)
        return 0
    say(f"Mission {mission.task_id} is written down; nothing is held yet.")
    print_rows([("  mission", document.mission_path, ""), ("  judged by", document.sandbox_path, "")])
    for warning in document.warnings:
        tell(f"warning: {warning}", "yellow")
    say(f"  next: {document.next}")
    return 0


def _warnings(caller: Caller, draft: MissionDraft) -> tuple[str, ...]:
    """What the owner should mend before the start, which would refuse it or hardly work."""
    from omx_autoresearch.missions.contracts import compile_contract, draft_warnings

    workspace_path = caller.new_workspace_path()
    found = list(draft_warnings(caller.runtime, workspace_path, draft))
    try:
        _, manifest = compile_contract(caller.runtime, workspace_path=workspace_path, draft=draft)
        found += manifest.notes
    except AutoresearchError as error:
        found.append(f"start will refuse this as it stands: {error.message}\n  mend it: {error.next_step}")
    return tuple(dict.fromkeys(found))


def _try_out(caller: Caller, draft: MissionDraft, *, as_json: bool) -> int:
    from omx_autoresearch.missions.contracts import dry_run
    from omx_autoresearch.surfaces.documents import DraftDocument

    found = dry_run(caller.runtime, caller.new_workspace_path(), draft)
    document = DraftDocument(
        task_id="",
        slug=draft.slug,
        mission_path="",
        sandbox_path="",
        dry_run=True,
        baseline=found.tryout.report if found.tryout else None,
        output_tail=found.tryout.output if found.tryout else "",
        pinned=found.pinned_paths,
        warnings=_warnings_of(found),
        next="the same command without --dry-run",
    )
    if as_json:
        print_json(document)
        return 0
    if found.tryout is not None:
        report = found.tryout.report
        say("\n".join(f"| {line}" for line in found.tryout.output.splitlines()) or "| (no output)")
        say(f"The validator says: {report.verdict} ({report.cause}): {report.summary}")
    say(
        f"A start would freeze {count_of(len(found.pinned_paths), 'file')}"
        + (":" if found.pinned_paths else ".")
    )
    for path in found.pinned_paths:
        say(f"  {path}")
    for warning in document.warnings:
        tell(f"warning: {warning}", "yellow")
    say("Nothing was written.")
    return 0


def _warnings_of(found: DryRun) -> tuple[str, ...]:
    changed = [
        f"the validator itself changes {path}, so it could never pass" for path in found.changed_by_run
    ]
    passing = (
        ["the validator passes already, so start will refuse it: make it check what is missing"]
        if found.tryout is not None and found.tryout.report.verdict == "passed"
        else []
    )
    return (*found.warnings, *found.notes, *changed, *passing)


# --- start


@click.command("start")
@task_argument
@click.option("--session", default="", metavar="ID", help="Bind this session of an agent CLI at once.")
@click.option(
    "--no-baseline", is_flag=True, help="Do not run the validator first; also starts what passes already."
)
@click.option(
    "--unsandboxed", is_flag=True, help="Approve runs outside a sandbox for a sandboxed agent CLI, too."
)
@freezing_options
@json_option
def start_verb(
    task: str, session: str, no_baseline: bool, unsandboxed: bool, as_json: bool, **given: Any
) -> None:
    """Launch a mission: compile its contract, freeze its evaluators, run the validator once as a baseline.

    Prints the line that a person types in the agent. Run by an agent itself, it binds that agent's own session.
    """
    from omx_autoresearch.missions.launch import StartOptions, start

    caller = this_caller()
    task_id = _startable(caller, task)
    is_agent = caller.is_agent()
    if is_agent and (unsandboxed or session not in ("", caller.session_id)):
        from omx_autoresearch.missions.lifecycle_commands import require_owner

        require_owner(caller.runtime, "start", task_id)
    if is_agent and not caller.can_write(task_id):
        raise StorageFailed(
            "this sandbox lets nothing be written where missions are kept, so no session can be bound from here",
            next_step=f"ask your person to type: $autoresearch {task_id}",
        )
    if given["protect"] or given["unfrozen"] is not None:
        from omx_autoresearch.missions.launch import amend_draft

        amend_draft(caller.runtime, task_id, lambda draft: changed_draft(draft, given))
    options = StartOptions(
        reason=given["reason"],
        session_id=session or (caller.session_id if is_agent else ""),
        client=caller.client if is_agent else "",
        has_baseline=not no_baseline,
        is_agent=is_agent,
        is_unsandboxed=unsandboxed,
        workspace_path=_worktree(caller, task_id),
    )
    if options.has_baseline and sys.stderr.isatty() and not as_json:
        tell("Running the validator once, before any work ...", "dim")
    print_started(caller, start(caller.runtime, task_id, options), is_agent=is_agent, as_json=as_json)


def _worktree(caller: Caller, task_id: str) -> str:
    """The linked work tree of the mission's project that ``start`` is typed in; empty elsewhere."""
    from omx_autoresearch.missions.hook_events import worktree_of
    from omx_autoresearch.missions.store import MissionStore

    mission = MissionStore(caller.runtime.home).load(task_id)
    found = worktree_of(mission, caller.cwd)
    return "" if found == mission.workspace_path else found


def _startable(caller: Caller, named: str) -> str:
    """The mission to start: the named one, the only draft of this project, else the only one under way."""
    from omx_autoresearch.missions.views import draft_tasks

    if named:
        return caller.task(named)
    found = draft_tasks(caller.runtime, caller.cwd)
    if len(found) > 1:
        raise UsageError(
            f"which mission? {len(found)} are written down: {', '.join(found[:8])}",
            next_step=f"{START} {found[0]}",
        )
    return found[0] if found else caller.task("")


def print_started(caller: Caller, started: Started, *, is_agent: bool, as_json: bool) -> None:
    """Say what ``start`` or ``amend`` did."""
    from omx_autoresearch.surfaces.documents import start_document

    document = start_document(caller.runtime, started)
    if as_json:
        print_json(document)
    elif is_agent:
        _print_to_agent(document)
    else:
        _print_to_owner(document)


def _print_to_agent(document: StartDocument) -> None:
    """Short, and the bind token last: an agent CLI may cut a long output, and its hook looks for that word."""
    say(
        f"Mission {document.task_id} is {document.phase}; it holds this session once its agent CLI confirms it."
    )
    say(limits_line(document.limits))
    if document.forbidden:
        say(f"forbidden: {_forbidden_line(document)}")
    if document.bind_token:
        say(document.bind_token)


def _print_to_owner(document: StartDocument) -> None:
    if document.phase == "draft":
        say(f"Mission {document.task_id} is a draft; what was changed stands in its sandbox.md.")
        say(f"  next: {START} {document.task_id}", "dim")
        return
    say(f"Mission {document.task_id} is {document.phase}.", "bold")
    baseline = document.baseline
    said = f"{baseline.verdict} ({baseline.cause}): {baseline.summary}" if baseline else ""
    is_broken = baseline is not None and baseline.verdict == "error"
    judged = document.validator_command or "a review"
    print_rows(
        [
            ("  judged by", f"{judged} ({count_of(document.pinned_count, 'file')} frozen)", ""),
            ("  criteria", "\n".join(document.criteria), ""),
            ("  forbidden", _forbidden_line(document), ""),
            ("  baseline", said, "yellow" if is_broken else ""),
            ("  mend it", f"then: omx-autoresearch amend {document.task_id}" if is_broken else "", "yellow"),
            ("  limits", limits_line(document.limits), ""),
            ("  hold", _hold(document), "green" if document.hold.startswith("proven") else "yellow"),
            *(("  note", note, "yellow") for note in document.notes),
        ]
    )
    if document.phase == "running" and not document.session_id:
        say("\nType this in your agent:\n")
        say(f"    {document.prompt_line}", "bold")
        if document.task_variable:
            say("\nor start the agent with this in its environment; the first session takes it:\n")
            say(f"    OMX_AUTORESEARCH_TASK={document.task_variable}")


def _forbidden_line(document: StartDocument) -> str:
    """What the mission does without, and whom each word binds; empty when nothing is forbidden."""
    kept = [name for name in document.forbidden if name != "publish"]
    said = [f"{', '.join(kept)} (in the runtime's own runs)"] if kept else []
    said += ["publish (a word to the agent)"] if "publish" in document.forbidden else []
    return ", ".join(said)


def _hold(document: StartDocument) -> str:
    if document.hold.startswith("proven"):
        return document.hold
    what = "no session is bound yet" if not document.session_id else "no event of that session was seen yet"
    return f"UNPROVEN: {what}; prove the hook with: omx-autoresearch doctor"


def limits_line(limits: Limits) -> str:
    """Every allowance, none hidden."""
    return ", ".join(f"{item.name} {getattr(limits, item.name):g}" for item in fields(limits))
