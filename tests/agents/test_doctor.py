from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.agents.hook_lines import HookProgram, hook_script
from omx_autoresearch.agents.install import box_check, examine, install
from omx_autoresearch.agents.parts import Installation, hold_proof, skill
from omx_autoresearch.agents.registry import installation_of
from omx_autoresearch.foundation.clients import CLIENT_NAMES
from omx_autoresearch.foundation.errors import StorageFailed
from omx_autoresearch.system.sandbox import no_box
from tests.support.boxes import take_box

if TYPE_CHECKING:
    from omx_autoresearch.agents.parts import Check

HOLDING = """\
import json, os, sys
event = json.load(sys.stdin)
assert event["hook_event_name"] == {stop!r} and sys.argv[2] == {name!r}
if os.path.exists(os.path.join(sys.argv[1], "active", event["session_id"])):
    print(json.dumps({{"decision": "block", "reason": "[omx-autoresearch] not yet"}}))
"""
STOP_EVENTS = {"claude": "Stop", "codex": "Stop", "gemini": "AfterAgent"}


def make_held_session(state_home_path: str) -> str:
    active = Path(state_home_path, "active")
    active.mkdir()
    (active / "synthetic").touch()
    return "synthetic"


@dataclass(frozen=True)
class Patient:
    """One client with our hooks in it, in a scratch home."""

    path: Path
    name: str
    installation: Installation

    @property
    def entry(self) -> Path:
        return self.path / "entry.py"

    @property
    def settings(self) -> Path:
        return Path(self.installation.settings_path)

    def checks(
        self, state: str = "state", *, packages: dict[str, str] | None = None, **environ: str
    ) -> dict[str, Check]:
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.path), **environ}
        found = examine(
            self.installation,
            str(self.path / state),
            environ=environment,
            packages=packages or {"json": "json"},
            make_held_session=make_held_session,
        )
        return {check.name: check for check in found}

    def replace(self, old: str, new: str) -> None:
        text = self.settings.read_text()
        assert old in text
        self.settings.write_text(text.replace(old, new))


def patient_of(path: Path, name: str, *, without: tuple[str, ...] = ("tools",)) -> Patient:
    """A client with everything installed but the tools, whose server takes longer to start than all else together."""
    installation = installation_of(name, "user", {"HOME": str(path)}, str(path / "project"))
    patient = Patient(path, name, replace(installation, hook_shell=("sh", "-c")))
    patient.entry.write_text(HOLDING.format(stop=STOP_EVENTS[name], name=name))
    program = HookProgram(str(path / "state"), sys.executable, str(patient.entry))
    install(patient.installation, program, environ={"PATH": ""}, without=without)
    return patient


@pytest.fixture
def claude(tmp_path: Path) -> Patient:
    return patient_of(tmp_path, "claude")


def wrong(checks: dict[str, Check]) -> list[str]:
    for check in checks.values():
        assert check.what
        assert check.ok or check.cure, f"{check.name} says nothing about what to do"
    return [name for name, check in checks.items() if not check.ok]


@pytest.mark.requirement("INST-07")
@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_the_hold_is_proven_by_running_the_installed_line(tmp_path: Path, name: str) -> None:
    checks = patient_of(tmp_path, name).checks()
    assert checks["hold"].ok
    assert checks["others"].ok
    assert wrong(checks) == (["trust"] if name == "codex" else [])


