"""Git, by its command line, so that nothing in a repository can run a program or redirect us.

The workspace and its ``.git`` may belong to an agent in a sandbox, while we run outside it with the rights of the
user. So we drop every variable ``GIT_*`` of the environment, run no hook and no file system monitor, and allow no
transport. (``freezing/tree.py`` reads the content of files.) We never take git itself from a folder of the work tree,
although a virtual environment there may be first on PATH. Nothing there makes us wait: we open no pipes, and git has
its own time limit, in a hook far below the client's.

There are two kinds of repository. In the *user's*, git runs with the user's configuration and `SETTINGS` on top
(`run_git`, `user_git`). In our *own* (`experiments/worktrees/object_store.py`), only its own configuration file counts,
which no agent can write (`own_git`): no setting of the system, the user or a candidate.
"""

from __future__ import annotations

import os
import select
import time

from omx_autoresearch.foundation.errors import WorkspaceFault
from omx_autoresearch.foundation.records import dataclass, field, replace
from omx_autoresearch.system.files import first_line
from omx_autoresearch.system.processes import signals
from omx_autoresearch.system.supervisor import find_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.quotePath=false",
    "core.sshCommand=false",
    "core.logAllRefUpdates=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    "advice.detachedHead=false",
)
TIMEOUT_SECONDS = 20.0
"""For one git command of a hook: a stop may need three of them, and a late hook holds no session."""
LIMIT_SECONDS = 900.0
"""For one git command of an experiment: a first checkout on a slow disk takes minutes, a hung filter never ends."""
LOCK_WAIT_SECONDS = 5.0
"""How long to wait for a lock file of another git."""
BUSY_NAME = "busy"
"""The file in a repository of our own that each command there holds locked until it ends."""

_LOCK_PAUSE_SECONDS = 0.1
_LOCKED = ".lock': File exists"
_NO_FOLDER = "fatal: cannot change to "
_OLDEST_GIT = (2, 34)  # `add --sparse`, GIT_CONFIG_GLOBAL, `config --show-scope`
_READ_BYTES = 1 << 20
_OBJECT_ID_LENGTHS = (40, 64)  # sha1, sha256


@dataclass(frozen=True, slots=True)
class GitResult:
    """The result of one git command."""

    exit_status: int
    stdout: bytes
    stderr: str

    @property
    def message(self) -> str:
        """Git's error message, or its exit status if it printed none."""
        return self.stderr or f"it ended with status {self.exit_status} and no message"


@dataclass(frozen=True, slots=True)
class Running:
    """A running git command: its process, and the descriptors of its outputs (-1 for a file)."""

    pid: int
    out_fd: int
    error_fd: int


