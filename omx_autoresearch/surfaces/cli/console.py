"""Shared parts of all verbs: the caller, the mission that a verb means, common options, and printing.

A verb is a function under :func:`verb`, which says which documents it prints with ``--json``. Answers are JSON for
machines, plain lines for pipes, and colour and columns on a terminal only.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NamedTuple

import click

from omx_autoresearch.foundation import clients
from omx_autoresearch.foundation.errors import AutoresearchError, StorageFailed, UsageError
from omx_autoresearch.foundation.records import dataclass, replace, to_plain
from omx_autoresearch.foundation.text import harmless
from omx_autoresearch.foundation.times import to_the_second
from omx_autoresearch.journal.layout import Runtime, StateHome, state_home
from omx_autoresearch.journal.safe_files import require_writable
from omx_autoresearch.surfaces.sources import SOURCES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TextIO

    from click.shell_completion import CompletionItem

    from omx_autoresearch.missions.rules.mission import Mission
    from omx_autoresearch.missions.views import StatusView


CHECK_SAID_NO = 9
"""The exit status for a negative outcome, which is a value and not an error."""
INTERRUPTED = 130


class Document(NamedTuple):
    """A JSON document that a verb prints with ``--json``.

    Attributes:
        name: of its schema in specs/schemas/.
        kind: the class, or a tuple of it.
    """

    name: str
    kind: object


class Verb(click.Command):
    """One verb, as :func:`verb` declares it.

    Attributes:
        path: as typed behind the program's name: ``status``, ``experiment start``.
        documents: printed with ``--json``, the usual one first; empty for a verb that speaks a client's own form.
    """

    path: str
    documents: tuple[Document, ...]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; a number that is none, or has no end, passes every range of click and is refused here."""
        for parameter in self.params:
            value = ctx.params.get(parameter.name or "")
            if isinstance(value, float) and value - value != 0:
                raise click.BadParameter(f"{value} is no finite number", ctx, parameter)
        return super().invoke(ctx)


def verb(path: str, *documents: Document, **settings: Any) -> Callable[[Callable[..., Any]], Verb]:
    """Declare a verb and what it prints; its one line in ``program.SECTIONS`` offers it."""

    def declare(function: Callable[..., Any]) -> Verb:
        command = click.command(path.rpartition(" ")[2], cls=Verb, **settings)(function)
        command.path, command.documents = path, documents
        for parameter in command.params:
            if parameter.metavar is None and isinstance(parameter.type, click.FloatRange | click.IntRange):
                is_time = parameter.name in ("seconds", "days")
                parameter.metavar = (parameter.name or "").upper() if is_time else "N"
        return command

    return declare


