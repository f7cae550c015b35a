from __future__ import annotations

import importlib.util
import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.agents.hook_lines import HookProgram
from omx_autoresearch.agents.install import InstallReport, install, uninstall
from omx_autoresearch.agents.parts import Installation, Scope, skill
from omx_autoresearch.agents.parts.hooks import Hooks, registered
from omx_autoresearch.agents.parts.status_line import REFRESH_SECONDS, status_line
from omx_autoresearch.agents.parts.tools import is_ours
from omx_autoresearch.agents.parts.tools import registered as registered_server
from omx_autoresearch.agents.registry import installation_of
from omx_autoresearch.foundation.clients import CLIENT_NAMES
from omx_autoresearch.foundation.errors import CommandFault, UsageError, WorkspaceFault

if TYPE_CHECKING:
    from types import ModuleType

    from omx_autoresearch.agents.parts import Change
    from omx_autoresearch.agents.settings_files import SettingsFile

ROOT = Path(__file__).resolve().parents[2]
NO_PATH = {"PATH": ""}


@dataclass(frozen=True)
class Place:
    """A scratch user: home, project, state home and what a hook would run."""

    path: Path

    @property
    def state(self) -> Path:
        return self.path / "a state"

    @property
    def program(self) -> HookProgram:
        entry = self.path / "entry.py"
        entry.touch()
        return HookProgram(str(self.state), sys.executable, str(entry))

    def installation(self, name: str, scope: Scope = "user") -> Installation:
        return installation_of(name, scope, {"HOME": str(self.path / "home")}, str(self.path / "project"))

    def install(self, name: str, *, dry_run: bool = False) -> InstallReport:
        return install(self.installation(name), self.program, environ=NO_PATH, dry_run=dry_run)

    def uninstall(self, name: str) -> InstallReport:
        return uninstall(self.installation(name), str(self.state))

    def settings(self, name: str) -> Path:
        return Path(self.installation(name).settings_path)

    def write(self, name: str, data: bytes | str) -> Path:
        path = self.settings(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    def files(self) -> dict[str, bytes]:
        return {str(p.relative_to(self.path)): p.read_bytes() for p in self.path.rglob("*") if p.is_file()}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.requirement("INST-01", "SPEED-05")
@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_installing_twice_leaves_one_registration_an_event(place: Place, name: str) -> None:
    first = place.install(name)
    files = place.files()
    second = place.install(name)
    assert first.changes
    assert second.changes == ()
    assert place.files() == files
    found = registered(place.settings(name).read_text(), comments=False)
    assert sorted(one.event for one in found) == sorted(
        e.native_event for e in place.installation(name).client.entries
    )
    assert {one.state_home_path for one in found} == {str(place.state)}


@pytest.mark.requirement("INST-02")
@pytest.mark.parametrize("name", CLIENT_NAMES)
@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{}",
        '{"hooks": {}, "env": {}}',
        '{\r\n\t"a": 1.50,\r\n\t"hooks": {"Stop": [ ]}\r\n}',
        '\ufeff{\n    "hooks": {\n        "PreToolUse": [{"hooks": [{"command": "mine"}]}]\n    }\n}\n',
    ],
)
def test_uninstall_gives_back_the_very_bytes(place: Place, name: str, text: str | None) -> None:
    if text is not None:
        place.write(name, text)
    before = place.files()
    place.install(name)
    assert place.files() != before
    place.uninstall(name)
    after = place.files()
    after.pop("entry.py")
    assert after == before


@pytest.mark.requirement("INST-02")
@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_uninstall_removes_the_folders_that_install_made_and_no_others(place: Place, name: str) -> None:
    (place.path / "home").mkdir()
    folder = place.settings(name).parent
    place.install(name)
    place.install(name)
    assert folder.is_dir()
    place.uninstall(name)
    assert list((place.path / "home").iterdir()) == []
    folder.mkdir()
    place.install(name)
    place.uninstall(name)
    assert folder.is_dir(), "it was there before"
    folder.rmdir()
    place.install(name)
    (folder / "mine.md").touch()
    place.uninstall(name)
    assert [path.name for path in folder.iterdir()] == ["mine.md"]


