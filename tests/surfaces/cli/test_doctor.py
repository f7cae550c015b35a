"""doctor over the real hook of every agent CLI: proven when it is installed, and each of its faults found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import omx_autoresearch
from omx_autoresearch.agents.registry import installation_of
from omx_autoresearch.foundation.clients import CLIENT_NAMES
from omx_autoresearch.surfaces.cli.demo import hook_program
from tests.support.needs import HELD_CLIENTS

if TYPE_CHECKING:
    from omx_autoresearch.agents.hook_lines import HookProgram
    from omx_autoresearch.agents.parts import Scope
    from tests.surfaces.support.command_line import Person


def settings_path(person: Person, client: str, scope: Scope = "user") -> Path:
    found = installation_of(client, scope, {"HOME": str(person.root)}, str(person.project))
    return person.root / found.settings_path


def checks(person: Person, client: str, *options: str, **environ: str) -> dict[str, dict[str, Any]]:
    """Every check by name; Codex's trust can only be told by Codex itself, which is not here."""
    done = person.run("doctor", client, *options, "--json", env={"SHELL": "/bin/sh", **environ})
    (document,) = json.loads(done.stdout)
    found = {check["name"]: check for check in document["checks"]}
    assert done.returncode == (0 if all(check["ok"] for check in found.values()) else 9)
    trust = found.pop("trust", None)
    assert trust is None or (client == "codex" and "did not say" in trust["what"])
    return found


def install_without_tools(person: Person, client: str, *options: str) -> None:
    """All but the MCP server, which takes longer to start than everything else that doctor tries."""
    person.ok("install", client, "--no-mcp", *options)


def wrong(found: dict[str, dict[str, Any]]) -> list[str]:
    assert all(check["cure"] for check in found.values() if not check["ok"])
    return [name for name, check in found.items() if not check["ok"]]


@pytest.mark.requirement("CLI-03")
@pytest.mark.parametrize("verb", ["install", "uninstall"])
def test_settings_with_a_fault_are_left_and_the_verb_works_once_it_is_fixed(
    person: Person, verb: str
) -> None:
    install_without_tools(person, "claude")
    path = settings_path(person, "claude")
    text = path.read_text("utf-8")
    path.write_text(f"oops{text}", "utf-8")
    refused = person.run(verb, "claude")
    assert refused.returncode == 6
    assert "next: fix that line, then run the command again" in refused.stderr
    assert path.read_text("utf-8") == f"oops{text}"
    path.write_text(text, "utf-8")
    person.ok(verb, "claude")


@pytest.mark.slow
@pytest.mark.requirement("INST-07")
@pytest.mark.parametrize("scope", ["user", "project"])
@pytest.mark.parametrize("client", HELD_CLIENTS)
def test_the_hold_of_every_client_is_proven_by_its_real_hook(person: Person, client: str, scope: str) -> None:
    before = sorted(person.project.rglob("*"))
    person.ok("install", client, "--scope", scope)
    found = checks(person, client, "--scope", scope)
    assert wrong(found) == []
    assert {"hold", "others", "script", "registry", "once", "time-outs"} <= found.keys()
    assert not (person.home / "missions").exists(), "the mission that it was tried with stands elsewhere"
    person.ok("uninstall", client, "--scope", scope)
    assert sorted(path for path in person.project.rglob("*") if path.is_file()) == [
        path for path in before if path.is_file()
    ]
    assert wrong(checks(person, client, "--scope", scope)) == ["settings"]


@pytest.mark.requirement("INST-08")
@pytest.mark.parametrize("client", HELD_CLIENTS)
def test_a_client_that_is_asked_twice_is_found(person: Person, client: str) -> None:
    install_without_tools(person, client)
    install_without_tools(person, client, "--scope", "project")
    assert wrong(checks(person, client)) == ["once"]


@pytest.mark.requirement("INST-08")
@pytest.mark.parametrize("client", HELD_CLIENTS)
def test_time_outs_of_another_unit_are_found(person: Person, client: str) -> None:
    install_without_tools(person, client)
    path = settings_path(person, client)
    settings = json.loads(path.read_text())
    for groups in settings["hooks"].values():
        for hook in groups[0]["hooks"]:
            hook["timeout"] = 1
    path.write_text(json.dumps(settings))
    assert wrong(checks(person, client)) == ["time-outs"]


@pytest.mark.requirement("INST-08")
@pytest.mark.parametrize("client", HELD_CLIENTS)
def test_a_command_line_with_another_registry_is_found(person: Person, client: str) -> None:
    install_without_tools(person, client)
    elsewhere = str(person.root / "elsewhere")
    assert wrong(checks(person, client, OMX_AUTORESEARCH_HOME=elsewhere)) == ["registry"]


@pytest.mark.requirement("INST-08", "HOOK-06")
@pytest.mark.parametrize("client", CLIENT_NAMES)
@pytest.mark.parametrize("gone", ["python_path", "entry_path"])
def test_an_interpreter_or_program_that_is_gone_is_found(person: Person, client: str, gone: str) -> None:
    install_without_tools(person, client)
    program: HookProgram = hook_program(str(person.home))
    script = person.home / "hook"
    text = script.read_text()
    assert getattr(program, gone) in text
    script.write_text(text.replace(getattr(program, gone), "/gone/for/good"))
    found = checks(person, client)
    assert wrong(found) == ["script"]
    assert "/gone/for/good no longer exists" in found["script"]["what"]


