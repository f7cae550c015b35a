"""Driving an agent: one fresh headless session, one hypothesis, one trial; then the next, while there is a budget.

    render_prompt   the prompt, from the experiment's own history
    agent_turn      the callback of one trial: write the prompt, run the agent in the candidate's worktree, read it
    drive           the loop, and what ends it

The agent's command inherits no descriptor and no session variables, and none of its processes outlives its trial. All
its output is kept. It may crash, hang, print nothing or change nothing: each of these is recorded as a trial.

In a prompt, what never changes stands first and what was tried grows at its end, so that a client's prompt cache holds
from trial to trial. Texts of earlier agents are quoted as data, one line each. A held-out check is never named.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from omx_autoresearch.agents.headless import AgentReport, last_words, stated
from omx_autoresearch.experiments.controller import AutoresearchController
from omx_autoresearch.experiments.judge import summary
from omx_autoresearch.experiments.judge.calibration import known_effect
from omx_autoresearch.experiments.judge.state import (
    ExperimentHypothesis,
    ExperimentState,
    HypothesisOutcome,
    TrialRow,
)
from omx_autoresearch.experiments.store import ExperimentFolder
from omx_autoresearch.experiments.trial import ExperimentWorkspace
from omx_autoresearch.foundation import templates
from omx_autoresearch.foundation.clients import EXAMPLE_AGENT
from omx_autoresearch.foundation.errors import AutoresearchError, StepIllegal, UsageError
from omx_autoresearch.foundation.text import count_of, one_line
from omx_autoresearch.journal.safe_files import ensure_folder, read_bounded, replace_file
from omx_autoresearch.system.commands import (
    OUTPUT_LIMIT_BYTES,
    CommandResult,
    explain_shell_status,
    run_command,
    shell_argv,
)
from omx_autoresearch.system.supervisor import explain_start

FAILURES_IN_A_ROW = 3
"""Sessions in a row without a candidate after which a person should look."""
NO_CANDIDATE = ("agent_failed", "callback_failed", "no_change", "timed_out")
"""Reason codes of a trial whose session brought nothing to judge."""
LONGEST_SECONDS = 7 * 86400.0
AGENT_GRACE_SECONDS = 2.0
_PID_SECONDS = 10.0
_POLL_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent that can be driven.

    Attributes:
        line: its command for the shell, with placeholders.
        environ: its whole environment, without session variables.
        read_report: reads what it printed; the clients' dialects know how.
        frozen_paths: what the prompt says of frozen files.
    """

    line: str
    environ: Mapping[str, str]
    read_report: Callable[[str], AgentReport]
    frozen_paths: tuple[str, ...] = ()


def agent_turn(
    agent: Agent, folder: ExperimentFolder, state: ExperimentState, *, is_given: bool
) -> Callable[[ExperimentWorkspace], HypothesisOutcome]:
    """The callback of one trial.

    Args:
        agent: that makes the candidate.
        folder: of the experiment; prompt and output are kept in it.
        state: before the trial.
        is_given: the hypothesis is the owner's; otherwise the agent finds its own.
    """

    def play(workspace: ExperimentWorkspace) -> HypothesisOutcome:
        prompt = render_prompt(
            state,
            iteration=workspace.iteration,
            frozen_paths=agent.frozen_paths,
            hypothesis=workspace.hypothesis if is_given else None,
        )
        prompt_path = os.path.join(folder.prompts_path, f"{workspace.iteration:04}.md")
        ensure_folder(folder.prompts_path)
        ensure_folder(folder.outputs_path)
        replace_file(prompt_path, prompt.encode("utf-8", "replace"), mode=0o600)
        try:
            script = agent_script(
                agent.line, prompt=prompt, prompt_path=prompt_path, workspace_path=workspace.path
            )
        except AutoresearchError as error:
            return HypothesisOutcome(fault="agent_failed", fault_reason=error.message)
        result, said = _run(agent, folder, workspace, script)
        return outcome_of(agent.read_report(said), result, workspace)

    return play


