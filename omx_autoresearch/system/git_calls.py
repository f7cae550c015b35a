"""Git for experiments: calls with input, into files, at other work trees, and with a limit for locks of somebody else.

Two kinds of repository are asked. The *user's* is asked where it stands, with its owner's configuration and the
settings of `USER_SETTINGS` over it. Our *own* one (`system/object_store.py`) is asked with nothing but its own
configuration file, which no agent can write: neither the system's, the user's nor a candidate's settings count there.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from typing import TYPE_CHECKING

from omx_autoresearch.core.values import dataclass, field, replace
from omx_autoresearch.errors import WorkspaceFault
from omx_autoresearch.system.git import GitResult, find_git, git_environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LIMIT_SECONDS = 900.0
"""For one git command of an experiment: a first checkout on a slow disk takes minutes, a hung filter takes for ever."""

LOCK_WAIT_SECONDS = 5.0
"""How long a lock file of another git is waited for."""

_LOCK_PAUSE_SECONDS = 0.1
_LOCKED = ".lock': File exists"
_OLDEST_GIT = (2, 34)  # `add --sparse`, GIT_CONFIG_GLOBAL, `config --show-scope`

USER_SETTINGS = (
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


@dataclass(frozen=True, slots=True)
class Git:
    """How git is called for one repository or work tree.

    Attributes:
        program: the git that is run.
        cwd: the folder it runs in.
        environ: its whole environment.
        settings: given with ``-c`` before the command.
    """

    program: str
    cwd: str
    environ: dict[str, str] = field(default_factory=dict)
    settings: tuple[str, ...] = ()

    def at(self, cwd: str, **environ: str) -> Git:
        """The same git in another folder, with more in its environment."""
        return replace(self, cwd=cwd, environ=self.environ | environ)

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        """Start a command whose output is collected later, with stdin empty; see `finish`.

        Raises:
            WorkspaceFault: git could not be started there.
        """
        try:
            return subprocess.Popen(
                self._argv(args),
                cwd=self.cwd,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
            )
        except OSError as fault:
            raise self._unstarted(fault) from fault

    def finish(self, process: subprocess.Popen[bytes], *args: str) -> bytes:
        """The output of a started command.

        Raises:
            WorkspaceFault: it failed, or did not end in time.
        """
        try:
            output, said = process.communicate(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired as fault:
            process.kill()
            process.communicate()
            raise self._late(args) from fault
        return self.checked(_result(process.returncode, output, said), args)

    def run(self, *args: str, stdin: bytes = b"", to_path: str = "", from_path: str = "") -> GitResult:
        """Run one command to its end; what git refuses is a value.

        Args:
            args: the command and its arguments, without ``git``.
            stdin: what it reads.
            to_path: a new file that takes its output, of any size; the result's ``stdout`` is then empty.
            from_path: a file that it reads instead of ``stdin``.

        Raises:
            WorkspaceFault: git could not be started, or did not end in time.
        """
        try:
            with contextlib.ExitStack() as files:
                target = files.enter_context(open(to_path, "wb")).fileno() if to_path else subprocess.PIPE
                source = files.enter_context(open(from_path, "rb")).fileno() if from_path else None
                return self._run(args, stdin, target, source)
        except subprocess.TimeoutExpired as fault:
            raise self._late(args) from fault
        except OSError as fault:
            raise self._unstarted(fault) from fault

    def output(self, *args: str, stdin: bytes = b"", to_path: str = "", from_path: str = "") -> bytes:
        """The output of a command that must succeed.

        Raises:
            WorkspaceFault: git refused, in git's own words; it could not be started or did not end.
        """
        return self.checked(self.run(*args, stdin=stdin, to_path=to_path, from_path=from_path), args)

    def word(self, *args: str, stdin: bytes = b"") -> str:
        """The output of a command that prints one line. Raises what `output` does."""
        return os.fsdecode(self.output(*args, stdin=stdin)).strip("\n")

    def when_unlocked(self, *args: str, stdin: bytes = b"") -> GitResult:
        """Run a command, again while a lock of another git stands in its way, for `LOCK_WAIT_SECONDS` at most."""
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
        said = result.stderr or f"it ended with status {result.exit_status} and no message"
        raise WorkspaceFault(
            f"`git {args[0]}` failed in {self.cwd}: {said}", next_step=f"git -C {self.cwd} status"
        )

    def _run(self, args: Sequence[str], stdin: bytes, stdout: int, source: int | None) -> GitResult:
        done = subprocess.run(
            self._argv(args),
            cwd=self.cwd,
            env=self.environ,
            input=stdin if source is None else None,
            stdin=source,
            stdout=stdout,
            stderr=subprocess.PIPE,
            timeout=LIMIT_SECONDS,
            check=False,
            process_group=0,
        )
        return _result(done.returncode, done.stdout or b"", done.stderr)

    def _unstarted(self, fault: OSError) -> WorkspaceFault:
        return WorkspaceFault(
            f"git could not be started in {self.cwd}: {fault.strerror}", next_step=f"ls -ld {self.cwd}"
        )

    def _late(self, args: Sequence[str]) -> WorkspaceFault:
        return WorkspaceFault(
            f"`git {args[0]}` did not end within {LIMIT_SECONDS:g} seconds in {self.cwd}",
            next_step=f"git -C {self.cwd} status",
        )

    def _argv(self, args: Sequence[str]) -> list[str]:
        return [self.program, *(word for setting in self.settings for word in ("-c", setting)), *args]


def user_git(repository_path: str, environ: Mapping[str, str] | None = None) -> Git:
    """Git in the user's own checkout, with the user's configuration, no hook, no monitor, no transport.

    Raises:
        WorkspaceFault: git is not installed outside the checkout, or is too old.
    """
    surroundings = os.environ if environ is None else environ
    root = os.path.realpath(repository_path)
    env = _plain_environment(surroundings)
    env["GIT_CEILING_DIRECTORIES"] = os.path.dirname(root)
    if (
        "GIT_TEST_ASSUME_DIFFERENT_OWNER" in surroundings
    ):  # git's own way to ask for distrust; it widens nothing
        env["GIT_TEST_ASSUME_DIFFERENT_OWNER"] = surroundings["GIT_TEST_ASSUME_DIFFERENT_OWNER"]
    git = Git(find_git(root, env["PATH"]), root, env, USER_SETTINGS)
    _check_version(git)
    return git


def own_git(repository_path: str, git_dir: str, environ: Mapping[str, str] | None = None) -> Git:
    """Git in a repository of ours: only its own configuration counts.

    Args:
        repository_path: the user's checkout, whose programs are never taken for git.
        git_dir: the repository of ours.
        environ: what the environment is made from; ours where none is given.
    """
    env = _plain_environment(os.environ if environ is None else environ)
    program = find_git(repository_path, env["PATH"])
    env |= {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_DIR": git_dir,
    }
    return Git(program, git_dir, env)


def is_locked(result: GitResult) -> bool:
    """A lock file of another git stood in the way."""
    return _LOCKED in result.stderr


def _plain_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """`git_environment` with absolute folders alone on PATH: filters run in folders that an agent wrote."""
    env = git_environment(environ)
    folders = [folder for folder in env.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(folder)]
    return env | {"PATH": os.pathsep.join(folders)}


def _check_version(git: Git) -> None:
    said = git.word("version")
    numbers = said.removeprefix("git version ").split(".")[:2]
    if len(numbers) < len(_OLDEST_GIT) or not all(number.isdecimal() for number in numbers):
        raise WorkspaceFault(f"{git.program} is no git: it said {said!r}", next_step=f"{git.program} version")
    if tuple(int(number) for number in numbers) < _OLDEST_GIT:
        oldest = ".".join(str(number) for number in _OLDEST_GIT)
        raise WorkspaceFault(
            f"{git.program} is version {'.'.join(numbers)}, experiments need {oldest}",
            next_step=f"install git {oldest} or later",
        )


def _result(status: int, output: bytes, said: bytes) -> GitResult:
    return GitResult(status, output, said.decode("utf-8", "replace").strip())