@pytest.mark.requirement("INST-02")
def test_uninstall_takes_only_ours_from_a_file_that_was_edited_since(place: Place) -> None:
    path = place.write("claude", '{\n  "model": "x"\n}\n')
    place.install("claude")
    edited = path.read_text().replace('"model": "x"', '"model": "y"')
    path.write_text(edited)
    place.uninstall("claude")
    assert path.read_text() == '{\n  "model": "y"\n}\n'


@pytest.mark.requirement("INST-02")
def test_an_upgrade_keeps_what_the_file_held_before_the_first_installation(place: Place) -> None:
    path = place.write("claude", '{"hooks": {}}')
    place.install("claude")
    path.write_text(path.read_text().replace('"timeout": 120', '"timeout": 5', 1))
    report = place.install("claude")
    assert [change.path for change in report.changes] == [str(path)]
    place.uninstall("claude")
    assert json.loads(path.read_text()) == {}


def test_uninstall_without_a_record_finds_our_entries_by_their_form(place: Place) -> None:
    path = place.write("claude", '{\n  "model": "x"\n}\n')
    place.install("claude")
    for record in (place.state / "installed").iterdir():
        record.unlink()
    place.uninstall("claude")
    assert path.read_text() == '{\n  "model": "x"\n}\n'


@pytest.mark.requirement("INST-02")
def test_an_installation_that_was_killed_before_its_end_is_taken_back_exactly(place: Place) -> None:
    path = place.write("claude", '{"hooks": {}}')

    class Killed(Hooks):
        needs_the_others = True

        def add(self, file: SettingsFile, change: Change) -> None:
            raise KeyboardInterrupt(file, change)

    killed = replace(place.installation("claude"), own_parts=(Killed(),))
    with pytest.raises(KeyboardInterrupt):
        install(killed, place.program, environ=NO_PATH)
    assert registered(path.read_text(), comments=False)
    place.uninstall("claude")
    assert path.read_text() == '{"hooks": {}}'


def test_entries_of_an_earlier_state_home_are_replaced(place: Place) -> None:
    place.install("claude")
    elsewhere = replace(place.program, state_home_path=str(place.path / "elsewhere"))
    install(place.installation("claude"), elsewhere, environ=NO_PATH)
    found = registered(place.settings("claude").read_text(), comments=False)
    assert {one.state_home_path for one in found} == {str(place.path / "elsewhere")}
    assert len(found) == len(place.installation("claude").client.entries)


def test_the_script_stays_while_another_client_still_uses_it(place: Place) -> None:
    place.install("claude")
    place.install("gemini")
    place.uninstall("claude")
    assert os.access(place.state / "hook", os.X_OK)
    place.uninstall("gemini")
    assert not (place.state / "hook").exists()


@pytest.mark.requirement("INST-05")
@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_a_dry_run_shows_the_difference_and_writes_nothing(place: Place, name: str) -> None:
    path = place.write(name, '{\n  "model": "x"\n}\n')
    place.program  # noqa: B018 - makes the entry file
    before = place.files()
    report = place.install(name, dry_run=True)
    assert place.files() == before
    assert f"--- {path}\n+++ {path}\n" in report.diff
    assert f"+++ {place.state}/hook\n" in report.diff
    assert '-  "model": "x"\n+  "model": "x",\n' in report.diff
    assert report.dry_run


@pytest.mark.requirement("INST-05")
def test_a_project_has_settings_of_its_own(place: Place) -> None:
    found = place.installation("claude", "project")
    install(found, place.program, environ=NO_PATH)
    assert Path(found.settings_path) == place.path / "project" / ".claude" / "settings.json"
    assert Path(found.settings_path).exists()
    assert not place.settings("claude").exists()


@pytest.mark.case("HIO-09")
@pytest.mark.requirement("INST-06")
@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_a_byte_order_mark_and_unknown_settings_stay(place: Place, name: str) -> None:
    path = place.write(name, b'\xef\xbb\xbf{"unknown": {"a": [1, 2]}}')
    place.install(name)
    data = path.read_bytes()
    assert data.startswith(b"\xef\xbb\xbf{")
    assert json.loads(data.decode("utf-8-sig"))["unknown"] == {"a": [1, 2]}
    assert place.install(name).changes == ()


