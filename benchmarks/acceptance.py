"""How candidates are judged: ``python -m benchmarks.acceptance [--quick]``.

The production rule in simulated worlds (noise_worlds.py), seeded: false acceptances, runs, true acceptances, whole
missions with re-verification, and the verified claim, each with its 95 % interval and its bar. ``held``: the figure
keeps its bar. ``open``: it does not, but the bar lies inside the interval, so that more trials must tell. ``MISSED``:
it does not, for certain. Figures without a bar are there to be looked at. Two worker processes.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass, replace
from multiprocessing import Pool
from typing import TYPE_CHECKING, Any

from benchmarks.acceptance_trials import (
    MISSION_TRIALS,
    REAL_GAINS,
    Claims,
    Missions,
    Tally,
    Work,
    claims,
    missions,
    trials,
)
from benchmarks.noise_worlds import BETTER_TYPICAL_RUN, NAMED, OTHERS, World

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.pool import Pool as Workers

WORKERS = 2
SHARES = 8
FALSE_PLAIN, FALSE_HARD, FALSE_OTHERS = 1.5, 2.0, 2.0
"""Per cent of candidates without effect that may be accepted; the last bar is our own."""
TRUE_AT = {1: 60.0, 3: 98.0}
"""By the gain in sigmas: per cent of such candidates that must be accepted."""
RUNS_WITHOUT_EFFECT = 20.0
PRECISION = 85.0
ANY_FALSE = 5.0
CLAIM_ERROR = 0.1
DETECTABLE_GAIN = 0.8 * math.sqrt(2)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is simulated: the full form takes minutes, the quick one keeps everything from rotting."""

    without_effect: int
    with_effect: int
    others: int
    missions: int
    empty_missions: int
    claims: int


FULL = Sizes(8000, 3000, 4000, 160, 800, 6000)
QUICK = Sizes(480, 240, 160, 8, 16, 320)


class Table:
    """Prints figures beside their bars and remembers what was missed."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def share(self, name: str, count: int, total: int, bar: float | None, *, is_most: bool) -> None:
        """A share in per cent with its interval, and its bar: at most or at least so much."""
        value = 100 * count / total if total else 0.0
        low, high = wilson(count, total)
        self.figure(name, value, (low, high), bar, is_most=is_most)

    def figure(
        self, name: str, value: float, ends: tuple[float, float], bar: float | None, *, is_most: bool
    ) -> None:
        """A figure with its interval and its bar."""
        told = ""
        if bar is not None:
            is_kept = value <= bar if is_most else value >= bar
            word = "held" if is_kept else "open" if ends[0] <= bar <= ends[1] else "MISSED"
            self.words.append(word)
            told = f"bar {'<=' if is_most else '>='} {bar:g}  {word}"
        print(f"  {name:58} {value:7.2f}  [{ends[0]:6.2f}, {ends[1]:6.2f}]  {told}".rstrip(), flush=True)


def wilson(count: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a share, in per cent (Wilson)."""
    if not total:
        return 0.0, 100.0
    share, z = count / total, 1.96
    middle = share + z * z / (2 * total)
    reach = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 100 / (1 + z * z / total)
    return max(0.0, scale * (middle - reach)), min(100.0, scale * (middle + reach))


