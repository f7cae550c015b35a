"""omx_autoresearch: the runtime that keeps a long agent mission honest from start to end.

For other programs: ``omx_autoresearch.Store``, ``omx_autoresearch.AutoresearchController`` and the types that they take
and give (specs/python-api.md). They are loaded when they are first asked for, so that a hook, which needs none of them,
pays nothing.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.core.acceptance import AcceptanceRule as AcceptanceRule
    from omx_autoresearch.core.acceptance import Claim as Claim
    from omx_autoresearch.core.criteria import Criterion as Criterion
    from omx_autoresearch.core.criteria import criterion_of as criterion_of
    from omx_autoresearch.core.experiments import ExperimentConfig as ExperimentConfig
    from omx_autoresearch.core.experiments import ExperimentHypothesis as ExperimentHypothesis
    from omx_autoresearch.core.experiments import ExperimentLimits as ExperimentLimits
    from omx_autoresearch.core.experiments import ExperimentState as ExperimentState
    from omx_autoresearch.core.experiments import HypothesisOutcome as HypothesisOutcome
    from omx_autoresearch.core.experiments import TrialRow as TrialRow
    from omx_autoresearch.core.metrics import Guard as Guard
    from omx_autoresearch.core.metrics import MetricSpec as MetricSpec
    from omx_autoresearch.core.readiness import CriterionView as CriterionView
    from omx_autoresearch.core.readiness import ReadinessLine as ReadinessLine
    from omx_autoresearch.core.readiness import ReadinessReport as ReadinessReport
    from omx_autoresearch.errors import AutoresearchError as AutoresearchError
    from omx_autoresearch.runtime.experiments.async_controller import (
        AsyncAutoresearchController as AsyncAutoresearchController,
    )
    from omx_autoresearch.runtime.experiments.cancellation import (
        AutoresearchCancellation as AutoresearchCancellation,
    )
    from omx_autoresearch.runtime.experiments.controller import (
        AutoresearchController as AutoresearchController,
    )
    from omx_autoresearch.runtime.experiments.controller import (
        AutoresearchControllerConfig as AutoresearchControllerConfig,
    )
    from omx_autoresearch.runtime.experiments.controller import ControllerHandle as ControllerHandle
    from omx_autoresearch.runtime.experiments.controller import new_controller_handle as new_controller_handle
    from omx_autoresearch.runtime.experiments.final_patch import FinalPatch as FinalPatch
    from omx_autoresearch.runtime.experiments.final_patch import PatchAcceptance as PatchAcceptance
    from omx_autoresearch.runtime.experiments.trial import ExperimentWorkspace as ExperimentWorkspace
    from omx_autoresearch.runtime.findings import Recorded as Recorded
    from omx_autoresearch.runtime.findings import Submission as Submission
    from omx_autoresearch.runtime.store import CreateOptions as CreateOptions
    from omx_autoresearch.runtime.store import Problem as Problem
    from omx_autoresearch.runtime.store import ProgressPatch as ProgressPatch
    from omx_autoresearch.runtime.store import Store as Store
    from omx_autoresearch.runtime.store import Summary as Summary
    from omx_autoresearch.runtime.store import Task as Task
    from omx_autoresearch.runtime.store import ValidationReport as ValidationReport
    from omx_autoresearch.runtime.task_files import AllowedOperations as AllowedOperations
    from omx_autoresearch.runtime.task_files import Progress as Progress
    from omx_autoresearch.runtime.task_files import TaskSpec as TaskSpec

_PUBLIC = {
    "runtime.store": (
        "CreateOptions",
        "Problem",
        "ProgressPatch",
        "Store",
        "Summary",
        "Task",
        "ValidationReport",
    ),
    "runtime.task_files": ("AllowedOperations", "Progress", "TaskSpec"),
    "runtime.findings": ("Recorded", "Submission"),
    "core.criteria": ("Criterion", "criterion_of"),
    "core.readiness": ("CriterionView", "ReadinessLine", "ReadinessReport"),
    "errors": ("AutoresearchError",),
    "core.acceptance": (
        "AcceptanceRule",
        "Claim",
    ),
    "core.experiments": (
        "ExperimentConfig",
        "ExperimentHypothesis",
        "ExperimentLimits",
        "ExperimentState",
        "HypothesisOutcome",
        "TrialRow",
    ),
    "core.metrics": (
        "Guard",
        "MetricSpec",
    ),
    "runtime.experiments.async_controller": ("AsyncAutoresearchController",),
    "runtime.experiments.cancellation": ("AutoresearchCancellation",),
    "runtime.experiments.controller": (
        "AutoresearchController",
        "AutoresearchControllerConfig",
        "ControllerHandle",
        "new_controller_handle",
    ),
    "runtime.experiments.final_patch": (
        "FinalPatch",
        "PatchAcceptance",
    ),
    "runtime.experiments.trial": ("ExperimentWorkspace",),
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
