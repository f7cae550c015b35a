"""The mission store for other programs: the host API of the typed mission, on the same journal as everything else.

    store = Store("/path/to/project")
    task = store.create_task("make the parser pass", CreateOptions(validator_command="./check.sh"))
    store.record_direction(task.spec.task_id, "profile the tokenizer", {"search_space": "tokenizer"})
    store.append_finding(task.spec.task_id, Submission("the tokenizer is quadratic", kind="benchmark"))
    print(store.readiness(task.spec.task_id).missing)

Every method raises the errors of ``omx_autoresearch.foundation.errors``; each names what happened, where, and the next
command. An argument of another type than the one that is declared is ``UsageError``, too.
Times are ISO 8601 in UTC, sizes bytes, durations seconds. Writes are durable when a method returns, and serialized per
mission: any number of threads and processes may use stores at once.
"""

from __future__ import annotations

import shlex
import warnings
from dataclasses import dataclass, field, replace

from omx_autoresearch.foundation.errors import AutoresearchError, MissionInvalid, StepIllegal, UsageError
from omx_autoresearch.journal.layout import ProjectFolder, Runtime
from omx_autoresearch.missions import launch, lifecycle_commands, registry
from omx_autoresearch.missions.checkouts import project_root
from omx_autoresearch.missions.claims import write_changed
from omx_autoresearch.missions.directions import declare, direction_of
from omx_autoresearch.missions.findings import Recorded, Submission, add_finding, list_findings
from omx_autoresearch.missions.rules import briefing
from omx_autoresearch.missions.rules.evidence import open_criteria
from omx_autoresearch.missions.rules.intake import MissionDraft
from omx_autoresearch.missions.rules.prompts import paths_named
from omx_autoresearch.missions.store import MissionStore
from omx_autoresearch.missions.task_files import Progress, TaskSpec, progress_of, task_spec
from omx_autoresearch.missions.verification import ValidationReport, validation_report
from omx_autoresearch.missions.views import readiness as readiness_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeVar

    from omx_autoresearch.missions.rules.mission import Mission
    from omx_autoresearch.missions.rules.readiness import ReadinessReport

    Kind = TypeVar("Kind")
    Result = TypeVar("Result")

_SHOWN_FINDINGS = 5
_BEAT_CHARACTERS = 200

CreateOptions = MissionDraft
"""The options of a new mission; ``goal`` is the first argument of :meth:`Store.create_task`."""


@dataclass(frozen=True, slots=True)
class Task:
    """A mission as other programs see it.

    Attributes:
        spec: what was asked.
        progress: where it stands.
        task_path: folder of its projections.
    """

    spec: TaskSpec
    progress: Progress
    task_path: str


