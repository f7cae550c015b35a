"""What an installation consists of: hooks, the status line, the tools for agents, the skill; and what a part owes.

A part knows the file of the client that it stands in and changes its text; what is written, recorded and taken back is
the business of :mod:`omx_autoresearch.agents.install`, which also lists the parts. A client may bring further ones of
its own (:attr:`Installation.own_parts`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, Protocol

from omx_autoresearch.agents.settings_files import SettingsFile, sha256_of
from omx_autoresearch.foundation.records import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from omx_autoresearch.agents.events import Client
    from omx_autoresearch.agents.hook_lines import HookProgram


Scope = Literal["user", "project"]
"""Whose settings: all of the user's sessions, or those in one project."""


@dataclass(frozen=True, slots=True)
class ToolServer:
    """Where a client registers MCP servers.

    Attributes:
        path: the file.
        form: how it is written.
        has_type: the entry says ``"type": "stdio"``.
        variables: environment variables that the client hands on only when they are named.
        allows_comments: the client reads JSON with comments.
        note: what a person has to do besides; empty for nothing.
    """

    path: str
    form: Literal["json", "toml"] = "json"
    has_type: bool = False
    variables: tuple[str, ...] = ()
    allows_comments: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Installation:
    """Where our parts stand in one client's settings, and in which form.

    Attributes:
        client: the facts about the client; its ``entries`` are what is registered.
        scope: whose settings file.
        settings_path: the JSON file that holds the hooks.
        other_settings_paths: further files that the client reads hooks from, to find a second registration.
        plugins_path: the folder of the client's plugins or extensions, looked through for the same reason.
        timeouts_per_second: the client's unit of a hook's time-out, 1 for seconds and 1000 for milliseconds.
        handler_name: a name to write beside the command; empty where the client knows none.
        environment: variables for the client's ``env`` setting; a value of the user's is kept.
        allows_comments: the client reads JSON with comments; else it ignores a file that has one.
        off_switches: ways to settings that turn hooks off when true.
        on_switches: ways to settings that turn hooks off when false.
        off_variables: environment variables that turn hooks off.
        features_path: a further file of settings, JSON or TOML, that may turn hooks off; empty for none.
        hook_shell: how the client runs a hook's line.
        has_status_line: ``statusLine`` of the settings names a command whose first line the client shows.
        server: where the client registers MCP servers; None where it knows none.
        skill_path: the file that tells the client's agent how to work on a mission; empty where it must have none.
        hiding_paths: files that take the typed prompt command away from our hook, as far as they stand there.
        own_parts: what this client alone needs besides.
    """

    client: Client
    scope: Scope
    settings_path: str
    other_settings_paths: tuple[str, ...] = ()
    plugins_path: str = ""
    timeouts_per_second: int = 1
    handler_name: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    allows_comments: bool = False
    off_switches: tuple[tuple[str, ...], ...] = ()
    on_switches: tuple[tuple[str, ...], ...] = ()
    off_variables: tuple[str, ...] = ()
    features_path: str = ""
    hook_shell: tuple[str, ...] = ("sh", "-c")
    has_status_line: bool = False
    server: ToolServer | None = None
    skill_path: str = ""
    hiding_paths: tuple[str, ...] = ()
    own_parts: tuple[Part, ...] = ()

    def record_path(self, state_home_path: str) -> str:
        """Where the record of the installation stands."""
        name = f"{self.client.name}-{sha256_of(self.settings_path.encode())[:16]}.json"
        return os.path.join(state_home_path, "installed", name)


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of one check.

    Attributes:
        name: what was checked, a short word.
        ok: nothing is wrong there.
        what: what was found, one sentence.
        cure: what to do; empty where nothing has to be done.
        is_about_hold: a fault there means that a stop may not be held; False for what is only convenient.
    """

    name: str
    ok: bool
    what: str
    cure: str = ""
    is_about_hold: bool = True


@dataclass(frozen=True, slots=True)
class Change:
    """One installation, or one removal, as its parts see it.

    Attributes:
        installation: where and how.
        environ: used to find the client's own program and to ask it.
        program: what the hooks run; None at a removal.
        memory: what parts keep for their removal, by names of their own; empty where no record was found.
        notes: what a person has to know or do, one sentence each.
        files: the files of all parts, by their paths.
        is_dry: nothing is written.
    """

    installation: Installation
    environ: Mapping[str, str]
    program: HookProgram | None = None
    memory: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    files: dict[str, SettingsFile] = field(default_factory=dict)
    is_dry: bool = False


@dataclass(frozen=True, slots=True)
class Examination:
    """What the checks of one installation start from.

    Attributes:
        installation: where and how.
        state_home_path: the state home that the command line itself uses.
        hooks_home_path: the state home that the installed hooks use.
        environ: the environment, as a client's hook would have it.
        make_held_session: makes an unfinished mission in a scratch state home, binds a session to it and gives the
            session's id.
    """

    installation: Installation
    state_home_path: str
    hooks_home_path: str
    environ: Mapping[str, str]
    make_held_session: Callable[[str], str]

    @property
    def install(self) -> str:
        """What mends most faults."""
        installation = self.installation
        return f"run `omx-autoresearch install {installation.client.name} --scope {installation.scope}`"


class Part(Protocol):
    """One part of an installation.

    Attributes:
        name: what people call it, and what leaves it out.
        needs_the_others: it can be added only when everything else is written.
    """

    name: str
    needs_the_others: bool

    def path(self, installation: Installation) -> str:
        """The file that it stands in; empty where the client has no such part."""

    def add(self, file: SettingsFile, change: Change) -> None:
        """Put it in, an older one replaced where it stands; doing it again changes nothing.

        Raises:
            TextFault: the file cannot be read as the client reads it.
        """

    def remove(self, file: SettingsFile, change: Change) -> None:
        """Take it out, and nothing else.

        Raises:
            TextFault: the file cannot be read as the client reads it.
        """

    def check(self, examination: Examination) -> list[Check]:
        """Does it work as it is installed? Empty where the client has no such part."""
