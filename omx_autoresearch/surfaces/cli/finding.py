"""Findings on the command line: ``finding add | list | show | import``, and ``findings``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from omx_autoresearch.foundation.errors import StorageFailed, UsageError
from omx_autoresearch.foundation.records import dataclass, to_plain
from omx_autoresearch.foundation.text import count_of
from omx_autoresearch.missions import findings
from omx_autoresearch.missions.findings import import_findings, show_finding
from omx_autoresearch.missions.rules.criteria import FINDING_KINDS, SUMMARY_LIMIT_BYTES
from omx_autoresearch.surfaces.cli.console import (
    RELAY,
    Caller,
    Document,
    is_relayed,
    json_option,
    print_json,
    print_rows,
    print_table,
    say,
    task_argument,
    tell,
    this_caller,
    verb,
    with_options,
)
from omx_autoresearch.surfaces.documents import (
    FindingDocument,
    FindingLine,
    FindingListDocument,
    finding_document,
    finding_list_document,
)

if TYPE_CHECKING:
    from typing import Any

    from omx_autoresearch.missions.findings import Recorded


_SHOWN_CHARACTERS = 200


FINDING = Document("finding", FindingDocument)
FINDINGS = Document("finding-list", FindingListDocument)


@verb("finding add", FINDING, RELAY)
@task_argument
@click.option("--summary", required=True, help="The observation; `-` reads it from standard input.")
@click.option("--kind", type=click.Choice(FINDING_KINDS), default="manual", show_default=True)
@click.option("--criterion", default="", metavar="ID", help="Offer it as evidence for this criterion.")
@click.option("--id", "finding_id", default="", help="Its id, unique in the mission.  [default: generated]")
@click.option(
    "--command", "shown_by", default="", help="The command that showed it; kept as text, never run."
)
@click.option("--path", "paths", multiple=True, help="A file that it is about; may be repeated.")
@click.option(
    "--seconds",
    type=click.FloatRange(0, 7 * 24 * 3600),
    default=None,
    help="Wait at most this long for the criterion's command.  [default: 90]",
)
@json_option
def finding_add(task: str, seconds: float | None, as_json: bool, **given: Any) -> None:
    """Record one finding.

    With --criterion, only the criterion's own rule makes it evidence: the runtime runs its command or reads its file.
    Exits with 0 even if it stays a claim: a claim is kept and shown, too.
    """
    caller = this_caller()
    task_id = caller.task(task)
    submission = findings.Submission(
        summary=_summary(given["summary"]),
        kind=given["kind"],
        id=given["finding_id"],
        command=given["shown_by"],
        paths=given["paths"],
        criterion_id=given["criterion"],
    )
    patience = findings.CHECK_SECONDS if seconds is None else seconds
    try:
        recorded = findings.add_finding(
            caller.runtime, task_id, submission, source="cli", wait_seconds=patience
        )
    except StorageFailed:
        if caller.can_write(task_id):
            raise
        try:
            recorded = findings.drop_finding(caller.runtime, task_id, submission)
        except StorageFailed:
            if given["summary"] == "-" or not is_relayed(caller, task_id, "finding", as_json=as_json):
                raise
            return
    _print_recorded(caller, task_id, recorded, as_json=as_json)


def _summary(given: str) -> str:
    """The text, or what stands on standard input: an argument has a limit of its own, 128 KiB on Linux."""
    if given != "-":
        return given
    data = sys.stdin.buffer.read(SUMMARY_LIMIT_BYTES + 2)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"summary: byte {error.start} is not UTF-8", next_step="send it as UTF-8") from None
    return text.removesuffix("\n")


_list_options = with_options(
    task_argument,
    click.option(
        "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most this many."
    ),
    click.option("--accepted", "wanted", flag_value="accepted", help="Evidence only."),
    click.option("--claims", "wanted", flag_value="claims", help="Claims only."),
    click.option(
        "--before", type=int, default=0, metavar="SEQ", help="Only records before this one, to page on."
    ),
    json_option,
)


@verb("finding list", FINDINGS)
@_list_options
def finding_list(**given: Any) -> None:
    """Show the newest findings, evidence first."""
    _print_list(**given)


@verb("findings", FINDINGS)
@_list_options
def findings_verb(**given: Any) -> None:
    """Show the newest findings, evidence first; the same as `finding list`."""
    _print_list(**given)


@verb("finding show", FINDING)
@click.argument("words", nargs=-1, required=True, metavar="[TASK] ID")
@json_option
def finding_show(words: tuple[str, ...], as_json: bool) -> None:
    """Show one finding by its id."""
    caller = this_caller()
    if len(words) > 2:
        raise UsageError(
            "only one finding can be shown at a time", next_step="omx-autoresearch finding show TASK ID"
        )
    task_id = caller.task(words[0] if len(words) == 2 else "")
    line = show_finding(caller.runtime, task_id, words[-1])
    if line is None:
        raise UsageError(
            f"mission {task_id} has no finding {words[-1][:80]!r}",
            next_step=f"omx-autoresearch finding list {task_id}",
        )
    shown = FindingLine(**line)
    if as_json:
        next_step = f"omx-autoresearch readiness {task_id}"
        reason = shown.claim_reason
        print_json(FindingDocument(task_id, shown.id, shown.accepted, reason, True, False, shown, next_step))
        return
    print_rows([(name, _text(value), "") for name, value in to_plain(shown).items()])


@dataclass(frozen=True, slots=True)
class ImportDocument:
    """``finding import``.

    Attributes:
        task_id: of the mission.
        added: findings recorded now, all of them claims.
        known: findings of the file that the mission had already.
    """

    task_id: str
    added: int
    known: int


@verb("finding import", Document("finding-import", ImportDocument))
@click.argument("words", nargs=-1, required=True, metavar="[TASK] FILE")
@json_option
def finding_import(words: tuple[str, ...], as_json: bool) -> None:
    """Record every line of a JSON Lines file as a claim; if one line is invalid, record none."""
    caller = this_caller()
    if len(words) > 2:
        raise UsageError(
            "only one file can be imported at a time", next_step="omx-autoresearch finding import TASK FILE"
        )
    task_id = caller.task(words[0] if len(words) == 2 else "")
    imported = import_findings(caller.runtime, task_id, words[-1])
    if as_json:
        print_json(ImportDocument(task_id, imported.added, imported.known))
    else:
        added = count_of(imported.added, "finding")
        say(f"Imported {added} into {task_id}, as claims; {imported.known} were known already.")


# --- printing


def _print_recorded(caller: Caller, task_id: str, recorded: Recorded, *, as_json: bool) -> None:
    finding = recorded.finding
    if as_json:
        print_json(finding_document(caller.runtime, task_id, recorded))
        return
    word = "evidence" if recorded.was_accepted else "not recorded yet" if recorded.is_pending else "a claim"
    say(f"{finding.id} is {word}" + (f" for {finding.criterion_id}." if finding.criterion_id else "."))
    evidence = finding.evidence
    print_rows(
        [
            ("  summary", finding.summary[:_SHOWN_CHARACTERS], ""),
            ("  reason", recorded.reason, "yellow"),
            ("  run", evidence.run_id if evidence else "", "dim"),
        ]
    )


def _text(value: Any) -> str:
    """A field for people: lists by commas, evidence by its fields."""
    if isinstance(value, dict):
        return "\n".join(f"{name}: {item}" for name, item in value.items())
    return (
        ", ".join(map(str, value))
        if isinstance(value, (list, tuple))
        else str(value if value is not None else "")
    )


def _print_list(task: str, limit: int, wanted: str | None, before: int, as_json: bool) -> None:
    caller = this_caller()
    task_id = caller.shown_view(task).task_id
    document = finding_list_document(
        caller.runtime, task_id, limit=limit, wanted=wanted or "all", before=before
    )
    if as_json:
        print_json(document)
        return
    found = document.findings
    if not found:
        tell(f"Mission {document.task_id} has no finding yet.")
        return
    rows = [
        (
            line.id,
            "evidence" if line.accepted else "claim",
            line.kind,
            line.criterion_id,
            line.summary[:_SHOWN_CHARACTERS].replace("\n", " "),
        )
        for line in found
    ]
    styles = ["green" if line.accepted else "" for line in found]
    print_table(("ID", "IS", "KIND", "CRITERION", "SUMMARY"), rows, styles)
