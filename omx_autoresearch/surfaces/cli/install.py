"""The runtime in an agent CLI's settings: install, uninstall, and doctor, which proves that a stop would be held."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from omx_autoresearch.agents.install import InstallReport, box_check, examine, install, uninstall
from omx_autoresearch.agents.parts import Check
from omx_autoresearch.agents.registry import installation_of
from omx_autoresearch.foundation.clients import CLIENT_NAMES
from omx_autoresearch.foundation.errors import AutoresearchError, UsageError
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.foundation.text import count_of
from omx_autoresearch.missions.holds import remember_proof
from omx_autoresearch.missions.lifecycle_commands import require_owner
from omx_autoresearch.missions.registry import Registry
from omx_autoresearch.missions.upkeep import storage_fault, sweep
from omx_autoresearch.missions.views import list_views
from omx_autoresearch.surfaces.cli.client import has_mcp
from omx_autoresearch.surfaces.cli.console import (
    CHECK_SAID_NO,
    Caller,
    Document,
    confirm,
    json_option,
    print_json,
    say,
    this_caller,
    verb,
    with_options,
)
from omx_autoresearch.surfaces.cli.demo import hook_program, make_held_session
from omx_autoresearch.surfaces.hook import PACKAGES

if TYPE_CHECKING:
    from omx_autoresearch.agents.parts import Installation, Scope
    from omx_autoresearch.journal.layout import Runtime


_scope_option = click.option(
    "--scope",
    type=click.Choice(("user", "project")),
    default="user",
    show_default=True,
    help="The settings of all your sessions, or those of this project.",
)
_client_options = with_options(
    click.argument("client", type=click.Choice(CLIENT_NAMES)),
    _scope_option,
    click.option("--dry-run", is_flag=True, help="Show the change and write nothing."),
)


@dataclass(frozen=True, slots=True)
class InstallDocument:
    """``install`` and ``uninstall``.

    Attributes:
        client: the agent CLI.
        settings_path: its settings file.
        changed_paths: files that were, or would be, changed; empty when everything was in place.
        diff: of all of them.
        notes: what a person has to know or do.
        dry_run: nothing was written.
    """

    client: str
    settings_path: str
    changed_paths: tuple[str, ...]
    diff: str
    notes: tuple[str, ...]
    dry_run: bool


INSTALL = Document("install", InstallDocument)


@verb("install", INSTALL)
@_client_options
@click.option("--no-mcp", is_flag=True, help="Do not register the MCP server (the tools for agents).")
@click.option(
    "--no-skill", is_flag=True, help="Do not install the skill that tells an agent how to work on a mission."
)
@click.option(
    "--session-tools",
    is_flag=True,
    help="Also serve init_experiment, run_experiment and log_experiment; without this option they are removed.",
)
@json_option
def install_verb(client: str, scope: Scope, dry_run: bool, as_json: bool, **chosen: bool) -> None:
    """Add hooks, status line, tools, and skill to an agent CLI's settings; nothing else in them changes.

    A status line or a skill of your own is never replaced.
    """
    caller = this_caller()
    require_owner(caller.runtime, "install")
    program = hook_program(caller.runtime.home.root_path)
    if chosen.pop("session_tools"):
        if chosen["no_mcp"]:
            raise UsageError(
                "--session-tools needs the MCP server, and --no-mcp leaves it out",
                next_step="leave one of the two out",
            )
        program = replace(program, tool_options=("--session-tools",))
    report = install(
        _installation(caller, client, scope),
        program,
        environ=caller.runtime.environ,
        without=_without(**chosen),
        dry_run=dry_run,
    )
    if not chosen["no_mcp"] and not has_mcp():
        report = replace(report, notes=(*report.notes, _NO_MCP))
    check = box_check(client)
    if check.is_about_hold and check.cure:
        report = replace(report, notes=(*report.notes, check.what))
    _print_report(report, "installed", as_json=as_json)
    if not as_json and not dry_run:
        say(f"  next: omx-autoresearch doctor {client}{'' if scope == 'user' else f' --scope {scope}'}")


@verb("uninstall", INSTALL)
@_client_options
@click.option("--yes", is_flag=True, help="Do not ask where missions hold sessions of this agent CLI.")
@json_option
def uninstall_verb(client: str, scope: Scope, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove hooks, status line, tools, and skill from an agent CLI's settings, and nothing else.

    Its sessions are held no longer. Where a mission holds one, it is named, and you are asked.
    """
    caller = this_caller()
    require_owner(caller.runtime, "uninstall")
    held = _held_missions(caller, client, scope) if _is_installed(caller, client, scope) else ()
    if held and not dry_run and not yes:
        confirm(
            f"{', '.join(held)} would hold {client} no longer, and every stop would be let go. Uninstall?",
            "--yes",
            "Nothing was removed.",
        )
    report = uninstall(_installation(caller, client, scope), caller.runtime.home.root_path, dry_run=dry_run)
    if held:
        let_go = f"{client} is held no longer by: {', '.join(held)}"
        report = replace(report, notes=(*report.notes, let_go))
    _print_report(report, "uninstalled", as_json=as_json)


