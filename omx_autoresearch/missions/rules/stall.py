"""Progress and its absence: what resets the stale count, what only holds it, what adds to it.

Strong progress (accepted evidence, a better score, an accepted trial, a publication) resets. Weak progress (the tree
changed, the validator said something new, a pivot that was never tried, reading that found something) holds, a finite
number of times between two strong ones. Everything else adds one, and so does a repeated direction or a drop of the
metric. Nothing else moves the count: not a release, not a repeated stop, not the same evidence again.
"""

from __future__ import annotations

from omx_autoresearch.foundation.records import dataclass, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.foundation.types import Progress
    from omx_autoresearch.missions.rules.budget import Limits, Usage


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen of one iteration, the pass between two stops.

    Attributes:
        has_new_evidence: a criterion accepted evidence that it had not before.
        has_better_score: the validator's score beat the best of the mission.
        has_accepted_trial: a measured trial was accepted.
        has_publication: research was published.
        has_tree_change: the tree digest differs from the one at the last stop.
        has_new_output: the validator's output, masked, was never seen in this mission.
        has_pivot: a pivot with an untried fingerprint was declared.
        has_reading: tools ran, the tree stayed, and under a declared direction something was found.
        has_metric_drop: the score is below the last one.
        repeats_direction: the declared direction was tried before.
        is_person_turn_without_tools: a person began the turn and no tool ran; such a turn is no iteration.
    """

    has_new_evidence: bool = False
    has_better_score: bool = False
    has_accepted_trial: bool = False
    has_publication: bool = False
    has_tree_change: bool = False
    has_new_output: bool = False
    has_pivot: bool = False
    has_reading: bool = False
    has_metric_drop: bool = False
    repeats_direction: bool = False
    is_person_turn_without_tools: bool = False


def progress_of(seen: Observation) -> Progress:
    """The kind of progress that an iteration made."""
    if seen.has_new_evidence or seen.has_better_score or seen.has_accepted_trial or seen.has_publication:
        return "strong"
    if seen.has_tree_change or seen.has_new_output or seen.has_pivot or seen.has_reading:
        return "weak"
    return "none"


def after_iteration(usage: Usage, seen: Observation, limits: Limits) -> Usage:
    """The counters after one iteration; pure, and the only place that moves the stale count."""
    progress = progress_of(seen)
    if progress == "strong":
        return replace(usage, stale=0, weak_holds=0, background_allows=0, wait_refusals=0)
    if seen.is_person_turn_without_tools:
        return usage
    is_held = progress == "weak" and usage.weak_holds < limits.weak_holds
    if is_held:
        usage = replace(usage, weak_holds=usage.weak_holds + 1)
    if seen.has_metric_drop or seen.repeats_direction or not is_held:
        usage = replace(usage, stale=usage.stale + 1)
    return usage


def is_stalled(usage: Usage, limits: Limits) -> bool:
    """True when the mission must stop asking the agent and ask a person."""
    return usage.stale >= limits.stale_stalled or usage.idle_refusals >= limits.idle_refusals


_MASKS = (
    r"\x1b\[[0-9;?]*[A-Za-z]",
    r"(?:/[\w.@+-]+){2,}",
    r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|0x[0-9a-fA-F]+|\b[0-9a-f]{7,128}\b",
    r"\d+",
    r"\s+",
)


def masked(output: str) -> str:
    """Validator output without what changes by itself: digits, times, paths, digests, colours, spacing."""
    if not output:
        return ""
    import re

    for mask in _MASKS:
        output = re.sub(mask, " ", output)
    return output.strip()