@pytest.mark.case("HIO-09")
@pytest.mark.requirement("INST-06")
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1"])
def test_another_encoding_is_named_and_the_file_left_untouched(place: Place, encoding: str) -> None:
    data = '{"name": "ñ"}'.encode(encoding)
    path = place.write("claude", data)
    with pytest.raises(WorkspaceFault, match="UTF-") as caught:
        place.install("claude")
    assert str(path) in str(caught.value)
    assert path.read_bytes() == data
    assert not place.state.exists()


@pytest.mark.requirement("INST-06")
@pytest.mark.parametrize(
    "text", ['{\n  "a": 1,\n}', "{\n  // mine\n}", '{\n"hooks": []}', "not json", '{"a": 1']
)
def test_a_file_that_cannot_be_read_is_named_with_its_line_and_left_untouched(
    place: Place, text: str
) -> None:
    path = place.write("claude", text)
    with pytest.raises(WorkspaceFault, match=r"settings\.json, line [123]: ") as caught:
        place.install("claude")
    assert "run the command again" in caught.value.next_step
    assert path.read_text() == text
    assert not place.state.exists()


def test_the_files_mode_is_kept_and_a_symbolic_link_followed(place: Place) -> None:
    real = place.path / "dotfiles.json"
    real.write_text("{}")
    real.chmod(0o664)
    path = place.settings("claude")
    path.parent.mkdir(parents=True)
    path.symlink_to(real)
    place.install("claude")
    assert path.is_symlink()
    assert registered(real.read_text(), comments=False)
    assert real.stat().st_mode & 0o777 == 0o664
    place.uninstall("claude")
    assert path.is_symlink()
    assert real.read_text() == "{}"


@pytest.mark.parametrize("is_dry", [False, True])
def test_a_symbolic_link_to_nothing_is_refused_and_its_target_is_not_made(
    place: Place, *, is_dry: bool
) -> None:
    folder, target = place.settings("claude").parent, place.path / "nonexist"
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.symlink_to(target)
    with pytest.raises(WorkspaceFault, match=r"is a symbolic link to .*nonexist, which does not exist"):
        place.install("claude", dry_run=is_dry)
    assert not target.exists()
    assert not place.state.exists()
    target.mkdir()
    place.install("claude")
    assert (target / "settings.json").exists()


def test_nothing_is_written_where_the_hook_could_not_run(place: Place) -> None:
    for program in (
        replace(place.program, python_path="/no/such/python"),
        replace(place.program, entry_path=str(place.path / "gone.py")),
    ):
        with pytest.raises(CommandFault, match="is missing"):
            install(place.installation("claude"), program, environ=NO_PATH)
    with pytest.raises(UsageError, match=r"'\$'"):
        install(
            place.installation("claude"), replace(place.program, state_home_path="/a/$b"), environ=NO_PATH
        )
    assert not place.settings("claude").exists()


def test_the_record_of_a_persons_settings_is_readable_by_its_owner_only(place: Place) -> None:
    place.write("claude", '{"env": {"SECRET": "x"}}')
    place.install("claude")
    for record in (place.state / "installed").iterdir():
        assert record.stat().st_mode & 0o077 == 0


def test_without_codex_on_the_path_a_person_is_told_to_trust_the_hooks(place: Place) -> None:
    assert any("/hooks" in note for note in place.install("codex").notes)
    assert not any("/hooks" in note for note in place.install("claude").notes)


