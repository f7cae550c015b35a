"""``review``: have the artifact reviewed, or give a verdict on exactly the content that was shown or named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.foundation.text import count_of
from omx_autoresearch.missions import lifecycle_commands, session_reviews
from omx_autoresearch.missions.lifecycle_commands import require_owner
from omx_autoresearch.missions.validation.exhibits import exhibit
from omx_autoresearch.missions.validation.reviews import record_review, require_reviewer
from omx_autoresearch.surfaces.cli.console import (
    CHECK_SAID_NO,
    RELAY,
    Caller,
    RelayDocument,
    json_option,
    may_ask,
    print_json,
    say,
    task_argument,
    tell,
    this_caller,
    verb,
)
from omx_autoresearch.surfaces.cli.status import RUN, print_run
from omx_autoresearch.surfaces.cli.validate import run_now, seconds_option

if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.mission import Mission
    from omx_autoresearch.missions.validation.exhibits import Exhibit


@verb("review", RUN, RELAY)
@task_argument
@click.option("--approve", "verdict", flag_value="approved", help="Approve the artifact.")
@click.option("--reject", "verdict", flag_value="rejected", help="Reject the artifact.")
@click.option("--summary", default="", help="One sentence about the verdict.")
@click.option(
    "--digest",
    default="",
    metavar="SHA256",
    help="The content that the verdict is about, by its whole sha256; asked for where there is no terminal.",
)
@seconds_option
@json_option
def review_verb(  # noqa: PLR0913 - an option each
    task: str, *, verdict: str | None, summary: str, digest: str, seconds: float | None, as_json: bool
) -> int:
    """Run the reviewer command on the artifact now, or give your own verdict with --approve or --reject.

    At a terminal you are shown the question, the artifact and what changed in it since it was last reviewed, and are
    asked; without a reviewer command you need no option for that. Elsewhere --digest names what you have read. The
    verdict of another session counts where the mission allows it, once its agent CLI confirms the command.
    Exits with 0 if the artifact was approved, else with 9.
    """
    caller = this_caller()
    task_id = caller.task(task)
    mission = caller.mission(task_id)
    by_person = mission.contract is not None and "person" in mission.contract.reviewed_by
    if verdict or (by_person and _asks(mission, as_json=as_json) and not caller.is_agent()):
        return _give_verdict(caller, mission, verdict or "", summary, digest, as_json=as_json)
    mission = lifecycle_commands.require_runnable(caller.runtime, task_id, is_review=True)
    return run_now(caller, mission, seconds, as_json=as_json)


def _asks(mission: Mission, *, as_json: bool) -> bool:
    """Whether ``review`` without a verdict asks for one: there is no reviewer command, and a person can answer."""
    contract = mission.contract
    return bool(contract and contract.is_review and not contract.reviewer_command) and may_ask(
        as_json=as_json
    )


def _give_verdict(  # noqa: PLR0913 - what a verdict says
    caller: Caller, mission: Mission, verdict: str, summary: str, digest: str, *, as_json: bool
) -> int:
    task_id, runtime = mission.task_id, caller.runtime
    is_admitted = mission.contract is not None and "session" in mission.contract.reviewed_by
    if is_admitted and (caller.session_id or caller.is_agent()):
        seen = exhibit(runtime, mission)
        session_reviews.hand_over(
            runtime, mission, caller.session_id, caller.client, digest=_named(task_id, verdict, digest, seen)
        )
        _print_handed(task_id, as_json=as_json)
        return 0
    require_owner(runtime, "review", task_id)
    require_reviewer(mission, "person")
    seen = exhibit(runtime, mission)
    if digest or not may_ask(as_json=as_json):
        digest = _named(task_id, verdict, digest, seen)
    else:
        asked = _asked(caller, mission, seen, verdict)
        if asked is None:
            tell("No verdict was given.")
            return CHECK_SAID_NO
        verdict, digest = asked
        if verdict == "rejected" and not summary:
            summary = click.prompt(
                "What is missing? (one sentence)", default="", show_default=False, err=True
            )
    was_blocked = mission.phase == "blocked"
    is_approved = verdict == "approved"
    mission = record_review(
        runtime, task_id, "person", is_approved=is_approved, summary=summary, digest=digest
    )
    print_run(caller, mission, is_running=False, as_json=as_json)
    if was_blocked and mission.phase == "running" and not as_json:
        then = (
            "that its next stop completes it" if is_approved else "that it reads the verdict at its next stop"
        )
        say(f"The mission runs again. Its agent was let go: type anything to it, so {then}.")
    return 0 if is_approved else CHECK_SAID_NO


def _named(task_id: str, verdict: str, digest: str, seen: Exhibit) -> str:
    """The digest that the caller names.

    Raises:
        UsageError: none is named.
    """
    if digest:
        return digest.strip().lower()
    word = "--approve" if verdict == "approved" else "--reject"
    raise UsageError(
        f"without a terminal a verdict names the content that it is about; {seen.path} is sha256 {seen.digest} now",
        next_step=f"read it, then: omx-autoresearch review {task_id} {word} --digest SHA256",
    )


def _asked(caller: Caller, mission: Mission, seen: Exhibit, verdict: str) -> tuple[str, str] | None:
    """The verdict of the person at this terminal and the digest of what it is about; None for no verdict.

    What changed while the person read is shown, and asked about again.
    """
    while True:
        _show(seen)
        answer = _answer(seen, verdict)
        if not answer:
            return None
        now = exhibit(caller.runtime, mission, earlier=seen.content)
        if now.digest == seen.digest:
            return answer, seen.digest
        tell(f"{seen.path} changed while you read it; this is what changed:", "yellow")
        seen = now


def _show(seen: Exhibit) -> None:
    tell(seen.question, label="question ")
    tell(f"{seen.path}, {count_of(seen.size_bytes, 'byte')}", label="artifact ")
    tell(seen.digest, label="sha256   ")
    if seen.rejection:
        said = f"rejected as it is, in run {seen.rejection.run_id}: {seen.rejection.summary}"
        tell(said, "yellow", label="verdict  ")
    tell("what changed since it was last reviewed:" if seen.is_difference else "content:", "bold")
    for line in seen.lines:
        tell(f"  | {line}")
    if seen.more_lines < 0:
        tell(f"  (too large to be shown here: read {seen.path})", "yellow")
    elif seen.more_lines:
        tell(f"  ({count_of(seen.more_lines, 'more line')}: read {seen.path})", "yellow")


def _answer(seen: Exhibit, verdict: str) -> str:
    """``approved``, ``rejected``, or empty."""
    if verdict:
        word = "Approve" if verdict == "approved" else "Reject"
        return verdict if click.confirm(f"{word} exactly this?", err=True) else ""
    choice = click.Choice(["approve", "reject", "none"])
    answer = click.prompt(f"Your verdict on {seen.path}", type=choice, default="none", err=True)
    return {"approve": "approved", "reject": "rejected"}.get(answer, "")


def _print_handed(task_id: str, *, as_json: bool) -> None:
    """What a reviewing session is told: its agent CLI has the last word."""
    if as_json:
        print_json(RelayDocument(task_id, "review"))
    else:
        say("The verdict counts once the agent CLI of this session confirms this command by its hook.")
        say(f"  next: omx-autoresearch status {task_id}", "dim")
