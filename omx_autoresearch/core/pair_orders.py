"""Which arm of a pair runs first: by chance, balanced in blocks, the same again for the same seed."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK_SIZES = (4, 6)
"""Chosen anew for each block, so that no rhythm of a machine falls in step with the order."""

_MASK = (1 << 64) - 1


def uniform_stream(seed: int) -> Iterator[float]:
    """Endless numbers from 0 up to 1 that depend on ``seed`` alone (splitmix64)."""
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