@pytest.mark.requirement("INST-08")
def test_a_package_that_the_hooks_interpreter_lacks_is_found(person: Person) -> None:
    install_without_tools(person, "claude")
    venv.create(person.root / "lacking")
    (folder,) = (person.root / "lacking").glob("lib/python*/site-packages")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith("transitions"):
            (folder / path.name).symlink_to(path)
    python = str(person.root / "lacking" / "bin" / "python")
    script = person.home / "hook"
    script.write_text(script.read_text().replace(sys.executable, python))
    found = checks(person, "claude")
    assert wrong(found) == ["packages"], "a refusal alone changes no phase, so the hold itself is proven"
    assert "No module named 'transitions'" in found["packages"]["what"]
    assert found["packages"]["cure"].startswith(f"run `{python} -m pip install transitions`")


@pytest.mark.requirement("INST-08", "MCP-07")
def test_what_pip_installed_for_one_user_alone_is_proven(person: Person) -> None:
    python = os.path.join(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    folder = Path(sysconfig.get_path("purelib", "posix_user", {"userbase": str(person.root / ".local")}))
    folder.mkdir(parents=True)
    for path in (*Path(sysconfig.get_path("purelib")).iterdir(), Path(omx_autoresearch.__file__).parent):
        if path.suffix != ".pth":
            (folder / path.name).symlink_to(path)
    for arguments, status in (("install", "claude"), 0), (("doctor", "claude"), 0):
        done = subprocess.run(
            [python, "-E", "-P", "-m", "omx_autoresearch.surfaces.cli", *arguments],
            cwd=person.project,
            env=person.environment(SHELL="/bin/sh"),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
    assert str(folder) in (person.home / "hook").read_text()


@pytest.mark.requirement("INST-08")
def test_settings_that_switch_claudes_hooks_off_are_found(person: Person) -> None:
    install_without_tools(person, "claude")
    local = person.project / ".claude" / "settings.local.json"
    local.parent.mkdir()
    local.write_text('{"disableAllHooks": true}')
    found = checks(person, "claude")
    assert wrong(found) == ["switched on"]
    assert str(local) in found["switched on"]["what"]


@pytest.mark.requirement("INST-08")
def test_a_shell_that_prints_at_its_start_is_found(person: Person) -> None:
    install_without_tools(person, "codex")
    (person.root / ".profile").write_text("echo welcome\n")
    found = checks(person, "codex")
    assert wrong(found) == ["hold", "others"]
    assert "start-up files" in found["hold"]["cure"]


CLAUDE = """#!{python} -I
import json, os, pathlib, socket, subprocess, sys
settings = json.loads(pathlib.Path(os.environ["HOME"], ".claude", "settings.json").read_text())
line = settings["hooks"]["UserPromptSubmit"][0]["hooks"][0]["command"]
event = {{"hook_event_name": "UserPromptSubmit", "session_id": "0a1b2c3d-0000-4000-8000-00000000000a",
         "cwd": os.getcwd(), "prompt": sys.argv[-1]}}
theirs, ours = socket.socketpair() if {has_socket} else map(os.fdopen, os.pipe(), ("rb", "wb"))
hook = subprocess.Popen(["sh", "-c", line], stdin=theirs)
os.write(ours.fileno(), json.dumps(event).encode())
ours.close()
hook.wait()
"""
"""What Claude Code does with a prompt, as far as our hook sees it."""


def put_claude(person: Person, *, has_socket: bool) -> str:
    """Put a client on a PATH; returns that."""
    program = person.root / "clients" / "claude"
    program.parent.mkdir(exist_ok=True)
    program.write_text(CLAUDE.format(python=sys.executable, has_socket=has_socket))
    program.chmod(0o755)
    return f"{program.parent}:{os.environ['PATH']}"


@pytest.mark.requirement("SESS-18")
def test_a_real_prompt_is_tried_on_the_client_and_its_outcome_kept(person: Person) -> None:
    install_without_tools(person, "claude")
    path = put_claude(person, has_socket=True)
    assert "real prompt" not in checks(person, "claude", PATH=path)
    found = checks(person, "claude", "--prompt", PATH=path)
    assert (wrong(found), "is proven" in found["real prompt"]["what"]) == ([], True)
    assert (person.home / "trials" / "claude").read_text().startswith("holds ")
    assert not (person.home / "missions").exists(), "the mission that it was tried with stands elsewhere"


@pytest.mark.requirement("SESS-18")
def test_a_version_that_sends_prompts_another_way_is_found_and_goes_by_signs(person: Person) -> None:
    install_without_tools(person, "claude")
    found = checks(person, "claude", "--prompt", PATH=put_claude(person, has_socket=False))
    assert wrong(found) == ["real prompt"]
    assert "go by signs" in found["real prompt"]["what"]
    assert (person.home / "trials" / "claude").read_text().startswith("fails ")
    assert wrong(checks(person, "claude", "--prompt", PATH=put_claude(person, has_socket=True))) == []


@pytest.mark.requirement("SESS-18")
def test_without_the_client_no_prompt_is_tried_and_nothing_is_kept(person: Person) -> None:
    install_without_tools(person, "claude")
    found = checks(person, "claude", "--prompt", PATH=os.defpath)
    assert "not on PATH" in found["real prompt"]["what"]
    assert not (person.home / "trials").exists()


@pytest.mark.requirement("SESS-18", "LIFE-06")
def test_an_agent_tries_no_prompt_with_a_client_of_its_own(person: Person) -> None:
    path = put_claude(person, has_socket=False)
    done = person.run("doctor", "claude", "--prompt", env={"PATH": path, "CLAUDECODE": "1"})
    assert "only the owner may run" in done.stderr
    assert not (person.home / "trials").exists()
