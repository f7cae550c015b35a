from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest

from omx_autoresearch.agents import codex, hook_trust
from omx_autoresearch.agents.hook_trust import HookTrust
from omx_autoresearch.agents.install import install, uninstall
from omx_autoresearch.agents.installations import HookProgram, Installation

APP_SERVER = """\
#!{python}
# Answers as `codex app-server` 0.171.0 does: notices between the answers, keys by place, a hash of the handler.
import hashlib, json, os, re, sys, tomllib
home = os.environ["CODEX_HOME"]
def hooks():
    path = os.path.join(home, "hooks.json")
    config = os.path.join(home, "config.toml")
    state = tomllib.load(open(config, "rb")).get("hooks", {{}}).get("state", {{}}) if os.path.exists(config) else {{}}
    for event, groups in json.load(open(path))["hooks"].items():
        snake = re.sub("(?<!^)(?=[A-Z])", "_", event).lower()
        for g, group in enumerate(groups):
            for h, handler in enumerate(group["hooks"]):
                key = f"{{path}}:{{snake}}:{{g}}:{{h}}"
                now = "sha256:" + hashlib.sha256(json.dumps(handler).encode()).hexdigest()
                kept = state.get(key, {{}}).get("trusted_hash")
                status = "untrusted" if kept is None else "trusted" if kept == now else "modified"
                yield dict(key=key, currentHash=now, trustStatus=status, command=handler["command"], sourcePath=path,
                           enabled=True)
for line in sys.stdin:
    message = json.loads(line)
    print(json.dumps({{"method": "notice"}}), flush=True)
    if message.get("method") == "hooks/list":
        assert sys.argv[1:] == ["app-server"]
        print(json.dumps(dict(id=message["id"], result=dict(data=[dict(hooks=list(hooks()))]))), flush=True)
    elif "id" in message:
        print(json.dumps(dict(id=message["id"], result={{}})), flush=True)
"""


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    return codex.installation("user", {"HOME": str(tmp_path)}, str(tmp_path / "p"))


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "bin").mkdir()
    binary = tmp_path / "bin" / "codex"
    binary.write_text(APP_SERVER.format(python=sys.executable))
    binary.chmod(0o755)
    return {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)}


@pytest.fixture
def program(tmp_path: Path) -> HookProgram:
    (tmp_path / "entry.py").touch()
    return HookProgram(str(tmp_path / "state"), sys.executable, str(tmp_path / "entry.py"))


@pytest.mark.requirement("INST-04")
def test_installed_hooks_are_trusted_and_removal_gives_the_config_back(
    installation: Installation, environ: dict[str, str], program: HookProgram
) -> None:
    config = Path(installation.trust_path)
    config.parent.mkdir()
    config.write_text('model = "x" # mine\n\n[projects."/p"]\ntrust_level = "trusted"')
    report = install(installation, program, environ=environ)
    assert report.notes == ()
    states = hook_trust.trust_states(installation, environ)
    assert states is not None
    assert {state.status for state in states} == {"trusted"}
    assert len(states) == len(installation.client.entries)
    assert install(installation, program, environ=environ).changes == ()
    uninstall(installation, program.state_home_path)
    assert config.read_text() == 'model = "x" # mine\n\n[projects."/p"]\ntrust_level = "trusted"'


@pytest.mark.requirement("INST-04")
def test_only_our_trust_is_taken_from_a_config_that_was_edited_since(
    installation: Installation, environ: dict[str, str], program: HookProgram
) -> None:
    config = Path(installation.trust_path)
    install(installation, program, environ=environ)
    mine = '\n[hooks.state."/other:stop:0:0"]\ntrusted_hash = "sha256:1"\n\n[tui]\ntheme = "dark"\n'
    config.write_text('model = "y"\n' + config.read_text() + mine)
    uninstall(installation, program.state_home_path)
    assert config.read_text() == 'model = "y"\n' + mine


def test_a_changed_hook_is_trusted_anew(
    installation: Installation, environ: dict[str, str], program: HookProgram
) -> None:
    install(installation, program, environ=environ)
    settings = Path(installation.settings_path)
    settings.write_text(settings.read_text().replace('"timeout": 120', '"timeout": 1'))
    states = hook_trust.trust_states(installation, environ) or []
    assert {state.status for state in states} == {"trusted", "modified"}
    install(installation, program, environ=environ)
    assert {state.status for state in hook_trust.trust_states(installation, environ) or []} == {"trusted"}


def test_hooks_of_others_are_never_trusted_by_us(
    installation: Installation, environ: dict[str, str], program: HookProgram
) -> None:
    settings = Path(installation.settings_path)
    settings.parent.mkdir()
    settings.write_text(
        json.dumps({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "mine"}]}]}})
    )
    install(installation, program, environ=environ)
    state = tomllib.loads(Path(installation.trust_path).read_text())["hooks"]["state"]
    assert f"{settings}:stop:1:0" in state
    assert f"{settings}:stop:0:0" not in state


def test_taking_hooks_out_before_others_says_that_their_trust_moves(
    installation: Installation, environ: dict[str, str], program: HookProgram
) -> None:
    install(installation, program, environ=environ)
    settings = Path(installation.settings_path)
    value = json.loads(settings.read_text())
    value["hooks"]["Stop"].append({"hooks": [{"type": "command", "command": "mine"}]})
    settings.write_text(json.dumps(value))
    assert any("/hooks" in note for note in uninstall(installation, program.state_home_path).notes)


@pytest.mark.parametrize("text", ["", "a = 1", "a = 1\n", "a = 1\r\n[b]\r\nc = 2\r\n"])
def test_trust_is_added_at_the_end_and_taken_away_without_a_trace(text: str) -> None:
    states = [HookTrust("/h/hooks.json:stop:0:0", "sha256:1", "untrusted", True)]
    added = hook_trust.with_trust(text, states)
    assert added is not None
    assert tomllib.loads(added)["hooks"]["state"] == {"/h/hooks.json:stop:0:0": {"trusted_hash": "sha256:1"}}
    removed = hook_trust.without_trust(added, ("/h/hooks.json:stop:0:0",))
    assert removed is not None
    assert removed.rstrip() == text.rstrip()


def test_what_codex_lists_in_another_order_changes_nothing() -> None:
    states = [HookTrust(f"/h:stop:{n}:0", f"sha256:{n}", "untrusted", True) for n in range(3)]
    text = hook_trust.with_trust("a = 1\n", states)
    assert text is not None
    assert hook_trust.with_trust(text, states[::-1]) == text == hook_trust.with_trust("a = 1\n", states[::-1])


def test_a_config_that_cannot_be_changed_safely_is_left_to_the_person() -> None:
    states = [HookTrust("k", "sha256:1", "untrusted", True)]
    assert hook_trust.with_trust("not toml", states) is None
    assert hook_trust.with_trust("hooks = 5", states) is None
    assert hook_trust.with_trust('hooks = { state = { a = { trusted_hash = "x" } } }', states) is None
    inline = '[hooks]\nstate = { k = { trusted_hash = "x" } }\n'
    assert hook_trust.with_trust(inline, states) is None
    assert hook_trust.without_trust(inline, ("k",)) is None


def test_a_codex_that_does_not_answer_is_no_answer(
    installation: Installation, environ: dict[str, str]
) -> None:
    Path(installation.settings_path).parent.mkdir()
    for body in ("exit 0", "echo not json"):
        Path(environ["PATH"], "codex").write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin; {body}\n")
        assert hook_trust.trust_states(installation, environ) is None
