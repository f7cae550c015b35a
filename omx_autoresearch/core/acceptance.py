"""Accepting only what is truly better: the rule, what calibration found, the judge, the verified claim.

    calibration = calibrate(pairs_of_the_same_code, rule)
    judge = Judge(rule, calibration)
    for candidate_first in orders(seed): measure both; verdict = judge.add_pair(incumbent, candidate, candidate_first)

Pure and deterministic, and used unchanged by the simulation in benchmarks/. specs/acceptance.md says what holds.
"""

from __future__ import annotations

from omx_autoresearch.core.acceptance_rules import AcceptanceRule, verify_rule
from omx_autoresearch.core.calibration import Calibration, calibrate
from omx_autoresearch.core.experiment_plans import Option, Outlay, Plan, plan_of
from omx_autoresearch.core.judges import Judge
from omx_autoresearch.core.pair_orders import orders
from omx_autoresearch.core.trial_verdicts import Verdict
from omx_autoresearch.core.verified_claims import Claim, claim

__all__ = [
    "AcceptanceRule",
    "Calibration",
    "Claim",
    "Judge",
    "Option",
    "Outlay",
    "Plan",
    "Verdict",
    "calibrate",
    "claim",
    "orders",
    "plan_of",
    "verify_rule",
]
