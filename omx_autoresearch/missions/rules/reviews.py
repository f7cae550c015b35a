"""What a review settles: one content has one verdict under one contract, and a mission has so many reviews.

A rejection stands until the artifact changes in more than white space, whoever asks again and how often; only a person
overrules it. What is new is reviewed, as long as the owner's allowance ``reviews`` lasts. Pure.
"""

from __future__ import annotations

from omx_autoresearch.foundation.errors import StepIllegal
from omx_autoresearch.foundation.records import replace, sha256
from omx_autoresearch.missions.rules.mission import Rejection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from omx_autoresearch.missions.rules.criteria import WorkspaceSnapshot
    from omx_autoresearch.missions.rules.mission import Attestation, Mission

REJECTED_BY_PERSON = "rejected-by-person"
"""The cause of a person's rejection, as an attestation has it."""
APPROVED_BY_PERSON = "approved-by-person"
"""Likewise of a person's approval."""
_REJECTED = ("rejected", "rejected-by-session", REJECTED_BY_PERSON)
KEPT_REJECTIONS = 64
"""Rejected contents that the state of a mission names, newest last."""
_SUMMARY_CHARACTERS = 300
UNSEEN = (0x34F, 0x115F, 0x1160, 0x3164, 0xFFA0, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
"""Characters that Python calls printable and that nobody sees: fillers, joiners, variation selectors."""


def content_mark(data: bytes) -> str:
    """The sha256 of a text without its white space and what nobody sees; of anything else, of its bytes."""
    try:
        text = "".join(data.decode("utf-8").split())
    except UnicodeDecodeError:
        return sha256(data).hexdigest()
    if not text.isascii():
        text = "".join(filter(str.isprintable, text.translate(dict.fromkeys(UNSEEN))))
    elif not text.isprintable():
        text = "".join(filter(str.isprintable, text))
    return sha256(text.encode()).hexdigest()


def after_verdict(mission: Mission, run: Attestation) -> Mission:
    """The mission after a verdict: a rejection is remembered, a person's approval of the same content lifts it."""
    if run.cause.endswith("-by-session"):
        mission = replace(mission, review_count=mission.review_count + 1)
    if run.contract_digest != mission.contract_digest or not run.output_artifact_digest:
        return mission
    mark = run.output_artifact_mark or run.output_artifact_digest
    others = tuple(item for item in mission.rejections if item.mark != mark)
    if run.verdict == "failed" and run.cause in _REJECTED:
        summary = run.summary[:_SUMMARY_CHARACTERS]
        new = Rejection(run.run_id, run.cause, summary, run.output_artifact_digest, mark)
        count = mission.rejection_count + 1
        return replace(mission, rejections=(*others, new)[-KEPT_REJECTIONS:], rejection_count=count)
    if run.verdict == "passed" and run.cause == APPROVED_BY_PERSON:
        return replace(mission, rejections=others)
    return mission


def is_overruled(mission: Mission, run: Attestation) -> bool:
    """True for a verdict on content that a person approved while the review went on: it changes nothing."""
    said = mission.attestation
    return (
        said is not None
        and said.cause == APPROVED_BY_PERSON
        and not run.cause.endswith("-by-person")
        and (said.contract_digest, said.output_artifact_digest)
        == (run.contract_digest, run.output_artifact_digest)
    )


def rejection_of(mission: Mission, look: WorkspaceSnapshot) -> Rejection | None:
    """The rejection that stands against the artifact as it is; None where nothing rejected this content."""
    digest, mark = look.output_artifact_digest, look.output_artifact_mark
    if not digest:
        return None
    return next((item for item in mission.rejections if item.digest == digest or item.mark == mark), None)


def standing_text(rejection: Rejection, look: WorkspaceSnapshot) -> str:
    """That a rejection stands against this content, and that nobody is asked about it again."""
    is_spaced = rejection.digest != look.output_artifact_digest
    what = "only white space changed since" if is_spaced else "the content is still the same"
    return (
        f"run {rejection.run_id}: failed ({rejection.cause}): {rejection.summary}; {what}, "
        "so this verdict stands and no reviewer is asked again"
    )


def known_of(mission: Mission, look: WorkspaceSnapshot, received: str) -> dict[str, Any]:
    """The fields of a missing review that say what stands against the artifact as it is, and what helps then.

    Args:
        mission: that a review completes.
        look: at its artifact.
        received: what is told of its newest run.
    """
    run, rejection = mission.attestation, rejection_of(mission, look)
    path = mission.contract.output_artifact_path if mission.contract else ""
    if rejection is not None:
        return {
            "received": standing_text(rejection, look),
            "next_command": f"change {path}, then stop again",
        }
    if (
        run is not None
        and run.verdict == "failed"
        and run.output_artifact_digest != look.output_artifact_digest
    ):
        received = f"no review of this content yet; of an earlier one: {received}"
    if not are_reviews_spent(mission):
        return {"received": received}
    return {
        "received": f"{spent_text(mission)}; {received}",
        "next_command": more_reviews_command(mission),
        "is_owners": True,
    }


def are_reviews_spent(mission: Mission) -> bool:
    """True when the reviewer command and other sessions may give no further verdict; a person always may."""
    contract = mission.contract
    return contract is not None and contract.is_review and mission.review_count >= mission.limits.reviews


def more_reviews_command(mission: Mission) -> str:
    """The command by which the owner allows as many reviews again."""
    return f"omx-autoresearch amend {mission.task_id} --limit reviews={2 * mission.limits.reviews}"


def spent_text(mission: Mission) -> str:
    """That the reviews of a mission are spent."""
    return f"all reviews of this mission ({mission.limits.reviews}) are spent"


def refuse_settled(mission: Mission, look: WorkspaceSnapshot) -> None:
    """Let a review of the artifact as it is begin.

    Raises:
        StepIllegal: this content was rejected, or no review is left.
    """
    path = mission.contract.output_artifact_path if mission.contract else ""
    rejection = rejection_of(mission, look)
    if rejection is not None:
        raise StepIllegal(
            f"{path} was rejected as it is: {standing_text(rejection, look)}",
            next_step=f"change {path}, then: omx-autoresearch review {mission.task_id}",
        )
    if are_reviews_spent(mission):
        raise StepIllegal(spent_text(mission), next_step=f"the owner types: {more_reviews_command(mission)}")