@dataclass(frozen=True, slots=True)
class Git:
    """Git for one repository or work tree.

    Attributes:
        program: the path of git.
        cwd: the folder it runs in.
        environ: its whole environment.
        settings: passed with ``-c`` before the command.
        limit_seconds: the time limit, after which a command is killed.
        busy_path: a file that each command holds locked until it ends, also where we were killed; empty for none.
    """

    program: str
    cwd: str
    environ: dict[str, str] = field(default_factory=dict)
    settings: tuple[str, ...] = ()
    limit_seconds: float = LIMIT_SECONDS
    busy_path: str = ""

    def at(self, cwd: str, **environ: str) -> Git:
        """The same git in another folder, with further variables in its environment."""
        return replace(self, cwd=cwd, environ=self.environ | environ)

    def start(self, *args: str, stdin: bytes = b"", to_path: str = "", from_path: str = "") -> Running:
        """Start a command; `finish` collects its output, `abandon` ends it. Arguments as `run`.

        Raises:
            WorkspaceFault: git could not be started there.
        """
        settings = [word for setting in self.settings for word in ("-c", setting)]
        argv = ["git", *settings, "-C", self.cwd, *args]
        error_fd, error_write = os.pipe()
        out_fd, out_write = (-1, -1) if to_path else os.pipe()
        input_fd = _file_of(stdin) if stdin else -1
        busy_fd = _held(self.busy_path) if self.busy_path else -1
        actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
            (os.POSIX_SPAWN_DUP2, error_write, 2),
            (os.POSIX_SPAWN_DUP2, input_fd, 0)
            if stdin
            else (os.POSIX_SPAWN_OPEN, 0, from_path or os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, to_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            if to_path
            else (os.POSIX_SPAWN_DUP2, out_write, 1),
        ]
        try:
            pid = os.posix_spawn(
                self.program,
                argv,
                self.environ,
                file_actions=actions,
                setpgroup=0,
                setsigdef=(signals.SIGPIPE, signals.SIGXFSZ),
            )
        except OSError as fault:
            _close(out_fd, error_fd)
            raise _unstarted(f"in {self.cwd}: {fault.strerror}") from fault
        finally:
            _close(out_write, error_write, input_fd, busy_fd)
        return Running(pid, out_fd, error_fd)

    def finish(self, running: Running, *args: str) -> GitResult:
        """Wait for the result of a started command.

        Raises:
            WorkspaceFault: it did not end in time, or its folder is gone.
        """
        try:
            output, said = _collect(running, self.limit_seconds)
        except TimeoutError:
            self.abandon(running)
            raise WorkspaceFault(
                f"`git {args[0]}` did not end within {self.limit_seconds:g} seconds in {self.cwd}",
                next_step=f"git -C {self.cwd} status",
            ) from None
        except BaseException:
            self.abandon(running)
            raise
        _close(running.out_fd, running.error_fd)
        _, status = os.waitpid(running.pid, 0)
        stderr = said.decode("utf-8", "replace").strip()
        if stderr.startswith(_NO_FOLDER):
            raise _unstarted(stderr.removeprefix("fatal: "))
        return GitResult(os.waitstatus_to_exitcode(status), output, stderr)

    def abandon(self, running: Running) -> None:
        """Kill a started command whose output is no longer needed."""
        try:
            os.killpg(running.pid, signals.SIGKILL)
        except OSError:
            pass  # it has ended
        _close(running.out_fd, running.error_fd)
        os.waitpid(running.pid, 0)

    def run(self, *args: str, stdin: bytes = b"", to_path: str = "", from_path: str = "") -> GitResult:
        """Run one command to its end; a refusal of git is a value.

        Args:
            args: the command and its arguments, without ``git``.
            stdin: its input.
            to_path: a new file that takes its output, of any size; the result's ``stdout`` is then empty.
            from_path: a file with its input, instead of ``stdin``.

        Raises:
            WorkspaceFault: git could not be started, or did not end in time.
        """
        return self.finish(self.start(*args, stdin=stdin, to_path=to_path, from_path=from_path), *args)

    def output(self, *args: str, stdin: bytes = b"", to_path: str = "", from_path: str = "") -> bytes:
        """The output of a command that must succeed.

        Raises:
            WorkspaceFault: git refused (with git's own message), could not be started, or did not end in time.
        """
        return self.checked(self.run(*args, stdin=stdin, to_path=to_path, from_path=from_path), args)

    def word(self, *args: str, stdin: bytes = b"") -> str:
        """The output of a command that prints one line. Raises what `output` does."""
        return os.fsdecode(self.output(*args, stdin=stdin)).strip("\n")

    def when_unlocked(self, *args: str, stdin: bytes = b"") -> GitResult:
        """Run a command, and repeat it while another git holds a lock, for `LOCK_WAIT_SECONDS` at most."""
        give_up_at = time.monotonic() + LOCK_WAIT_SECONDS
        while True:
            result = self.run(*args, stdin=stdin)
            if result.exit_status == 0 or not is_locked(result) or time.monotonic() >= give_up_at:
                return result
            time.sleep(_LOCK_PAUSE_SECONDS)

    def checked(self, result: GitResult, args: Sequence[str]) -> bytes:
        """The output of a result that must be a success. Raises what `output` does."""
        if result.exit_status == 0:
            return result.stdout
        raise WorkspaceFault(
            f"`git {args[0]}` failed in {self.cwd}: {result.message}", next_step=f"git -C {self.cwd} status"
        )


def wait_for_orphans(git_dir: str) -> None:
    """Wait until no command of a killed process runs in a repository of our own, `LOCK_WAIT_SECONDS` at most.

    Such a command goes on after its owner, and would write over what is made anew meanwhile.
    """
    path = os.path.join(git_dir, BUSY_NAME)
    give_up_at = time.monotonic() + LOCK_WAIT_SECONDS
    while os.path.exists(path) and time.monotonic() < give_up_at:
        descriptor = _held(path, is_alone=True)
        if descriptor >= 0:
            os.close(descriptor)
            return
        time.sleep(_LOCK_PAUSE_SECONDS)