def _held_missions(caller: Caller, client: str, scope: Scope) -> tuple[str, ...]:
    """The running missions with a session of an agent CLI that the hooks in these settings alone hold."""
    other: Scope = "project" if scope == "user" else "user"
    is_held_twice = _is_installed(caller, client, other)
    project_path = os.path.join(caller.project_path() if caller.cwd else "", "")
    entries = Registry(caller.runtime.home).entries()
    bound = {entry.task_id for entry in entries if entry.state == "bound" and entry.client in (client, "")}
    return tuple(
        view.task_id
        for view in list_views(caller.runtime)
        if view.phase == "running"
        and view.task_id in bound
        and (not is_held_twice if view.task_path.startswith(project_path) else scope == "user")
    )


def _is_installed(caller: Caller, client: str, scope: Scope) -> bool:
    return os.path.exists(_installation(caller, client, scope).record_path(caller.runtime.home.root_path))


def _without(*, no_mcp: bool, no_skill: bool) -> tuple[str, ...]:
    tools: tuple[str, ...] = ("tools",) if no_mcp or not has_mcp() else ()
    return (*tools, "skill") if no_skill else tools


_NO_MCP = (
    "the tools for agents were left out, because the package mcp is missing: install omx-autoresearch[mcp], then run "
    "the command again"
)


def _installation(caller: Caller, client: str, scope: Scope) -> Installation:
    project_path = caller.project_path() if scope == "project" or caller.cwd else ""
    return installation_of(client, scope, caller.runtime.environ, project_path)


def _print_report(report: InstallReport, done: str, *, as_json: bool) -> None:
    if as_json:
        paths = tuple(change.path for change in report.changes)
        print_json(
            InstallDocument(
                report.client, report.settings_path, paths, report.diff, report.notes, report.dry_run
            )
        )
        return
    if not report.changes:
        say(f"Nothing to change in {report.client}: {done} already.")
    elif report.dry_run:
        say(report.diff.rstrip("\n"))
        say("Nothing was written.")
    else:
        say(f"{done.capitalize()} for {report.client}:")
        for change in report.changes:
            say(f"  {'removed' if change.after is None else 'wrote'} {change.path}")
    for note in report.notes:
        say(f"  note: {note}", "yellow")


@dataclass(frozen=True, slots=True)
class ClientDocument:
    """One agent CLI of ``doctor``.

    Attributes:
        client: its name.
        scope: whose settings were looked at.
        is_held: every check that concerns the hold is well; a stop would be held.
        checks: in the order of reading.
    """

    client: str
    scope: str
    is_held: bool
    checks: tuple[Check, ...]


