"""The cost of a hook: ``python -m benchmarks.hook [--rounds N] [--omx PATH]``.

Everything is measured in one interleaved run, as processes started from here: CPU time (user + system, children
included) and wall time, medians; what counts are the ratios within the run.

    (a) nothing active                       the shell line of the settings, as installed
    (b) another session's mission is active
    (c) bound and refusing                   a repository of 1,000 files, edited before each stop; validator ``false``
    (d) a tool event of a bound session
    (e) the status line, another session's mission is active
    (f) the status line of a bound session

against ``sh -c :``, ``python -I -S -c pass``, ``node -e 0``, a stop hook in bash and jq, and the native hook of
oh-my-codex, where each is to be had. The bash hook gets a transcript of 0.4 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from omx_autoresearch.agents.clients import claude
from omx_autoresearch.agents.hook_lines import HookProgram, hook_line, hook_script
from omx_autoresearch.agents.parts.status_line import status_line
from omx_autoresearch.journal.layout import Runtime, StateHome
from omx_autoresearch.missions import sessions
from omx_autoresearch.missions.records.lifecycle import MissionCreated, MissionLaunched
from omx_autoresearch.missions.rules.allowances import Limits
from omx_autoresearch.missions.rules.mission import Contract
from omx_autoresearch.missions.store import MissionStore
from omx_autoresearch.missions.validation.approvals import approval_key, approve

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent / "omx_autoresearch"
SESSION = "0a1b2c3d-0000-4000-8000-000000000001"
OTHER = "0a1b2c3d-0000-4000-8000-000000000002"
FILES = 1000


@dataclass
class Case:
    """One command under measurement.

    Attributes:
        name: as printed.
        argv: what is started.
        stdin: its input.
        prepare: run before each start, not measured.
        expects: bytes that the answer must hold; a wrong answer ends the benchmark.
    """

    name: str
    argv: list[str]
    stdin: bytes = b""
    env: dict[str, str] = field(default_factory=dict)
    prepare: Callable[[], None] = lambda: None
    expects: bytes = b""
    cpu_seconds: list[float] = field(default_factory=list)
    wall_seconds: list[float] = field(default_factory=list)


def main(argv: list[str] | None = None) -> int:
    """Measure and print; 1 when a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument(
        "--omx",
        default=oh_my_codex(),
        help="the command of oh-my-codex (default: the one on PATH, or where README.md says to install it)",
    )
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="hook-benchmark-") as folder:
        cases = build(Path(folder), options.omx)
        for number in range(options.rounds + 2):
            for case in cases:
                measure(case, is_kept=number >= 2)
    return report(cases)


def oh_my_codex() -> str:
    """The command of oh-my-codex; empty where it is not installed."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    clients = os.environ.get("OMX_CLIENTS_DIR") or os.path.join(cache, "omx-autoresearch", "clients")
    installed = os.path.join(clients, "omc", "node_modules", ".bin", "omx")
    return shutil.which("omx") or (installed if os.access(installed, os.X_OK) else "")


def build(folder: Path, omx: str) -> list[Case]:
    """The scratch world and the cases in it."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    quiet, busy = folder / "quiet", folder / "busy"
    repository = make_repository(folder / "repository")
    for home in (quiet, busy):
        install_hook(home)
    bind_mission(busy, repository)
    stop = next(entry for entry in claude.CLIENT.entries if entry.native_event == "Stop")
    python = [sys.executable, "-I", "-S", "-c", "pass"]
    edited = repository / "file0000.txt"

    def edit() -> None:
        edited.write_text(f"edited {time.time_ns()}\n")

    def hook(name: str, home: Path, payload: bytes, **options: object) -> Case:
        line = hook_line(stop, "claude", str(home))
        return Case(name, ["/bin/sh", "-c", line], payload, dict(environ), **options)  # type: ignore[arg-type]

    def line(name: str, payload: bytes, expects: bytes = b"") -> Case:
        return Case(name, ["/bin/sh", "-c", status_line(str(busy))], payload, dict(environ), expects=expects)

    cases = [
        Case("sh -c :", ["/bin/sh", "-c", ":"], env=dict(environ)),
        Case("python -I -S -c pass", python, env=dict(environ)),
        hook("(a) nothing active", quiet, payload(repository, OTHER)),
        hook("(b) another session's mission active", busy, payload(repository, OTHER)),
        hook("(c) bound and refusing", busy, payload(repository, SESSION), prepare=edit, expects=b'"block"'),
        hook("(d) tool event of a bound session", busy, tool_payload(repository, SESSION)),
        line("(e) status line, another session's mission", payload(repository, OTHER)),
        line("(f) status line of a bound session", payload(repository, SESSION), expects=b"Research"),
    ]
    return cases + peers(folder, repository, environ, omx)


