"""One trial: a candidate is made, taken as a tree, measured against the incumbent, and kept only where it is better.

    make      the callback works in the candidate's worktree, within its time
    take      frozen files untouched, something changed, a tree that a patch can carry; then exactly that tree
    measure   set-up, check, warm-ups, pairs until the judge knows
    confirm   guards, held-out check, and a second judgement on fresh pairs with the worktrees swapped

The first step that finds a reason ends it. Nothing here decides what the incumbent is: the caller records the end, and
restores the worktrees unless it is an acceptance.
"""

from __future__ import annotations

import os
from statistics import median
from typing import TYPE_CHECKING

from omx_autoresearch.core.acceptance import verify_rule
from omx_autoresearch.core.experiment_summary import effect_text
from omx_autoresearch.core.guards import guard_failures
from omx_autoresearch.core.trial_events import CandidateMade
from omx_autoresearch.core.values import replace
from omx_autoresearch.errors import AutoresearchError, StateUntrusted, UsageError, WorkspaceFault
from omx_autoresearch.runtime.experiments.callbacks import CallbackRun
from omx_autoresearch.runtime.experiments.ending import TrialEnded, failed, rejected
from omx_autoresearch.runtime.experiments.evaluators import restore_evaluators
from omx_autoresearch.runtime.experiments.judging import judge, seed_of
from omx_autoresearch.runtime.experiments.measuring import ARMS, Place
from omx_autoresearch.runtime.experiments.site import is_reverified
from omx_autoresearch.system.attributes import ATTRIBUTES_NAME, same_attributes
from omx_autoresearch.system.checkpoints import TreeFault
from omx_autoresearch.system.user_repository import named, shown_path

if TYPE_CHECKING:
    from omx_autoresearch.core.acceptance import Calibration
    from omx_autoresearch.core.experiments import HypothesisOutcome, TrialRow
    from omx_autoresearch.runtime.experiments.callbacks import Callback
    from omx_autoresearch.runtime.experiments.judging import Judgement
    from omx_autoresearch.runtime.experiments.site import Site
    from omx_autoresearch.runtime.experiments.steps import Steps
    from omx_autoresearch.runtime.experiments.workspaces import ExperimentWorkspace

CHANGED_LIMIT = 300
"""Paths that a row names."""
TRIALS_WITHOUT_LIMIT = 100
"""The mission that re-verification protects where no number of trials is set."""
_REASON_LENGTH = 2000


