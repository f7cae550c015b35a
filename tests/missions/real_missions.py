"""Missions on a real disk, for the tests of what is kept of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from omx_autoresearch.journal.layout import ProjectFolder, Runtime, StateHome
from omx_autoresearch.missions.claims import write_changed
from omx_autoresearch.missions.records.lifecycle import MissionBlocked, MissionCreated, MissionLaunched
from omx_autoresearch.missions.records.sessions import SessionBound
from omx_autoresearch.missions.records.work import ClaimRecorded
from omx_autoresearch.missions.rules.mission import Blocker, Contract
from omx_autoresearch.missions.store import MissionStore
from omx_autoresearch.system.clock import Clock, format_time

if TYPE_CHECKING:
    from pathlib import Path

TASK = "20260102-030405-parser"
SESSION = "8d7f3a52-0000-4000-8000-000000000001"
START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CONTRACT = Contract(validation_mode="mission-validator-script", validator_command="./check.sh")


class HandClock(Clock):
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        self.seconds += 1
        return START + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds


class Place:
    """A state home and a project with one running mission."""

    def __init__(self, root: Path, *, task_id: str = TASK, launched: bool = True) -> None:
        self.task_id = task_id
        self.project = root / "project"
        self.project.mkdir(parents=True, exist_ok=True)
        self.home = StateHome(str(root / "state"))
        self.store = MissionStore(self.home)
        self.folder = self.home.mission(task_id)
        self.runtime = Runtime(home=self.home, clock=HandClock())
        self.task_path = self.project / ".omx" / "autoresearch" / task_id
        self.inbox_path = ProjectFolder(str(self.project)).inbox_path(task_id)
        self.store.create(task_id, at(0), self.created())
        if launched:
            self.record(MissionLaunched("running", CONTRACT, "contract"))
        self.follow()

    def created(self) -> MissionCreated:
        path = str(self.project)
        specs_path = ".omx/specs/autoresearch-parser"
        return MissionCreated(self.task_id, "parser", "parse the corpus", "standard", path, path, specs_path)

    def record(self, *records: object, second: int = 1) -> None:
        with self.store.transaction(self.task_id, at(second)) as transaction:
            transaction.record(*records)  # type: ignore[arg-type]

    def claim(self, text: str, second: int = 1) -> None:
        self.record(ClaimRecorded(text, "cli", f"c-{text}"), second=second)

    def bind(self, session_id: str = SESSION) -> None:
        self.record(SessionBound(session_id, "claude", "prompt"))

    def block(self) -> None:
        blocker = Blocker("agent-blocked", "no key", "a key", "omx-autoresearch unblock", "agent")
        self.record(MissionBlocked("blocked", blocker))

    def follow(self) -> None:
        """As at the end of a process that recorded something."""
        assert write_changed(self.runtime) == ()

    def projections(self) -> dict[str, bytes]:
        """Every projection of the mission but what waits in the inbox or was set aside."""
        found = {}
        for sub in ("state", "logs"):
            for path in sorted((self.task_path / sub).glob("[!.]*")):
                if ".edited-" not in path.name:
                    found[f"{sub}/{path.name}"] = path.read_bytes()
        return found

    def set_aside(self) -> dict[str, bytes]:
        """What was edited and set aside, by the name of its projection."""
        found = {}
        for path in sorted(self.task_path.glob("*/*.edited-*")):
            found[f"{path.parent.name}/{path.name.split('.')[0]}{path.suffix}"] = path.read_bytes()
        return found

    def mode(self, session_id: str = SESSION) -> Path:
        return self.project / ".omx" / "state" / "sessions" / session_id / "autoresearch-state.json"

    def texts(self) -> list[str]:
        """What the journal holds as claims."""
        entries = self.store.journal(self.task_id).read()
        return [entry.data["text"] for entry in entries if entry.kind == "claim_recorded"]

    def kinds(self) -> list[str]:
        return [entry.kind for entry in self.store.journal(self.task_id).read()]


def at(second: int) -> str:
    return format_time(START + timedelta(seconds=second))
