"""The tools, by the client of the official SDK: in this process, and over the pipes that an agent CLI would hold."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.agents.parts.tools import NAME
from omx_autoresearch.missions import views
from omx_autoresearch.missions.registry import Registry
from omx_autoresearch.system.processes import ProcessIdentity, wait_for
from tests.support.pipes import let_go
from tests.support.scratch import OTHER, SESSION, Scratch

if TYPE_CHECKING:
    from pathlib import Path

    from omx_autoresearch.journal.layout import Runtime

pytest.importorskip("mcp")

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from omx_autoresearch.surfaces.mcp import calls, experiment_tools, server, tools

EXPERIMENT_TOOLS = (*experiment_tools.LOOKING, *experiment_tools.RUNNING)

CLI_TWINS = {
    "finding_add": "finding",
    "finding_list": "finding",
    "direction_add": "direction",
    "direction_list": "direction",
    "criterion_list": "criterion",
    **{tool.__name__: "experiment" for tool in EXPERIMENT_TOOLS},
}
"""Tools whose command has another name."""


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scratch:
    """The tests' own process is the client: it is the ancestor that the session is bound to."""
    made = Scratch.make(tmp_path)
    monkeypatch.chdir(made.project)
    return made


def ask(runtime: Runtime, name: str, meta: dict[str, Any] | None = None, **arguments: Any) -> Any:
    """Call one tool in this process, as Codex does: the session stands in the call."""
    named: Any = {"sessionId": SESSION} if meta is None else meta

    async def talk() -> Any:
        async with Client(server.build_server(runtime)) as client:
            return await client.call_tool(name, arguments, meta=named)

    return asyncio.run(talk())


def told(scratch: Scratch, name: str, **arguments: Any) -> dict[str, Any]:
    """What a tool answers to the bound session."""
    answer = ask(scratch.runtime(), name, **arguments)
    assert not answer.is_error, answer
    assert json.loads(answer.content[0].text) == answer.structured_content
    found: dict[str, Any] = answer.structured_content
    return found


def refused(scratch: Scratch, name: str, meta: dict[str, Any] | None = None, **arguments: Any) -> str:
    """The error that a tool tells."""
    answer = ask(scratch.runtime(), name, meta, **arguments)
    assert answer.is_error
    return str(answer.content[0].text)


@pytest.mark.requirement("MCP-01")
def test_every_tool_has_an_output_schema_a_description_and_a_twin_on_the_command_line(
    scratch: Scratch,
) -> None:
    from omx_autoresearch.surfaces.cli.program import VERBS

    async def listed() -> Any:
        async with Client(server.build_server(scratch.runtime())) as client:
            return (await client.list_tools()).tools

    found = {tool.name: tool for tool in asyncio.run(listed())}
    looking = {tool.__name__ for tool in (*tools.LOOKING, *experiment_tools.LOOKING)}
    changing = {tool.__name__ for tool in (*tools.WRITING, *tools.RUNNING, *experiment_tools.RUNNING)}
    assert set(found) == looking | changing
    for name, tool in found.items():
        assert tool.description
        assert tool.output_schema["type"] == "object", name
        assert (tool.annotations.read_only_hint, tool.annotations.destructive_hint) == (
            name in looking,
            False,
        )
        assert CLI_TWINS.get(name, name) in VERBS


@pytest.mark.requirement("MCP-02")
def test_an_agent_looks_at_its_mission_and_writes_to_it(scratch: Scratch) -> None:
    mission = scratch.mission()
    status = told(scratch, "status")
    assert (status["task_id"], status["is_own"], status["phase"]) == (mission.task_id, True, "running")
    assert told(scratch, "note", text="the corpus is small")["is_recorded"]
    direction = told(
        scratch, "direction_add", summary="Profile the renderer", axes={"source_class": "traces"}
    )
    assert direction["is_recorded"], direction
    assert told(scratch, "direction_list")["current_direction"] == "Profile the renderer"
    assert told(scratch, "status")["current_direction"] == "Profile the renderer"


@pytest.mark.requirement("MCP-02")
@pytest.mark.requirement("MCP-05")
def test_a_finding_of_a_command_criterion_is_a_claim_and_the_command_is_not_run(scratch: Scratch) -> None:
    from omx_autoresearch.missions.rules.criteria import criterion_of

    mission = scratch.mission(criteria=(criterion_of("made: the file is made :: command: touch made.txt"),))
    found = told(
        scratch,
        "finding_add",
        summary="It is made",
        kind="command",
        criterion="made",
        shown_by="touch evil.txt",
    )
    assert not found["accepted"]
    assert "no command is run" in found["reason"]
    assert not (scratch.project / "made.txt").exists()
    assert not (scratch.project / "evil.txt").exists()
    listed = told(scratch, "finding_list")
    assert [(item["id"], item["accepted"]) for item in listed["findings"]] == [(found["id"], False)]
    criterion = told(scratch, "criterion_list")["criteria"][0]
    assert (criterion["id"], criterion["status"], criterion["accepts"]) == (
        "made",
        "open",
        "command: touch made.txt",
    )
    assert scratch.load(mission).phase == "running"