def peers(folder: Path, repository: Path, environ: dict[str, str], omx: str) -> list[Case]:
    """What others cost, as far as it is to be had on this machine."""
    found = []
    if shutil.which("node"):
        found.append(Case("node -e 0", [str(shutil.which("node")), "-e", "0"], env=dict(environ)))
    if shutil.which("jq"):
        state, transcript = folder / "loop.md", folder / "transcript.jsonl"
        state.write_text(
            "---\niteration: 1\nmax_iterations: 0\ncompletion_promise: DONE\n---\nKeep working.\n"
        )
        row = {"role": "assistant", "message": {"content": [{"type": "text", "text": "x" * 300}]}}
        transcript.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for _ in range(1100)))
        event = json.dumps({"session_id": SESSION, "transcript_path": str(transcript)}).encode()
        env = {**environ, "RALPH_STATE": str(state)}
        argv = ["bash", str(HERE / "ralph_style_stop.sh")]
        found.append(Case("bash + jq stop hook, refusing", argv, event, env, expects=b'"block"'))
    if omx:
        found.append(
            Case(
                "oh-my-codex native hook",
                [omx, "codex-native-hook"],
                payload(repository, OTHER),
                dict(environ),
            )
        )
    return found


def make_repository(path: Path) -> Path:
    """A clean git repository of :data:`FILES` files in folders of 50."""
    for number in range(FILES):
        file = (
            path / f"file{number:04}.txt"
            if number % 50 == 0
            else path / f"d{number // 50}" / f"f{number}.txt"
        )
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{number}\n" * 20)
    commit_all(path)
    return path


def commit_all(path: Path) -> None:
    """Make a folder a git repository with one commit of everything in it."""
    git = ["git", "-c", "user.name=b", "-c", "user.email=b@localhost"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "init"]):
        subprocess.run([*git, *words], cwd=path, check=True)


def install_hook(home: Path) -> None:
    """The script that the installer writes."""
    home.mkdir(parents=True)
    program = HookProgram(str(home), sys.executable, str(PACKAGE / "surfaces" / "hook_start.py"))
    (home / "hook").write_text(hook_script(program))
    (home / "hook").chmod(0o755)


def bind_mission(home: Path, repository: Path) -> None:
    """A running, approved mission with the validator ``false`` and limits that outlast the benchmark."""
    from omx_autoresearch.freezing import pins
    from omx_autoresearch.missions.contracts import contract_digest

    runtime = Runtime(home=StateHome(str(home)), environ=dict(os.environ))
    limits = Limits(
        idle_refusals=5000, stale_pivot=4000, stale_fresh=4000, stale_stalled=5000, refusals_total=5000
    )
    manifest = pins.manifest_of((), ())
    contract = Contract(
        "mission-validator-script",
        validator_command="false",
        environment={"PATH": os.environ["PATH"]},
        limits=limits,
        pin_digest=manifest.digest,
        unfrozen_reason="a benchmark",
    )
    task_id = "20260101-000000-benchmark"
    path = str(repository)
    created = MissionCreated(
        task_id, "benchmark", "measure", "standard", path, path, ".omx/specs/autoresearch-benchmark"
    )
    digest = contract_digest(contract)
    MissionStore(runtime.home).create(
        task_id, runtime.now(), created, MissionLaunched("running", contract, digest)
    )
    pins.pin(runtime.home.mission(task_id).frozen_path, manifest, path)
    key = approval_key(path, task_id, digest, manifest.digest)
    approve(runtime.home, key, is_unsandboxed=True, ts=runtime.now())
    sessions.bind(runtime, task_id, sessions.Act(SESSION, "claude", "prompt"))


