"""What missions ask of experiments: the doors hand it to their runtime, so that missions import none of them.

A hook loads this file; what answers is loaded when it is asked.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def _examine_trial(*asked: Any) -> Any:
    from omx_autoresearch.experiments import mission_link

    return mission_link.examine(*asked)


def _tell_mission(*asked: Any) -> Any:
    from omx_autoresearch.experiments import mission_link

    return mission_link.tell_mission(*asked)


SOURCES: dict[str, Callable[..., Any]] = {"trial": _examine_trial, "news": _tell_mission}
"""``trial``: whether the newest claim meets a rule. ``news``: what a mission's experiments brought it, recorded."""