@pytest.mark.requirement("MCP-02")
def test_a_list_is_capped_and_pages_on(scratch: Scratch) -> None:
    scratch.mission()
    for number in range(3):
        told(scratch, "finding_add", summary=f"finding {number} " + "x" * 5000)
    first = told(scratch, "finding_list", limit=2)
    assert first["is_cut"]
    assert [item["summary"][:9] for item in first["findings"]] == ["finding 2", "finding 1"]
    assert all(len(item["summary"]) < 2100 for item in first["findings"])
    rest = told(scratch, "finding_list", limit=2, before=first["findings"][-1]["seq"])
    assert [item["summary"][:9] for item in rest["findings"]] == ["finding 0"]
    assert "less than or equal to 50" in refused(scratch, "finding_list", limit=51)


@pytest.mark.requirement("MCP-02")
def test_the_validator_runs_by_the_owners_approval_and_says_what_to_do_next(scratch: Scratch) -> None:
    scratch.mission(is_unsandboxed=True)
    sandboxed_no_more = {
        "sessionId": SESSION,
        "x-codex-turn-metadata": {"sandbox_mode": "danger-full-access"},
    }
    run = ask(scratch.runtime(), "validate", sandboxed_no_more).structured_content
    assert (run["verdict"], run["next"]) == (
        "failed",
        "fix the named problems, then call the tool `validate`",
    )
    scratch.write("answer.txt", "42\n")
    assert told(scratch, "validate")["verdict"] == "passed"
    assert told(scratch, "wait")["verdict"] == "passed"
    assert "judged by its validator" in refused(scratch, "review")
    assert told(scratch, "readiness")["is_ready"]


@pytest.mark.requirement("MCP-05")
def test_a_run_beside_a_sandbox_gets_no_wider_rights(scratch: Scratch) -> None:
    from omx_autoresearch.system.sandbox import box

    scratch.mission()
    answer = ask(scratch.runtime(), "validate")  # nothing says that the client has no sandbox
    if box().isolates:
        assert answer.structured_content["isolation"] == box().backend
    else:
        assert "bubblewrap" in answer.content[0].text


@pytest.mark.requirement("MCP-03")
def test_a_block_lets_the_agent_go(scratch: Scratch) -> None:
    mission = scratch.mission()
    blocked = told(scratch, "block", reason="no corpus", needs="the corpus in corpus/")
    assert blocked["phase"] == "blocked"
    assert "the corpus in corpus/" in blocked["blocker"]
    assert blocked["next_command"] == f"omx-autoresearch unblock {mission.task_id}"
    assert "step-illegal: " in refused(scratch, "block", reason="again", needs="again")


@pytest.mark.requirement("MCP-03")
def test_an_error_has_its_slug_and_the_next_step(scratch: Scratch) -> None:
    mission = scratch.mission()
    text = refused(scratch, "block", reason=" ", needs=" ")
    assert "usage: block needs a reason, and the smallest input" in text
    assert f"next: omx-autoresearch block {mission.task_id}" in text
    assert "usage: no mission 'nowhere'\nnext: omx-autoresearch list" in refused(
        scratch, "status", task="nowhere"
    )