@dataclass(frozen=True, slots=True)
class Caller:
    """The process that typed a command.

    Attributes:
        runtime: the world as its use cases see it.
        cwd: where it stands; empty when that folder is gone.
        client: the agent CLI of the tool shell that it runs in; empty elsewhere.
        session_id: that client's session, where the environment names it.
    """

    runtime: Runtime
    cwd: str
    client: str
    session_id: str

    def task(self, named: str) -> str:
        """The mission that a verb means, by :func:`~omx_autoresearch.missions.views.resolve_task`, inbox taken in."""
        from omx_autoresearch.missions.claims import take_in_quietly
        from omx_autoresearch.missions.views import resolve_task

        task_id = resolve_task(
            self.runtime, named, session_id=self.session_id, cwd=self.cwd, command=_command_path()
        )
        take_in_quietly(self.runtime, task_id)
        return task_id

    def shown_view(self, named: str, *, looks: bool = False) -> StatusView:
        """The state of the mission to show; see :func:`~omx_autoresearch.missions.views.shown_view`."""
        from omx_autoresearch.missions.views import shown_view

        return shown_view(
            self.runtime,
            named,
            session_id=self.session_id,
            cwd=self.cwd,
            command=_command_path(),
            looks=looks,
        )

    def mission(self, task_id: str) -> Mission:
        """A mission, loaded from its journal."""
        from omx_autoresearch.missions.store import MissionStore

        return MissionStore(self.runtime.home).load(task_id)

    def split(self, words: Sequence[str], *, least: int = 2) -> tuple[str, tuple[str, ...]]:
        """Split a leading task id off ``least`` words or more; without one, return no id and all the words."""
        from omx_autoresearch.missions.store import MissionStore

        is_named = len(words) >= least and MissionStore(self.runtime.home).exists(words[0])
        return (words[0], tuple(words[1:])) if is_named else ("", tuple(words))

    def owned_task(self, verb: str, named: str) -> str:
        """The mission that a verb means, if only the owner may use the verb.

        Raises:
            OwnerOnly: this runs inside an agent; recorded in the mission.
        """
        from omx_autoresearch.missions.lifecycle_commands import require_owner

        try:
            task_id = self.task(named)
        except AutoresearchError:
            require_owner(self.runtime, verb)
            raise
        require_owner(self.runtime, verb, task_id)
        return task_id

    def project_path(self) -> str:
        """The project that the caller stands in.

        Raises:
            UsageError: its folder is gone.
        """
        if not self.cwd:
            raise UsageError("the current folder no longer exists", next_step="cd into the project")
        from omx_autoresearch.missions.checkouts import project_of

        return project_of(self.runtime, self.cwd)

    def new_workspace_path(self) -> str:
        """The work tree for a new mission or experiment: a linked work tree rather than its project.

        Raises:
            UsageError: its folder is gone, or nothing may begin in it.
        """
        self.project_path()
        from omx_autoresearch.missions.checkouts import new_workspace

        return new_workspace(self.runtime, self.cwd)

    def held_task(self) -> str:
        """The mission that holds the session of this process; empty for none."""
        from omx_autoresearch.missions.views import held_task

        return held_task(self.runtime, self.session_id)

    def is_agent(self) -> bool:
        """Whether this process runs inside an agent."""
        from omx_autoresearch.missions.lifecycle_commands import marks_of_agent

        return bool(marks_of_agent(self.runtime))

    def can_write(self, task_id: str) -> bool:
        """Whether this process can write the mission's state."""
        try:
            require_writable(self.runtime.home.mission(task_id).root_path)
        except StorageFailed:
            return False
        return True


def _command_path() -> str:
    """The program and the verb, as typed."""
    return click.get_current_context().command_path


def this_caller() -> Caller:
    """The caller of this process."""
    runtime = replace(Runtime.of_process(shell_marks=clients.SHELL_MARKS), sources=SOURCES)
    client, session_id = clients.session_from_environment(runtime.environ)
    try:
        cwd = os.getcwd()
    except OSError:
        cwd = ""
    return Caller(runtime, cwd, client, session_id)


