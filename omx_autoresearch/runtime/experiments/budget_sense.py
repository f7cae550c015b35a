"""Budgets that can be read and cannot be meant, and how a fault names what a person typed. Pure."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from omx_autoresearch.runtime.entering import Fault

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

LEAST_CALIBRATION_PAIRS = 2
LEAST_TRIAL_PAIRS = 2
"""Of a candidate whose values repeat exactly, as the base's do."""


def least_runs(rule: str, runs: int, warmups: int, reverification: str) -> int:
    """Measured runs of the shortest calibration and of one accepted trial behind it.

    Args:
        rule: ``hybrid`` or ``median``.
        runs: that ``median`` judges, of each arm.
        warmups: discarded runs after a change of files.
        reverification: ``auto``, ``on`` or ``off``; a second judgement measures both arms once more.
    """
    pairs = runs if rule == "median" else LEAST_TRIAL_PAIRS
    calibration = 2 * warmups + 2 * LEAST_CALIBRATION_PAIRS
    is_judged_again = reverification == "on" or (reverification == "auto" and rule != "median")
    return calibration + (2 * warmups + 2 * pairs) * (2 if is_judged_again else 1)


def budget_faults(values: Mapping[str, object], budget_runs: int, least: int) -> list[Fault]:
    """What is wrong with budgets of a whole configuration.

    Args:
        values: what somebody wrote, by name; a default stands in none of it.
        budget_runs: measured runs; 0 for no limit.
        least: that one trial takes, as `least_runs`.
    """
    found = []
    cost = values.get("budget_cost")
    if isinstance(cost, (int, float)) and cost == 0:
        found.append(Fault("budget_cost", "0", "must be above 0; leave it out for no limit"))
    if 0 < budget_runs < least:
        needed = (
            f"must be {least} or more, or 0 for no limit: calibration and one accepted trial take as many"
        )
        found.append(Fault("budget_runs", str(budget_runs), needed))
    return found


def as_options(faults: list[Fault], in_file: Container[str]) -> list[Fault]:
    """The faults, each by the option that a person types, but for what a file says.

    Args:
        faults: by the names of the configuration.
        in_file: the names that come from a file.
    """
    return [
        fault if fault.field in in_file else dataclasses.replace(fault, field=_option(fault.field))
        for fault in faults
    ]


def _option(name: str) -> str:
    """``budget_trials`` is ``--budget-trials``, ``env.NAME`` is ``--env NAME``."""
    head, _, rest = name.partition(".")
    return f"--{head.replace('_', '-')} {rest}".rstrip()