def git_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for git: no ``GIT_*`` of our caller, no prompt, no lock, no network, C messages.

    The configuration of the system and the user stays: it has ``safe.directory`` and ignore rules.
    """
    kept = {name: value for name, value in environ.items() if not name.startswith("GIT_")}
    return kept | {
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_PAGER": "cat",
        "LC_ALL": "C",
    }


def run_git(
    args: Sequence[str],
    *,
    cwd: str,
    environ: Mapping[str, str] | None = None,
    timeout_seconds: float = 0.0,
) -> GitResult:
    """Run one git command to its end in a hook or for a view, with stdin empty. A refusal of git is a value.

    Args:
        args: the command and its arguments, without ``git``.
        cwd: the folder it runs in.
        environ: the base of git's environment (`git_environment`); ours by default.
        timeout_seconds: after this, git is killed; 0 for `TIMEOUT_SECONDS`.

    Raises:
        WorkspaceFault: git is not installed, or did not end in time.
    """
    env = git_environment(os.environ if environ is None else environ)
    root = find_root(cwd)
    if root is not None:  # for a broken repository, git must not answer from one further up
        env["GIT_CEILING_DIRECTORIES"] = os.path.dirname(os.path.realpath(root))
    program = find_git(root or cwd, env.get("PATH", os.defpath))
    return Git(program, cwd, env, SETTINGS, timeout_seconds or TIMEOUT_SECONDS).run(*args)


def user_git(repository_path: str) -> Git:
    """Git in the user's own checkout, with the user's configuration, no hook, no monitor, no transport.

    Raises:
        WorkspaceFault: git is not installed outside the checkout, or is too old.
    """
    root = os.path.realpath(repository_path)
    env = _plain_environment(os.environ)
    env["GIT_CEILING_DIRECTORIES"] = os.path.dirname(root)
    distrust = "GIT_TEST_ASSUME_DIFFERENT_OWNER"  # it only makes git stricter
    if distrust in os.environ:
        env[distrust] = os.environ[distrust]
    git = Git(find_git(root, env["PATH"]), root, env, SETTINGS)
    _check_version(git)
    return git


def own_git(repository_path: str, git_dir: str, environ: Mapping[str, str] | None = None) -> Git:
    """Git in one of our own repositories, where only the repository's configuration counts.

    Args:
        repository_path: the user's checkout; a git program in it is never run.
        git_dir: our repository.
        environ: the base of git's environment; ours by default.
    """
    env = _plain_environment(os.environ if environ is None else environ)
    program = find_git(repository_path, env["PATH"])
    env |= {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_DIR": git_dir,
    }
    return Git(program, git_dir, env, busy_path=os.path.join(git_dir, BUSY_NAME))


def is_locked(result: GitResult) -> bool:
    """Whether git refused because another git holds a lock file."""
    return _LOCKED in result.stderr


def _plain_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """`git_environment` with only absolute folders on PATH: filters run in folders that an agent wrote."""
    env = git_environment(environ)
    folders = [folder for folder in env.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(folder)]
    return env | {"PATH": os.pathsep.join(folders)}


def _check_version(git: Git) -> None:
    said = git.word("version")
    numbers = said.removeprefix("git version ").split(".")[:2]
    if len(numbers) < len(_OLDEST_GIT) or not all(number.isdecimal() for number in numbers):
        raise WorkspaceFault(
            f"{git.program} is not git: it printed {said!r}", next_step=f"{git.program} version"
        )
    if tuple(int(number) for number in numbers) < _OLDEST_GIT:
        oldest = ".".join(str(number) for number in _OLDEST_GIT)
        raise WorkspaceFault(
            f"{git.program} is version {'.'.join(numbers)}, experiments need {oldest}",
            next_step=f"install git {oldest} or later",
        )


def find_root(path: str) -> str | None:
    """The top folder of the work tree that contains a path, found by its ``.git``; None outside any work tree."""
    current = os.path.abspath(path)
    while True:
        if _is_repository(os.path.join(current, ".git")):
            return current
        parent = os.path.dirname(current)
        if parent == current:
            return None
        current = parent


def git_dir(path: str) -> str | None:
    """The git directory of the work tree that contains a path: a linked work tree's own, not the shared one."""
    root = find_root(path)
    if root is None:
        return None
    entry = os.path.join(root, ".git")
    if os.path.isdir(entry):
        return os.path.realpath(entry)
    target = _first_line(entry).removeprefix("gitdir:").strip()
    return os.path.realpath(os.path.join(root, target))


def common_dir(path: str) -> str | None:
    """The git directory that all work trees of a repository share; None outside any repository."""
    own = git_dir(path)
    if own is None:
        return None
    shared = _first_line(os.path.join(own, "commondir"))
    return os.path.realpath(os.path.join(own, shared)) if shared else own


def main_checkout(path: str) -> str | None:
    """The main work tree of the repository that contains a path; it may be the path's own.

    None outside any repository, and if there is no main work tree (a bare repository with linked ones).
    """
    own, shared = git_dir(path), common_dir(path)
    if own is None or shared is None:
        return None
    if own == shared:
        return find_root(path)
    return os.path.dirname(shared) if os.path.basename(shared) == ".git" else None


