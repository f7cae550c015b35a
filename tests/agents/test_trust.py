from __future__ import annotations

import json
import os
import select
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.agents.clients.codex import installation as codex
from omx_autoresearch.agents.clients.codex.trust import HookTrust, Trust, with_trust
from omx_autoresearch.agents.hook_lines import HookProgram
from omx_autoresearch.agents.install import install, uninstall
from omx_autoresearch.agents.settings_text import TextFault, without_table

if TYPE_CHECKING:
    from omx_autoresearch.agents.parts import Installation

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


def asked(installation: Installation, environ: dict[str, str]) -> list[HookTrust]:
    states = Trust(installation.features_path).states(installation, environ)
    assert states is not None
    return states


@pytest.mark.requirement("INST-04")
def test_installed_hooks_are_trusted_and_removal_gives_the_config_back(
    installation: Installation, environ: dict[str, str], program: HookProgram
) -> None:
    config = Path(installation.features_path)
    config.parent.mkdir()
    config.write_text('model = "x" # mine\n\n[projects."/p"]\ntrust_level = "trusted"')
    report = install(installation, program, environ=environ)
    assert report.notes == ()
    states = asked(installation, environ)
    assert all(state.is_trusted for state in states)
    assert len(states) == len(installation.client.entries)
    assert install(installation, program, environ=environ).changes == ()
    uninstall(installation, program.state_home_path)
    assert config.read_text() == 'model = "x" # mine\n\n[projects."/p"]\ntrust_level = "trusted"'


@pytest.mark.requirement("INST-04")
def test_only_our_trust_is_taken_from_a_config_that_was_edited_since(
    installation: Installation, environ: dict[str, str], program: HookProgram
) -> None:
    config = Path(installation.features_path)
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
    assert {state.is_trusted for state in asked(installation, environ)} == {True, False}
    install(installation, program, environ=environ)
    assert {state.is_trusted for state in asked(installation, environ)} == {True}


def test_hooks_of_others_are_never_trusted_by_us(
    installation: Installation, environ: dict[str, str], program: HookProgram
) -> None:
    settings = Path(installation.settings_path)
    settings.parent.mkdir()
    settings.write_text(
        json.dumps({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "mine"}]}]}})
    )
    install(installation, program, environ=environ)
    state = tomllib.loads(Path(installation.features_path).read_text())["hooks"]["state"]
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
    states = [HookTrust("/h/hooks.json:stop:0:0", "sha256:1", is_trusted=False)]
    added = with_trust(text, states)
    assert tomllib.loads(added)["hooks"]["state"] == {"/h/hooks.json:stop:0:0": {"trusted_hash": "sha256:1"}}
    removed = without_table(added, ("hooks", "state", "/h/hooks.json:stop:0:0"))
    assert removed.rstrip() == text.rstrip()


def test_what_codex_lists_in_another_order_changes_nothing() -> None:
    states = [HookTrust(f"/h:stop:{n}:0", f"sha256:{n}", is_trusted=False) for n in range(3)]
    text = with_trust("a = 1\n", states)
    assert with_trust(text, states[::-1]) == text == with_trust("a = 1\n", states[::-1])


def test_a_config_that_cannot_be_changed_safely_is_left_to_the_person() -> None:
    states = [HookTrust("k", "sha256:1", is_trusted=False)]
    inline = '[hooks]\nstate = { k = { trusted_hash = "x" } }\n'
    table = 'hooks = { state = { a = { trusted_hash = "x" } } }'
    for text in ("not toml", "hooks = 5", table, inline):
        with pytest.raises(TextFault):
            with_trust(text, states)
    with pytest.raises(TextFault, match="by hand"):
        without_table(inline, ("hooks", "state", "k"))


def test_a_codex_that_does_not_answer_is_no_answer(
    installation: Installation, environ: dict[str, str]
) -> None:
    Path(installation.settings_path).parent.mkdir()
    for body in ("exit 0", "echo not json"):
        Path(environ["PATH"], "codex").write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin; {body}\n")
        assert Trust(installation.features_path).states(installation, environ) is None


def test_a_codex_that_is_not_waited_for_ends_with_what_it_started(
    installation: Installation, environ: dict[str, str], tmp_path: Path
) -> None:
    Path(installation.settings_path).parent.mkdir()
    os.mkfifo(tmp_path / "held")
    reader = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    body = f"exec 3>'{tmp_path}/held'; tail -f /dev/null & echo not json; wait"
    Path(environ["PATH"], "codex").write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin; {body}\n")
    assert Trust(installation.features_path).states(installation, environ) is None
    assert select.select([reader], [], [], 60)[0], "a process still holds the other end"
    assert os.read(reader, 1) == b""
    os.close(reader)
