"""Machines that measure, each with its own noise: what `benchmarks.acceptance` tries the production rule on.

A world gives the metric of one run of either arm; time passes with every run. `NAMED` are those that the bars name,
`OTHERS` are there because a rule must follow the statistics and not a simulator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import random

DRIFT_RUNS = 50
"""Correlation time of the drift."""
IDLE_RUNS = 10
"""Run-times that pass between two hypotheses."""


@dataclass(frozen=True, slots=True)
class World:
    """One kind of noise.

    Attributes:
        name: for the table.
        sigma: standard deviation of the logarithm of a run.
        outliers: share of runs slower by 10 to 50 %.
        drift: stationary deviation of the level, in sigmas.
        candidate_spread: factor on sigma where the candidate runs; its mean stays, so that its typical run is better.
        keeps_median: its median stays instead.
        first_slower, second_spread: what being first or second in a pair does, in sigmas and as a factor on sigma.
        quantum: the metric's step, in sigmas; 0 is none.
        tails: degrees of freedom of Student's t; 0 is normal.
        burst: chance that a burst begins at a run; it lasts five runs and is five times as noisy, and slower.
        memory: share of one run's noise that the next one inherits.
        warming: sigmas by which a trial begins slower, falling by half every four runs.
        beat: sigmas between the first and second run of a pair, the other way round in every other pair.
        modes: sigmas between two equally frequent modes; 0 is one mode.
        later_spread: factor on sigma after calibration.
        still: share of runs without any noise.
        additive: the metric is around zero and may be negative; gains are differences.
        direction: which values are better.
        order: ``known``, ``uncalibrated`` (A/A pairs do not say it), ``untold`` (nor does the trial).
    """

    name: str
    sigma: float
    outliers: float = 0.03
    drift: float = 1.0
    candidate_spread: float = 1.0
    keeps_median: bool = False
    first_slower: float = 0.0
    second_spread: float = 1.0
    quantum: float = 0.0
    tails: int = 0
    burst: float = 0.0
    memory: float = 0.0
    warming: float = 0.0
    beat: float = 0.0
    modes: float = 0.0
    later_spread: float = 1.0
    still: float = 0.0
    additive: bool = False
    direction: Literal["lower", "higher"] = "lower"
    order: str = "known"


class Machine:
    """A world as it runs, from one seeded stream of chance."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self.world = world
        self._chance = chance
        self._keep = math.exp(-1 / DRIFT_RUNS)
        self._level = chance.gauss(0, 1)
        self._burst = 0
        self._inherited = 0.0
        self._run = 0
        self._trial_run = 0
        self._spread = 1.0

    def begin_trial(self) -> None:
        """Let the time pass that a hypothesis takes; calibration is over."""
        keep = math.exp(-IDLE_RUNS / DRIFT_RUNS)
        self._level = keep * self._level + math.sqrt(1 - keep * keep) * self._chance.gauss(0, 1)
        self._trial_run = 0
        self._spread = self.world.later_spread

    def pair(self, gain: float, *, candidate_first: bool, are_same: bool = False) -> tuple[float, float]:
        """The metric of incumbent and candidate, the latter better by ``gain`` sigmas; A/A where they are the same."""
        spread = 1.0 if are_same else self.world.candidate_spread
        if candidate_first:
            candidate = self._measured(gain, spread, is_first=True)
            return self._measured(0.0, 1.0, is_first=False), candidate
        return self._measured(0.0, 1.0, is_first=True), self._measured(gain, spread, is_first=False)

    def _measured(self, gain: float, spread: float, *, is_first: bool) -> float:
        world, chance = self.world, self._chance
        self._run += 1
        self._trial_run += 1
        self._level = self._keep * self._level + math.sqrt(1 - self._keep**2) * chance.gauss(0, 1)
        spread *= self._spread * (1.0 if is_first else world.second_spread)
        slower = world.drift * self._level + self._systematic(is_first=is_first)
        slower += self._bursting(spread)
        if not world.still or chance.random() >= world.still:
            slower += self._noise() * spread
        sigma = world.sigma
        if world.additive:
            better = gain if world.direction == "lower" else -gain
            return self._quantised(sigma * (slower - better))
        mean_one = 0.0 if world.keeps_median else -((spread * sigma) ** 2) / 2
        value = math.exp(sigma * slower + mean_one)
        if world.outliers and chance.random() < world.outliers:
            value *= 1.1 + 0.4 * chance.random()
        value *= 1 - gain * sigma if world.direction == "lower" else 1 / (1 - gain * sigma)
        return self._quantised(value)

    def _systematic(self, *, is_first: bool) -> float:
        world = self.world
        slower = world.first_slower if is_first else 0.0
        if world.warming:
            slower += world.warming * 0.5 ** (self._trial_run / 4)
        if world.beat:
            is_even = (self._run - 1) // 2 % 2 == 0
            slower += world.beat / 2 * (1 if is_even == is_first else -1)
        return slower

    def _bursting(self, spread: float) -> float:
        world, chance = self.world, self._chance
        if not world.burst:
            return 0.0
        if self._burst:
            self._burst -= 1
        elif chance.random() < world.burst:
            self._burst = 5
        return (3 + 5 * chance.gauss(0, 1)) * spread if self._burst else 0.0

    def _noise(self) -> float:
        world, chance = self.world, self._chance
        noise = chance.gauss(0, 1)
        if world.tails:
            noise /= math.sqrt(chance.gammavariate(world.tails / 2, 2) / world.tails)
            noise = max(-30.0, min(30.0, noise))
        if world.modes:
            noise = 0.1 * noise + world.modes * (chance.random() < 0.5)
        if world.memory:
            noise = world.memory * self._inherited + math.sqrt(1 - world.memory**2) * noise
            self._inherited = noise
        return noise

    def _quantised(self, value: float) -> float:
        step = self.world.quantum * self.world.sigma
        return round(value / step) * step if step else value


