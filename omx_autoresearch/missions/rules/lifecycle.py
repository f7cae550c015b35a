"""Phases as tables, and the one place that runs them: ``transitions`` decides every change of phase.

    draft --launch--> running --complete--> complete
    running --block--> blocked --unblock--> running
    running --pause--> paused --resume--> running
    draft | running | blocked | paused --cancel--> cancelled

Whoever changes a phase asks :func:`next_phase` (a mission) or :func:`~.experiments.next_experiment_phase`, which run
the machine, and records the phase that it reached. A replay runs no machine: :func:`target` reads the same table as
data, and a record whose step the phase does not have changes nothing. So a refused stop, a fold and a look never load
the package.
"""

from __future__ import annotations

from omx_autoresearch.foundation.errors import AutoresearchError, StepIllegal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal, TypeVar

    from omx_autoresearch.foundation.types import Phase, Step

    AnyPhase = TypeVar("AnyPhase", bound=str)
    AnyStep = TypeVar("AnyStep", bound=str)
    Table = tuple[tuple[AnyStep, tuple[AnyPhase, ...], AnyPhase], ...]

PHASES: tuple[Phase, ...] = ("draft", "running", "blocked", "paused", "complete", "cancelled")
FINAL_PHASES: tuple[Phase, ...] = ("complete", "cancelled")

TRANSITIONS: tuple[tuple[Step, tuple[Phase, ...], Phase], ...] = (
    ("launch", ("draft",), "running"),
    ("complete", ("running",), "complete"),
    ("block", ("running",), "blocked"),
    ("unblock", ("blocked",), "running"),
    ("pause", ("running",), "paused"),
    ("resume", ("paused",), "running"),
    ("cancel", ("draft", "running", "blocked", "paused"), "cancelled"),
)
"""(step, from phases, to phase). ``amend`` is legal in every phase but the final ones and changes none."""


def target(table: Table[AnyStep, AnyPhase], phase: AnyPhase, step: AnyStep) -> AnyPhase | Literal[""]:
    """The phase behind a step by the table alone; empty where ``phase`` has no such step."""
    return next((to for name, sources, to in table if name == step and phase in sources), "")


def is_legal(phase: Phase, step: Step) -> bool:
    """True when a mission in ``phase`` may take ``step``; the table alone, for the fold and for messages."""
    if step == "amend":
        return phase not in FINAL_PHASES
    return bool(target(TRANSITIONS, phase, step))


def legal_steps(phase: Phase) -> tuple[Step, ...]:
    """Every step that ``phase`` allows, in the table's order."""
    steps: tuple[Step, ...] = (*(name for name, _, _ in TRANSITIONS), "amend")
    return tuple(step for step in steps if is_legal(phase, step))


WIRE_STATUS: dict[Phase, str] = {
    "draft": "running",
    "running": "running",
    "blocked": "blocked",
    "paused": "stopped",
    "complete": "complete",
    "cancelled": "stopped",
}
"""The ``status`` word that hosts of the typed mission read; ``invalid`` and ``missing`` are shown, never stored."""

COMMAND_FOR: dict[Phase, str] = {
    "draft": "omx-autoresearch start {task}",
    "running": "omx-autoresearch status {task}",
    "blocked": "omx-autoresearch unblock {task}",
    "paused": "omx-autoresearch resume {task}",
    "complete": "omx-autoresearch status {task}",
    "cancelled": "omx-autoresearch init --goal ...",
}
"""What an owner types next in each phase."""


def machine_options(table: Table[Any, Any], initial: str) -> dict[str, Any]:
    """What a ``transitions`` machine over a table is built with (also the one that draws the diagram)."""
    steps = [{"trigger": step, "source": list(sources), "dest": dest} for step, sources, dest in table]
    states = dict.fromkeys(phase for _, sources, dest in table for phase in (*sources, dest))
    return {"states": [*states], "transitions": steps, "initial": initial, "auto_transitions": False}


def reached(table: Table[AnyStep, AnyPhase], phase: AnyPhase, step: AnyStep) -> AnyPhase | Literal[""]:
    """The phase that the machine reaches by a step; empty where it has no such step.

    Raises:
        AutoresearchError: the package ``transitions`` cannot be loaded.
    """
    try:
        from transitions import Machine, MachineError  # here, since only a change of phase needs it
    except ImportError as error:
        folder = __file__.rpartition("/omx_autoresearch/")[0]
        raise AutoresearchError(
            f"the step {step} was not taken: the package transitions, which decides it, cannot be loaded ({error})",
            next_step=f"pip install transitions (into the environment of {folder}), then the same again",
        ) from None
    holder: Any = _Holder()
    Machine(model=holder, **machine_options(table, phase))
    try:
        getattr(holder, step)()
    except MachineError:
        return ""
    after: AnyPhase = holder.state
    return after


def next_phase(phase: Phase, step: Step, *, task_id: str = "TASK") -> Phase:
    """The phase of a mission after ``step``, as the machine decides it; ``amend`` changes none.

    Raises:
        StepIllegal: the phase has no such step; the error names the legal ones and what to type instead.
        AutoresearchError: the machine cannot be run.
    """
    if step == "amend" and is_legal(phase, step):
        return phase
    if step != "amend" and (after := reached(TRANSITIONS, phase, step)):
        return after
    verbs = ("start" if name == "launch" else name for name in legal_steps(phase) if name != "complete")
    legal = ", ".join(verbs)
    raise StepIllegal(
        f"a mission that is {phase} cannot {step}; {f'it can {legal}' if legal else 'nothing re-opens it'}",
        next_step=COMMAND_FOR[phase].format(task=task_id),
    )


class _Holder:
    """The object that ``transitions`` hangs state and triggers on."""
