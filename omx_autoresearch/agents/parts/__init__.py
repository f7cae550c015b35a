"""The parts of an installation: hooks, status line, tools for agents, skill. One module each, listed in :data:`PARTS`.

A part knows which file of the client it belongs in and changes the text of that file. Writing, recording and restoring
files is the job of :mod:`omx_autoresearch.agents.install`. A client may add parts of its own
(:attr:`Installation.own_parts`).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, Literal

from omx_autoresearch.agents.settings_files import SettingsFile, sha256_of
from omx_autoresearch.foundation.records import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from omx_autoresearch.agents.events import Client
    from omx_autoresearch.agents.hook_lines import HookProgram

PARTS = (
    "hooks",
    "status_line",
    "tools",
    "skill",
)
"""The modules whose ``PART`` every installation has, in the order of installing, checking and showing."""

Scope = Literal["user", "project"]
"""Whose settings: all sessions of the user, or the sessions in one project."""


@dataclass(frozen=True, slots=True)
class ToolServer:
    """Where a client registers MCP servers.

    Attributes:
        path: the file.
        form: the file's format.
        has_type: an entry needs ``"type": "stdio"``.
        variables: environment variables that the client passes to the server only if the entry names them.
        allows_comments: the client reads JSON with comments.
        note: a further step for the person; empty if there is none.
    """

    path: str
    form: Literal["json", "toml"] = "json"
    has_type: bool = False
    variables: tuple[str, ...] = ()
    allows_comments: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """How to run a client headless on one prompt in a scratch home, with no model to talk to.

    Attributes:
        arguments: behind the program; the prompt is put last.
        environment: its own variables.
        files: the settings of a home where a person has already used it, by path below the home.
    """

    arguments: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    files: tuple[tuple[str, str], ...] = ()


NO_MODEL_URL = "http://127.0.0.1:9"
"""Where the client of a trial looks for its model: nothing answers at the port of ``discard``."""


@dataclass(frozen=True, slots=True)
class Installation:
    """Where one client keeps the settings that we change, and in which format.

    Attributes:
        client: the facts about the client; the installer registers its ``entries``.
        scope: whose settings file.
        settings_paths: the JSON files that may hold hooks, by scope; the client may have further scopes.
        managed_paths: the settings files of the machine's administrator.
        plugins_folder: the folder of plugins or extensions beside the user's settings; empty if there is none.
        timeouts_per_second: the client's unit of a hook's time-out, 1 for seconds and 1000 for milliseconds.
        handler_name: a name to write beside the command; empty if the client has no such field.
        environment: variables for the client's ``env`` setting; a value that the user set is kept.
        former_values: values of these variables that an earlier version wrote.
        environment_note: a further effect of these variables, for the person; empty if there is none.
        allows_comments: the client reads JSON with comments; otherwise it ignores a file that has one.
        off_switches: key paths of settings that turn hooks off when true.
        on_switches: key paths of settings that turn hooks off when false.
        off_variables: environment variables that turn hooks off.
        features_path: another settings file, JSON or TOML, that may turn hooks off; empty if there is none.
        hook_shell: the shell in which the client runs a hook's command line.
        has_status_line: ``statusLine`` in the settings names a command whose first output line the client shows.
        server: where the client registers MCP servers; None if it supports none.
        has_skill: the client reads skills from ``skills`` beside its settings file, and ours may be one of them.
        hiding_paths: files that, if they exist, keep the typed prompt command from reaching our hook.
        own_parts: parts that only this client needs.
        trial: how to try whether its own prompts are proven; None if it has no proof.
    """

    client: Client
    scope: Scope
    settings_paths: Mapping[str, str]
    managed_paths: tuple[str, ...] = ()
    plugins_folder: str = ""
    timeouts_per_second: int = 1
    handler_name: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    former_values: tuple[str, ...] = ()
    environment_note: str = ""
    allows_comments: bool = False
    off_switches: tuple[tuple[str, ...], ...] = ()
    on_switches: tuple[tuple[str, ...], ...] = ()
    off_variables: tuple[str, ...] = ()
    features_path: str = ""
    hook_shell: tuple[str, ...] = ("sh", "-c")
    has_status_line: bool = False
    server: ToolServer | None = None
    has_skill: bool = False
    hiding_paths: tuple[str, ...] = ()
    own_parts: tuple[Part, ...] = ()
    trial: Trial | None = None

    @property
    def settings_path(self) -> str:
        """The settings file of this scope, which gets the hooks."""
        return self.settings_paths[self.scope]

    @property
    def other_settings_paths(self) -> tuple[str, ...]:
        """Other files that the client reads hooks from, searched for a second registration."""
        others = (path for scope, path in self.settings_paths.items() if scope != self.scope)
        return (*others, *self.managed_paths)

    @property
    def plugins_path(self) -> str:
        """The folder of plugins or extensions, searched for the same reason; empty if there is none."""
        user_path = os.path.dirname(self.settings_paths["user"])
        return os.path.join(user_path, self.plugins_folder) if self.plugins_folder else ""

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts that all clients share, then the client's own."""
        shared: list[Part] = [import_module(f"{__name__}.{module}").PART for module in PARTS]
        return (*shared, *self.own_parts)

    def record_path(self, state_home_path: str) -> str:
        """The path of the installation's record."""
        name = f"{self.client.name}-{sha256_of(self.settings_path.encode())[:16]}.json"
        return os.path.join(state_home_path, "installed", name)


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of one check.

    Attributes:
        name: the checked thing, in a word or two.
        ok: the check found no fault.
        what: the finding, one sentence.
        cure: how to mend the fault; empty if nothing has to be done.
        is_about_hold: a fault means that a stop may not be held; False for mere conveniences.
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
        installation: the client's settings.
        environ: the environment in which to look for the client's program and to run it.
        program: the program that the hooks run; None at a removal.
        memory: values that parts keep for their removal, by name; empty if there is no record.
        notes: things that the person has to know or do, one sentence each.
        files: the files of all parts, by path.
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
    """The input of an installation's checks.

    Attributes:
        installation: the client's settings.
        state_home_path: the state home that the command line itself uses.
        hooks_home_path: the state home that the installed hooks use.
        environ: the environment that a client's hook would have.
        packages: the third-party packages that a hook may load: the name to install, by the name to import.
        make_held_session: makes an unfinished mission in a scratch state home, binds a session to it and returns the
            session's id.
    """

    installation: Installation
    state_home_path: str
    hooks_home_path: str
    environ: Mapping[str, str]
    packages: Mapping[str, str]
    make_held_session: Callable[[str], str]

    @property
    def install(self) -> str:
        """The cure of most faults."""
        installation = self.installation
        return f"run `omx-autoresearch install {installation.client.name} --scope {installation.scope}`"


class Part(ABC):
    """One part of an installation.

    Attributes:
        name: the part's name for people, and for leaving it out.
        needs_the_others: it can be added only after all other parts are written.
    """

    name: ClassVar[str]
    needs_the_others: ClassVar[bool] = False

    @abstractmethod
    def path(self, installation: Installation) -> str:
        """The file that the part belongs in; empty if the client does not have this part."""

    @abstractmethod
    def add(self, file: SettingsFile, change: Change) -> None:
        """Add the part, or replace an older one in its place; adding it twice changes nothing.

        Raises:
            TextFault: the file cannot be read as the client reads it.
        """

    @abstractmethod
    def remove(self, file: SettingsFile, change: Change) -> None:
        """Remove the part and nothing else.

        Raises:
            TextFault: the file cannot be read as the client reads it.
        """

    @abstractmethod
    def check(self, examination: Examination) -> list[Check]:
        """Check that the installed part works; no checks if the client does not have this part."""

    def found(self, what: str, cure: str = "", *, name: str = "") -> Check:
        """A check of something that no hold depends on; it found a fault if there is a cure."""
        return Check(name or self.name, not cure, what, cure, is_about_hold=False)
