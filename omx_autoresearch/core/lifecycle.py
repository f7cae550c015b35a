"""The phases of a mission as one table, run by ``transitions``.

    draft --launch--> running --complete--> complete
    running --block--> blocked --unblock--> running
    running --pause--> paused --resume--> running
    draft | running | blocked | paused --cancel--> cancelled

Every phase change of a mission goes through :func:`next_phase`. Callbacks have no side effects; the record is written
first and the phase follows from it.
"""

from __future__ import annotations

from omx_autoresearch.errors import StepIllegal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from omx_autoresearch.core.words import Phase, Step


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


def is_legal(phase: Phase, step: Step) -> bool:
    """True when a mission in ``phase`` may take ``step``; the table alone, for the fold and for messages."""
    if step == "amend":
        return phase not in FINAL_PHASES
    return any(name == step and phase in sources for name, sources, _ in TRANSITIONS)


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


def machine_options(initial: Phase = "draft") -> dict[str, Any]:
    """What a ``transitions`` machine over the table is built with (also the one that draws the diagram)."""
    table = [{"trigger": step, "source": list(sources), "dest": dest} for step, sources, dest in TRANSITIONS]
    return {"states": list(PHASES), "transitions": table, "initial": initial, "auto_transitions": False}


def next_phase(phase: Phase, step: Step, *, task_id: str = "TASK") -> Phase:
    """The phase after ``step``.

    Raises:
        StepIllegal: the phase has no such step; the error names the legal ones and what to type instead.
    """
    if step == "amend":
        if is_legal(phase, step):
            return phase
        raise _illegal(phase, step, task_id)
    from transitions import Machine, MachineError  # here, since only a phase change needs it

    holder = _Holder()
    Machine(model=holder, **machine_options(phase))
    try:
        getattr(holder, step)()
    except MachineError:
        raise _illegal(phase, step, task_id) from None
    reached: Phase = holder.state  # type: ignore[attr-defined]
    return reached


def _illegal(phase: Phase, step: Step, task_id: str) -> StepIllegal:
    verbs = ("start" if name == "launch" else name for name in legal_steps(phase) if name != "complete")
    legal = ", ".join(verbs)
    return StepIllegal(
        f"a mission that is {phase} cannot {step}; {f'it can {legal}' if legal else 'nothing re-opens it'}",
        next_step=COMMAND_FOR[phase].format(task=task_id),
    )


class _Holder:
    """The object that ``transitions`` hangs state and triggers on."""