NAMED = {
    "plain": (World("sigma 1 %", 0.01), World("sigma 3 %", 0.03), World("sigma 10 %", 0.10)),
    "hard": (
        World("candidate 3 x as noisy, 1 %", 0.01, candidate_spread=3),
        World("candidate 3 x as noisy, 3 %", 0.03, candidate_spread=3),
        World("candidate 3 x as noisy, 10 %, same median", 0.10, candidate_spread=3, keeps_median=True),
        World("20 % slow runs", 0.01, outliers=0.2),
        World("cold first run", 0.01, first_slower=2),
        World("cold first run, A/A order unsaid", 0.01, first_slower=2, order="uncalibrated"),
        World("quantised to 3 sigma", 0.01, quantum=3),
    ),
}
"""What the bars name: false acceptances of the first at most 1.5 %, of the second 2 %."""

OTHERS = (
    World("no drift, no outliers", 0.01, outliers=0, drift=0),
    World("higher is better", 0.03, direction="higher"),
    World("around zero, differences", 1.0, outliers=0, additive=True),
    World("around zero, higher", 1.0, outliers=0, additive=True, direction="higher"),
    World("quantised, around zero", 1.0, outliers=0, additive=True, quantum=3),
    World("Student t, 2 degrees", 0.01, tails=2),
    World("bursts, 5 x as noisy", 0.01, burst=0.05),
    World("noise remembered, 0.9", 0.01, memory=0.9),
    World("drift of 5 sigma", 0.01, drift=5),
    World("second run 3 x as noisy", 0.01, second_spread=3),
    World("warm-up trend of 5 sigma", 0.01, warming=5),
    World("pairs in step, 3 sigma", 0.01, beat=3),
    World("two modes, 5 sigma apart", 0.01, modes=5),
    World("7 of 10 runs without noise", 0.01, outliers=0, drift=0, still=0.7),
    World("3 x as noisy after calibration", 0.01, later_spread=3),
    World("10 x as noisy after calibration", 0.003, later_spread=10),
    World("cold second run", 0.01, first_slower=-2),
    World("cold first run, order never said", 0.01, first_slower=2, order="untold"),
)

BETTER_TYPICAL_RUN = World("candidate 3 x as noisy, 10 %, same mean", 0.10, candidate_spread=3)
"""No bar: its typical run is 4 % better, and typical runs are what is judged. The mean is a metric of its own."""