def payload(repository: Path, session: str) -> bytes:
    """A stop as Claude Code sends it."""
    return json.dumps(
        {
            "session_id": session,
            "transcript_path": "/nowhere.jsonl",
            "cwd": str(repository),
            "permission_mode": "default",
            "hook_event_name": "Stop",
            "stop_hook_active": True,
            "last_assistant_message": "I am done.",
            "background_tasks": [],
        }
    ).encode()


def tool_payload(repository: Path, session: str) -> bytes:
    """A tool event as Claude Code sends it, with 4 KB of output."""
    return json.dumps(
        {
            "session_id": session,
            "transcript_path": "/nowhere.jsonl",
            "cwd": str(repository),
            "hook_event_name": "PostToolUse",
            "tool_name": "Bash",
            "tool_input": {"command": "ls"},
            "tool_response": {"stdout": "x" * 4096, "stderr": ""},
            "tool_use_id": "toolu_01",
        }
    ).encode()


def measure(case: Case, *, is_kept: bool) -> None:
    """Start the command once; CPU time of it and of all its waited-for children, from wait4."""
    case.prepare()
    read, write = os.pipe()
    out = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
    started = time.perf_counter()
    process = subprocess.Popen(case.argv, stdin=read, stdout=out, stderr=subprocess.DEVNULL, env=case.env)
    os.close(read)
    try:
        os.write(write, case.stdin)
    except BrokenPipeError:
        pass  # the shell line ended without reading, as it should
    os.close(write)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    out.seek(0)
    answer = out.read()
    if (
        process.returncode
        or case.expects not in answer
        or (not case.expects and case.name.startswith("(") and answer)
    ):
        raise SystemExit(f"{case.name}: exit {process.returncode}, answered {answer[:300]!r}")
    if is_kept:
        case.cpu_seconds.append(usage.ru_utime + usage.ru_stime)
        case.wall_seconds.append(wall)


def report(cases: list[Case]) -> int:
    """Print the table and hold the bars."""
    cpu = {case.name: statistics.median(case.cpu_seconds) for case in cases}
    print(f"{'':42}{'CPU ms':>9}{'wall ms':>9}{'x sh':>8}{'x python':>10}")
    for case in cases:
        median, wall = cpu[case.name], statistics.median(case.wall_seconds)
        shell, python = median / cpu["sh -c :"], median / cpu["python -I -S -c pass"]
        print(f"{case.name:42}{median * 1000:9.1f}{wall * 1000:9.1f}{shell:8.2f}{python:10.2f}")
    names = {case.name[:3]: case.name for case in cases if case.name.startswith("(")}
    bars = [
        ("(a)", "sh -c :", 1.5),
        ("(b)", "python -I -S -c pass", 2.5),
        ("(c)", "python -I -S -c pass", 10.0),
        ("(c)", "bash + jq stop hook, refusing", 1.0),
        ("(c)", "oh-my-codex native hook", 1 / 3),
        ("(d)", "python -I -S -c pass", 3.0),
        ("(e)", "python -I -S -c pass", 2.5),
    ]
    missed = 0
    for short, against, bar in bars:
        if against not in cpu:
            print(f"{short} against {against}: not to be had here")
            continue
        ratio = cpu[names[short]] / cpu[against]
        missed += ratio > bar
        print(f"{short} against {against}: {ratio:.2f} (bar {bar:.2f}) {'MISSED' if ratio > bar else 'held'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
