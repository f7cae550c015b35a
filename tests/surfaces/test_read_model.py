"""One read model: each question about missions and experiments is answered by one function, whoever asks."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from tests.surfaces.support.copies import PACKAGE, copied_package

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ANSWERS = {
    "which missions are under way": ("_open_missions", "missions/views.py"),
    "which mission is meant": ("resolve_task", "missions/views.py"),
    "which mission is looked at": ("shown_view", "missions/views.py"),
    "what is open now": ("open_items", "missions/views.py"),
    "what a mission's owner types next": ("next_command", "missions/rules/mission.py"),
    "how a mission stands": ("view", "missions/views.py"),
    "how its newest run ended": ("run_view", "missions/run_view.py"),
    "what changed since the launch": ("difference_since_launch", "missions/difference.py"),
    "which experiment is meant": ("find_experiment", "experiments/views.py"),
    "how an experiment stands": ("view", "experiments/views.py"),
    "what an experiment's owner types next": ("next_command", "experiments/views.py"),
    "what lets it go on": ("reopening_command", "experiments/views.py"),
    "who works on it": ("is_at_work", "experiments/views.py"),
    "where its candidate stands": ("candidate_path", "experiments/views.py"),
    "what no candidate may touch": ("frozen_paths", "experiments/views.py"),
}
"""Each question with the function that answers it, and its module."""

INGREDIENTS = {
    "task_ids": {
        "compat/adoption.py", "missions/store.py", "missions/upkeep.py", "missions/views.py", "surfaces/cli/console.py",
    },
    "list_ids": {
        "experiments/store.py", "experiments/views.py",
        "surfaces/cli/experiment_lifecycle.py",  # removes what a killed start left, of which there is no view
    },
    "COMMAND_FOR": {"missions/rules/mission.py"},
    "readiness_report": {"missions/rules/readiness.py", "missions/views.py"},
    "completion_items": {
        "missions/rules/evidence.py", "missions/rules/readiness.py", "missions/stop.py", "missions/views.py",
    },
    "recorded_codes": {"missions/rules/evidence.py", "missions/store.py", "missions/views.py"},
    "controller_started": {
        "experiments/background.py", "experiments/judge/events.py", "experiments/judge/state.py",
        "experiments/views.py",
    },
}  # fmt: skip
"""What an answer is made of, and the modules that may touch it; who else does answers the question again."""


def trees(package: Path, name: str) -> Iterator[tuple[str, ast.Module]]:
    """The modules in whose text a name stands, parsed."""
    for path in package.rglob("*.py"):
        text = path.read_text("utf-8")
        if name in text:
            yield str(path.relative_to(package)), ast.parse(text)


def answering(package: Path, name: str) -> set[str]:
    """The modules that define a function of this name at their top."""
    return {
        module
        for module, tree in trees(package, name)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == name
    }


def touching(package: Path, name: str) -> set[str]:
    """The modules whose code names it."""
    found = set()
    for module, tree in trees(package, name):
        for node in ast.walk(tree):
            if name in (getattr(node, "id", ""), getattr(node, "attr", ""), getattr(node, "name", "")):
                found.add(module)
    return found


@pytest.mark.parametrize("question", ANSWERS)
def test_each_question_is_answered_by_one_function(question: str) -> None:
    name, module = ANSWERS[question]
    homes = {where for other, where in ANSWERS.values() if other == name}
    assert module in homes
    assert answering(PACKAGE, name) == homes


@pytest.mark.parametrize("name", INGREDIENTS)
def test_no_other_module_makes_an_answer_of_its_own(name: str) -> None:
    assert touching(PACKAGE, name) <= INGREDIENTS[name]
    assert touching(PACKAGE, name), "the name is gone, so this proves nothing"


def test_a_second_answer_would_be_found(tmp_path: Path) -> None:
    copied = copied_package(tmp_path)
    copy = copied / "surfaces" / "cli" / "second.py"
    copy.write_text(
        "def is_at_work(state):\n    return (state.controller_pid, state.controller_started)\n", "utf-8"
    )
    assert "surfaces/cli/second.py" in answering(copied, "is_at_work") & touching(
        copied, "controller_started"
    )