@pytest.mark.requirement("INST-07")
def test_the_proof_leaves_the_real_state_alone_and_nothing_behind(
    claude: Patient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    before = sorted(os.listdir(tmp_path / "state"))
    assert claude.checks()["hold"].ok
    assert sorted(os.listdir(tmp_path / "state")) == before
    assert list(scratch.iterdir()) == []


@pytest.mark.requirement("INST-07")
@pytest.mark.parametrize(
    ("program", "failing", "words"),
    [
        ("pass", "hold", "let go"),
        ("import sys; sys.exit(2)", "hold", "ended with 2"),
        ("print('hello'); print('{}')", "hold", "more than its answer"),
        ('print(\'{"decision": "approve"}\')', "hold", "not a refusal"),
        ('print(\'{"decision": "block", "reason": "x"}\')', "others", "another session"),
    ],
)
def test_a_hook_that_answers_wrongly_is_found(
    claude: Patient, program: str, failing: str, words: str
) -> None:
    claude.entry.write_text(program)
    checks = claude.checks()
    assert not checks[failing].ok
    assert words in checks[failing].what


@pytest.mark.requirement("INST-08")
def test_nothing_installed_is_the_first_thing_said(tmp_path: Path) -> None:
    installation = installation_of("claude", "user", {"HOME": str(tmp_path)}, str(tmp_path))
    found = examine(
        installation, str(tmp_path / "state"), environ={}, packages={}, make_held_session=make_held_session
    )
    assert [(check.name, check.ok) for check in found] == [("settings", False)]
    assert "omx-autoresearch install claude --scope user" in found[0].cure


@pytest.mark.requirement("INST-08")
def test_a_settings_file_that_the_client_ignores_is_named_with_its_line(claude: Patient) -> None:
    claude.settings.write_text("{\n// mine\n" + claude.settings.read_text()[1:])
    checks = claude.checks()
    assert wrong(checks) == ["settings"]
    assert "line 2" in checks["settings"].what


@pytest.mark.requirement("INST-08")
def test_a_second_registration_is_found_wherever_it_stands(claude: Patient, tmp_path: Path) -> None:
    text = claude.settings.read_text()
    for path in (
        tmp_path / "project" / ".claude" / "settings.json",
        tmp_path / "project" / ".claude" / "settings.local.json",
        tmp_path / ".claude" / "plugins" / "cache" / "some" / "hooks" / "hooks.json",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        checks = claude.checks()
        assert wrong(checks) == ["once"]
        assert str(path) in checks["once"].what
        path.unlink()
    value = json.loads(text)
    value["hooks"]["Stop"] *= 2
    claude.settings.write_text(json.dumps(value))
    assert wrong(claude.checks()) == ["once"]


@pytest.mark.requirement("INST-08")
def test_a_missing_interpreter_or_entry_is_found_before_anything_is_tried(
    claude: Patient, tmp_path: Path
) -> None:
    script = tmp_path / "state" / "hook"
    gone = HookProgram(str(tmp_path / "state"), "/no/such/python", str(claude.entry))
    script.write_text(hook_script(gone))
    checks = claude.checks()
    assert wrong(checks) == ["script"]
    assert "/no/such/python" in checks["script"].what
    assert "hold" not in checks
    script.write_text(hook_script(replace(gone, python_path=sys.executable, entry_path="/no/such/entry.py")))
    assert "/no/such/entry.py" in claude.checks()["script"].what
    script.write_text("#!/bin/sh\nexit 2\n")
    assert "not the script" in claude.checks()["script"].what
    script.unlink()
    assert "is missing" in claude.checks()["script"].what


@pytest.mark.requirement("INST-08")
@pytest.mark.parametrize(("old", "new"), [('"timeout": 120', '"timeout": 5'), ('"timeout": 120', '"x": 1')])
def test_a_time_out_that_is_too_short_or_missing_is_found(claude: Patient, old: str, new: str) -> None:
    claude.replace(old, new)
    checks = claude.checks()
    assert wrong(checks) == ["time-outs"]
    assert "Stop" in checks["time-outs"].what


@pytest.mark.requirement("INST-08")
def test_seconds_where_the_client_reads_milliseconds_are_found(tmp_path: Path) -> None:
    gemini = patient_of(tmp_path, "gemini")
    gemini.replace('"timeout": 120000', '"timeout": 120')
    assert "120 ms" in gemini.checks()["time-outs"].what


@pytest.mark.requirement("INST-08")
def test_a_registry_that_command_line_and_hook_do_not_share_is_found(claude: Patient, tmp_path: Path) -> None:
    checks = claude.checks(state="elsewhere")
    assert wrong(checks) == ["registry"]
    assert f"{tmp_path}/state" in checks["registry"].what
    assert f"{tmp_path}/elsewhere" in checks["registry"].what
    (tmp_path / "link").symlink_to(tmp_path / "state")
    assert wrong(claude.checks(state="link")) == []


def test_an_event_without_a_hook_of_ours_is_found(claude: Patient) -> None:
    claude.replace('"UserPromptSubmit"', '"Unknown"')
    checks = claude.checks()
    assert wrong(checks) == ["settings"]
    assert "UserPromptSubmit" in checks["settings"].what


def test_a_hook_of_an_earlier_version_is_found(claude: Patient) -> None:
    value = json.loads(claude.settings.read_text())
    value["hooks"]["Setup"] = value["hooks"]["SessionEnd"]
    claude.settings.write_text(json.dumps(value))
    assert wrong(claude.checks()) == ["settings"]
    assert "earlier version is registered for: Setup" in claude.checks()["settings"].what
    del value["hooks"]["Setup"]
    stop = value["hooks"]["Stop"][0]["hooks"][0]
    stop["command"] = stop["command"][stop["command"].index("[ -x") :]
    claude.settings.write_text(json.dumps(value))
    assert "earlier version is registered for: Stop" in claude.checks()["settings"].what


def test_a_missing_stop_hook_holds_nobody(claude: Patient) -> None:
    claude.replace('"Stop"', '"Unknown"')
    assert wrong(claude.checks()) == ["settings", "hold"]


@pytest.mark.requirement("INST-08")
def test_hooks_that_are_switched_off_are_found(claude: Patient, tmp_path: Path) -> None:
    local = tmp_path / "project" / ".claude" / "settings.local.json"
    local.parent.mkdir(parents=True)
    local.write_text('{"disableAllHooks": true}')
    checks = claude.checks()
    assert wrong(checks) == ["switched on"]
    assert str(local) in checks["switched on"].what
    local.unlink()
    assert wrong(claude.checks(CLAUDE_CODE_SIMPLE="1")) == ["switched on"]


@pytest.mark.requirement("INST-08")
def test_a_part_of_the_managed_settings_switches_hooks_off_and_registers_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omx_autoresearch.agents.clients.claude._MANAGED_PATHS", (str(tmp_path / "etc"),))
    part = tmp_path / "etc" / "managed-settings.d" / "10-hooks.json"
    part.parent.mkdir(parents=True)
    part.write_text('{"allowManagedHooksOnly": true}')
    claude = patient_of(tmp_path, "claude")
    checks = claude.checks()
    assert wrong(checks) == ["switched on"]
    assert str(part) in checks["switched on"].what
    part.write_bytes(Path(claude.installation.settings_path).read_bytes())
    checks = claude.checks()
    assert wrong(checks) == ["once"]
    assert str(part) in checks["once"].cure


def test_codex_hooks_that_a_feature_switch_turns_off_are_found(tmp_path: Path) -> None:
    codex = patient_of(tmp_path, "codex")
    Path(codex.installation.features_path).write_text("[features]\nhooks = false\n")
    assert "features.hooks is false" in codex.checks()["switched on"].what


def test_a_cap_below_what_a_mission_may_refuse_is_found(claude: Patient) -> None:
    claude.replace('"CLAUDE_CODE_STOP_HOOK_BLOCK_CAP": "16"', '"CLAUDE_CODE_STOP_HOOK_BLOCK_CAP": "9"')
    assert wrong(claude.checks()) == ["cap"]
    claude.replace('"CLAUDE_CODE_STOP_HOOK_BLOCK_CAP": "9"', '"CLAUDE_CODE_STOP_HOOK_BLOCK_CAP": "0"')
    assert wrong(claude.checks()) == []


def test_noise_of_the_shells_start_up_files_is_found(claude: Patient, tmp_path: Path) -> None:
    (tmp_path / "noisy").write_text('#!/bin/sh\necho welcome\nexec sh -c "$1"\n')
    (tmp_path / "noisy").chmod(0o755)
    noisy = replace(claude, installation=replace(claude.installation, hook_shell=(str(tmp_path / "noisy"),)))
    checks = noisy.checks()
    assert wrong(checks) == ["hold", "others", "status line"]
    assert "start-up files" in checks["hold"].cure


def test_a_mission_that_cannot_be_made_is_an_answer_and_no_crash(claude: Patient, tmp_path: Path) -> None:
    def full(state_home_path: str) -> str:
        raise StorageFailed(f"{state_home_path} is full", next_step="make room")

    environ = {"PATH": "/usr/bin:/bin"}
    found = examine(
        claude.installation,
        str(tmp_path / "state"),
        packages={"json": "json"},
        environ=environ,
        make_held_session=full,
    )
    assert [(one.name, one.cure) for one in found if not one.ok] == [("hold", "make room")]


# --- the status line and the tools


@pytest.mark.requirement("LINE-07")
def test_a_status_line_that_says_something_where_nothing_is_held_is_named(claude: Patient) -> None:
    claude.entry.write_text("print('noise')\n")
    (claude.path / "state" / "missions").mkdir(parents=True)
    check = claude.checks()["status line"]
    assert not check.ok
    assert "noise" in check.what
    assert not check.is_about_hold


@pytest.mark.requirement("LINE-07")
def test_a_status_line_of_ones_own_is_no_fault(claude: Patient) -> None:
    text = json.loads(claude.settings.read_text())
    text["statusLine"]["command"] = "mine.sh"
    claude.settings.write_text(json.dumps(text))
    assert claude.checks()["status line"].ok


@pytest.mark.requirement("MCP-07")
@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_the_tools_are_started_and_asked(tmp_path: Path, name: str) -> None:
    patient = patient_of(tmp_path, name, without=())
    check = patient.checks()["tools"]
    assert check.ok, check
    assert "starts and answers" in check.what


@pytest.mark.requirement("MCP-07")
def test_tools_of_another_state_home_or_without_an_interpreter_are_named(tmp_path: Path) -> None:
    claude = patient_of(tmp_path, "claude", without=())
    assert claude.installation.server
    path = Path(claude.installation.server.path)
    good = path.read_text()
    path.write_text(good.replace(str(claude.path / "state"), "/elsewhere"))
    assert "/elsewhere" in claude.checks()["tools"].what
    path.write_text(
        good.replace(f'"{claude.path / "state"}"', f'"{claude.path / "state"}", "--session-tools"')
    )
    assert claude.checks()["tools"].ok, "the state home is not the last word"
    path.write_text(good.replace(sys.executable, "/gone/python"))
    assert "/gone/python no longer exists" in claude.checks()["tools"].what
    path.write_text(good.replace("omx_autoresearch.surfaces.cli", "json.tool"))
    assert claude.checks()["tools"].what.endswith("has your own MCP server omx-autoresearch, which was kept")


# --- the skill, and what hides the prompt command


@pytest.mark.requirement("INST-09")
def test_a_skill_of_an_earlier_version_is_named_and_an_edited_one_is_no_fault(
    claude: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(skill.PART.path(claude.installation))
    assert claude.checks()["skill"].ok
    with monkeypatch.context() as patch:
        patch.setattr(skill, "skill_bytes", lambda: b"newer\n")
        check = claude.checks()["skill"]
    assert (check.ok, check.is_about_hold) == (False, False)
    assert "earlier version" in check.what
    path.write_text("mine")
    assert claude.checks()["skill"].ok
    path.unlink()
    assert "not installed" in claude.checks()["skill"].what


@pytest.mark.requirement("INST-10")
@pytest.mark.parametrize(
    "name",
    [
        ".gemini/commands/autoresearch.toml",
        ".gemini/skills/autoresearch/SKILL.md",
        ".agents/skills/autoresearch/SKILL.md",
        "project/.agents/skills/autoresearch/SKILL.md",
        "project/.gemini/commands/autoresearch.toml",
    ],
)
def test_what_would_hide_the_prompt_command_from_geminis_hook_is_named(tmp_path: Path, name: str) -> None:
    patient = patient_of(tmp_path, "gemini")
    assert patient.checks()["prompt"].ok
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.touch()
    check = patient.checks()["prompt"]
    assert not check.ok
    assert str(path) in check.what
    assert "$autoresearch" in check.cure


@pytest.mark.requirement("INST-07")
@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("landlock", "Landlock with a filter of system calls"),
        ("none", "there is no box"),
        ("fenced", "a fence"),
    ],
)
def test_a_client_with_a_sandbox_is_told_the_box_that_there_is_and_the_cure(
    monkeypatch: pytest.MonkeyPatch, kind: str, what: str
) -> None:
    take_box(monkeypatch, kind)

    found = box_check("codex")

    assert (found.ok, found.is_about_hold) == (kind == "landlock", True)
    assert what in found.what
    assert "bubblewrap is missing" in found.what
    assert found.what.endswith("(install the package bubblewrap)")
    assert found.cure == "install the package bubblewrap"
    assert box_check("claude").ok


@pytest.mark.requirement("INST-07")
def test_a_hold_that_fails_for_want_of_a_box_is_not_blamed_on_the_installation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take_box(monkeypatch, "none")
    message = json.dumps({"systemMessage": f"the mission is blocked: {no_box()}"})

    found = hold_proof._held(hold_proof.Answer(0, message.encode(), ""), "install again")

    assert not found.ok
    assert "bubblewrap is missing" in found.what
    assert found.cure == "install the package bubblewrap"