@pytest.mark.requirement("MCP-03")
def test_what_nobody_foresaw_is_told_without_a_traceback(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch.mission()

    def fail(*_: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(tools, "_status", fail)
    text = refused(scratch, "status")
    assert "unexpected: ZeroDivisionError: by zero\nnext: ask a person to run omx-autoresearch doctor" in text
    assert "Traceback" not in text


@pytest.mark.requirement("MCP-04")
def test_a_session_that_no_mission_holds_writes_nothing_and_is_told_how_to_begin(scratch: Scratch) -> None:
    mission = scratch.mission()
    before = scratch.kinds(mission)
    for name, arguments in {
        "note": {"text": "mine"},
        "block": {"reason": "a", "needs": "b"},
        "finding_add": {"summary": "x"},
        "direction_add": {"summary": "x"},
        "validate": {},
        "review": {},
    }.items():
        text = refused(scratch, name, {"sessionId": OTHER}, **arguments)
        assert "step-illegal: no mission holds this session, so nothing is written" in text
        assert "$autoresearch TASK" in text
    assert scratch.kinds(mission) == before
    assert not ask(scratch.runtime(), "status", {"sessionId": OTHER}).structured_content["is_own"]


@pytest.mark.requirement("MCP-04")
def test_what_waits_in_the_inbox_is_taken_in_by_a_call(scratch: Scratch) -> None:
    from omx_autoresearch.journal.layout import ProjectFolder
    from omx_autoresearch.missions import claims

    mission = scratch.mission()
    path = ProjectFolder(str(scratch.project)).inbox_path(mission.task_id)
    claims.drop_claim(path, "said in a sandbox", verb="note", at="2026-01-02T03:04:05.123456Z")
    told(scratch, "note", text="and this")
    assert [line["data"]["text"] for line in scratch.records(mission, "claim_recorded")] == [
        "said in a sandbox",
        "and this",
    ]


@pytest.mark.requirement("MCP-06")
def test_an_agent_starts_the_prepared_mission_and_its_client_confirms_the_session(scratch: Scratch) -> None:
    task_id = scratch.draft().task_id
    answer = ask(scratch.runtime(), "start", {})
    started = answer.structured_content
    assert (started["task_id"], started["phase"]) == (task_id, "running"), answer
    assert scratch.load(task_id).binding is None
    scratch.tell(
        scratch.payload(
            "PostToolUse",
            tool_name="mcp__omx-autoresearch__start",
            tool_input={},
            tool_response=[{"type": "text", "text": answer.content[0].text}],
        )
    )
    binding = scratch.load(task_id).binding
    assert binding is not None
    assert (binding.session_id, binding.how) == (SESSION, "agent-start")
    assert (
        "step-illegal" in refused(scratch, "start", {}, task=task_id)
        or scratch.load(task_id).binding == binding
    )


@pytest.mark.requirement("MCP-06")
def test_a_start_names_the_drafts_where_there_are_several(scratch: Scratch) -> None:
    assert "this project has no draft mission" in refused(scratch, "start", {})
    first, second = scratch.draft(slug="one").task_id, scratch.draft(slug="two").task_id
    text = refused(scratch, "start", {})
    assert first in text
    assert second in text
    assert ask(scratch.runtime(), "start", {}, task="two").structured_content["task_id"] == second


def stdio(scratch: Scratch, *names: str, **environ: str) -> list[Any]:
    """Call tools of a real server process of ours."""
    command = StdioServerParameters(
        command=sys.executable,
        args=["-E", "-P", "-m", "omx_autoresearch.surfaces.cli", "mcp", "--home", str(scratch.home_path)],
        env={**scratch.environ, **environ},
        cwd=str(scratch.project),
    )

    async def talk() -> list[Any]:
        async with Client(stdio_client(command)) as client:
            return [await client.call_tool(name, {}) for name in names]

    return asyncio.run(talk())


@pytest.mark.requirement("MCP-04")
def test_a_server_knows_its_session_by_the_client_above_it_whatever_its_environment_says(
    scratch: Scratch,
) -> None:
    mission = scratch.mission()
    first, waited = stdio(scratch, "status", "wait", CLAUDE_CODE_SESSION_ID=OTHER)
    assert first.structured_content["is_own"], first
    assert first.structured_content["task_id"] == waited.structured_content["task_id"] == mission.task_id


@pytest.mark.requirement("SESS-20")
def test_a_server_whose_client_closes_it_records_the_hold_that_no_hook_proved(scratch: Scratch) -> None:
    mission = scratch.mission()
    scratch.stop()
    stdio(scratch, "status")
    (lost,) = scratch.records(mission, "hold_lost")
    assert "the client closed its tools" in lost["data"]["text"]
    assert not [line for line in scratch.records(mission) if line["kind"] == "mission_blocked"]


@pytest.mark.requirement("MCP-04")
def test_a_client_that_went_on_to_another_session_is_not_taken_for_the_older_one(scratch: Scratch) -> None:
    mission = scratch.mission()
    scratch.tell(scratch.payload("SessionStart", OTHER, source="resume"), runtime=scratch.runtime())
    # the hook's client is this process's own parent; the binding's is this process
    entry = Registry(scratch.home).find(SESSION)
    assert entry is not None
    assert not entry.left_at
    scratch.hook(scratch.payload("SessionStart", OTHER, source="resume"))
    (answer,) = stdio(scratch, "status")
    assert not answer.structured_content["is_own"]
    scratch.hook(scratch.payload("SessionStart", SESSION, source="resume"))
    (answer,) = stdio(scratch, "status")
    assert answer.structured_content["is_own"]
    assert scratch.load(mission).phase == "running"


@pytest.mark.requirement("MCP-04")
def test_a_client_with_two_sessions_is_ambiguous_and_nothing_is_written(scratch: Scratch) -> None:
    from dataclasses import replace

    scratch.mission(slug="one")
    scratch.mission(slug="two", session=OTHER)
    registry = Registry(scratch.home)
    for entry in registry.entries():
        registry.put(replace(entry, left_at=""))
    (answer,) = stdio(scratch, "validate")
    assert answer.is_error
    assert "has several sessions" in answer.content[0].text


@pytest.mark.requirement("MCP-01")
def test_nothing_but_the_protocol_stands_on_stdout(scratch: Scratch) -> None:
    from omx_autoresearch.agents.parts.tools import start_fault

    command = [
        sys.executable,
        "-E",
        "-P",
        "-m",
        "omx_autoresearch.surfaces.cli",
        "mcp",
        "--home",
        str(scratch.home_path),
    ]
    assert start_fault(command, scratch.environ) == ""
    assert "No module named" in start_fault([*command[:4], "omx_autoresearch.nowhere"], scratch.environ)


@pytest.mark.case("DSK-08")
@pytest.mark.parametrize("waiting", ["wait", "validate"])
def test_a_call_that_waits_keeps_no_other_waiting(scratch: Scratch, waiting: str) -> None:
    os.mkfifo(scratch.root / "gate")
    scratch.write("check.sh", f"#!/bin/sh\nread x < {scratch.root / 'gate'}\nexit 1\n", executable=True)
    mission = scratch.mission(is_unsandboxed=True)
    meta: Any = {"sessionId": SESSION, "x-codex-turn-metadata": {"sandbox_mode": "danger-full-access"}}

    async def talk() -> tuple[Any, Any, Any]:
        async with Client(server.build_server(scratch.runtime())) as client:
            if waiting == "wait":
                await client.call_tool("validate", {"seconds": 0}, meta=meta)
            waited = asyncio.create_task(client.call_tool(waiting, {"seconds": 50}, meta=meta))
            while scratch.load(mission).running_validation is None:
                await asyncio.sleep(0)
            added = await client.call_tool("finding_add", {"summary": "meanwhile"}, meta=meta)
            seen = await client.call_tool("status", {}, meta=meta)
            assert not waited.done(), "nobody has let it go yet"
            await asyncio.to_thread(let_go, scratch.root / "gate")
            return added, seen, await waited

    added, seen, ended = asyncio.run(talk())
    assert not added.is_error
    assert seen.structured_content["running_since"]
    assert (ended.structured_content["is_running"], ended.structured_content["verdict"]) == (False, "failed")


@pytest.mark.slow
@pytest.mark.case("DSK-08")
@pytest.mark.parametrize("leaving", ["closed", "interrupted"])
def test_a_server_ends_with_its_client_although_a_run_goes_on(scratch: Scratch, leaving: str) -> None:
    os.mkfifo(scratch.root / "gate")
    scratch.write("check.sh", f"#!/bin/sh\nread x < {scratch.root / 'gate'}\nexit 1\n", executable=True)
    mission = scratch.mission(is_unsandboxed=True)
    command = [sys.executable, "-E", "-P", "-m", "omx_autoresearch.surfaces.cli", "mcp"]
    process = subprocess.Popen(
        [*command, "--home", str(scratch.home_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=scratch.environ,
        cwd=scratch.project,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    version = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "codex-mcp-client", "version": "1"},
    }
    called = {
        "name": "validate",
        "arguments": {"seconds": 50},
        "_meta": {"sessionId": SESSION, "x-codex-turn-metadata": {"sandbox_mode": "danger-full-access"}},
    }
    for message in (
        {"id": 1, "method": "initialize", "params": version},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": called},
    ):
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    process.stdin.flush()
    process.stdout.readline()
    while scratch.load(mission).running_validation is None:
        assert process.poll() is None
    if leaving == "closed":
        process.stdin.close()
    else:
        process.send_signal(signal.SIGINT)
    process.wait(timeout=20)
    running = scratch.load(mission).running_validation
    assert running is not None, "the run itself goes on"
    let_go(scratch.root / "gate")
    assert wait_for(ProcessIdentity(running.pid, running.pid_started), 60)
    assert scratch.load(mission).attestation is not None
    process.stdin.close()
    process.stdout.close()


def test_the_tools_are_named_as_in_the_settings(scratch: Scratch) -> None:
    assert server.build_server(scratch.runtime()).name == NAME
    assert views.resolve_task(scratch.runtime(), scratch.draft().task_id)
    assert calls.server_runtime(str(scratch.home_path)).environ.keys() <= os.environ.keys()