def _renderer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("render_hooks", ROOT / "scripts" / "render_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.requirement("HOOK-08")
def test_the_shown_configuration_is_what_the_installer_writes() -> None:
    rendered = _renderer().rendered()
    written = [path for path in (ROOT / "hooks").rglob("*") if path.suffix in (".json", ".md")]
    shown = {str(path.relative_to(ROOT / "hooks")): path.read_text() for path in written}
    shown.pop("README.md")
    assert shown == rendered, "run `python scripts/render_hooks.py`"


# --- the status line and the tools


@pytest.mark.requirement("LINE-07")
def test_claude_gets_our_status_line_and_uninstall_takes_it_out(place: Place) -> None:
    path = place.write("claude", '{"model": "x"}')
    place.install("claude")
    command = json.loads(path.read_text())["statusLine"]["command"]
    assert command == status_line(str(place.state))
    assert json.loads(path.read_text())["statusLine"]["refreshInterval"] == REFRESH_SECONDS
    edited = path.read_text().replace('"x"', '"y"')
    path.write_text(edited)
    place.uninstall("claude")
    assert path.read_text() == '{"model": "y"}'


@pytest.mark.requirement("LINE-07")
def test_a_status_line_of_the_users_own_stays_and_the_person_is_told(place: Place) -> None:
    path = place.write("claude", '{"statusLine": {"type": "command", "command": "mine.sh"}}')
    report = place.install("claude")
    assert json.loads(path.read_text())["statusLine"]["command"] == "mine.sh"
    assert any("your own status line was kept" in note and "statusline" in note for note in report.notes)
    place.uninstall("claude")
    assert json.loads(path.read_text()) == {"statusLine": {"type": "command", "command": "mine.sh"}}


@pytest.mark.requirement("LINE-07")
def test_a_projects_settings_do_not_hide_the_users_own_status_line(place: Place) -> None:
    place.write("claude", '{"statusLine": {"type": "command", "command": "mine.sh"}}')
    installation = place.installation("claude", "project")
    install(installation, place.program, environ=NO_PATH)
    assert "statusLine" not in json.loads(Path(installation.settings_path).read_text())


@pytest.mark.requirement("MCP-07")
@pytest.mark.parametrize("scope", ["user", "project"])
@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_the_tools_are_registered_once_and_uninstall_gives_back_the_very_bytes(
    place: Place, name: str, scope: Scope
) -> None:
    installation = place.installation(name, scope)
    assert installation.server
    path = Path(installation.server.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = '{"a": 1.50}' if installation.server.form == "json" else "# mine\nmodel = 'x'"
    path.write_text(text)
    install(installation, place.program, environ=NO_PATH)
    once = path.read_text()
    assert is_ours(registered_server(once, installation.server))
    assert install(installation, place.program, environ=NO_PATH).changes == ()
    assert path.read_text() == once
    uninstall(installation, str(place.state))
    assert path.read_text() == text


@pytest.mark.requirement("MCP-07")
@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_no_mcp_leaves_the_tools_out_and_takes_an_older_registration_away(place: Place, name: str) -> None:
    installation = place.installation(name)
    assert installation.server
    path = Path(installation.server.path)
    place.install(name)
    install(installation, place.program, environ=NO_PATH, without=("tools",))
    left = path.read_text() if path.exists() else ""
    assert registered_server(left, installation.server) is None
    assert registered(place.settings(name).read_text(), comments=False)


@pytest.mark.requirement("MCP-07")
def test_what_claude_writes_into_its_own_file_meanwhile_stays(place: Place) -> None:
    installation = place.installation("claude")
    assert installation.server
    path = Path(installation.server.path)
    place.install("claude")
    value = json.loads(path.read_text())
    path.write_text(json.dumps({"numStartups": 1, **value, "userID": "x"}))
    place.uninstall("claude")
    assert json.loads(path.read_text()) == {"numStartups": 1, "userID": "x"}


@pytest.mark.requirement("MCP-07")
def test_a_server_of_the_users_own_under_our_name_stays_and_the_person_is_told(place: Place) -> None:
    installation = place.installation("claude")
    assert installation.server
    path = Path(installation.server.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"mcpServers": {"omx-autoresearch": {"command": "mine"}}}')
    report = place.install("claude")
    assert json.loads(path.read_text())["mcpServers"]["omx-autoresearch"] == {"command": "mine"}
    assert any("your own" in note for note in report.notes)


@pytest.mark.requirement("INST-06")
def test_a_broken_file_of_servers_is_named_and_nothing_is_changed(place: Place) -> None:
    installation = place.installation("codex")
    assert installation.server
    path = Path(installation.server.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("a = \n")
    before = place.files()
    with pytest.raises(WorkspaceFault, match=r"config\.toml"):
        place.install("codex")
    assert {**before, "entry.py": b""} == place.files()


# --- the skill


def skill_of(place: Place, name: str, scope: Scope = "user") -> Path:
    return Path(skill.PART.path(place.installation(name, scope)))


@pytest.mark.requirement("INST-09")
@pytest.mark.parametrize("scope", ["user", "project"])
@pytest.mark.parametrize("name", ["claude", "codex"])
def test_the_skill_is_put_where_the_client_looks_and_taken_back_with_its_folders(
    place: Place, name: str, scope: Scope
) -> None:
    installation = place.installation(name, scope)
    base = place.path / ("home" if scope == "user" else "project")
    assert skill_of(place, name, scope) == base / f".{name}" / "skills" / "autoresearch" / "SKILL.md"
    base.mkdir()
    install(installation, place.program, environ=NO_PATH)
    shown = ROOT / "hooks" / "skills" / "autoresearch" / "SKILL.md"
    assert skill_of(place, name, scope).read_bytes() == shown.read_bytes()
    assert install(installation, place.program, environ=NO_PATH).changes == ()
    uninstall(installation, str(place.state))
    assert list(base.iterdir()) == []


@pytest.mark.requirement("INST-09")
def test_the_skills_go_into_the_folders_that_the_clients_variables_name(place: Place) -> None:
    for name, variable in (("claude", "CLAUDE_CONFIG_DIR"), ("codex", "CODEX_HOME")):
        environ = {"HOME": str(place.path / "home"), variable: str(place.path / "moved")}
        found = skill.PART.path(installation_of(name, "user", environ, ""))
        assert found == str(place.path / "moved" / "skills" / "autoresearch" / "SKILL.md")


@pytest.mark.requirement("INST-09")
def test_gemini_gets_no_skill_since_one_of_our_name_would_hide_the_prompt_command(place: Place) -> None:
    assert skill.PART.path(place.installation("gemini")) == ""
    place.install("gemini")
    assert not list(place.path.rglob("SKILL.md"))


@pytest.mark.requirement("INST-09")
@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_skill_that_somebody_else_put_there_stays_and_the_person_is_told(place: Place, name: str) -> None:
    path = skill_of(place, name)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\xff mine")
    report = place.install(name)
    assert any("your own skill" in note and str(path) in note for note in report.notes)
    assert place.uninstall(name).notes == ()
    assert path.read_bytes() == b"\xff mine"


@pytest.mark.requirement("INST-09")
def test_a_skill_that_was_edited_since_stays_and_is_told_at_both_ends(place: Place) -> None:
    path = skill_of(place, "claude")
    place.install("claude")
    edited = path.read_text() + "\nMine.\n"
    path.write_text(edited)
    assert any("your own" in note for note in place.install("claude").notes)
    assert any(
        "edited after the installation, so it was kept" in note for note in place.uninstall("claude").notes
    )
    assert path.read_text() == edited


@pytest.mark.requirement("INST-09")
def test_an_upgrade_replaces_the_skill_of_an_earlier_version(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(skill, "skill_bytes", lambda: b"older\n")
        place.install("claude")
    path = skill_of(place, "claude")
    assert path.read_bytes() == b"older\n"
    place.install("claude")
    assert path.read_bytes() == skill.skill_bytes()
    place.uninstall("claude")
    assert not path.exists()


@pytest.mark.requirement("INST-09")
def test_a_copy_that_a_person_made_before_is_still_there_after_uninstall(place: Place) -> None:
    path = skill_of(place, "claude")
    path.parent.mkdir(parents=True)
    path.write_bytes(skill.skill_bytes())
    place.install("claude")
    place.uninstall("claude")
    assert path.read_bytes() == skill.skill_bytes()


@pytest.mark.requirement("INST-09")
def test_no_skill_leaves_it_out_and_takes_an_older_one_away(place: Place) -> None:
    place.install("claude")
    report = install(place.installation("claude"), place.program, environ=NO_PATH, without=("skill",))
    assert not skill_of(place, "claude").exists()
    assert [change.path for change in report.changes] == [str(skill_of(place, "claude"))]
    place.uninstall("claude")
    assert not (place.path / "home").exists() or list((place.path / "home").iterdir()) == []


@pytest.mark.requirement("INST-05")
def test_a_dry_run_shows_the_skill_and_writes_none(place: Place) -> None:
    report = place.install("codex", dry_run=True)
    assert "+# Working on a mission" in report.diff
    assert not skill_of(place, "codex").exists()
