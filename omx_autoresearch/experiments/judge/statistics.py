"""The statistics of signed differences: robust scores, the exact p-value of their sum, the Hodges-Lehmann estimate.

Under the null hypothesis every sign is a fair coin, whatever the sizes are. So the chance of a sum of signed scores is
counted, not approximated: no noise model, no bootstrap. Scores grow with a difference up to twice the typical one and
fall to nothing at six times, since a difference that large is an accident of one run more often than an effect.

Sources: F. Wilcoxon, "Individual comparisons by ranking methods", Biometrics Bulletin 1 (1945), for signed ranks;
J. L. Hodges and E. L. Lehmann, "Estimates of location based on rank tests", Annals of Mathematical Statistics 34
(1963); F. R. Hampel, "The influence curve and its role in robust estimation", Journal of the American Statistical
Association 69 (1974), for scores that fall back to nothing.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, erfc, sqrt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from fractions import Fraction
    from typing import TypeVar

    Number = TypeVar("Number", float, Fraction)

STEPS = 24
"""Score of a difference of the typical size; scores are whole numbers so that their sums can be counted exactly."""

FULL_FROM, FULL_TO, NOTHING_FROM = 2.0, 3.0, 6.0
"""In typical sizes: where scores stop growing, where they begin to fall, where nothing is left."""

NORMAL_MAD = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""


def median(values: Sequence[Number]) -> Number:
    """The middle value, or the mean of the middle two; values must not be empty."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def scores_of(sizes: Sequence[float]) -> list[int]:
    """One whole score for each size of a difference (not negative): 0 for none, at most 48."""
    present = [size for size in sizes if size > 0.0]
    if not present:
        return [0] * len(sizes)
    typical = median(present)
    return [_score(size / typical) if size > 0.0 else 0 for size in sizes]


def _score(relative: float) -> int:
    if relative < FULL_FROM:
        return max(1, round(STEPS * relative))
    if relative <= FULL_TO:
        return round(STEPS * FULL_FROM)
    if relative >= NOTHING_FROM:
        return 0
    return max(1, round(STEPS * FULL_FROM * (NOTHING_FROM - relative) / (NOTHING_FROM - FULL_TO)))


def z_statistic(differences: Sequence[float], scores: Sequence[int]) -> float:
    """The z statistic: the sum of signed scores over its standard deviation under the null; 0.0 without any score."""
    total = squares = 0
    for difference, score in zip(differences, scores, strict=True):
        squares += score * score
        total += score if difference > 0.0 else -score
    return total / sqrt(squares) if squares else 0.0


def exact_p_value(differences: Sequence[float], scores: Sequence[int]) -> float:
    """The exact one-sided p-value of a sign-flip test: that random signs reach at least the favourable sum seen.

    All sums are counted at once: the polynomial whose coefficient k is the number of sign patterns with favourable
    sum k, packed into one big integer.
    """
    counted = [score for score in scores if score]
    reached = sum(
        score for difference, score in zip(differences, scores, strict=True) if score and difference > 0.0
    )
    width = len(counted) + 2
    patterns = 1
    for score in counted:
        patterns += patterns << (width * score)
    # Sum of all coefficients from ``reached`` on: digits in base 2**width, cast out by 2**width - 1.
    at_least = (patterns >> (width * reached)) % ((1 << width) - 1)
    return float(at_least / (1 << len(counted)))


def walsh_averages(values: Sequence[float]) -> list[float]:
    """Means of all pairs of values, each with itself too, in ascending order."""
    averages = [(value + other) / 2 for index, value in enumerate(values) for other in values[index:]]
    averages.sort()
    return averages


def hodges_lehmann(values: Sequence[float]) -> float:
    """The Hodges-Lehmann estimate of location: the median of the Walsh averages; values must not be empty."""
    return median(walsh_averages(values))


@lru_cache(maxsize=256)
def ci_rank(count: int) -> int:
    """The rank that bounds Wilcoxon's 95 % interval: as many Walsh averages of ``count`` values lie beyond each end.

    -1 where no interval is that wide.
    """
    width = count + 2
    patterns = 1
    for rank in range(1, count + 1):
        patterns += patterns << (width * rank)
    digit = (1 << width) - 1
    allowed = (1 << count) // 40
    below = 0
    for total in range(count * (count + 1) // 2 + 1):
        below += (patterns >> (width * total)) & digit
        if below > allowed:
            return total - 1
    raise AssertionError("every sum of ranks has a chance")


def robust_sd(residuals: Sequence[float]) -> float:
    """A robust standard deviation: the scaled median absolute deviation (Hampel 1974), 0.0 for no residuals.

    Where most residuals are zero it is the scaled mean of their sizes.
    """
    sizes = [abs(residual) for residual in residuals]
    if not sizes:
        return 0.0
    return NORMAL_MAD * median(sizes) or 1.2533 * sum(sizes) / len(sizes)


@lru_cache(maxsize=1024)
def normal_quantile(probability: float) -> float:
    """The quantile of the standard normal for a probability strictly between 0 and 1, by bisection."""
    low, high = -40.0, 40.0
    for _ in range(80):
        middle = (low + high) / 2
        if normal_cdf(middle) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def normal_cdf(value: float) -> float:
    """The cumulative distribution function of the standard normal: the share of it below ``value``."""
    return erfc(-value / sqrt(2)) / 2


def quantile_rank(share: float, count: int) -> int:
    """The rank, from 1, of the sample quantile: the value that bounds this share of ``count`` ordered values."""
    return max(1, ceil(share * count - 1e-9))


# --- Which arm of a pair runs first: by chance, balanced in blocks, the same again for the same seed.

BLOCK_SIZES = (4, 6)
"""Chosen anew for each block, so that no rhythm of a machine falls in step with the order."""

_MASK = (1 << 64) - 1


def uniform_stream(seed: int) -> Iterator[float]:
    """Endless numbers from 0 up to 1 that depend on ``seed`` alone: splitmix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    state = seed & _MASK
    while True:
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        mixed = state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        yield ((mixed ^ (mixed >> 31)) >> 11) / (1 << 53)


def orders(seed: int) -> Iterator[bool]:
    """Endless answers to "does the candidate run first?", as many yes as no in each block of four or six.

    Give every trial a seed of its own; the same seed gives the same order after a resume.
    """
    chance = uniform_stream(seed)
    while True:
        size = BLOCK_SIZES[int(next(chance) * len(BLOCK_SIZES))]
        block = [index < size // 2 for index in range(size)]
        for index in range(size - 1, 0, -1):
            other = int(next(chance) * (index + 1))
            block[index], block[other] = block[other], block[index]
        yield from block
