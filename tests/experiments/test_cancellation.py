"""The signal that ends work: once, from any thread, to everybody who watches."""

from __future__ import annotations

import gc
import os
import select

from omx_autoresearch.experiments.context import AutoresearchCancellation


def readable(cancellation: AutoresearchCancellation) -> bool:
    return bool(select.select([cancellation], [], [], 0)[0])


def test_every_watcher_is_told_once_and_a_late_one_at_once() -> None:
    heard: list[str] = []
    cancellation = AutoresearchCancellation()
    cancellation.watch(lambda: heard.append("first"))
    cancellation.watch(lambda: heard.append("gone"))()
    cancellation.trigger("budget_wall")
    cancellation.trigger("cancelled")
    cancellation.watch(lambda: heard.append("late"))
    assert heard == ["first", "late"]
    assert (cancellation.reason, cancellation.is_cancelled) == ("budget_wall", True)
    assert cancellation.wait(0)


def test_it_can_be_polled_before_and_after() -> None:
    cancellation = AutoresearchCancellation()
    assert not readable(cancellation)
    cancellation.trigger("cancelled")
    assert readable(cancellation)
    late = AutoresearchCancellation()
    late.trigger("cancelled")
    assert readable(late)


def test_its_descriptors_end_with_it() -> None:
    cancellation = AutoresearchCancellation()
    descriptor = cancellation.fileno()
    os.fstat(descriptor)
    del cancellation
    gc.collect()
    try:
        os.fstat(descriptor)
    except OSError:
        return
    raise AssertionError("the descriptor is still open")


def test_a_part_follows_the_whole_until_it_is_detached_and_not_the_other_way_round() -> None:
    whole = AutoresearchCancellation()
    part, other = AutoresearchCancellation(whole), AutoresearchCancellation(whole)
    part.trigger("timed_out")
    assert (whole.is_cancelled, other.is_cancelled) == (False, False)
    other.detach()
    whole.trigger("cancelled")
    assert not other.is_cancelled
    assert part.reason == "timed_out"
    born_late = AutoresearchCancellation(whole)
    assert (born_late.is_cancelled, born_late.reason) == (True, "cancelled")


def test_cancelling_a_part_cancels_the_whole_and_finishes_it() -> None:
    finished: list[str] = []
    whole = AutoresearchCancellation()
    whole.finish_with(lambda: finished.append("finished"))
    part = AutoresearchCancellation(AutoresearchCancellation(whole))
    part.cancel()
    assert (whole.is_cancelled, part.is_cancelled, finished) == (True, True, ["finished"])


def test_in_a_forked_process_it_closes_no_descriptor_of_somebody_else() -> None:
    cancellation = AutoresearchCancellation()
    descriptor = cancellation.fileno()
    pid = os.fork()
    if pid == 0:
        os.close(descriptor)
        other = os.open(os.devnull, os.O_RDONLY)
        del cancellation
        try:
            os.fstat(other)
        except OSError:
            os._exit(1)
        os._exit(0 if other == descriptor else 2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