@verb("doctor", Document("doctor", tuple[ClientDocument, ...]))
@click.argument("client", type=click.Choice(CLIENT_NAMES), required=False)
@_scope_option
@click.option(
    "--prompt",
    "tries_prompt",
    is_flag=True,
    help="Also start the agent CLI in a scratch home, without its model, and try whether a prompt is proven.",
)
@json_option
def doctor_verb(client: str | None, scope: Scope, tries_prompt: bool, as_json: bool) -> int:
    """Prove that a stop is held: run the installed hook with a synthetic stop, and look for faults that would break it.

    Without CLIENT: every agent CLI with the hooks in its settings, else every one on PATH. Exits with 9 if a check
    fails.
    """
    from concurrent.futures import ThreadPoolExecutor

    caller = this_caller()
    if tries_prompt:
        require_owner(caller.runtime, "doctor --prompt")
    names = (client,) if client else _clients_here(caller, scope)
    storage = _storage(caller.runtime)
    with ThreadPoolExecutor() as pool:
        documents = tuple(pool.map(lambda name: _examined(caller, name, scope, tries_prompt), names))
    documents = tuple(
        replace(document, is_held=document.is_held and storage.ok, checks=(*document.checks, storage))
        for document in documents
    )
    if as_json:
        print_json(documents)
    elif not documents:
        say(
            f"The {scope} settings of no agent CLI have the hooks, and none of {', '.join(CLIENT_NAMES)} is on PATH.\n"
            f"  next: omx-autoresearch install CLIENT{'' if scope == 'user' else f' --scope {scope}'}"
        )
    for document in () if as_json else documents:
        _print_client(document)
    is_well = documents and all(check.ok for document in documents for check in document.checks)
    return 0 if is_well else CHECK_SAID_NO


def _clients_here(caller: Caller, scope: Scope) -> tuple[str, ...]:
    """The agent CLIs whose settings have the hooks; where none has, those on PATH."""
    ours = tuple(name for name in CLIENT_NAMES if _is_installed(caller, name, scope))
    return ours or tuple(name for name in CLIENT_NAMES if shutil.which(name))


def _examined(caller: Caller, name: str, scope: Scope, tries_prompt: bool) -> ClientDocument:
    installation = _installation(caller, name, scope)
    checks = examine(
        installation,
        caller.runtime.home.root_path,
        environ=caller.runtime.environ,
        packages=PACKAGES,
        make_held_session=make_held_session,
    )
    if tries_prompt:
        from omx_autoresearch.surfaces.cli.prompt_trial import try_prompt

        checks.append(try_prompt(caller.runtime, name))
    path = shutil.which(name, path=caller.runtime.environ.get("PATH", ""))
    where = f"{name} is on PATH: {path}" if path else f"{name} is not on the PATH of this shell"
    cure = "" if path else f"put {name} on PATH, or start it by its full path"
    checks = [Check("client", True, where, cure, is_about_hold=False), *checks]
    is_held = all(check.ok for check in checks if check.is_about_hold)
    remember_proof(caller.runtime, installation.record_path(caller.runtime.home.root_path), is_held=is_held)
    return ClientDocument(name, scope, is_held, tuple(checks))


def _storage(runtime: Runtime) -> Check:
    """Whether a stop can be recorded in the real state home, and in the folder of each mission that holds a session."""
    home = runtime.home
    fault: AutoresearchError | None
    swept = sweep(runtime)
    try:
        held = {entry.task_id for entry in Registry(home).entries() if entry.state == "bound"}
        fault = storage_fault(home, sorted(held))
    except AutoresearchError as error:
        fault = error
    if fault is not None:
        what = f"a stop cannot be recorded, so every session is let go: {fault.message}"
        return Check("state home", False, what, fault.next_step)
    what = f"records can be locked, appended and kept in {home.root_path}"
    if swept:
        what += f"; {count_of(len(swept), 'leftover')} of killed processes removed"
    return Check("state home", True, what)


def _print_client(document: ClientDocument) -> None:
    say(f"{document.client} ({document.scope} settings)", "bold")
    for check in document.checks:
        _print_check(check)
    if document.is_held:
        say("  hold: PROVEN; a stop is held", "green")
    else:
        say("  hold: UNPROVEN; see above", "red")


def _print_check(check: Check) -> None:
    mark = ("note" if check.cure else "ok") if check.ok else "BAD"
    say(
        f"  {mark:<4} {check.name:<12} {check.what}",
        "" if check.ok else "red",
    )
    if check.cure and not check.ok:
        say(f"       {'':<12} next: {check.cure}")