def head_commit(path: str) -> str:
    """The commit that is checked out; empty before the first commit.

    Raises:
        WorkspaceFault: the path is in no repository, or git cannot read its HEAD.
    """
    own, shared = git_dir(path), common_dir(path)
    if own is None or shared is None:
        raise WorkspaceFault(f"{path} is in no git repository", next_step=f"git -C {path} init")
    head = _first_line(os.path.join(own, "HEAD"))
    if _is_object_id(head):
        return head
    reference = head.removeprefix("ref:").strip()
    loose = _first_line(os.path.join(shared, reference))
    if reference.startswith("refs/heads/") and _is_object_id(loose):
        return loose
    # A packed or unborn reference, a reference table, or a work tree's own references: ask git.
    result = run_git(["rev-parse", "--quiet", "--verify", "HEAD^{commit}"], cwd=path)
    if result.exit_status not in (0, 1):
        raise cannot_read(path, result)
    return result.stdout.decode("ascii", "replace").strip()


def cannot_read(root: str, result: GitResult) -> WorkspaceFault:
    """The fault for a repository that git did not read, with git's own message."""
    return WorkspaceFault(f"git cannot read {root}: {result.message}", next_step=f"git -C {root} status")


def _is_repository(entry: str) -> bool:
    if os.path.isdir(entry):
        return os.path.lexists(os.path.join(entry, "HEAD"))
    return os.path.isfile(entry) and _first_line(entry).startswith("gitdir:")


def _first_line(path: str) -> str:
    """The first line of a small file; empty if it is unreadable, or a pipe."""
    return os.fsdecode(first_line(path, 4096)).strip()


def _is_object_id(text: str) -> bool:
    return len(text) in _OBJECT_ID_LENGTHS and not text.strip("0123456789abcdef")


def find_git(root_path: str, search_path: str) -> str:
    """The first git on PATH that no agent can write: we skip relative folders and folders of the work tree.

    The hook runs outside the agent's sandbox, and an activated virtual environment puts the workspace on its PATH.

    Raises:
        WorkspaceFault: there is none.
    """
    root = os.path.join(os.path.realpath(root_path), "")
    folders = [
        folder
        for folder in search_path.split(os.pathsep)
        if os.path.isabs(folder) and not os.path.join(os.path.realpath(folder), "").startswith(root)
    ]
    try:
        program = find_program("git", os.pathsep.join(folders)) if folders else ""
    except OSError as fault:
        raise _unstarted(fault.strerror) from fault
    if not program or os.path.realpath(program).startswith(root):
        raise _unstarted("no folder on PATH outside the workspace contains it")
    return program


def _unstarted(why: str | None) -> WorkspaceFault:
    return WorkspaceFault(f"git could not be started: {why}", next_step="install git, then try again")


def _file_of(data: bytes) -> int:
    """An unnamed file with a command's input: we would have to feed a pipe while it runs."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("git")
    else:
        import tempfile

        with tempfile.TemporaryFile() as stream:
            descriptor = os.dup(stream.fileno())
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _collect(running: Running, timeout_seconds: float) -> tuple[bytes, bytes]:
    """Both outputs, read to their end.

    Raises:
        TimeoutError: they did not end in time.
    """
    chunks: dict[int, list[bytes]] = {running.out_fd: [], running.error_fd: []}
    poll = select.poll()
    waiting = {descriptor for descriptor in chunks if descriptor >= 0}
    for descriptor in waiting:
        poll.register(descriptor, select.POLLIN)
    deadline = time.monotonic() + timeout_seconds
    while waiting:
        ready = poll.poll(max(0, int((deadline - time.monotonic()) * 1000) + 1))
        if not ready and time.monotonic() >= deadline:
            raise TimeoutError
        for descriptor, _ in ready:
            chunk = os.read(descriptor, _READ_BYTES)
            if chunk:
                chunks[descriptor].append(chunk)
            else:
                poll.unregister(descriptor)
                waiting.discard(descriptor)
    return b"".join(chunks[running.out_fd]), b"".join(chunks[running.error_fd])


def _held(path: str, *, is_alone: bool = False) -> int:
    """A descriptor that holds a file locked, and that a started command inherits; -1 where the system refuses."""
    import fcntl

    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return -1
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if is_alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return -1
    os.set_inheritable(descriptor, not is_alone)
    return descriptor


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        if descriptor >= 0:
            os.close(descriptor)
