"""``adopt``: begin a mission from another runtime's task folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from omx_autoresearch.foundation.errors import MissionInvalid
from omx_autoresearch.surfaces.cli.caller import json_option, this_caller
from omx_autoresearch.surfaces.cli.display import print_json, print_rows, say, tell
from omx_autoresearch.surfaces.cli.mission_options import changed_draft, contract_options

if TYPE_CHECKING:
    from typing import Any

    from omx_autoresearch.compat.adoption import Adopted
    from omx_autoresearch.missions.rules.intake import MissionDraft
    from omx_autoresearch.surfaces.documents import AdoptDocument


@click.command("adopt")
@click.argument("path", type=click.Path())
@click.option("--slug", help="Short name of the mission.  [default: from the goal]")
@contract_options
@json_option
def adopt_verb(path: str, as_json: bool, **given: Any) -> None:
    """Begin a mission from PATH: a `.reasonix/autoresearch/ID` folder, or one of the long-horizon protocol.

    The folder is read and stays as it is. Its findings become claims, its directions are remembered as tried, and its
    criteria wait for your word unless --criterion gives them a rule. What completes the mission no such folder says:
    --validator, or --prompt with --output.
    """
    from omx_autoresearch.compat.adoption import adopt, draft_of, read_origin

    caller = this_caller()
    project_path = caller.project_path()
    origin = read_origin(os.path.join(caller.cwd, os.path.expanduser(path)))
    draft = changed_draft(draft_of(origin, project_path), given)
    _check(draft, path)
    adopted = adopt(caller.runtime, project_path, origin, draft)
    document = _document(adopted, draft)
    if as_json:
        print_json(document)
        return
    say(f"Mission {document.task_id} is written down; {document.origin_path} stays as it is.")
    print_rows(
        [
            ("  findings", str(document.findings), "claims: nobody attested them"),
            ("  directions", str(document.directions), "remembered as tried"),
            ("  judged by", document.sandbox_path, ""),
        ]
    )
    for note in document.notes:
        tell(f"note: {note}", "yellow")
    say(f"  next: {document.next}")


def _check(draft: MissionDraft, path: str) -> None:
    from omx_autoresearch.missions.intake import check_draft

    if faults := check_draft(draft):
        how = "" if draft.validator_command or draft.validator_prompt else " --validator './check.sh'"
        raise MissionInvalid("\n".join(faults), next_step=f"omx-autoresearch adopt {path}{how}")


def _document(adopted: Adopted, draft: MissionDraft) -> AdoptDocument:
    from omx_autoresearch.surfaces.documents import AdoptDocument

    mission, origin = adopted.mission, adopted.origin
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