def _task_ids(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Shell completion of TASK."""
    from omx_autoresearch.missions.store import MissionStore

    try:
        known = MissionStore(StateHome(state_home(os.environ))).task_ids()
    except AutoresearchError:
        return []
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in known if name.startswith(incomplete)]


task_argument = click.argument("task", default="", required=False, shell_complete=_task_ids)
"""``[TASK]``, optional: inside a session the bound mission, outside the only active one of this project."""
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
reason_option = click.option("--reason", default="", help="Why; kept in the journal.")


def with_options(*options: Callable[..., Any]) -> Callable[..., Any]:
    """Several options as one decorator; the help shows them in this order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


Row = tuple[str, str, str]
"""Label, text, style (a colour's name or empty)."""
_CODES = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold": "1", "dim": "2"}


def has_colour(stream: TextIO) -> bool:
    """Whether the stream is a terminal that shows colour and whose user has not set NO_COLOR."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") != "dumb"


def paint(text: str, style: str, stream: TextIO) -> str:
    """The text in a style, if the stream shows colour."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if style and has_colour(stream) else text


def print_json(value: Any) -> None:
    """Print one JSON document on stdout, in ASCII for any locale."""
    import json

    sys.stdout.write(json.dumps(to_plain(value), indent=2, allow_nan=False) + "\n")


def say(text: str, style: str = "", *, label: str = "") -> None:
    """Print lines on stdout behind a dim label, without the control characters of foreign text."""
    sys.stdout.write(f"{paint(label, 'dim', sys.stdout)}{paint(harmless(text), style, sys.stdout)}\n")


def tell(text: str, style: str = "", *, label: str = "") -> None:
    """Print a line on stderr; the style applies to the label if there is one."""
    words = (
        f"{paint(label, style, sys.stderr)} {harmless(text)}"
        if label
        else paint(harmless(text), style, sys.stderr)
    )
    sys.stderr.write(words + "\n")


@dataclass(frozen=True, slots=True)
class ErrorText:
    """What went wrong.

    Attributes:
        slug: the heading in specs/errors.md.
        message: what happened, where.
        next: the command or act that mends it.
    """

    slug: str
    message: str
    next: str


@dataclass(frozen=True, slots=True)
class ErrorDocument:
    """Any verb that ended with an error."""

    error: ErrorText


ERROR = Document("error", ErrorDocument)


def print_error(error: AutoresearchError) -> None:
    """Print an error and its next command on stderr."""
    tell(to_the_second(error.message), "red", label="error:")
    if error.next_step:
        tell(f"  next: {error.next_step}")


def print_warning(text: str) -> None:
    """Print a warning on stderr."""
    tell(text, "yellow", label="warning:")


def print_rows(rows: Sequence[Row]) -> None:
    """Print labelled lines, times to the second; rows without a text are left out."""
    rows = [(label, to_the_second(text), style) for label, text, style in rows if text]
    width = max((len(label) for label, _, _ in rows), default=0)
    for label, text, style in rows:
        for number, line in enumerate(text.split("\n")):
            say(line, style, label=f"{'' if number else label:{width}}  ")


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[str]) -> None:
    """Print a table: columns on a terminal, tab-separated lines elsewhere.

    Args:
        header: the columns' titles.
        rows: texts, a sequence a row.
        styles: of each row.
    """
    if not sys.stdout.isatty():
        for row in (header, *rows):
            say("\t".join(cell.replace("\t", " ") for cell in row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    *firm, last = zip(header, *rows, strict=True)
    widths = [
        max(map(len, column)) for column in firm
    ]  # names are copied, so never cut: the last column gives way
    for title, width in zip(header, [*widths, len(last[0])], strict=True):
        table.add_column(title, overflow="ellipsis", no_wrap=True, min_width=width)
    for row, style in zip(rows, styles, strict=True):
        table.add_row(*(Text(harmless(cell), style=style) for cell in row))
    console = Console(color_system="auto" if has_colour(sys.stdout) else None)
    console.width = max(console.width, sum(widths) + 2 * len(widths) + len(last[0]))
    console.print(table)


def may_ask(*, as_json: bool) -> bool:
    """Whether a person can answer: a terminal on both sides, and no program that reads the output."""
    return not as_json and sys.stdin.isatty() and sys.stderr.isatty()


def require_terminal(question: str, option: str) -> None:
    """Require a terminal at which a person can answer.

    Raises:
        UsageError: there is no terminal to ask at.
    """
    if not may_ask(as_json=False):
        raise UsageError(
            f"there is no terminal for the question: {question}",
            next_step=f"run the same command with {option}",
        )


def confirm(question: str, option: str, refusal: str) -> None:
    """Ask a person at a terminal; print ``refusal`` if the answer is no.

    Raises:
        UsageError: there is no terminal to ask at.
        click.Abort: the answer was no.
    """
    require_terminal(question, option)
    if not click.confirm(question, err=True):
        tell(refusal)
        raise click.Abort


@dataclass(frozen=True, slots=True)
class RelayDocument:
    """``block``, ``validate``, ``note`` and ``direction add`` where a sandbox lets the caller write nothing.

    Attributes:
        task_id: of the mission.
        verb: what was asked.
        relayed: always true: the client's hook, which stands outside, takes it from this very command.
    """

    task_id: str
    verb: str
    relayed: bool = True


RELAY = Document("relay", RelayDocument)


def is_relayed(caller: Caller, task_id: str, verb: str, *, as_json: bool) -> bool:
    """Hand a verb to the hook if an agent's sandbox cannot write the state; returns whether it did."""
    if caller.can_write(task_id) or not caller.is_agent():
        return False
    from omx_autoresearch.missions.claims import relay_line

    if as_json:
        tell(relay_line(verb))
        print_json(RelayDocument(task_id, verb))
    else:
        say(relay_line(verb))
        say("This sandbox cannot write the mission's state; the hook of your agent CLI does it now.")
    return True
