"""Where a controller works: the two worktrees, what judges in them, the log."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from omx_autoresearch.runtime.experiments.measuring import Measuring
from omx_autoresearch.runtime.experiments.watching import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from omx_autoresearch.core.experiments import ExperimentConfig
    from omx_autoresearch.runtime.experiments.evaluators import Bench
    from omx_autoresearch.runtime.experiments.measuring import Arm, Place
    from omx_autoresearch.runtime.experiments.recording import ExperimentLog
    from omx_autoresearch.runtime.experiments.steps import Steps
    from omx_autoresearch.system.worktrees import Workspaces

LAST_STAGES = ("reverification", "claim")
"""Stages after which nothing is measured again."""


def is_reverified(config: ExperimentConfig) -> bool:
    """Whether an accepted candidate is judged again on fresh pairs."""
    return config.reverification == "on" or (config.reverification == "auto" and config.rule.name != "median")


class Site:
    """What every stretch of work shares.

    Args:
        log: of the experiment.
        bench: what judges.
        workspaces: the two worktrees.
    """

    def __init__(self, log: ExperimentLog, bench: Bench, workspaces: Workspaces) -> None:
        self.log = log
        self.bench = bench
        self.workspaces = workspaces
        self._own_changes: frozenset[str] = frozenset()  # what the incumbent's own runs leave changed
        self._bare: set[str] = set()  # worktrees whose kept paths were removed
        self._ready: dict[str, str] = {}  # worktrees that are set up and warm, and at which commit

    @property
    def config(self) -> ExperimentConfig:
        """As it is now: limits may have been extended."""
        return self.log.state.config

    def paths(self, *, is_swapped: bool = False) -> dict[Arm, str]:
        """The worktree of each arm."""
        first, second = self.workspaces.incumbent_path, self.workspaces.candidate_path
        return (
            {"incumbent": second, "candidate": first}
            if is_swapped
            else {"incumbent": first, "candidate": second}
        )

    def set_to(self, path: str, commit: str) -> None:
        """Make a worktree exactly what a commit is; it must be set up and warmed again then.

        Raises:
            WorkspaceFault: it cannot be done.
        """
        self._ready.pop(path, None)
        if self.workspaces.set_to(path, commit).dropped:
            self._bare.add(path)

    def restore(self) -> None:
        """Make both worktrees what the incumbent is; its own stays as it is where it was measured as just that.

        Raises:
            WorkspaceFault: it cannot be done.
        """
        commit = self.log.state.incumbent_commit
        self.set_to(self.workspaces.candidate_path, commit)
        if self._ready.get(self.workspaces.incumbent_path) != commit:
            self.set_to(self.workspaces.incumbent_path, commit)

    def foreign_changes(self) -> tuple[str, ...]:
        """Paths of the incumbent's worktree that changed otherwise than by its own set-up and first runs."""
        return tuple(sorted(self._changes(self.workspaces.incumbent_path) - self._own_changes))

    def begin_refresh(self) -> Callable[[], None]:
        """Look at the incumbent's worktree while something else is done; returns what makes it right again.

        An agent or an earlier candidate may have reached over to it.
        """
        path = self.workspaces.incumbent_path
        looking = ThreadPoolExecutor(1)
        looked = looking.submit(lambda: path not in self._ready or bool(self.foreign_changes()))

        def finish() -> None:
            with looking:
                if looked.result():
                    self.set_to(path, self.log.state.incumbent_commit)

        return finish

    def _changes(self, path: str) -> frozenset[str]:
        return frozenset(self.workspaces.drift(path))

    def measuring(self, steps: Steps, place: Place, *, is_swapped: bool = False) -> Measuring:
        """Runs in the worktrees; those that an acceptance or the claim rests on are watched."""
        config = self.config
        is_last_word = place.stage in LAST_STAGES or (place.stage == "trial" and not is_reverified(config))
        watch = Watch(self.workspaces, (*config.keep, *config.link)) if is_last_word else None
        return Measuring(self.bench, self.log, steps, place, self.paths(is_swapped=is_swapped), watch)

    def make_ready(self, measuring: Measuring, arm: Arm) -> None:
        """Set an arm up and warm it, unless nothing changed in its worktree since that was done."""
        path = measuring.paths[arm]
        commit = self.workspaces.commit_at(path)
        if self._ready.get(path) != commit:
            self.set_up(measuring, arm)
            measuring.warm_up(arm)
            self._ready[path] = commit
            if path == self.workspaces.incumbent_path:
                self._own_changes = self._changes(path)

    def furnish(self, measuring: Measuring) -> None:
        """Run the set-up where the candidate's kept paths are gone, so that the callback finds what it needs."""
        if measuring.paths["candidate"] in self._bare:
            self.set_up(measuring, "candidate")

    def set_up(self, measuring: Measuring, arm: Arm) -> None:
        """Run the set-up command in an arm's worktree.

        What it makes in kept paths may stay only where it was made from the incumbent: a candidate's own set-up may
        have put anything there, and goes with its candidate.
        """
        path = measuring.paths[arm]
        measuring.set_up(arm)
        self._bare.discard(path)
        if self.config.keep and self.workspaces.commit_at(path) == self.log.state.incumbent_commit:
            self.workspaces.seal(path)
