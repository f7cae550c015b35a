"""Named pipes as gates between a test and its processes: waited on for a bounded time, never for ever."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING, TextIO, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

T = TypeVar("T")
SECONDS = 60.0
"""Far more than any process of a test needs to come to its gate."""


@contextmanager
def opened(gate: Path, *, seconds: float = SECONDS) -> Iterator[TextIO]:
    """The write end of a pipe, once somebody reads it.

    Raises:
        AssertionError: nobody came to read: the process that should have is dead, or never got there.
    """

    def opening() -> TextIO:
        return gate.open("w")

    with _waited(opening, f"nobody came to read {gate}", seconds) as stream:
        yield stream


def let_go(gate: Path, *, seconds: float = SECONDS) -> None:
    """Let the process that reads this pipe go on.

    Raises:
        AssertionError: nobody came to read.
    """
    with opened(gate, seconds=seconds) as stream:
        stream.write("go\n")


@contextmanager
def written(pipe: Path, *, seconds: float = SECONDS) -> Iterator[TextIO]:
    """The read end of a pipe, once somebody writes into it.

    Raises:
        AssertionError: nobody came to write.
    """

    def opening() -> TextIO:
        return pipe.open()

    with _waited(opening, f"nobody came to write into {pipe}", seconds) as stream:
        yield stream


def word_from(pipe: Path, *, seconds: float = SECONDS) -> str:
    """What somebody writes into a pipe.

    Raises:
        AssertionError: nobody came to write.
    """
    return _waited(pipe.read_text, f"nobody came to write into {pipe}", seconds)


def _waited(wait: Callable[[], T], complaint: str, seconds: float) -> T:
    """The result of what blocks; a thread that stays blocked keeps no process from its end."""
    found: Future[T] = Future()

    def run() -> None:
        try:
            found.set_result(wait())
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            found.set_exception(error)

    Thread(target=run, daemon=True).start()
    try:
        return found.result(timeout=seconds)
    except TimeoutError:
        raise AssertionError(f"{complaint} within {seconds:g} s") from None
