"""The layout on disk: the state home outside the workspace, a mission's folder, a project's ``.omx``.

:class:`Runtime` hands the layout, the clock and the environment to every use case. Nothing here reads or writes a file.
Foreign names (session ids, task ids, goals) become file names only through the functions of this module.
"""

from __future__ import annotations

import os

from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.foundation.records import dataclass, field, sha256
from omx_autoresearch.system.clock import Clock, SystemClock, format_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from typing import Any

HOME_VARIABLE = "OMX_AUTORESEARCH_HOME"
HASH_PREFIX = "h-"
"""Starts the file name of every session id that is not its own file name."""
SLUG_LIMIT = 48
NAME_LIMIT = 128

_ALPHANUMERIC = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_NAME_CHARACTERS = _ALPHANUMERIC | frozenset("._-")
# Names that Windows keeps for devices, with or without an extension.
_DEVICES = frozenset(
    ["con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))]
)


def state_home(environ: Mapping[str, str]) -> str:
    """Return the folder that holds the truth of all missions of this user.

    ``OMX_AUTORESEARCH_HOME``, else ``$XDG_STATE_HOME/omx-autoresearch``, else
    ``~/.local/state/omx-autoresearch``.

    Raises:
        UsageError: the variable that decides holds a relative path, which would mean another folder in every
        cwd.
    """
    named = _absolute(environ, HOME_VARIABLE)
    if named:
        return named
    state = _absolute(environ, "XDG_STATE_HOME")
    if state:
        return os.path.join(state, "omx-autoresearch")
    home = _absolute(environ, "HOME") or os.path.expanduser("~")
    if not os.path.isabs(home):
        raise UsageError(
            "This user has no home folder.", next_step=f"export {HOME_VARIABLE}=/absolute/folder"
        )
    return os.path.join(home, ".local", "state", "omx-autoresearch")


def _absolute(environ: Mapping[str, str], variable: str) -> str:
    value = environ.get(variable, "")
    if value and not os.path.isabs(value):
        raise UsageError(
            f"{variable} is {value!r}, a relative path.", next_step=f"export {variable}=/absolute/folder"
        )
    return os.path.normpath(value) if value else ""


class MissionFolder:
    """One mission's folder in the state home: ``missions/{task_id}``.

    Attributes:
        task_id: the mission's id, which is the folder's name.
        journal_path: ``journal.jsonl``, the truth.
        seen_path: how the journal's file was after our last append or reading: inode, size, change time; disposable.
        lock_path: only ever locked; a file of its own, so that the journal may be replaced.
        frozen_path: copies of the pinned evaluator files.
        outputs_path: whole outputs of the commands that the runtime ran.
        heartbeat_path: a line for each turn that began or ended.
        index_path: disposable.
        notice_path: what a person must read.
        torn_path: torn last lines that were set aside.
        secrets_path: values that its commands need and that stand nowhere else.
        accepted_path: mission.md and sandbox.md as the owner last wrote or accepted them.
    """

    def __init__(self, root_path: str) -> None:
        self.root_path = root_path
        self.task_id = os.path.basename(root_path)
        self.journal_path = os.path.join(root_path, "journal.jsonl")
        self.seen_path = os.path.join(root_path, "journal.seen")
        self.lock_path = os.path.join(root_path, "journal.lock")
        self.frozen_path = os.path.join(root_path, "frozen")
        self.outputs_path = os.path.join(root_path, "outputs")
        self.heartbeat_path = os.path.join(root_path, "heartbeat.jsonl")
        self.index_path = os.path.join(root_path, "index.sqlite")
        self.notice_path = os.path.join(root_path, "NOTICE")
        self.torn_path = os.path.join(root_path, "torn")
        self.secrets_path = os.path.join(root_path, "secrets.json")
        self.accepted_path = os.path.join(root_path, "accepted")

    def output_path(self, run_id: str) -> str:
        """Return where the whole output of a run stands: ``outputs/{run_id}.txt``.

        Raises:
            UsageError: ``run_id`` is no safe file name.
        """
        if not is_safe_task_id(run_id):
            raise UsageError(f"{run_id[:80]!r} is not the id of a run.", next_step="omx-autoresearch status")
        return os.path.join(self.outputs_path, f"{run_id}.txt")


class StateHome:
    """The user's state home, see :func:`state_home`.

    Attributes:
        missions_path: one folder a mission.
        experiments_path: one folder an experiment, and ``holds/``.
        active_path: one small file a bound session.
        approved_path: digests of commands that the owner allows.
        record_paths: the folders with what was done and said, which a run in a box must not see.
    """

    def __init__(self, root_path: str) -> None:
        self.root_path = root_path
        self.missions_path = os.path.join(root_path, "missions")
        self.experiments_path = os.path.join(root_path, "experiments")
        self.active_path = os.path.join(root_path, "active")
        self.approved_path = os.path.join(root_path, "approved")
        self.record_paths = (
            self.missions_path,
            self.experiments_path,
            self.active_path,
            self.approved_path,
            os.path.join(root_path, "session-tools"),
        )

    def mission(self, task_id: str) -> MissionFolder:
        """Return the folder of a mission, whether it exists or not.

        Raises:
            UsageError: ``task_id`` is not a safe name, so it names no mission.
        """
        return MissionFolder(os.path.join(self.missions_path, _checked(task_id)))

    def session_path(self, session_id: str) -> str:
        """Return the file in ``active/`` that binds this session."""
        return os.path.join(self.active_path, session_file_name(session_id))

    def told_path(self, session_id: str) -> str:
        """Return the file in ``told/`` that remembers which faults this session has heard of."""
        return os.path.join(self.root_path, "told", session_file_name(session_id))

    @property
    def handed_path(self) -> str:
        """The digests of texts that models gave to tools which submit prompts."""
        return os.path.join(self.root_path, "handed-texts")

    def trial_path(self, client: str) -> str:
        """What the newest trial of a client's prompts showed."""
        return os.path.join(self.root_path, "trials", client)


INTAKE_NAMES = ("mission.md", "sandbox.md", "result.json")
"""The files that ``init`` writes into a mission's specs folder: two that the owner edits, and the record of it."""


class ProjectFolder:
    """A project's root; everything that we keep in it stands under ``.omx``, for people and agents to read."""

    def __init__(self, root_path: str) -> None:
        self.root_path = root_path
        self.omx_path = os.path.join(root_path, ".omx")
        self.ignore_path = os.path.join(self.omx_path, ".gitignore")

    def specs_path(self, slug: str) -> str:
        """``.omx/specs/autoresearch-{slug}``: mission.md, sandbox.md, result.json, completion.json."""
        return os.path.join(self.omx_path, "specs", f"autoresearch-{_checked(slug)}")

    def task_path(self, task_id: str) -> str:
        """``.omx/autoresearch/{task_id}``: the mission's projections."""
        return os.path.join(self.omx_path, "autoresearch", _checked(task_id))

    def inbox_path(self, task_id: str) -> str:
        """``inbox/`` of the task: claims waiting to be taken in."""
        return os.path.join(self.task_path(task_id), "inbox")


def _checked(name: str) -> str:
    if not is_safe_task_id(name):
        raise UsageError(f"{name[:80]!r} is not the name of a mission.", next_step="omx-autoresearch list")
    return name


def is_safe_task_id(text: str) -> bool:
    """True when ``text`` is one path component on every file system, and no other text means the same one.

    Lower-case ASCII letters, digits, ``.``, ``_`` and ``-``, at most 128, beginning with a letter or digit,
    not ending in a dot, no device name of Windows. (A case-insensitive file system would take ``Fix`` and
    ``fix`` for one.)
    """
    if not 0 < len(text) <= NAME_LIMIT or text[0] not in _ALPHANUMERIC or text[-1] == ".":
        return False
    return _NAME_CHARACTERS.issuperset(text) and text.split(".", 1)[0] not in _DEVICES


def session_file_name(session_id: str) -> str:
    """Return the file name that stands for a session id; no two ids share one, on any file system.

    A safe id (see :func:`is_safe_task_id`) that does not begin with ``h-`` is its own name; any other, one
    with capitals too, is ``h-`` and the sha256 of the id. Total: lone surrogates, NUL, any length and the
    empty id (which no caller should bind: every payload without a session has it) get a name.
    """
    if is_safe_task_id(session_id) and not session_id.startswith(HASH_PREFIX):
        return session_id
    return HASH_PREFIX + _sha256(session_id)


def _sha256(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def task_id(now: datetime, slug: str) -> str:
    """Return ``YYYYMMDD-HHMMSS-slug`` in UTC. ``now`` is aware.

    Raises:
        ValueError: ``now`` is naive, or ``slug`` is not what :func:`slugify` returns.
    """
    offset = now.utcoffset()
    if offset is None:
        raise ValueError("now must be an aware time")
    if not is_safe_task_id(slug):
        raise ValueError(f"not a slug: {slug!r}")
    return f"{now - offset:%Y%m%d-%H%M%S}-{slug}"


def slugify(text: str) -> str:
    """Return a short ASCII name for a goal, safe on every file system.

    Letters ``a-z``, digits and single ``-``, 1 to 48 characters. Accents are taken off. A text of which nothing is
    left (CJK, emoji, punctuation) becomes ``goal-`` and eight hexadecimal digits of its sha256, so the same goal
    always has the same slug.
    """
    import unicodedata

    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii").lower()
    words = "".join(c if c in _ALPHANUMERIC else " " for c in plain).split()
    if not words:
        return f"goal-{_sha256(text)[:8]}"
    slug = "-".join(words)
    if slug in _DEVICES:
        return f"goal-{slug}"
    if len(slug) > SLUG_LIMIT:
        cut = slug[: SLUG_LIMIT + 1].rpartition("-")[0]
        slug = cut or slug[:SLUG_LIMIT]
    return slug


def random_id() -> str:
    """Twelve hex digits from the operating system."""
    return os.urandom(6).hex()


@dataclass(frozen=True, slots=True)
class Runtime:
    """The world as a use case sees it.

    Attributes:
        home: where journals, registry and approvals stand.
        clock: the only source of time.
        environ: the environment of the caller.
        new_id: the only source of randomness.
        shell_marks: environment variables that agents' shells carry (facts of the agent CLIs).
        sources: what missions ask of other parts of the runtime, by question; the door hands it in, since missions
            import none of them (``surfaces/sources.py``).
    """

    home: StateHome
    clock: Clock = field(default_factory=SystemClock)
    environ: Mapping[str, str] = field(default_factory=dict)
    new_id: Callable[[], str] = random_id
    shell_marks: tuple[str, ...] = ()
    sources: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    @classmethod
    def of_process(cls, *, home_path: str = "", shell_marks: tuple[str, ...] = ()) -> Runtime:
        """The runtime of this process; ``home_path`` where the installer baked one in."""
        return cls(
            home=StateHome(home_path or state_home(os.environ)),
            environ=dict(os.environ),
            shell_marks=shell_marks,
        )

    def now(self) -> str:
        """The time as it stands in records."""
        return format_time(self.clock.now())