class Trial:
    """One admitted hypothesis.

    Args:
        site: where it is tried.
        steps: its budgets and its cancellation.
        row: as admitted.

    Attributes:
        row: what is known by now.
        call: of the callback; it may straggle after the trial's end.
        is_swapped: both worktrees were used for the second judgement.
    """

    def __init__(self, site: Site, steps: Steps, row: TrialRow) -> None:
        self._site = site
        self._steps = steps
        self._began = site.log.runtime.clock.monotonic()
        self.row = row
        self.call: CallbackRun | None = None
        self.is_swapped = False

    def play(self, callback: Callback, workspace: ExperimentWorkspace) -> TrialRow:
        """Try it; returns the terminal row, without having recorded it.

        Raises:
            BaseException: the calling thread was interrupted; `row` says how far it came.
        """
        try:
            self._make(callback, workspace)
            finish_refresh = self._site.begin_refresh()
            try:
                self._take(workspace.path)
            finally:
                finish_refresh()
            calibration = self._site.log.state.calibration
            if calibration is None:
                raise failed("no_baseline", "the baseline is not established")
            judgement = self._measure(calibration)
            self._confirm(judgement, calibration)
            return self.ended(
                "accepted",
                "improved",
                f"better by {effect_text(judgement.verdict.estimate, judgement.verdict.scale)}",
            )
        except TrialEnded as end:
            return self.ended(end.status, end.code, end.reason)
        except WorkspaceFault as fault:
            return self.ended("failed", self._workspace_code(), fault.message)
        except StateUntrusted as fault:
            return self.ended("failed", fault.slug.replace("-", "_"), fault.message)
        except AutoresearchError as fault:
            return self.ended("failed", f"{fault.slug.replace('-', '_')}_failed", fault.message)

    def ended(self, status: str, code: str, reason: str) -> TrialRow:
        """The row at its end; an accepted one alone names its commit."""
        runtime = self._site.log.runtime
        sentence, _, detail = reason.partition("\n")
        self.row = replace(
            self.row,
            status=status,  # type: ignore[arg-type]
            reason_code=code,
            reason=sentence[:_REASON_LENGTH],
            detail=detail[:_REASON_LENGTH],
            candidate_commit=self.row.candidate_commit if status == "accepted" else "",
            duration_seconds=round(max(0.0, runtime.clock.monotonic() - self._began), 6),
            ended_at=runtime.now(),
        )
        return self.row

    def _workspace_code(self) -> str:
        workspaces = self._site.workspaces
        is_lost = any(map(workspaces.is_lost, (workspaces.incumbent_path, workspaces.candidate_path)))
        return "workspace_lost" if is_lost else "workspace_failed"

    # --- make

    def _make(self, callback: Callback, workspace: ExperimentWorkspace) -> None:
        self._steps.check()
        self._site.furnish(self._site.measuring(self._steps, Place(self.row.iteration, "trial")))
        seconds = self._site.config.hypothesis_timeout_seconds
        self.call = CallbackRun(callback, workspace)
        outcome = self.call.wait(seconds or None, "timed_out")
        self._note(outcome)
        if self._site.config.limits.disk_bytes:
            self._site.log.measure_disk()
        if outcome.fault:
            raise failed(outcome.fault, outcome.fault_reason or "the host brought no candidate")
        self._steps.check()

    def _note(self, outcome: HypothesisOutcome) -> None:
        """Record what the turn cost before anything else can happen."""
        try:
            usage = self._site.log.usage(cost_usd=outcome.cost_usd)
        except UsageError as fault:
            raise failed("callback_failed", fault.message) from None
        self.row = replace(
            self.row,
            cost_usd=float(outcome.cost_usd),
            description=outcome.description or self.row.description,
            direction=outcome.direction or self.row.direction,
            metadata={**self.row.metadata, **outcome.metadata},
        )
        self._site.log.record(CandidateMade(self.row, usage))

    # --- take

    def _take(self, path: str) -> None:
        """The candidate's tree as a commit, and the worktree made exactly that."""
        workspaces = self._site.workspaces
        if workspaces.is_lost(path):
            raise failed("workspace_lost", f"the worktree {path} is gone")
        if touched := restore_evaluators(self._site.bench, path):
            raise rejected("tampered", f"frozen files were touched: {named(touched)}")
        taken = workspaces.checkpoint(path, self._message())
        if isinstance(taken, TreeFault):
            ends = failed if taken.reason_code == "workspace_lost" else rejected
            raise ends(taken.reason_code, taken.detail)
        if not taken.changed:
            raise rejected("no_change", "nothing was changed, so nothing was measured")
        self._require_frozen_as_written(taken.changed)
        changed = tuple(shown_path(name) for name in taken.changed[:CHANGED_LIMIT])
        self.row = replace(self.row, candidate_commit=taken.commit, changed_paths=changed)

    def _require_frozen_as_written(self, changed: tuple[str, ...]) -> None:
        """Git would write the frozen files as before: other line ends in them would make every later tree tampered."""
        attributes = tuple(name for name in changed if os.path.basename(name) == ATTRIBUTES_NAME)
        frozen = [pin.path for pin in self._site.bench.manifest.pins if pin.kind != "absent-guard"]
        if attributes and frozen and not same_attributes(self._site.workspaces, frozen):
            raise rejected("tampered", f"git would write frozen files otherwise: {named(attributes)}")

    def _message(self) -> str:
        row = self.row
        return f"Trial {row.iteration}: {row.hypothesis_id}\n\n{row.description}\n"

    # --- measure

    def _measure(self, calibration: Calibration) -> Judgement:
        measuring = self._site.measuring(self._steps, Place(self.row.iteration, "trial"))
        self._site.make_ready(measuring, "incumbent")  # before anything of the candidate's runs
        self._site.set_up(measuring, "candidate")
        measuring.check("candidate")
        measuring.warm_up("candidate")
        config = self._site.config
        judgement = judge(measuring, config.rule, calibration, seed_of(config.seed, self.row.iteration))
        self._keep(judgement)
        verdict = judgement.verdict
        if verdict.outcome != "accepted":
            code = "inconclusive" if verdict.outcome == "inconclusive" else verdict.reason_code
            raise rejected(code, _said(judgement))
        return judgement

    def _keep(self, judgement: Judgement) -> None:
        verdict = judgement.verdict
        self.row = replace(
            self.row,
            metric=median(judgement.candidates),
            samples=judgement.candidates,
            incumbent_samples=judgement.incumbents,
            improvement=verdict.estimate,
            interval=tuple(verdict.interval),
            scale=verdict.scale,
            pairs=verdict.pairs,
            others=judgement.other_medians,
        )

    # --- confirm

    def _confirm(self, judgement: Judgement, calibration: Calibration) -> None:
        config = self._site.config
        incumbent, candidate = judgement.other_samples
        if reasons := guard_failures(config.guards, incumbent, candidate):
            raise rejected("guard_failed", "; ".join(reasons))
        if touched := self._touched_incumbent():
            raise rejected("tampered", f"the incumbent's worktree was changed: {named(touched)}")
        self._require_as_committed(judgement, is_swapped=False)
        place = Place(self.row.iteration, "trial")
        self._site.measuring(self._steps, place).check_held_out("candidate")
        if is_reverified(config):
            self._verify_again(calibration)

    def _touched_incumbent(self) -> tuple[str, ...]:
        """Files of the incumbent's worktree that its own runs do not write: the candidate reached over to them.

        New files are the commands' own as far as anybody can tell. A sandbox keeps one arm from seeing the other.
        """
        root_path = self._site.workspaces.candidate_path
        return tuple(
            path
            for path in self._site.foreign_changes()
            if path in self.row.changed_paths or os.path.lexists(os.path.join(root_path, path))
        )

    def _require_as_committed(self, judgement: Judgement, *, is_swapped: bool) -> None:
        """What was measured is what would be kept, and all of it.

        The candidate's runs rewrote no tracked file, and no process of theirs worked on after the first one.
        What the incumbent's runs do as well (a file of results, a server that stays) is the command's own.
        """
        if judgement.is_cut_short:
            said = (
                "processes of its runs still worked when the first one had ended, and the incumbent's did not"
            )
            raise rejected("left_running", f"{said}: not all of the work was measured")
        site = self._site
        paths = site.paths(is_swapped=is_swapped)
        common = set(site.workspaces.drift(paths["incumbent"]))
        own = set(site.workspaces.drift_sides(paths["candidate"])[0])
        if rewritten := tuple(sorted(own - common)):
            raise rejected("tampered", f"what was to be measured was rewritten meanwhile: {named(rewritten)}")

    def _verify_again(self, calibration: Calibration) -> None:
        """Judge anew on fresh pairs, each arm in the other's worktree: a lucky streak or a lucky place is found out."""
        site, config = self._site, self._site.config
        trials = config.limits.trials or max(TRIALS_WITHOUT_LIMIT, self.row.iteration)
        self._steps.check()
        self.is_swapped = True
        site.set_to(site.workspaces.incumbent_path, self.row.candidate_commit)
        site.set_to(site.workspaces.candidate_path, self.row.checkpoint)
        measuring = site.measuring(self._steps, Place(self.row.iteration, "reverification"), is_swapped=True)
        for arm in ARMS:
            site.make_ready(measuring, arm)
        rule = verify_rule(config.rule, trials)
        again = judge(measuring, rule, calibration, seed_of(config.seed, self.row.iteration, 1))
        if again.verdict.outcome != "accepted":
            raise rejected(
                "not_reverified", f"a second judgement on fresh pairs did not confirm it: {_said(again)}"
            )
        self._require_as_committed(again, is_swapped=True)


def _said(judgement: Judgement) -> str:
    """A verdict that was no acceptance, for people."""
    verdict = judgement.verdict
    gain = effect_text(verdict.estimate, verdict.scale)
    least = effect_text(verdict.minimum_detectable_effect, verdict.scale)
    words = {
        "not_better": f"not better (estimate {gain}, {verdict.pairs} pairs)",
        "too_small": f"no gain that could be seen (estimate {gain}, {verdict.pairs} pairs; {least} would be seen)",
        "not_positive": "values that are not positive have no ratio; take the scale `difference`",
    }
    undecided = f"cannot be told from noise in {verdict.pairs} pairs (estimate {gain}; a gain of {least} would be seen)"
    return words.get(verdict.reason_code, undecided)
