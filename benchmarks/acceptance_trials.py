"""Trials, missions and claims in a simulated world, judged by the production code and nothing else."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

from benchmarks.noise_worlds import Machine, World
from omx_autoresearch.experiments.judge.calibration import AcceptanceRule, Calibration, calibrate, verify_rule
from omx_autoresearch.experiments.judge.decision import Judge, Verdict, claim
from omx_autoresearch.experiments.judge.statistics import orders

if TYPE_CHECKING:
    from collections.abc import Iterator


CALIBRATION_PAIRS = 15
MISSION_TRIALS = 100
REAL_GAINS = 10
REAL_GAIN = 0.03


@dataclass(frozen=True, slots=True)
class Work:
    """A share of one cell: the world, the gain in sigmas, how many, and a seed of its own."""

    world: World
    gain: float
    count: int
    share: int = 0
    rule: dict[str, Any] = field(default_factory=dict)

    def acceptance_rule(self) -> AcceptanceRule:
        """The rule of the work, on the scale that the world's metric needs."""
        scale: Literal["auto", "difference"] = "difference" if self.world.additive else "auto"
        return AcceptanceRule(direction=self.world.direction, scale=scale, **self.rule)

    def chance(self, number: int) -> tuple[random.Random, Iterator[bool]]:
        """The stream of chance and the order within pairs of one trial, mission or claim."""
        seed = zlib.crc32(f"{self.world.name}|{self.gain}|{self.share}|{number}".encode())
        return random.Random(seed), orders(seed)


class Sums:
    """Counts and sums that are added field by field."""

    __slots__: tuple[str, ...] = ()

    def __iadd__(self, other: Self) -> Self:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self


@dataclass(slots=True)
class Tally(Sums):
    """What came of a number of trials."""

    trials: int = 0
    accepted: int = 0
    rejected: int = 0
    runs: int = 0
    covered: int = 0


def calibrated(machine: Machine, rule: AcceptanceRule, order: Iterator[bool]) -> Calibration:
    """Calibration by A/A pairs, which say their order where the world lets them."""
    pairs: list[Any] = []
    for _ in range(CALIBRATION_PAIRS):
        is_first = next(order)
        pair = machine.pair(0.0, candidate_first=is_first, are_same=True)
        pairs.append((*pair, is_first) if machine.world.order == "known" else pair)
    return calibrate(pairs, rule)


def judged(
    machine: Machine, rule: AcceptanceRule, calibration: Calibration, order: Iterator[bool], gain: float
) -> Verdict:
    """One trial of a candidate that is better by ``gain`` sigmas."""
    judge = Judge(rule, calibration)
    while judge.verdict is None:
        is_first = next(order)
        incumbent, candidate = machine.pair(gain, candidate_first=is_first)
        judge.add_pair(incumbent, candidate, is_first and machine.world.order != "untold")
    return judge.verdict


def trials(work: Work) -> Tally:
    """So many trials, each with a calibration of its own."""
    tally = Tally()
    rule = work.acceptance_rule()
    for number in range(work.count):
        chance, order = work.chance(number)
        machine = Machine(work.world, chance)
        calibration = calibrated(machine, rule, order)
        machine.begin_trial()
        verdict = judged(machine, rule, calibration, order, work.gain)
        effect = work.gain * work.world.sigma
        tally += Tally(
            trials=1,
            accepted=verdict.outcome == "accepted",
            rejected=verdict.outcome == "rejected",
            runs=2 * verdict.pairs,
            covered=len(verdict.interval) == 2 and verdict.interval[0] <= effect <= verdict.interval[1],
        )
    return tally


@dataclass(slots=True)
class Missions(Sums):
    """What came of missions of a hundred trials."""

    missions: int = 0
    real: int = 0
    fake: int = 0
    real_once: int = 0
    fake_once: int = 0
    with_fake: int = 0
    with_fake_once: int = 0
    runs: int = 0


def missions(work: Work) -> Missions:
    """So many missions; ``gain`` counts the real gains of 3 % that each offers.

    ``_once`` is what the rule alone would have kept, the rest what re-verification on fresh pairs left of it.
    """
    total = Missions()
    rule = work.acceptance_rule()
    second = verify_rule(rule, MISSION_TRIALS)
    for number in range(work.count):
        chance, order = work.chance(number)
        machine = Machine(work.world, chance)
        calibration = calibrated(machine, rule, order)
        offered = set(chance.sample(range(MISSION_TRIALS), int(work.gain)))
        seen = Missions(missions=1)
        for trial in range(MISSION_TRIALS):
            machine.begin_trial()
            gain = REAL_GAIN / work.world.sigma if trial in offered else 0.0
            verdict = judged(machine, rule, calibration, order, gain)
            seen.runs += 2 * verdict.pairs
            if verdict.outcome != "accepted":
                continue
            again = judged(machine, second, calibration, order, gain)
            seen.runs += 2 * again.pairs
            is_kept = again.outcome == "accepted"
            if gain:
                seen += Missions(real_once=1, real=is_kept)
            else:
                seen += Missions(fake_once=1, fake=is_kept)
        seen.with_fake, seen.with_fake_once = int(seen.fake > 0), int(seen.fake_once > 0)
        total += seen
    return total


@dataclass(slots=True)
class Claims(Sums):
    """Errors of verified claims, in points of percent."""

    claims: int = 0
    total: float = 0.0
    squares: float = 0.0
    covered: int = 0


def claims(work: Work) -> Claims:
    """So many verified claims of a final state that is better by ``gain`` sigmas: 30 fresh pairs each."""
    total = Claims()
    rule = work.acceptance_rule()
    for number in range(work.count):
        chance, order = work.chance(number)
        machine = Machine(work.world, chance)
        calibration = calibrated(machine, rule, order)
        machine.begin_trial()
        pairs = []
        for _ in range(30):
            is_first = next(order)
            pairs.append((*machine.pair(work.gain, candidate_first=is_first), is_first))
        verified = claim(pairs, rule, calibration)
        effect = work.gain * work.world.sigma
        error = 100 * (verified.estimate - effect)
        total += Claims(1, error, error * error, verified.interval[0] <= effect <= verified.interval[1])
    return total
