"""The program: its verbs, its quick help, and the one place where what went wrong becomes an exit status and a text.

    AutoresearchError     stderr ``error: what`` and ``next: ...``, the class's exit status
    a wrong call          the same, 2
    Ctrl-C                130
    a closed pipe         quiet, 141
    an unprinted answer   1: stdout takes nothing (a full disk); stderr says whether the verb had ended
    anything else         1, and a log file with versions and the traceback

With ``--json`` an error is one object on stdout. The hook never ends with 2: several clients take it for a refusal.

A verb is one line of SECTIONS and a function in its own module, which is imported when the verb runs, so that
``--help``, ``--version`` and shell completion stay quick.
"""

from __future__ import annotations

import errno
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, cast

import click

from omx_autoresearch import __version__
from omx_autoresearch.foundation.errors import AutoresearchError, UsageError
from omx_autoresearch.foundation.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, TextIO

    from omx_autoresearch.surfaces.cli.console import Verb

    Sections = tuple[tuple[str, tuple["Entry", ...]], ...]

PROGRAM = "omx-autoresearch"
INTERRUPTED = 130
PIPE_CLOSED = 141


# --- The verbs, in the order of reading


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the help.

    Attributes:
        name: as typed.
        module: of this package, that declares the verb; empty for a group.
        help: one line.
        sections: of a group: its own verbs.
        text: of a group: what its help says beyond that line.
    """

    name: str
    module: str
    help: str
    sections: Sections = ()
    text: str = ""


FINDING: Sections = (
    (
        "Verbs",
        (
            Entry("add", "finding", "Record one finding"),
            Entry("list", "finding", "Show the newest findings, evidence first"),
            Entry("show", "finding", "Show one finding by its id"),
            Entry("import", "finding", "Record every line of a file of JSON lines as a claim"),
        ),
    ),
)
CRITERION: Sections = (
    (
        "Verbs",
        (
            Entry("list", "criterion", "Show every criterion, the evidence it accepts, and its state"),
            Entry("check", "criterion", "Run the commands and read the files of criteria now"),
            Entry("accept", "criterion", "Confirm a criterion that waits for its owner"),
        ),
    ),
)
DIRECTION: Sections = (
    (
        "Verbs",
        (
            Entry("add", "direction", "Declare the direction that you try now"),
            Entry("list", "direction", "Show the directions tried, and the axis to change next"),
        ),
    ),
)
EXPERIMENT: Sections = (
    (
        "Begin and continue",
        (
            Entry("start", "experiment_start", "Freeze the evaluators, measure the base, print the plan"),
            Entry("run", "experiment_trial", "Drive an agent: one new session and one hypothesis per trial"),
            Entry(
                "resume",
                "experiment_lifecycle",
                "Continue after an interruption, or with more budget",
            ),
            Entry("stop", "experiment_lifecycle", "End it after the current trial"),
            Entry("cancel", "experiment_lifecycle", "End it now and roll the current trial back"),
        ),
    ),
    (
        "For agents, too",
        (
            Entry(
                "trial", "experiment_trial", "Judge one change: in the worktree, by a command, or in a patch"
            ),
            Entry("wait", "experiment_trial", "Wait for the current trial and show its result"),
            Entry("workspace", "experiment", "Print the path of the worktree to change"),
        ),
    ),
    (
        "Look",
        (
            Entry("status", "experiment", "Show the state of an experiment, trial by trial"),
            Entry("list", "experiment", "Show every experiment"),
            Entry("plot", "experiment_results", "Plot trials, accepted steps, and the verified claim"),
            Entry("report", "experiment_results", "Write a report, as Markdown or HTML"),
            Entry("export", "experiment_results", "Export trials as CSV, JSONL or to MLflow"),
            Entry("patch", "experiment_patch", "Show the combined patch of all accepted trials"),
        ),
    ),
    (
        "For the owner, at the end",
        (
            Entry(
                "verify",
                "experiment_lifecycle",
                "Measure base against final afresh: the one number to quote",
            ),
            Entry("accept", "experiment_patch", "Apply the final state to the checkout, without a commit"),
            Entry("finalize", "experiment_patch", "Make one reviewable branch per checkpoint"),
            Entry("close", "experiment_lifecycle", "Remove the worktrees, keep the log"),
            Entry("remove", "experiment_lifecycle", "Remove everything of an experiment"),
        ),
    ),
)
SECTIONS: Sections = (
    (
        "Begin",
        (
            Entry("init", "init", "Write a mission: its goal and the check that completes it"),
            Entry("adopt", "init", "Begin a mission from another runtime's task folder"),
            Entry("start", "lifecycle", "Launch a mission and print the line to type in the agent"),
            Entry("demo", "demo", "Show a refusal and a release in a scratch repository"),
        ),
    ),
    (
        "Look",
        (
            Entry("status", "status", "Show the state of a mission"),
            Entry("list", "status", "Show every mission"),
            Entry("current", "status", "Show the mission of a session, or of this project"),
            Entry("diff", "diff", "Show what changed since the launch, what may decide a verdict first"),
            Entry("open", "status", "Print a mission's folder, or reveal it"),
            Entry("wait", "status", "Wait for a running validation"),
            Entry("readiness", "criterion", "Show what is missing for completion"),
            Entry("findings", "finding", "Show the newest findings, evidence first"),
            Entry("log", "criterion", "Show the newest iterations"),
            Entry("repair", "lifecycle", "Rebuild everything derived from the journal"),
            Entry("doctor", "install", "Prove that the hooks hold an agent that stops"),
        ),
    ),
    (
        "For agents, too",
        (
            Entry("validate", "validate", "Run the validator now"),
            Entry("review", "review", "Have the artifact reviewed, or give a verdict"),
            Entry(
                "finding",
                "",
                "Record findings, or look them up",
                FINDING,
                "A finding is evidence if the rule of a criterion accepts it, and otherwise a claim.",
            ),
            Entry("criterion", "", "Show, check, or accept criteria", CRITERION),
            Entry("restore", "validate", "Restore the pinned files"),
            Entry("block", "validate", "Block the mission until a person acts"),
            Entry("note", "validate", "Add a note to the mission"),
            Entry(
                "direction",
                "",
                "Declare a direction, or list those tried",
                DIRECTION,
                "A direction is one sentence about the current attempt; --axis names the structure of the approach. "
                "Structural axes: source_class, decomposition, evidence_standard, evaluation_method, search_space, "
                "representation, environment, objective.",
            ),
        ),
    ),
    (
        "Measure",
        (
            Entry(
                "experiment",
                "",
                "Optimize a metric by trials; keep only verified gains",
                EXPERIMENT,
                "Every trial runs in a worktree of its own and is judged by interleaved measurements; your checkout "
                "changes only when you accept the final patch. Leave ID out if only one experiment is possible; a "
                "mission's TASK means its newest one.",
            ),
        ),
    ),
    (
        "For the owner",
        (
            Entry("approve", "lifecycle", "Allow the mission's commands outside a sandbox"),
            Entry("direct", "direction", "Inject a direction for the agent to take up"),
            Entry("excuse", "criterion", "Accept a reason why changed code was not verified"),
            Entry("pause", "lifecycle", "Hold no session until you resume it"),
            Entry("resume", "lifecycle", "Continue after a pause"),
            Entry("unblock", "lifecycle", "Continue after a block"),
            Entry("cancel", "lifecycle", "Give up the mission"),
            Entry("amend", "lifecycle", "Change the validator, limits, or pins of a live mission"),
            Entry("unbind", "lifecycle", "Release the mission's session"),
            Entry("remove", "removal", "Remove a mission that has ended from the state home"),
            Entry("install", "install", "Put the hooks into an agent CLI's settings"),
            Entry("uninstall", "install", "Remove the hooks again"),
        ),
    ),
    (
        "For the agent CLI",
        (
            Entry("hook", "client", "Answer one hook event on stdin"),
            Entry("statusline", "client", "Print the status line of the session on stdin"),
            Entry("mcp", "client", "Serve the tools for agents (MCP) on stdin and stdout"),
        ),
    ),
)
"""Every verb, by section of the help."""
VERBS: dict[str, Entry] = {entry.name: entry for _, entries in SECTIONS for entry in entries}
GROUPS = {name for name, entry in VERBS.items() if entry.sections}


class Verbs(click.Group):
    """A group that knows its verbs from the table and imports one only when it is used.

    Args:
        sections: its part of the table.
        path: as typed behind the program's name, with a space behind it; empty for the program itself.
    """

    def __init__(self, *, sections: Sections = SECTIONS, path: str = "", **settings: Any) -> None:
        super().__init__(**settings)
        self.sections, self.path = sections, path
        self.entries = {entry.name: entry for _, entries in sections for entry in entries}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every verb's name."""
        del ctx  # the table knows them all
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a verb, a group, or the guidance of a former one."""
        del ctx
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None if self.path else removed_verb(cmd_name)
        if entry.module:
            return verb_of(entry, self.path)
        return Verbs(
            sections=entry.sections,
            path=f"{self.path}{cmd_name} ",
            name=cmd_name,
            help=f"{entry.help}.\n\n{entry.text}".rstrip(),
            no_args_is_help=True,
        )

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The verbs by section, from the table alone."""
        del ctx
        width = max(map(len, self.entries)) + 2
        for title, entries in self.sections:
            with formatter.section(title):
                formatter.write_dl([(entry.name.ljust(width), entry.help) for entry in entries])


