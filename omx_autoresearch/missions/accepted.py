"""What the owner of a mission last wrote or accepted of mission.md and sandbox.md, and what was edited since.

The two files stand in the project, where an agent may edit them, but ``start`` and ``amend`` compile and approve them
in the owner's name. So a copy of what the owner gave (``init``, options) or accepted stands in the state home, and both
verbs show every field that differs from it before they take it. A mission that another made (an agent's ``init``, a
folder that was adopted) has no copy: all of its fields are shown.

The line ``$autoresearch yes CODE`` takes what a prompt showed: the code stands for the digest of that contract, which
is kept beside the copy.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from omx_autoresearch.foundation import json_codec
from omx_autoresearch.foundation.errors import AutoresearchError, StateUntrusted, StepIllegal, UsageError
from omx_autoresearch.foundation.records import dataclass, fields, replace, sha256, to_plain
from omx_autoresearch.foundation.text import escaped, one_line
from omx_autoresearch.freezing import pins
from omx_autoresearch.journal.safe_files import ensure_folder, read_bounded, replace_file
from omx_autoresearch.missions import intake
from omx_autoresearch.missions.contracts import KEPT_NAMES, KEPT_PREFIXES, intake_drift
from omx_autoresearch.missions.intake import SANDBOX_NAME
from omx_autoresearch.missions.rules.allowances import Limits
from omx_autoresearch.missions.rules.criteria import Criterion, criterion_text
from omx_autoresearch.missions.rules.intake import TAKEN_OVER, MissionDraft, settled
from omx_autoresearch.missions.validation.approvals import is_approved, mission_key
from omx_autoresearch.missions.verification import missing_intake

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.missions.rules.mission import Contract, Mission

    Take = Callable[[tuple["Edit", ...], str], None]
    """Called with the edits and the digest of the contract that they lead to; raises where they are not taken."""

VALUE_LIMIT = 600
ALL_FROZEN = "every frozen file"
_OFFER_NAME = "offer.json"
_OFFER_BYTES = 4096
_NAMES = {"environment_names": "env"}
_CODE_LETTERS = 4


@dataclass(frozen=True, slots=True)
class Edit:
    """A field of mission.md or sandbox.md that is not as its owner last accepted it.

    Attributes:
        name: of the field, as the file has it.
        old: its accepted value as text; empty where there was none.
        new: its value in the file as text; empty where there is none.
    """

    name: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.name}: {_shown(self.old)} -> {_shown(self.new)}"


def keep_accepted(runtime: Runtime, task_id: str, draft: MissionDraft) -> None:
    """Keep a draft as what the owner accepts.

    Raises:
        StorageFailed: the system refused.
    """
    folder_path = runtime.home.mission(task_id).accepted_path
    ensure_folder(folder_path)
    for name, data in intake.pages_of(draft).items():
        replace_file(os.path.join(folder_path, name), data)


def accepted_draft(runtime: Runtime, mission: Mission) -> MissionDraft | None:
    """What the owner last accepted, with the allowances that the contract has gained since; None where another made it.

    Of a mission that an older version launched, it is the contract that its owner approved.
    """
    draft = _kept_draft(runtime, mission)
    if draft is not None:
        return draft if mission.contract is None else _grown(draft, mission.contract)
    if mission.contract is None or is_approved(runtime.home, mission_key(mission)) is None:
        return None
    if intake_drift(mission):
        return draft_of_contract(runtime, mission)
    specs_path = os.path.join(mission.project_path, mission.specs_path)
    return _grown(intake.read_intake(specs_path), mission.contract)


def with_grown_limits(runtime: Runtime, mission: Mission, draft: MissionDraft) -> MissionDraft:
    """A draft of the files, with the allowances that have grown since; one that was edited there stays as it is."""
    kept = _kept_draft(runtime, mission)
    if mission.contract is None:
        return draft
    is_edited = draft.limits != kept.limits if kept else SANDBOX_NAME in intake_drift(mission)
    return draft if is_edited else _grown(draft, mission.contract)


def _kept_draft(runtime: Runtime, mission: Mission) -> MissionDraft | None:
    try:
        return intake.read_intake(runtime.home.mission(mission.task_id).accepted_path)
    except (OSError, AutoresearchError):
        return None


def _grown(draft: MissionDraft, contract: Contract) -> MissionDraft:
    return replace(draft, limits={**draft.limits, **own_limits(contract.limits)})


def edits_between(accepted: MissionDraft | None, draft: MissionDraft) -> tuple[Edit, ...]:
    """The fields in which a draft differs from the accepted one; every field that says something where that is None."""
    old, new = settled(accepted or MissionDraft()), settled(draft)
    edits = tuple(
        Edit(_NAMES.get(item.name, item.name), *map(_text, values))
        for item in fields(MissionDraft)
        if item.name not in ("intake_digests", "experiment")
        and (values := (getattr(old, item.name), getattr(new, item.name)))[0] != values[1]
    )
    return (*edits, *_edits_of_block(old.experiment, new.experiment))


def _edits_of_block(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Edit, ...]:
    """The names of an ``experiment:`` block that do not have the same value in both."""
    return tuple(
        Edit(f"experiment.{name}", *(_plain_text(block.get(name, "")) for block in (old, new)))
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    )


def experiment_lines(block: Mapping[str, Any]) -> tuple[str, ...]:
    """An ``experiment:`` block as ``NAME: VALUE``, a line each."""
    return tuple(f"{name}: {_shown(_plain_text(value))}" for name, value in block.items())


def take_experiment(runtime: Runtime, mission: Mission, block: Mapping[str, Any], take: Take) -> None:
    """Show the owner what the ``experiment:`` block has that he never accepted; taken, it is accepted.

    Raises:
        StorageFailed: the system refused.
    """
    accepted = accepted_draft(runtime, mission)
    if edits := _edits_of_block(accepted.experiment if accepted else {}, block):
        take(edits, "")
        if kept := _kept_draft(runtime, mission):
            keep_accepted(runtime, mission.task_id, replace(kept, experiment=dict(block)))


def terms_digest(contract_digest: str, draft: MissionDraft) -> str:
    """The digest of all that an owner is shown: the contract, and the ``experiment:`` block, which is no part of it."""
    if not draft.experiment:
        return contract_digest
    return sha256(contract_digest.encode("ascii") + json_codec.encode(draft.experiment)).hexdigest()


def edits_of_frozen(runtime: Runtime, mission: Mission) -> tuple[Edit, ...]:
    """The frozen files that are not as they were frozen, and what was added in their place; none before the launch."""
    if mission.contract is None or not os.path.isdir(mission.workspace_path):
        return ()
    folder = runtime.home.mission(mission.task_id)
    try:
        manifest = pins.load_manifest(folder.frozen_path, mission.contract.pin_digest)
    except StateUntrusted:
        return (Edit(ALL_FROZEN, "as they were frozen", "as they are now: their list is missing or damaged"),)
    check = pins.compare(
        manifest,
        mission.workspace_path,
        frozen_path=folder.frozen_path if mission.contract.mounts_pins else "",
    )
    return (
        *(Edit(path, "as it was frozen", "changed or missing") for path in check.changed),
        *(Edit(path, "", "added where it would be loaded") for path in check.added),
    )


def take_contract(runtime: Runtime, mission: Mission, take: Take) -> None:
    """Show the owner what the contract has that he never accepted, since an agent launched it; taken, it is accepted.

    Raises:
        StateUntrusted: the list of the pinned files cannot be read.
        StorageFailed: the system refused.
    """
    if mission.contract is None:
        return
    accepted = accepted_draft(runtime, mission)
    if intake_drift(mission):
        draft = draft_of_contract(runtime, mission)
        if accepted is not None:  # the contract has what these lead to, and not how they were written
            names = ("protect", "environment_names", "limits", "experiment")
            draft = replace(draft, **{name: getattr(accepted, name) for name in names})
    else:
        specs_path = os.path.join(mission.project_path, mission.specs_path)
        draft = with_grown_limits(runtime, mission, intake.read_intake(specs_path))
    if edits := edits_between(accepted, draft):
        take(edits, terms_digest(mission.contract_digest, draft))
        keep_accepted(runtime, mission.task_id, draft)


def refuse_edits(task_id: str, verb: str) -> Take:
    """A ``Take`` that takes none: it names the edits, and the option that takes them."""

    def take(edits: tuple[Edit, ...], _digest: str) -> None:
        raise StepIllegal(
            "\n".join((told_edits(task_id), *(f"  - {edit}" for edit in edits))),
            next_step=f"read them, then: omx-autoresearch {verb} {task_id} --take-edits",
        )

    return take


def told_edits(task_id: str) -> str:
    """The line above a list of edits."""
    return f"what {task_id} is judged by is not as you gave or accepted it:"


# --- the offer of a prompt


def offer(runtime: Runtime, task_id: str, digest: str) -> str:
    """Keep the digest of a contract that a person is shown; returns the code that accepts it.

    Raises:
        StorageFailed: the system refused.
    """
    folder_path = runtime.home.mission(task_id).accepted_path
    ensure_folder(folder_path)
    text = json_codec.pretty({"digest": digest}) + "\n"
    replace_file(os.path.join(folder_path, _OFFER_NAME), text.encode("ascii"))
    return code_of(digest)


def offered(runtime: Runtime, code: str, drafts: tuple[str, ...]) -> tuple[str, str]:
    """The one of these drafts that was shown with a code, and the digest of the contract that was shown.

    Raises:
        UsageError: no contract was shown with this code.
    """
    for task_id in drafts:
        digest = _offered_digest(runtime, task_id)
        if digest and code_of(digest) == code.upper():
            return task_id, digest
    raise UsageError(
        f"no contract was shown with the code {one_line(code, 20)!r}", next_step="$autoresearch TASK"
    )


def code_of(digest: str) -> str:
    """Four letters that stand for a digest where a person types it."""
    number, letters = int(digest, 16), ""
    for _ in range(_CODE_LETTERS):
        number, letter = divmod(number, 26)
        letters += chr(ord("A") + letter)
    return letters


def _offered_digest(runtime: Runtime, task_id: str) -> str:
    path = os.path.join(runtime.home.mission(task_id).accepted_path, _OFFER_NAME)
    try:
        found = json_codec.decode(read_bounded(path, _OFFER_BYTES))
    except (OSError, ValueError, AutoresearchError):
        return ""
    digest = found.get("digest") if isinstance(found, dict) else None
    return digest if isinstance(digest, str) and len(digest) == 64 else ""


# --- a contract as a draft


def draft_of_contract(runtime: Runtime, mission: Mission) -> MissionDraft:
    """The contract as a draft: every pinned file is protected by name, every variable beyond the usual is declared.

    Of a mission that was not launched yet, what the journal knows: no way to judge it.

    Raises:
        StateUntrusted: the list of the pinned files cannot be read.
    """
    draft = MissionDraft(
        goal=mission.goal,
        slug=mission.slug,
        task_type=mission.task_type,
        scope=mission.scope,
        non_goals=mission.non_goals,
        milestones=mission.milestones,
    )
    contract = mission.contract
    if contract is None:
        return draft
    manifest = pins.load_manifest(runtime.home.mission(mission.task_id).frozen_path, contract.pin_digest)
    return replace(
        draft,
        **{name: getattr(contract, name) for name in TAKEN_OVER},
        protect=tuple(pin.path for pin in manifest.pins if pin.kind != "absent-guard"),
        environment_names=tuple(
            name
            for name in contract.environment
            if name not in KEPT_NAMES and not name.startswith(KEPT_PREFIXES)
        ),
        forbid=contract.forbidden,
        limits=own_limits(contract.limits),
        intake_digests=dict(contract.intake_digests),
    )


def own_limits(limits: Limits) -> dict[str, int | float]:
    """The allowances that differ from the defaults."""
    usual = to_plain(Limits())
    return {name: value for name, value in to_plain(limits).items() if value != usual[name]}


def restore_intake(runtime: Runtime, mission: Mission) -> None:
    """Write mission.md, sandbox.md and result.json anew where they are gone, as the owner last accepted them.

    Of a draft that another made mission.md alone, since the journal does not know how it is judged.

    Raises:
        StateUntrusted: the list of the pinned files cannot be read.
        StorageFailed: the system refused.
    """
    if missing_intake(mission):
        draft = accepted_draft(runtime, mission) or draft_of_contract(runtime, mission)
        intake.restore_intake(runtime, mission.project_path, mission.specs_path, draft)


# --- values as text


def _text(value: Any) -> str:
    if isinstance(value, Criterion):
        return criterion_text(value)
    if isinstance(value, tuple):  # numbered, so that one item cannot look like two
        texts = list(map(_text, value))
        return (
            " ".join(f"({number}) {text}" for number, text in enumerate(texts, 1))
            if texts[1:]
            else "".join(texts)
        )
    if isinstance(value, dict):
        return ", ".join(f"{name}={value[name]:g}" for name in sorted(value))
    if isinstance(value, bool):
        return "yes" if value else ""
    return value if isinstance(value, str) else f"{value:g}"


def _plain_text(value: Any) -> str:
    """A value of YAML as text: a string as it is, everything else as JSON."""
    return value if isinstance(value, str) else json_codec.encode(value).decode("utf-8")


def _shown(text: str) -> str:
    whole = escaped(text)
    if len(whole) > VALUE_LIMIT:
        return f"{whole[:VALUE_LIMIT]}… ({len(whole)} characters; read the rest in the file)"
    return whole or "nothing"