def _run(
    agent: Agent, folder: ExperimentFolder, workspace: ExperimentWorkspace, script: str
) -> tuple[CommandResult, str]:
    """Run the agent to its end, its cancellation or its deadline; returns what it said on stdout."""
    name = os.path.join(folder.outputs_path, f"agent-{workspace.iteration:04}")
    pid_path = f"{name}.pid"
    above = os.path.dirname(workspace.path)  # git looks for no repository there if the tree's own is gone
    environ = {**agent.environ, "OMX_AUTORESEARCH_PID_FILE": pid_path, "GIT_CEILING_DIRECTORIES": above}
    script = 'echo $$ > "$OMX_AUTORESEARCH_PID_FILE"; unset OMX_AUTORESEARCH_PID_FILE\n' + script
    stdout_fd = os.open(f"{name}.stdout", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    ended = threading.Event()
    watcher = threading.Thread(target=_note_pid, args=(pid_path, workspace, ended), daemon=True)
    watcher.start()
    try:
        result = run_command(
            shell_argv(script),
            cwd=workspace.path,
            env=environ,
            timeout_seconds=LONGEST_SECONDS,  # the trial's own limit comes by its cancellation
            output_path=f"{name}.log",
            grace_seconds=AGENT_GRACE_SECONDS,
            stdout_fd=stdout_fd,
            cancel_fd=workspace.cancellation.fileno(),
        )
    finally:
        os.close(stdout_fd)
        ended.set()
        watcher.join()
        with contextlib.suppress(OSError):
            os.unlink(pid_path)
    said = read_bounded(f"{name}.stdout", OUTPUT_LIMIT_BYTES)
    return result, said.decode("utf-8", "replace")


def _note_pid(pid_path: str, workspace: ExperimentWorkspace, ended: threading.Event) -> None:
    """Tell the controller the agent's pid as soon as its shell has written it down."""
    until = time.monotonic() + _PID_SECONDS
    while time.monotonic() < until and not ended.is_set():
        try:
            with open(pid_path, encoding="ascii") as source:
                text = source.read()
        except (OSError, ValueError):
            text = ""
        if text.endswith("\n") and text.strip().isdigit():
            workspace.note_process(int(text))
            return
        ended.wait(_POLL_SECONDS)


def outcome_of(
    report: AgentReport, result: CommandResult, workspace: ExperimentWorkspace
) -> HypothesisOutcome:
    """The outcome of a session, from its report and its end."""
    fault, reason = _fault(report, result, workspace.path)
    is_own = not workspace.hypothesis.description
    said = stated(report.text, "HYPOTHESIS")
    metadata = {
        "client": report.client,
        "model": report.model,
        "session_id": report.session_id,
        "tokens": report.tokens,
        "is_cost_reported": report.cost_usd is not None,
        "cost_fault": report.cost_fault,
        "exit_status": result.exit_status,
        "could_not_start": result.outcome == "not_started" or result.exit_status in CANNOT_START,
        "agent_seconds": round(result.duration_seconds, 3),
        "stated": said if not is_own else "",
        "output_path": result.output_path,
    }
    kept = ("is_cost_reported", "exit_status", "agent_seconds")
    return HypothesisOutcome(
        cost_usd=report.cost_usd or 0.0,
        metadata={name: value for name, value in metadata.items() if value or name in kept},
        description=(said or last_words(report.text)) if is_own else "",
        direction=stated(report.text, "DIRECTION"),
        fault=fault,
        fault_reason=reason,
    )


def _fault(report: AgentReport, result: CommandResult, cwd: str) -> tuple[str, str]:
    """The reason that a session made no candidate, as a code and a sentence; both empty where it may have made one."""
    if result.outcome == "not_started":
        return "agent_failed", f"the agent could not be started: {result.error}"
    if result.outcome == "timed_out":
        return "timed_out", f"the agent did not finish within {result.duration_seconds:.0f} s"
    words = f", its last output: {one_line(last_words(report.text))}" if report.text.strip() else ""
    if result.exit_status:
        why = explain_shell_status(result.argv[-1].split("\n")[-1], result.exit_status, cwd)
        return "agent_failed", why or f"the agent ended with exit status {result.exit_status}{words}"
    if report.is_error:
        return "agent_failed", f"the agent itself reported an error{words}"
    return "", ""


# --- the loop


@dataclass(frozen=True, slots=True)
class DriveEnd:
    """The end of a loop of trials.

    Attributes:
        trials: that it ran.
        reason: ``trials`` (as many as asked for), ``hypotheses`` (the list is through), ``completed`` (by a budget, a
            target or a stop), ``cancelled`` (the experiment), ``interrupted`` (this loop alone), or ``agent`` (sessions
            in a row without a candidate).
        detail: one sentence for people.
    """

    trials: int
    reason: str
    detail: str


def drive(
    controller: AutoresearchController,
    agent: Agent,
    *,
    trials: int = 0,
    hypotheses: Iterable[ExperimentHypothesis] | None = None,
    failures_in_a_row: int = FAILURES_IN_A_ROW,
) -> DriveEnd:
    """Run trials until something ends them.

    Args:
        controller: of the experiment, with its baseline established.
        agent: that makes the candidates.
        trials: at most so many; 0 for as many as the budget has.
        hypotheses: the owner's, one a trial; None lets the agent find its own.
        failures_in_a_row: sessions without a candidate after which it ends; one is enough that could not be started.

    Raises:
        UsageError: the agent's command cannot be started; no trial was begun.
    """
    folder = ExperimentFolder(controller.session_dir())
    require_startable(agent.line, agent.environ, os.path.join(folder.work_path, "candidate"))
    done, failures = 0, 0
    for given in itertools.repeat(None) if hypotheses is None else hypotheses:
        if end := _end_of(controller, done):
            return end
        if trials and done >= trials:
            return DriveEnd(done, "trials", f"{count_of(done, 'trial')}, as requested")
        state = controller.state
        hypothesis = given or ExperimentHypothesis(id=f"h-{state.next_iteration}")
        is_given = bool(given and given.description)
        turn = agent_turn(agent, folder, state, is_given=is_given)
        try:
            row = controller.run_iteration(hypothesis, turn)
        except StepIllegal:
            if end := _end_of(controller, done):
                return end  # a budget, looked at before the trial was admitted
            raise
        done += 1
        failures = failures + 1 if row.reason_code in NO_CANDIDATE else 0
        if row.metadata.get("could_not_start") and failures:
            return DriveEnd(done, "agent", f"{row.reason}; fix the agent's command, then run again")
        if failures >= failures_in_a_row:
            return DriveEnd(done, "agent", _gave_up(failures, row))
    return _end_of(controller, done) or DriveEnd(
        done, "hypotheses", f"every hypothesis was tried, {count_of(done, 'trial')}"
    )


def _end_of(controller: AutoresearchController, done: int) -> DriveEnd | None:
    if controller.cancellation.is_cancelled:
        return DriveEnd(done, "cancelled", "cancelled; the trial under way was rolled back")
    if controller.was_interrupted:
        return DriveEnd(
            done, "interrupted", "interrupted; the trial under way was rolled back, and the rest stays"
        )
    if controller.state.phase == "completed":
        reason = summary.ending_words(controller.state.completed_reason)
        return DriveEnd(done, "completed", f"the experiment ended: {reason}")
    return None


def _gave_up(failures: int, row: TrialRow) -> str:
    why = f"{row.reason_code.replace('_', ' ')}: {row.reason}" if row.reason else row.reason_code
    return f"{count_of(failures, 'session')} in a row produced no candidate; the last one: {why}"


# --- the agent's command line

# The command line of an agent: its placeholders filled in so that a shell reads each as exactly one word.
# Pure.
#
# ``{prompt}`` is the whole prompt, ``{prompt_file}`` and ``{workspace}`` are absolute paths; they may stand
# bare or in either kind of quotes. Every other brace stays as it is. The prompt is on stdin, too.


PLACEHOLDERS = ("prompt", "prompt_file", "workspace")
LINE_LIMIT_BYTES = 128 * 1024 - 1
"""Linux's limit for one argument with its NUL (MAX_ARG_STRLEN, execve(2)); the shell gets the line as one argument."""

_PLACEHOLDER = re.compile(r"\{(" + "|".join(sorted(PLACEHOLDERS, key=len, reverse=True)) + r")\}")


def filled(line: str, values: Mapping[str, str]) -> str:
    """The line with every placeholder replaced by its value, quoted for where it stands.

    Args:
        line: as the owner gave it, for ``/bin/sh``.
        values: by the names of `PLACEHOLDERS`.
    """
    parts: list[str] = []
    quotes = [""]  # of the level we are in; `$(` begins a level of its own, also within double quotes
    position = 0
    while position < len(line):
        found = _PLACEHOLDER.match(line, position)
        if found is not None:
            parts.append(f"{quotes[-1]}{shlex.quote(values[found[1]])}{quotes[-1]}")
            position = found.end()
            continue
        # a character behind a backslash is no quote; within single quotes the backslash is nothing special
        width = 2 if line[position] == "\\" and quotes[-1] != "'" else 1
        _follow(quotes, line[position : position + 2])
        parts.append(line[position : position + width])
        position += width
    return "".join(parts)


def _follow(quotes: list[str], ahead: str) -> None:
    """The quote that stands open behind the first character of ``ahead``, level by level."""
    char = ahead[0]
    if char in "'\"" and quotes[-1] in ("", char):
        quotes[-1] = "" if quotes[-1] else char
    elif ahead == "$(" and quotes[-1] != "'":
        quotes.append("")
    elif char == ")" and not quotes[-1] and len(quotes) > 1:
        quotes.pop()


def agent_script(line: str, *, prompt: str, prompt_path: str, workspace_path: str) -> str:
    """The script for ``/bin/sh -c``: the agent's line, with the prompt on stdin.

    Raises:
        UsageError: the prompt is too long for a command line.
    """
    values = {"prompt": prompt, "prompt_file": prompt_path, "workspace": workspace_path}
    script = f"exec < {shlex.quote(prompt_path)}\n{filled(line, values)}"
    size_bytes = len(script.encode("utf-8", "surrogateescape"))
    if size_bytes > LINE_LIMIT_BYTES:
        raise UsageError(
            f"the prompt makes the agent's command line {size_bytes} bytes long; the system allows"
            f" {LINE_LIMIT_BYTES}",
            next_step="let the agent read stdin, or use {prompt_file} instead of {prompt}",
        )
    return script


def checked_line(line: str) -> str:
    """The line, when a shell can read it.

    Raises:
        UsageError: it is empty, holds NUL, or has an open quote.
    """
    next_step = f'--agent "{EXAMPLE_AGENT}"'
    if not line.strip():
        raise UsageError("the agent's command is empty", next_step=next_step)
    if "\0" in line:
        raise UsageError("the agent's command holds a NUL character", next_step=next_step)
    try:
        shlex.split(filled(line, dict.fromkeys(PLACEHOLDERS, "x")))
    except ValueError as error:
        raise UsageError(f"the agent's command cannot be read: {error}", next_step=next_step) from None
    return line


# --- whether the command can start

# Whether an agent's command can be started at all, known before a trial is spent on it.


CANNOT_START = (126, 127)
"""Exit statuses of a shell that found no such program, or may not run it (POSIX, Shell Command Language, 2.8.2)."""
_SHELL_SYNTAX = frozenset(";&|<>()`$\n#*?[~\\!")
"""With one of these the first word need not be what is run, or not everything; such a line is simply run."""
_PLAIN = re.compile(r"\s*(?P<program>[A-Za-z0-9_./+@%:,-]+)(?:\s|$)")
_LOOK_SECONDS = 10.0


def require_startable(line: str, environ: Mapping[str, str], cwd: str) -> None:
    """Let a command line pass, unless its program cannot be started for certain.

    Args:
        line: for the shell, with or without placeholders.
        environ: that it would be run in.
        cwd: likewise; empty where that folder is not there yet: then a relative path is not looked at.

    Raises:
        UsageError: there is no such program, or it may not be run; nothing was spent.
    """
    if fault := start_fault(line, environ, cwd):
        raise UsageError(
            f"the command cannot be started, so no trial began: {fault}",
            next_step=f'fix the command, then run it again, such as --agent "{EXAMPLE_AGENT}"',
        )


def start_fault(line: str, environ: Mapping[str, str], cwd: str) -> str:
    """The reason that the program of a plain command line cannot start; empty if it can, or if that is unknown."""
    found = _PLAIN.match(line)
    if found is None or _SHELL_SYNTAX & set(line):
        return ""
    program = found["program"]
    if "/" not in program:
        is_there = _is_known(program, environ, cwd)
        return "" if is_there else explain_start(errno.ENOENT, program, cwd)
    if not os.path.isabs(program) and not os.path.isdir(cwd):
        return ""
    path = os.path.join(cwd, program)
    status = 127 if not os.path.exists(path) else 126
    is_fit = os.path.isfile(path) and os.access(path, os.X_OK)
    return "" if is_fit else explain_shell_status(program, status, cwd)


def _is_known(name: str, environ: Mapping[str, str], cwd: str) -> bool:
    """The shell itself says: a program on PATH, a word of its own; True where it cannot be asked."""
    try:
        asked = subprocess.run(
            ["/bin/sh", "-c", 'command -v "$1"', "sh", name],
            cwd=cwd if os.path.isdir(cwd) else "/",
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_LOOK_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return True
    return asked.returncode == 0


ROWS_SHOWN = 200
"""Trials that a prompt tells, the newest; earlier ones are counted."""
FROZEN_SHOWN = 200
_TEXT_CHARACTERS = 300
_SOURCES = {
    "wall": "its wall-clock time",
    "cpu": "its user and system time",
    "memory": "its peak memory",
    "exit": "its exit status",
    "json": "a value of the JSON that it prints",
}
_HIDDEN = ("held_out_failed",)
"""Reasons that reach the agent as a bare code: they come from checks that it must not know."""

_NOT_JUDGED = ("no_change", "nested_repository", "tampered", "check_failed", *_HIDDEN)
"""Reasons of a rejection that say nothing of the idea behind the change."""


def render_prompt(
    state: ExperimentState,
    *,
    iteration: int,
    frozen_paths: tuple[str, ...] = (),
    hypothesis: ExperimentHypothesis | None = None,
) -> str:
    """The prompt of one trial.

    Args:
        state: of the experiment, before the trial.
        iteration: the number of the trial.
        frozen_paths: files that are pinned, relative to the repository, and the owner's globs.
        hypothesis: what the agent shall try, where the owner gave it; None lets it find its own.
    """
    config = state.config
    rows = [row for row in state.rows if row.status != "running" and row.iteration != iteration]
    return templates.render(
        "experiment_prompt.md.j2",
        metric=config.metric,
        source=_SOURCES.get(config.metric.source, config.metric.source),
        measure=config.measure,
        check=config.check,
        setup=config.setup,
        guards=[summary.guard_words(guard) for guard in config.guards],
        frozen=[one_line(path) for path in frozen_paths[:FROZEN_SHOWN]],
        frozen_left_out=max(0, len(frozen_paths) - FROZEN_SHOWN),
        rows=[_shown(state, row) for row in rows[-ROWS_SHOWN:]],
        rows_left_out=max(0, len(rows) - ROWS_SHOWN),
        kept=[row.iteration for row in rows if row.status == "accepted"],
        worn=_worn(rows),
        visible_effect=_visible_effect(state),
        iteration=iteration,
        left=", ".join(summary.left_words(state, iteration)) or "no limit is set",
        hypothesis=_quoted(hypothesis),
    )


def _shown(state: ExperimentState, row: TrialRow) -> dict[str, object]:
    """A line of the table of trials; the text of a hypothesis cannot end its cell."""
    result: str = row.status
    if row.reason_code and row.status != "accepted":
        result += f": {row.reason_code.replace('_', ' ')}"
    text = summary.row_text(row)[:_TEXT_CHARACTERS].replace("|", "/")
    effect = "" if row.reason_code in _HIDDEN else summary.effect_words(state, row)
    return {"iteration": row.iteration, "text": text, "result": result, "effect": effect}


def _worn(rows: list[TrialRow]) -> list[str]:
    """Directions that a measurement spoke against, once each, oldest first; where none was said, the hypotheses."""
    kept = {row.direction.casefold() for row in rows if row.status == "accepted" and row.direction}
    found: dict[str, str] = {}
    for row in rows:
        if row.status != "rejected" or row.reason_code in _NOT_JUDGED:
            continue
        text = one_line(row.direction) or summary.row_text(row)[:_TEXT_CHARACTERS]
        if text.casefold() not in kept:
            found.setdefault(text.casefold(), text)
    return list(found.values())[-ROWS_SHOWN:]


def _visible_effect(state: ExperimentState) -> str:
    """The smallest gain that the judge can see, so that no agent aims for less."""
    effect = known_effect(state.calibration)
    if not effect:
        return ""
    shown = (
        f"{100 * effect:.2g} %"
        if summary.is_ratio(state)
        else f"{effect:.3g} {state.config.metric.unit}".strip()
    )
    return f"The measurement is noisy: a change of less than about {shown} cannot be told from noise."


def _quoted(hypothesis: ExperimentHypothesis | None) -> str:
    if hypothesis is None or not hypothesis.description.strip():
        return ""
    return "\n".join(f"> {line}" for line in hypothesis.description.strip().splitlines())
