"""The older session tools through the server: off by default, honest about what they do not give, bounded in time."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.scratch import SESSION, Scratch

if TYPE_CHECKING:
    from pathlib import Path

    from tests.surfaces.support.command_line import Person

pytest.importorskip("mcp")

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import Implementation

from omx_autoresearch.surfaces.mcp import server, session_tools

SESSION_TOOLS = {tool.__name__ for tool in session_tools.TOOLS}
FREE = {"sessionId": SESSION, "x-codex-turn-metadata": {"sandbox_mode": "danger-full-access"}}
"""What Codex says with the call of a session that it runs without a sandbox."""
CODEX = Implementation(name="codex-mcp-client", version="1")
VALUE = "#!/bin/sh\necho METRIC total_ms=$(cat value.txt)\n"


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scratch:
    made = Scratch.make(tmp_path)
    monkeypatch.chdir(made.project)
    made.write(".auto/measure.sh", VALUE, executable=True)
    return made


def ask(scratch: Scratch, tool: str, /, meta: dict[str, Any] | None = None, **arguments: Any) -> Any:
    named: Any = FREE if meta is None else meta

    async def talk() -> Any:
        built = server.build_server(scratch.runtime(), has_session_tools=True)
        async with Client(built, client_info=CODEX) as client:
            return await client.call_tool(tool, arguments, meta=named)

    return asyncio.run(talk())


def told(scratch: Scratch, tool: str, /, **arguments: Any) -> dict[str, Any]:
    answer = ask(scratch, tool, **arguments)
    assert not answer.is_error, answer
    found: dict[str, Any] = answer.structured_content
    return found


def refused(scratch: Scratch, tool: str, /, **arguments: Any) -> str:
    answer = ask(scratch, tool, **arguments)
    assert answer.is_error
    return str(answer.content[0].text)


def begin(scratch: Scratch, **more: Any) -> dict[str, Any]:
    return told(scratch, "init_experiment", name="fast", metric_name="total_ms", metric_unit="ms", **more)


def run(scratch: Scratch, value: object) -> dict[str, Any]:
    scratch.write("value.txt", str(value))
    return told(scratch, "run_experiment", description=f"make it {value}")


@pytest.mark.requirement("AUTO-07")
@pytest.mark.parametrize("is_asked_for", [False, True])
def test_the_tools_are_served_only_where_they_were_asked_for_and_say_what_they_do_not_give(
    scratch: Scratch, is_asked_for: bool
) -> None:
    async def listed() -> tuple[Any, str]:
        built = server.build_server(scratch.runtime(), has_session_tools=is_asked_for)
        async with Client(built) as client:
            return (await client.list_tools()).tools, client.instructions or ""

    tools, instructions = asyncio.run(listed())
    found = {tool.name: tool for tool in tools if tool.name in SESSION_TOOLS}
    assert set(found) == (SESSION_TOOLS if is_asked_for else set())
    assert ("without isolation or rollback" in instructions) == is_asked_for
    for tool in found.values():
        assert tool.output_schema["type"] == "object"
        assert tool.annotations.read_only_hint is False
        assert "or rollback" in tool.description or "rolls nothing back" in tool.description


@pytest.mark.requirement("AUTO-07")
def test_the_command_serves_them_on_demand(scratch: Scratch) -> None:
    def names(*options: str) -> set[str]:
        command = StdioServerParameters(
            command=sys.executable,
            args=["-m", "omx_autoresearch.surfaces.cli", "mcp", "--home", str(scratch.home_path), *options],
            env={**scratch.environ},
            cwd=str(scratch.project),
        )

        async def talk() -> Any:
            async with Client(stdio_client(command)) as client:
                return (await client.list_tools()).tools

        return {tool.name for tool in asyncio.run(talk())}

    assert names("--session-tools") - names() == SESSION_TOOLS


@pytest.mark.requirement("AUTO-07")
def test_an_installation_registers_them_on_demand_and_leaves_them_out_again(person: Person) -> None:
    def arguments() -> list[str]:
        text = (person.root / ".claude.json").read_text(encoding="utf-8")
        found: list[str] = json.loads(text)["mcpServers"]["omx-autoresearch"]["args"]
        return found

    person.ok("install", "claude", "--session-tools")
    assert arguments()[-1] == "--session-tools"
    person.ok("install", "claude")
    assert "--session-tools" not in arguments()
    done = person.run("install", "claude", "--session-tools", "--no-mcp")
    assert done.returncode == 2
    assert "--no-mcp" in done.stderr


@pytest.mark.requirement("AUTO-02")
def test_an_agent_optimizes_and_is_told_what_to_do_itself(scratch: Scratch) -> None:
    begun = begin(scratch)
    assert (begun["segment"], begun["run_count"], begun["direction"]) == (0, 0, "lower")
    first, better, worse = run(scratch, 100), run(scratch, 90), run(scratch, 95)
    assert [item["status"] for item in (first, better, worse)] == ["keep", "keep", "discard"]
    assert (worse["baseline"], worse["best"], worse["run_count"]) == (100, 90, 3)
    assert "nothing was rolled back" in worse["next"]
    assert worse["isolation"] == "none"
    crash = run(scratch, "12ms")
    assert (crash["status"], crash["metric"], crash["best"]) == ("crash", None, 90)
    assert "METRIC total_ms=12ms" in crash["output_tail"]
    with open(crash["output_path"], encoding="utf-8") as stream:
        assert stream.read() == "METRIC total_ms=12ms\n"
    logged = told(scratch, "log_experiment", description="on the big machine", metric=80)
    assert (logged["status"], logged["source"], logged["best"]) == ("keep", "reported", 80)
    again = run(scratch, 70)
    known = told(scratch, "log_experiment", description="as pi has it", metric=70)
    assert known["run"] == again["run"]
    assert "already recorded this value" in known["next"]


@pytest.mark.requirement("AUTO-03")
def test_lines_that_are_not_believed_are_shown(scratch: Scratch) -> None:
    begin(scratch)
    with (scratch.project / ".auto" / "log.jsonl").open("a") as stream:
        stream.write('{"run": 1, "status": "oops"}\n')
    result = run(scratch, 5)
    assert (result["status"], result["run"]) == ("keep", 1)
    assert result["faults"] == [
        "line 2: status: must be 'keep', 'discard', 'crash' or 'checks_failed', received \"oops\""
    ]


@pytest.mark.requirement("AUTO-05")
def test_a_long_run_answers_in_time_and_is_waited_for(scratch: Scratch) -> None:
    scratch.write(".auto/measure.sh", "#!/bin/sh\nread _ <gate\necho METRIC total_ms=5\n", executable=True)
    os.mkfifo(scratch.project / "gate")
    begin(scratch)
    first = told(scratch, "run_experiment", description="long", seconds=0)
    assert (first["is_running"], first["status"], first["run"]) == (True, "", 1)
    assert first["next"] == "call run_experiment with run=1 to wait for it"
    assert "step-illegal: run 1 ('long') has been under way" in refused(
        scratch, "run_experiment", description="next"
    )
    (scratch.project / "gate").write_text("go\n")
    assert told(scratch, "run_experiment", run=1)["status"] == "keep"


@pytest.mark.requirement("AUTO-06")
def test_beside_a_sandbox_the_scripts_get_no_wider_rights(scratch: Scratch) -> None:
    from omx_autoresearch.system.sandbox import box

    begin(scratch)
    scratch.write("value.txt", "5")
    answer = ask(scratch, "run_experiment", {}, description="from somebody who does not say")
    if box().isolates:
        assert answer.structured_content["isolation"] == box().backend
    else:
        assert "bubblewrap" in answer.content[0].text


@pytest.mark.requirement("AUTO-01")
def test_an_error_says_what_to_do(scratch: Scratch) -> None:
    assert "next: call init_experiment" in refused(scratch, "run_experiment", description="x")
    begin(scratch)
    assert "usage: the description is empty\nnext: describe the change that you tried" in refused(
        scratch, "run_experiment"
    )
    text = refused(scratch, "init_experiment", name="x", metric_name="a b")
    assert "usage: the metric name 'a b'" in text