@dataclass(frozen=True, slots=True)
class ProgressPatch:
    """The one change that another program may make: block a mission and say why.

    Counters, evidence and completion follow from records alone.

    Attributes:
        blocked_reason: what is in the way, one sentence.
        needs: the smallest input that would let it go on.
    """

    blocked_reason: str
    needs: str


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary that the agent reads each turn.

    Attributes:
        text: under 1,200 characters, stable text first.
        task_id: of the mission.
        open_criteria: required criteria that the newest check under this contract did not find met.
        findings: newest accepted findings, newest first.
    """

    text: str
    task_id: str
    open_criteria: tuple[str, ...]
    findings: tuple[str, ...] = field(default_factory=tuple)


class Store:
    """The missions of one project.

    Args:
        project_path: the project's root; its repository's main checkout is found from any folder of it.
        home_path: the state home; the user's own by default.
        environ: of the owner; the process's by default.
    """

    def __init__(
        self, project_path: str, *, home_path: str = "", environ: Mapping[str, str] | None = None
    ) -> None:
        _texts(project_path=project_path, home_path=home_path)
        runtime = Runtime.of_process(home_path=home_path)
        self._runtime = runtime if environ is None else replace(runtime, environ=dict(environ))
        self._project_path = project_root(project_path)
        self._store = MissionStore(self._runtime.home)

    def create_task(
        self, goal: str, options: CreateOptions | None = None, *, is_started: bool = True
    ) -> Task:
        """Make a mission: its id, its folder, its intake files; launched unless ``is_started`` is False.

        Raises:
            MissionInvalid: the options cannot stand; every fault is named.
            StepIllegal: the validator passes already.
        """
        _texts(goal=goal)
        draft = replace(_as(CreateOptions, options or CreateOptions(), "options"), goal=goal)
        mission = launch.create_mission(self._runtime, self._project_path, draft)
        if is_started:
            mission = launch.start(
                self._runtime, mission.task_id, launch.StartOptions(reason="store")
            ).mission
        return self._followed(_task(mission))

    def load_task(self, task_id: str) -> Task:
        """A mission as it stands.

        Raises:
            UsageError: no mission has this id.
            StateUntrusted: its state cannot be trusted; the error names file, line and cure.
        """
        return _task(self._load(task_id))

    def _load(self, task_id: str) -> Mission:
        _texts(task_id=task_id)
        return self._store.load(task_id)

    def resume_from_goal_text(self, text: str) -> Task | None:
        """The mission whose ``.omx/autoresearch/ID`` or ``.reasonix/autoresearch/ID`` folder a goal names, or None.

        Raises:
            UsageError: the folder names no mission that is known here; a Reasonix task is adopted first.
            StateUntrusted: its state cannot be trusted.
        """
        _texts(text=text)
        named = paths_named(text)
        if not named:
            return None
        for folder in named:
            if self._store.exists(folder.task_id):
                return _task(self._store.load(folder.task_id))
        raise UsageError(
            f"the goal names {named[0].path!r}, which is not a mission in this state home",
            next_step=f"omx-autoresearch adopt {shlex.quote(named[0].path)}",
        )

    def append_heartbeat(self, task_id: str, status: str, *, session_id: str = "") -> None:
        """Leave a sign of life; ``status`` is a word or a few.

        Raises:
            UsageError: it is too long, or not a string.
            OSError: it could not be written; warn and go on.
        """
        self._load(task_id)
        beat: dict[str, object] = {"status": status, "session_id": session_id}  # by other programs, unchecked
        for name, text in beat.items():
            if not isinstance(text, str) or len(text) > _BEAT_CHARACTERS:
                raise UsageError(
                    f"{name}: a string of at most {_BEAT_CHARACTERS} characters is needed, received {repr(text)[:80]}",
                    next_step="put the rest into a finding",
                )
        path = self._runtime.home.mission(task_id).heartbeat_path
        registry.beat(path, at=self._runtime.now(), status=status, session_id=session_id)

    def append_finding(self, task_id: str, submission: Submission) -> Recorded:
        """Record an observation; whether it is evidence is decided by its criterion's rule."""
        _texts(task_id=task_id)
        given = _as(Submission, submission, "submission")
        return self._followed(add_finding(self._runtime, task_id, given, source="import"))

    def record_direction(
        self, task_id: str, summary: str, axes: Mapping[str, str] | None = None, *, is_pivot: bool = False
    ) -> Progress:
        """Declare what is tried next.

        Raises:
            StepIllegal: it may not be declared now; the error names every reason.
        """
        axes = axes or {}
        _texts(task_id=task_id, summary=summary)
        if not hasattr(axes, "items"):
            raise _wrong("axes", "a mapping of names to strings", axes)
        _texts(**{f"axes[{name!r}]": value for name, value in axes.items()})
        declared = declare(self._runtime, task_id, direction_of(summary, axes, is_pivot=is_pivot is True))
        if declared.faults:
            raise StepIllegal(
                "; ".join(declared.faults), next_step=f"omx-autoresearch direction list {task_id}"
            )
        return self._followed(progress_of(self._store.load(task_id)))

    def update_progress(self, task_id: str, patch: ProgressPatch) -> Progress:
        """Block the mission: a person must act first."""
        _texts(task_id=task_id)
        patch = _as(ProgressPatch, patch, "patch")
        mission = lifecycle_commands.block(
            self._runtime, task_id, reason=patch.blocked_reason, needs=patch.needs, by="agent"
        )
        return self._followed(progress_of(mission))

    def _followed(self, result: Result) -> Result:
        """Let the files under ``.omx`` say what was recorded; a warning where they cannot be written."""
        for text in write_changed(self._runtime):
            warnings.warn(text, RuntimeWarning, stacklevel=3)
        return result

    def validate_task(self, task_id: str) -> ValidationReport:
        """Check the whole journal, every file of the mission under ``.omx`` and the pinned files; nothing is written.

        What is wrong is a value. A file that lags behind a writer that has not ended yet is wrong until it ends.
        """
        _texts(task_id=task_id)
        return validation_report(self._runtime, task_id)

    def readiness(self, task_id: str) -> ReadinessReport:
        """The lines of the completion gate, and whether the mission would complete now."""
        _texts(task_id=task_id)
        return readiness_of(self._runtime, task_id)

    def summary(self, task_id: str) -> Summary:
        """The summary that the agent reads at the start of a turn."""
        mission = self._load(task_id)
        try:
            newest = list_findings(self._runtime, task_id, limit=_SHOWN_FINDINGS, wanted="accepted")
        except AutoresearchError:
            newest = ()
        seen = tuple(item["summary"] for item in newest)
        return Summary(briefing.summary(mission), task_id, open_criteria(mission), seen)


def _texts(**values: object) -> None:
    """Refuse every value that is not a string: other programs are not type-checked."""
    for name, value in values.items():
        if not isinstance(value, str):
            raise _wrong(name, "a string", value)


def _wrong(name: str, needed: str, value: object) -> UsageError:
    received = f"{type(value).__name__} {repr(value)[:60]}"
    return UsageError(
        f"{name}: {needed} is required, received {received}",
        next_step="see specs/python-api.md for its arguments",
    )


def _as(kind: type[Kind], value: object, name: str) -> Kind:
    """The value as its class has it, every field of the right type."""
    # pydantic, which only a caller from outside needs
    from omx_autoresearch.foundation.input_validation import validated

    if not isinstance(value, kind):
        raise _wrong(name, f"a {kind.__name__}", value)
    return validated(kind, value, where=name, error=MissionInvalid if kind is CreateOptions else UsageError)


def _task(mission: Mission) -> Task:
    path = ProjectFolder(mission.project_path).task_path(mission.task_id)
    return Task(task_spec(mission), progress_of(mission), path)