def spread_out(workers: Workers, call: Callable[[Work], Any], into: Any, whole: Work) -> Any:
    """Do the work in shares over the workers; the same shares whatever their number."""
    work = [replace(whole, count=max(1, whole.count // SHARES), share=share) for share in range(SHARES)]
    for part in workers.imap_unordered(call, work):
        into += part
    return into


def tried(workers: Workers, world: World, gain: float, count: int, **rule: Any) -> Tally:
    """So many trials of candidates that are better by ``gain`` sigmas."""
    tally: Tally = spread_out(workers, trials, Tally(), Work(world, gain, count, rule=rule))
    return tally


def main(argv: list[str] | None = None) -> int:
    """Simulate and print; ends 1 when a bar is missed, and in the full form when one stays open."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="under a minute, with wide intervals")
    options = parser.parse_args(argv)
    sizes, table, began = QUICK if options.quick else FULL, Table(), time.perf_counter()
    with Pool(WORKERS) as workers:
        single_judges(workers, table, sizes)
        other_worlds(workers, table, sizes)
        detectable(workers, table, sizes)
        whole_missions(workers, table, sizes)
        verified_claims(workers, table, sizes)
    counts = {word: table.words.count(word) for word in ("held", "open", "MISSED")}
    print(f"\n{time.perf_counter() - began:.0f} s")
    print(f"bars: {counts['held']} held, {counts['open']} open, {counts['MISSED']} MISSED")
    return 1 if counts["MISSED"] or (counts["open"] and not options.quick) else 0


def single_judges(workers: Workers, table: Table, sizes: Sizes) -> None:
    """The bars of one judge, and what they cost in the hard worlds."""
    for kind, false_bar in (("plain", FALSE_PLAIN), ("hard", FALSE_HARD)):
        for world in NAMED[kind]:
            print(f"\n{world.name}")
            nothing = tried(workers, world, 0.0, sizes.without_effect)
            table.share("false accepts, %", nothing.accepted, nothing.trials, false_bar, is_most=True)
            runs = nothing.runs / nothing.trials
            table.figure("runs without effect", runs, (runs, runs), RUNS_WITHOUT_EFFECT, is_most=True)
            for gain, bar in TRUE_AT.items():
                found = tried(workers, world, float(gain), sizes.with_effect)
                name = f"true accepts at {gain} sigma, %  ({found.runs / found.trials:.0f} runs)"
                needed = bar if kind == "plain" else None
                table.share(name, found.accepted, found.trials, needed, is_most=False)


def other_worlds(workers: Workers, table: Table, sizes: Sizes) -> None:
    """Noise that no bar names."""
    print("\nother worlds: false accepts, %")
    for world in OTHERS:
        nothing = tried(workers, world, 0.0, sizes.others)
        name = f"{world.name}  ({nothing.runs / nothing.trials:.0f} runs)"
        table.share(name, nothing.accepted, nothing.trials, FALSE_OTHERS, is_most=True)
    print("\nthe typical run is better, the mean is not: accepted, %")
    erratic = tried(workers, BETTER_TYPICAL_RUN, 0.0, sizes.others)
    table.share(BETTER_TYPICAL_RUN.name, erratic.accepted, erratic.trials, None, is_most=True)
    print("\nother worlds: true accepts at 3 sigma, %")
    for world in OTHERS:
        found = tried(workers, world, 3.0, sizes.others // 4)
        name = f"{world.name}  ({found.runs / found.trials:.0f} runs)"
        table.share(name, found.accepted, found.trials, None, is_most=False)


def detectable(workers: Workers, table: Table, sizes: Sizes) -> None:
    """The minimum detectable effect is one that is accepted about four times in five; a gain of 10 % is quick."""
    print("\nother rules, sigma 1 %: accepted at the minimum detectable effect, and without effect, %")
    world = NAMED["plain"][0]
    for alpha, pairs, factor in ((0.01, 30, 1.0), (0.01, 15, 1.41), (0.05, 30, 0.80), (0.05, 15, 1.13)):
        for gain in (round(DETECTABLE_GAIN * factor, 2), 0.0):
            found = tried(workers, world, gain, sizes.with_effect, alpha=alpha, max_pairs=pairs)
            runs = found.runs / found.trials
            name = f"alpha {100 * alpha:g} %, {pairs} pairs, {gain:g} sigma  ({runs:.1f} runs)"
            table.share(name, found.accepted, found.trials, None, is_most=False)
    quick = tried(workers, world, 10.0, sizes.with_effect)
    runs = quick.runs / quick.trials
    table.share(f"a gain of 10 %  ({runs:.1f} runs)", quick.accepted, quick.trials, None, is_most=False)
    covered = tried(workers, world, 1.0, sizes.with_effect)
    table.share(
        "interval of a verdict covers a gain of 1 sigma", covered.covered, covered.trials, None, is_most=False
    )


def whole_missions(workers: Workers, table: Table, sizes: Sizes) -> None:
    """Missions of a hundred trials, with each accepted step judged again on fresh pairs."""
    print(f"\nmissions of {MISSION_TRIALS} trials, {REAL_GAINS} real gains of 3 %")
    for world in NAMED["plain"][:2]:
        seen = spread_out(workers, missions, Missions(), Work(world, float(REAL_GAINS), sizes.missions))
        once = 100 * seen.real_once / max(1, seen.real_once + seen.fake_once)
        found = seen.real / seen.missions
        runs = seen.runs / seen.missions
        name = f"precision, {world.name}, %  ({once:.0f} before; {found:.1f} real, {runs:.0f} runs)"
        table.share(name, seen.real, seen.real + seen.fake, PRECISION, is_most=False)
    print(f"\nmissions of {MISSION_TRIALS} trials without any real gain")
    seen = spread_out(workers, missions, Missions(), Work(NAMED["plain"][1], 0.0, sizes.empty_missions))
    before = 100 * seen.with_fake_once / seen.missions
    table.share(
        f"any false step is kept, %  ({before:.0f} before re-verification)",
        seen.with_fake,
        seen.missions,
        ANY_FALSE,
        is_most=True,
    )


def verified_claims(workers: Workers, table: Table, sizes: Sizes) -> None:
    """The fresh check of base against final after a mission that gained a fifth."""
    print(
        "\nverified claims of a gain of 20 %: mean error in points, and how often the interval covers the truth"
    )
    for world in NAMED["plain"]:
        seen = spread_out(workers, claims, Claims(), Work(world, 0.2 / world.sigma, sizes.claims))
        mean = seen.total / seen.claims
        reach = 1.96 * math.sqrt(max(0.0, seen.squares / seen.claims - mean * mean) / seen.claims)
        bar = CLAIM_ERROR if world.sigma <= 0.03 else None
        ends = (max(0.0, abs(mean) - reach), abs(mean) + reach)
        table.figure(f"mean error, {world.name}", abs(mean), ends, bar, is_most=True)
        table.share(f"interval covers, {world.name}, %", seen.covered, seen.claims, None, is_most=False)


if __name__ == "__main__":
    raise SystemExit(main())