def verb_of(entry: Entry, path: str = "") -> Verb:
    """The verb of a line of the table, from its module; ``path`` is its group's, with a space behind it."""
    from omx_autoresearch.surfaces.cli.console import Verb

    module = import_module(f"omx_autoresearch.surfaces.cli.{entry.module}")
    declared = (item for item in vars(module).values() if isinstance(item, Verb))
    return next(item for item in declared if item.path == path + entry.name)


def all_verbs(sections: Sections = SECTIONS, path: str = "") -> Iterator[Verb]:
    """Every verb of the program, with those of its groups."""
    for _, entries in sections:
        for entry in entries:
            if entry.module:
                yield verb_of(entry, path)
            yield from all_verbs(entry.sections, f"{path}{entry.name} ")


def documents() -> dict[str, object]:
    """The class of every document that a verb prints with ``--json``, by the name of its schema."""
    from omx_autoresearch.surfaces.cli.console import ERROR

    return dict([ERROR, *(document for verb in all_verbs() for document in verb.documents)])


@click.group(
    cls=Verbs,
    invoke_without_command=True,
    epilog="TASK is optional if this project has exactly one active mission. "
    f"Every verb explains itself: {PROGRAM} VERB --help",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
@click.pass_context
def program(ctx: click.Context) -> None:
    """Hold an agent's mission to its completion contract: a stop is refused until evidence exists."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


# --- Forms of the former program: they start nothing and say what to do instead


REMOVED_VERBS = ("launch", "run", "tmux", "loop")
"""Former verbs."""
FLAGS = ("--tmux", "--split", "--split-pane", "--detach", "--detached", "--resume", "--launch", "--topic")
"""Former flags, wherever they stand."""

NEXT = (
    "write the mission with `omx-autoresearch init --goal ... --validator ...`, launch it with "
    "`omx-autoresearch start`, and type in the agent: $autoresearch TASK"
)


def gone(form: str) -> UsageError:
    """The error for a former form, with the way that replaced it."""
    return UsageError(
        f"`{form}` is no longer supported: this program launches no agent and splits no pane", next_step=NEXT
    )


def removed_verb(name: str) -> click.Command | None:
    """A command that only answers with guidance; None for a word that never was a verb.

    A folder as the first word was ``MISSION``.
    """
    if name not in REMOVED_VERBS and not os.path.isdir(name):
        return None

    @click.command(
        name,
        hidden=True,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
    @click.pass_context
    def former(ctx: click.Context) -> None:
        """Answer with guidance."""
        raise gone(" ".join([name, *(word for word in ctx.args if word != "--json")][:3]))

    return former


# --- What went wrong


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status; never lets a traceback through.

    Args:
        arguments: behind the program's name.
    """
    is_json = "--json" in arguments
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the parent process closed it
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until the end
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a C locale must not turn a goal into a crash
    output, is_ended = _Output(sys.stdout, []), False
    sys.stdout = cast("TextIO", output)
    try:
        status = _attempt(arguments)
        is_ended = True
        output.flush()
    except AutoresearchError as error:
        status = _tell(error, is_json=is_json)
    except BrokenPipeError:
        status = _close_pipe()
    except Exception as error:  # noqa: BLE001 - the boundary: no user meets a bare traceback
        if isinstance(error, OSError) and error in output.faults:
            status = _tell(_unprinted(arguments, error, is_ended=is_ended), is_json=False)
        else:
            status = _tell(_unexpected(error, arguments), is_json=is_json)
    finally:
        sys.stdout = output.stream
    _follow()
    return 1 if status == 2 and arguments[:1] == ["hook"] else status


class _Output:
    """Stdout while a verb runs; it remembers what a write raised, since that is no fault of the verb.

    Attributes:
        stream: stdout itself.
        faults: the errors of its writes.
    """

    def __init__(self, stream: Any, faults: list[OSError]) -> None:
        self.stream, self.faults = stream, faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    @property
    def buffer(self) -> _Output:
        """The same stream for bytes."""
        return _Output(self.stream.buffer, self.faults)

    def write(self, data: Any) -> Any:
        """As the stream does."""
        return self._noted(self.stream.write, data)

    def flush(self) -> None:
        """As the stream does."""
        self._noted(self.stream.flush)

    def _noted(self, act: Callable[..., Any], *data: Any) -> Any:
        try:
            return act(*data)
        except OSError as error:
            self.faults.append(error)
            raise


def _follow() -> None:
    """Bring the files under ``.omx`` of the missions that this verb changed up; a warning where that fails."""
    store = sys.modules.get("omx_autoresearch.missions.store")
    if store is None or not store.changed:
        return
    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.missions.claims import write_changed
    from omx_autoresearch.surfaces.cli.console import print_warning

    try:
        for warning in write_changed(Runtime.of_process()):
            print_warning(warning)
    except KeyboardInterrupt:
        return  # the next look brings them up
    except OSError:  # stderr takes nothing; the files were written, or the next look writes them
        _drop(sys.stderr)


def _attempt(arguments: Sequence[str]) -> int:
    _check_texts(arguments)
    try:
        result = program.main(list(arguments), prog_name=PROGRAM, standalone_mode=False)
    except click.Abort as stop:
        if isinstance(stop.__cause__ or stop.__context__, EOFError):
            raise UsageError("no answer was given", next_step="give the options; see --help") from None
        return INTERRUPTED
    except KeyboardInterrupt:
        return INTERRUPTED
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as fault:
        raise _usage(fault, arguments) from None
    except SystemExit as end:  # click's shell completion, and its own answer to a closed pipe
        if type(sys.stdout).__name__.endswith("PacifyFlushWrapper"):
            return PIPE_CLOSED
        return end.code if isinstance(end.code, int) else 0
    return result if isinstance(result, int) else 0


def _check_texts(arguments: Sequence[str]) -> None:
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            shown = argument.encode("ascii", "backslashreplace").decode()
            raise UsageError(
                f"an argument is not UTF-8: {shown[:80]}", next_step="give it in UTF-8"
            ) from None


def _usage(fault: click.ClickException, arguments: Sequence[str]) -> UsageError:
    if isinstance(fault, click.NoSuchOption) and fault.option_name in FLAGS:
        return gone(fault.option_name)
    first = arguments[0] if arguments else ""
    if first == "--json":
        return UsageError(
            "--json goes after the verb", next_step=f"{PROGRAM} {' '.join(arguments[1:2])} --json"
        )
    context = getattr(fault, "ctx", None)
    path = f"{PROGRAM} {first}" if first in VERBS else PROGRAM
    if context is not None and first in VERBS:
        path = context.command_path
    if isinstance(fault, click.exceptions.NoArgsIsHelpError):
        return UsageError(f"`{path}` needs a verb", next_step=f"{path} --help")
    message = " ".join(fault.format_message().split()).rstrip(".")
    if first not in VERBS and (near := _nearest(first, VERBS)):
        message += f". Did you mean {near!r}?"
    return UsageError(message, next_step=f"{path} --help")


def _nearest(word: str, known: Iterable[str]) -> str:
    import difflib

    return next(iter(difflib.get_close_matches(word, list(known), n=1)), "")


def _tell(error: AutoresearchError, *, is_json: bool) -> int:
    from omx_autoresearch.surfaces.cli.console import ErrorDocument, ErrorText, print_error, print_json

    if is_json:
        try:
            print_json(ErrorDocument(ErrorText(error.slug, error.message, error.next_step)))
            sys.stdout.flush()
            return error.exit_code
        except BrokenPipeError:
            _close_pipe()
            return error.exit_code
        except OSError:  # stdout takes nothing: say it on stderr
            _drop(sys.stdout)
    try:
        print_error(error)
        sys.stderr.flush()
    except OSError:
        _drop(sys.stderr)
    return error.exit_code


def _close_pipe() -> int:
    """The reader is gone; keep the interpreter's last flush from complaining."""
    _drop(sys.stdout)
    return PIPE_CLOSED


def _drop(stream: TextIO) -> None:
    """What the stream still holds cannot be written: send it to the null device, or the last flush complains."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def _unprinted(arguments: Sequence[str], fault: OSError, *, is_ended: bool) -> AutoresearchError:
    """Say what became of a verb whose answer could not be printed: nobody should repeat what is recorded."""
    _drop(sys.stdout)
    verb = " ".join(arguments[: 2 if arguments[0] in GROUPS else 1]) if arguments else PROGRAM
    store = sys.modules.get("omx_autoresearch.missions.store")
    if store is not None and store.changed:
        done = f"`{verb}` was recorded; do not repeat it. Only its answer could not be printed"
    elif is_ended:
        done = f"`{verb}` ran to its end; only its answer could not be printed"
    else:
        done = f"`{verb}` could not print its answer"
    return AutoresearchError(f"{done}: {fault.strerror or fault}")


_TOO_LITTLE = {
    errno.EMFILE: "raise the limit on open files (ulimit -n 1024)",
    errno.ENFILE: "close programs that hold many files open",
    errno.ENOMEM: "free memory, or raise its limit (ulimit -v)",
}
"""What helps where the system refused a process what every verb needs; no log could be written then, either."""


def _unexpected(error: Exception, arguments: Sequence[str]) -> AutoresearchError:
    number = errno.ENOMEM if isinstance(error, MemoryError) else getattr(error, "errno", 0)
    if cure := _TOO_LITTLE.get(number or 0):
        return AutoresearchError(
            f"the system refused what the command needs: {os.strerror(number)}",
            next_step=f"{cure}, then run the same command again",
        )
    from omx_autoresearch.journal.safe_files import disk_refused

    if refused := disk_refused(error):
        return refused
    where = _write_log(error, arguments)
    text = " ".join(str(error).split())[:300]
    return AutoresearchError(
        f"unexpected {type(error).__name__}: {text}" if text else f"unexpected {type(error).__name__}",
        next_step=f"run it again; if it fails again, report {where}"
        if where
        else "make the state home or TMPDIR writable and run it again; no report was written, as neither is writable",
    )


def _write_log(error: Exception, arguments: Sequence[str]) -> str:
    """Versions, verb and traceback in a file that only this user reads; returns its path, empty if none.

    The arguments are left out: they may hold secrets.
    """
    import platform
    import time
    import traceback

    lines = [
        f"omx-autoresearch {__version__}, click {click.__version__ if hasattr(click, '__version__') else '?'}",
        f"python {platform.python_version()} on {platform.platform()}",
        f"verb {arguments[0] if arguments else '(none)'}",
        "".join(traceback.format_exception(error)),
    ]
    name = f"fault-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}.log"
    for folder_path in _log_folders():
        try:
            os.makedirs(folder_path, mode=0o700, exist_ok=True)
            path = os.path.join(folder_path, name)
            with open(
                os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
            ) as log:
                log.write("\n".join(lines))
            return path
        except OSError:
            continue
    return ""


def _log_folders() -> list[str]:
    """Where a log may stand, best first; never in the project that somebody happens to stand in."""
    import contextlib
    import tempfile

    from omx_autoresearch.journal.layout import state_home
    from omx_autoresearch.missions.checkouts import project_root

    folders = []
    with contextlib.suppress(AutoresearchError):
        folders.append(os.path.join(state_home(os.environ), "faults"))
    with contextlib.suppress(
        AutoresearchError, OSError
    ):  # no temporary folder at all, or the current one is gone
        temporary_path = os.path.realpath(
            tempfile.gettempdir()
        )  # the current folder where no other can be written
        here = os.path.realpath(os.getcwd())
        root = project_root(here)
        is_project = any(os.path.lexists(os.path.join(root, name)) for name in (".git", ".omx"))
        is_inside = is_project and os.path.join(temporary_path, "").startswith(os.path.join(root, ""))
        if temporary_path != here and not is_inside:
            folders.append(temporary_path)
    return folders
