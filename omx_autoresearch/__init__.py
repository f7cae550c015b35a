"""omx_autoresearch: the runtime that keeps a long agent mission honest from start to end.

For other programs: ``omx_autoresearch.Store``, ``omx_autoresearch.AutoresearchController`` and the types that they take
and give (specs/python-api.md). They are loaded when they are first asked for, so that a hook, which needs none of them,
pays nothing.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.experiments.async_controller import (
        AsyncAutoresearchController as AsyncAutoresearchController,
    )
    from omx_autoresearch.experiments.context import AutoresearchCancellation as AutoresearchCancellation
    from omx_autoresearch.experiments.controller import AutoresearchController as AutoresearchController
    from omx_autoresearch.experiments.controller import (
        AutoresearchControllerConfig as AutoresearchControllerConfig,
    )
    from omx_autoresearch.experiments.controller import ControllerHandle as ControllerHandle
    from omx_autoresearch.experiments.controller import new_controller_handle as new_controller_handle
    from omx_autoresearch.experiments.final_patch import FinalPatch as FinalPatch
    from omx_autoresearch.experiments.judge.calibration import AcceptanceRule as AcceptanceRule
    from omx_autoresearch.experiments.judge.metrics import Guard as Guard
    from omx_autoresearch.experiments.judge.metrics import MetricSpec as MetricSpec
    from omx_autoresearch.experiments.judge.state import Claim as Claim
    from omx_autoresearch.experiments.judge.state import ExperimentConfig as ExperimentConfig
    from omx_autoresearch.experiments.judge.state import ExperimentHypothesis as ExperimentHypothesis
    from omx_autoresearch.experiments.judge.state import ExperimentLimits as ExperimentLimits
    from omx_autoresearch.experiments.judge.state import ExperimentState as ExperimentState
    from omx_autoresearch.experiments.judge.state import HypothesisOutcome as HypothesisOutcome
    from omx_autoresearch.experiments.judge.state import TrialRow as TrialRow
    from omx_autoresearch.experiments.trial import ExperimentWorkspace as ExperimentWorkspace
    from omx_autoresearch.experiments.worktrees.acceptance import PatchAcceptance as PatchAcceptance
    from omx_autoresearch.foundation.errors import AutoresearchError as AutoresearchError
    from omx_autoresearch.missions.api import CreateOptions as CreateOptions
    from omx_autoresearch.missions.api import ProgressPatch as ProgressPatch
    from omx_autoresearch.missions.api import Store as Store
    from omx_autoresearch.missions.api import Summary as Summary
    from omx_autoresearch.missions.api import Task as Task
    from omx_autoresearch.missions.findings import Recorded as Recorded
    from omx_autoresearch.missions.findings import Submission as Submission
    from omx_autoresearch.missions.rules.criteria import Criterion as Criterion
    from omx_autoresearch.missions.rules.criteria import criterion_of as criterion_of
    from omx_autoresearch.missions.rules.evidence import CriterionView as CriterionView
    from omx_autoresearch.missions.rules.readiness import ReadinessLine as ReadinessLine
    from omx_autoresearch.missions.rules.readiness import ReadinessReport as ReadinessReport
    from omx_autoresearch.missions.task_files import AllowedOperations as AllowedOperations
    from omx_autoresearch.missions.task_files import Progress as Progress
    from omx_autoresearch.missions.task_files import TaskSpec as TaskSpec
    from omx_autoresearch.missions.verification import Problem as Problem
    from omx_autoresearch.missions.verification import ValidationReport as ValidationReport

_PUBLIC = {
    "missions.api": (
        "CreateOptions",
        "ProgressPatch",
        "Store",
        "Summary",
        "Task",
    ),
    "missions.verification": ("Problem", "ValidationReport"),
    "missions.task_files": ("AllowedOperations", "Progress", "TaskSpec"),
    "missions.findings": ("Recorded", "Submission"),
    "missions.rules.criteria": ("Criterion", "criterion_of"),
    "missions.rules.evidence": ("CriterionView",),
    "missions.rules.readiness": ("ReadinessLine", "ReadinessReport"),
    "foundation.errors": ("AutoresearchError",),
    "experiments.judge.calibration": ("AcceptanceRule",),
    "experiments.judge.state": (
        "Claim",
        "ExperimentConfig",
        "ExperimentHypothesis",
        "ExperimentLimits",
        "ExperimentState",
        "HypothesisOutcome",
        "TrialRow",
    ),
    "experiments.judge.metrics": (
        "Guard",
        "MetricSpec",
    ),
    "experiments.async_controller": ("AsyncAutoresearchController",),
    "experiments.context": ("AutoresearchCancellation",),
    "experiments.controller": (
        "AutoresearchController",
        "AutoresearchControllerConfig",
        "ControllerHandle",
        "new_controller_handle",
    ),
    "experiments.final_patch": ("FinalPatch",),
    "experiments.worktrees.acceptance": ("PatchAcceptance",),
    "experiments.trial": ("ExperimentWorkspace",),
}


def __getattr__(name: str) -> object:
    """The public name, from the module that defines it."""
    for module, names in _PUBLIC.items():
        if name in names:
            import importlib

            value: object = getattr(importlib.import_module(f"{__name__}.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *(name for names in _PUBLIC.values() for name in names)})
