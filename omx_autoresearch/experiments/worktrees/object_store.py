"""The private repository of an experiment: checkpoints as commits, and the changes between two of them.

It is out of reach of the user's git and of every agent's. It borrows the user's objects (``objects/info/alternates``)
and keeps what is new to itself, so until an acceptance only one reference is ever written into the user's repository,
which keeps the base commit from being pruned. Its configuration is written once; no other counts (`git.own_git`).

Trees are compared here: no setting of a user and no attribute of a worktree has a say, and line ends are the bytes that
git stores. A patch is whole at any size; applied to the older tree it gives exactly the later one.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field

from omx_autoresearch.experiments.worktrees.checkout import UserRepository
from omx_autoresearch.foundation.errors import WorkspaceFault
from omx_autoresearch.system.files import remove
from omx_autoresearch.system.git import BUSY_NAME, Git, own_git

LINK = "120000"

_PATCH = (
    "diff-tree",
    "-p",
    "-r",
    "--binary",
    "--full-index",
    "--find-renames",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--no-indent-heuristic",
    "--diff-algorithm=myers",
    "--unified=3",
    "--inter-hunk-context=0",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--ignore-submodules=none",
    "--submodule=short",
)


@dataclass(frozen=True, slots=True)
class TreeChange:
    """One path that differs between two trees.

    Attributes:
        path: relative to the root, as the file system has it (bytes that are no UTF-8 are surrogates).
        status: ``A`` added, ``D`` deleted, ``M`` modified, ``T`` another type.
        mode: the new mode, octal; zeros where it is deleted.
        object_id: the new content; zeros where it is deleted.
        old_mode: the old mode, octal; zeros where it is added.
        old_object_id: the old content; zeros where it is added.
    """

    path: str
    status: str
    mode: str
    object_id: str
    old_mode: str
    old_object_id: str

    def reversed(self) -> TreeChange:
        """The change that undoes this one."""
        status = {"A": "D", "D": "A"}.get(self.status, self.status)
        return TreeChange(self.path, status, self.old_mode, self.old_object_id, self.mode, self.object_id)


@dataclass(frozen=True, slots=True)
class FileChange:
    """One changed file as people are shown it.

    Attributes:
        path: where it is now.
        status: ``A`` added, ``D`` deleted, ``M`` modified, ``R`` renamed, ``T`` another type.
        old_path: where it was, for a renamed one; else empty.
        added_lines: None for a binary file.
        deleted_lines: None for a binary file.
    """

    path: str
    status: str
    old_path: str
    added_lines: int | None
    deleted_lines: int | None


def tree_changes(git: Git, base: str, final: str) -> tuple[TreeChange, ...]:
    """Every path that differs between two trees or commits, renames as a deletion and an addition.

    Raises:
        WorkspaceFault: git cannot read one of them.
    """
    said = git.output("diff-tree", "-r", "-z", "--no-renames", "--ignore-submodules=none", base, final)
    words = iter(said.split(b"\0"))
    found = []
    for facts in words:
        if facts.startswith(b":"):
            old_mode, mode, old_id, object_id, status = facts[1:].decode("ascii").split(" ")
            path = os.fsdecode(next(words))
            found.append(TreeChange(path, status[:1], mode, object_id, old_mode, old_id))
    return tuple(found)


def file_changes(git: Git, base: str, final: str) -> tuple[FileChange, ...]:
    """The changed files between two commits with the number of lines, renames found.

    Raises:
        WorkspaceFault: git cannot read one of them.
    """
    options = ("-r", "-z", "--find-renames", "--raw", "--numstat", "--no-ext-diff", "--no-textconv")
    words = iter(git.output("diff-tree", *options, base, final).split(b"\0"))
    states: dict[str, tuple[str, str]] = {}
    found = []
    for word in words:
        if word.startswith(b":"):
            status = word.rpartition(b" ")[2][:1].decode("ascii")
            old = os.fsdecode(next(words))
            path = os.fsdecode(next(words)) if status in "RC" else old
            states[path] = (status, old if path != old else "")
        elif word:
            added, deleted, name = word.split(b"\t", 2)
            if not name:
                next(words)
                name = next(words)
            path = os.fsdecode(name)
            status, old = states.get(path, ("M", ""))
            found.append(FileChange(path, status, old, _count(added), _count(deleted)))
    return tuple(found)


def read_patch(git: Git, base: str, final: str, to_path: str = "") -> bytes:
    """The whole patch from one commit to another, or with ``to_path`` written there, whatever its size.

    ``git apply --whitespace=nowarn`` on the base gives the tree of the final commit, with binary files, modes, links,
    renames and line ends.

    Raises:
        WorkspaceFault: git cannot read one of them, or the file cannot be written.
    """
    return git.output(*_PATCH, base, final, to_path=to_path)


def _count(digits: bytes) -> int | None:
    return None if digits == b"-" else int(digits)


REFERENCES = "refs/omx-autoresearch"
"""Below it stand the checkpoints in our repository and ``{experiment_id}/base`` in the user's."""

IDENTITY = {
    "GIT_AUTHOR_NAME": "omx-autoresearch",
    "GIT_AUTHOR_EMAIL": "omx-autoresearch@localhost",
    "GIT_COMMITTER_NAME": "omx-autoresearch",
    "GIT_COMMITTER_EMAIL": "omx-autoresearch@localhost",
}

_REMEMBERED = 16
_CONVERTING = (b'[filter "', b"\tautocrlf =", b"\teol =", b"\tattributesfile =")

MESSAGE_LIMIT_BYTES = 16 * 1024
_BORROWED = ("info/exclude", "info/attributes")

_CREATED = frozenset({"objects", "refs", "info", "config", "shallow", "HEAD", "template", BUSY_NAME})

_SETTINGS = (
    ("core.bare", "true"),
    ("core.hookspath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.untrackedcache", "false"),
    ("core.splitindex", "false"),
    ("core.trustctime", "true"),
    ("core.checkstat", "default"),
    ("core.quotepath", "false"),
    ("core.safecrlf", "false"),
    ("core.logallrefupdates", "false"),
    ("core.fsync", "committed,reference"),
    ("commit.gpgsign", "false"),
    ("index.sparse", "false"),
    ("diff.renamelimit", "10000"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
)


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """The repository at a path, and git for it.

    Attributes:
        path: where it is.
        git: how git is called for it.
        has_conversions: the user's settings may change what is written into a work tree (line ends, filters).
    """

    path: str
    git: Git
    has_conversions: bool = True
    _compared: dict[tuple[str, str], tuple[TreeChange, ...]] = field(default_factory=dict)

    def changes(self, base: str, final: str) -> tuple[TreeChange, ...]:
        """Every path that differs between two trees or commits; the last comparisons are remembered, both ways.

        Raises:
            WorkspaceFault: git cannot read one of them.
        """
        if base == final:
            return ()
        known = self._compared.get((base, final))
        if known is None:
            known = tree_changes(self.git, base, final)
            self.remember(base, final, known)
        return known

    def remember(self, base: str, final: str, changes: tuple[TreeChange, ...]) -> None:
        """These two differ by just this."""
        if len(self._compared) >= _REMEMBERED:
            self._compared.clear()
        self._compared[base, final] = changes
        self._compared[final, base] = tuple(change.reversed() for change in changes)

    def commit(self, tree: str, parent: str, message: str) -> str:
        """Make a commit of a tree with our identity; the message is text and nothing else (`clean_message`).

        Raises:
            WorkspaceFault: git cannot make it.
        """
        git = self.git.at(self.path, **IDENTITY)
        return git.word("commit-tree", tree, "-p", parent, stdin=clean_message(message))

    def own(self, commit: str, parent: str) -> None:
        """Copy what a commit has over its parent where git only borrowed it, since the user may prune it.

        Git writes no object that the user's repository has, be it on a branch or a stash that is dropped later.

        Raises:
            WorkspaceFault: git cannot read or write the objects.
        """
        new = [change.object_id for change in self.changes(parent, commit) if change.status != "D"]
        if new and all(os.path.exists(self._loose_path(name)) for name in new):
            return
        wanted = f"{commit}\n^{parent}\n".encode("ascii")
        pack = os.path.join(self.path, "objects", "pack", "pack")
        self.git.output("pack-objects", "--revs", "-q", pack, stdin=wanted)

    def _loose_path(self, object_id: str) -> str:
        return os.path.join(self.path, "objects", object_id[:2], object_id[2:])

    def keep(self, name: str, commit: str) -> None:
        """Let a new reference of ours hold a commit: one small file, since our repository has no other kind.

        Raises:
            WorkspaceFault: it cannot be written.
        """
        path = os.path.join(self.path, REFERENCES, name)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(f"{path}.lock", "w", encoding="ascii") as stream:
                stream.write(f"{commit}\n")
                stream.flush()
                os.fsync(stream.fileno())
            os.rename(f"{path}.lock", path)
        except OSError as fault:
            raise WorkspaceFault(
                f"{path} cannot be written: {fault.strerror}", next_step=f"ls -la {self.path}"
            ) from fault

    def kept(self) -> tuple[tuple[str, str], ...]:
        """Names and commits of the references of ours, by name.

        Raises:
            WorkspaceFault: git cannot read them.
        """
        said = self.git.word("for-each-ref", "--format=%(refname) %(objectname)", REFERENCES)
        pairs = (line.split(" ") for line in said.splitlines())
        return tuple((name.removeprefix(f"{REFERENCES}/"), commit) for name, commit in pairs)


def create_store(
    path: str,
    repository: UserRepository,
    settings: Iterable[tuple[str, str]],
    submodule_objects: tuple[str, ...],
) -> ObjectStore:
    """Make the repository anew, borrowing from the user's and from its submodules.

    Raises:
        WorkspaceFault: the folder cannot be written.
    """
    try:
        os.mkdir(path, 0o700)
        for name in ("objects/info", "objects/pack", "refs/heads", "info"):
            os.makedirs(os.path.join(path, name))
        borrowed = (os.path.join(repository.common_dir, "objects"), *submodule_objects)
        _write(path, "objects/info/alternates", b"".join(alternate_line(line) for line in borrowed))
        _write(path, "config", config_text((*format_settings(repository), *settings, *_SETTINGS)))
        for name in _BORROWED:
            _borrow(os.path.join(repository.common_dir, name), os.path.join(path, name))
        sparse = "info/sparse-checkout"
        _borrow(os.path.join(repository.git_dir, sparse), os.path.join(path, sparse))
        _borrow(os.path.join(repository.common_dir, "shallow"), os.path.join(path, "shallow"))
        _write(path, "HEAD", b"ref: refs/heads/none\n")
    except OSError as fault:
        raise WorkspaceFault(
            f"the repository of the experiment cannot be made in {path}: {fault.strerror}",
            next_step=f"df -h {os.path.dirname(path)}",
        ) from fault
    return open_store(path, repository.root_path)


def open_store(path: str, repository_path: str) -> ObjectStore:
    """The repository at a path; ``repository_path`` is the checkout whose programs are never taken for git."""
    return ObjectStore(path, own_git(repository_path, path), _has_conversions(path))


def is_unfinished(path: str) -> bool:
    """A folder holds a repository that `create_store` began, or nothing at all; a killed process leaves such a one."""
    try:
        names = set(os.listdir(path))
    except OSError:
        return False
    return {name for name in names if not name.endswith(".tmp")} <= _CREATED


def format_settings(repository: UserRepository) -> tuple[tuple[str, str], ...]:
    """The settings at the beginning of a configuration file that name a repository's object format."""
    if repository.object_format == "sha1":
        return (("core.repositoryformatversion", "0"),)
    return (
        ("core.repositoryformatversion", "1"),
        ("extensions.objectformat", repository.object_format),
    )


def clean_message(message: str) -> bytes:
    """A commit message from any text: no NUL, valid UTF-8, at most `MESSAGE_LIMIT_BYTES`, never empty."""
    raw = message.replace("\0", "\ufffd").encode("utf-8", "replace")
    if len(raw) > MESSAGE_LIMIT_BYTES:
        raw = raw[:MESSAGE_LIMIT_BYTES].decode("utf-8", "ignore").encode("utf-8") + b"\n[cut]"
    return raw.strip() + b"\n" if raw.strip() else b"(no description)\n"


def alternate_line(path: str) -> bytes:
    """One line of ``objects/info/alternates``, quoted where its first byte or a line end would be misread."""
    raw = os.fsencode(path)
    if raw.startswith((b"#", b'"')) or b"\n" in raw:
        raw = b'"' + raw.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n") + b'"'
    return raw + b"\n"


def _has_conversions(path: str) -> bool:
    """Settings that convert, or attributes outside the work tree that may; see gitattributes(5) for the places."""
    try:
        with open(os.path.join(path, "config"), "rb") as stream:
            settings = stream.read()
    except OSError:
        return True
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    places = (
        os.path.join(path, "info", "attributes"),
        os.path.join(home, "git", "attributes"),
        "/etc/gitattributes",
    )
    return any(words in settings for words in _CONVERTING) or any(os.path.exists(place) for place in places)


def _borrow(source: str, target: str) -> None:
    if os.path.isfile(source):
        shutil.copyfile(source, target)


def _write(folder: str, name: str, data: bytes) -> None:
    with open(os.path.join(folder, name), "wb") as stream:
        stream.write(data)


# --- the .git of a work tree

# The ``.git`` of a work tree: a small repository of its own, made anew whenever the tree is restored.
#
# An agent may use git in its work tree as usual: log, diff, commit, stash, branch, gc. All of that happens in this
# folder. It lies inside the tree, so a sandbox that lets an agent write only there allows it, and it reaches neither
# the user's references nor ours. The runtime and the checkpoints never read it.


_FOLDERS = ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info")
_COPIED = ("info/exclude", "info/attributes", "info/sparse-checkout", "shallow")
_REFERENCES = ("refs/heads", "refs/tags", "refs/remotes")

_FOLDER_SETTINGS = (
    ("core.bare", "false"),
    (
        "core.hookspath",
        "/dev/null",
    ),  # an agent's commit runs none of the user's hooks and asks for no signature
    ("core.fsmonitor", "false"),
    ("commit.gpgsign", "false"),
    ("tag.gpgsign", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
)


def make_template(path: str, repository: UserRepository, settings: tuple[tuple[str, str], ...]) -> None:
    """Write down what every ``.git`` of this experiment begins with.

    Branches, tags and remote branches are those of the user when the experiment began, so that ``git describe`` and
    ``git diff main`` answer as they do in the checkout.

    Raises:
        WorkspaceFault: git cannot read the references, or the folder cannot be written.
    """
    listed = repository.git.output(
        "for-each-ref", "--format=%(objectname) %(refname)%(if)%(symref)%(then) %(end)", *_REFERENCES
    )
    lines = [line for line in listed.splitlines() if line and not line.endswith(b" ")]
    try:
        os.mkdir(path)
        _write(path, "config", config_text((*format_settings(repository), *settings, *_FOLDER_SETTINGS)))
        _write(path, "packed-refs", b"# pack-refs with: sorted \n" + b"".join(line + b"\n" for line in lines))
    except OSError as fault:
        raise WorkspaceFault(f"{path} cannot be written: {fault.strerror}", next_step="df -h") from fault


def make_git_folder(
    root_path: str, template_path: str, store: ObjectStore, commit: str, index_path: str
) -> None:
    """Put a new ``.git`` in the place of whatever an agent made of the last one.

    Raises:
        WorkspaceFault: the old one cannot be removed, the new one not written.
    """
    path = os.path.join(root_path, ".git")
    remove(path)
    try:
        os.mkdir(path)
        for name in _FOLDERS:
            os.makedirs(os.path.join(path, name))
        for name in ("config", "packed-refs"):
            shutil.copyfile(os.path.join(template_path, name), os.path.join(path, name))
        for name in _COPIED:
            source = os.path.join(store.path, name)
            if os.path.exists(source):
                shutil.copyfile(source, os.path.join(path, name))
        _write(path, "objects/info/alternates", alternate_line(os.path.join(store.path, "objects")))
        shutil.copyfile(index_path, os.path.join(path, "index"))
        _write(path, "HEAD", commit.encode("ascii") + b"\n")
    except OSError as fault:
        raise WorkspaceFault(f"{path} cannot be written: {fault.strerror}", next_step="df -h") from fault


# --- settings of the user

# The user's settings that decide the content of files, read once when an experiment starts.
#
# Line ends, filters (LFS and the user's own), ignore and attribute files have the same effect in our work trees as in
# the user's checkout. No other setting is used: no alias, hook, pager, driver, signature, include or command of a
# transport. Later changes do not affect a running experiment.


_TAKEN = frozenset(
    {
        "core.autocrlf",
        "core.attributesfile",
        "core.bigfilethreshold",
        "core.checkroundtripencoding",
        "core.compression",
        "core.eol",
        "core.excludesfile",
        "core.filemode",
        "core.ignorecase",
        "core.loosecompression",
        "core.precomposeunicode",
        "core.protecthfs",
        "core.protectntfs",
        "core.sparsecheckout",
        "core.sparsecheckoutcone",
        "core.symlinks",
    }
)
_PATHS = frozenset({"core.attributesfile", "core.excludesfile"})
_FILTER_COMMANDS = ("clean", "smudge", "process")
_OURS = "GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_CONFIG_GLOBAL GIT_CONFIG_NOSYSTEM GIT_NO_REPLACE_OBJECTS"
"""Variables that lead to our repository; without them a filter that asks git finds the user's, and its keys there."""

_LFS = re.compile(r"git[- ]lfs\s")


def read_settings(git: Git) -> tuple[tuple[str, str], ...]:
    """The settings that count for work trees of this repository, in git's order, later ones winning.

    Raises:
        WorkspaceFault: git cannot read its configuration.
    """
    found = []
    for entry in git.output("config", "--list", "-z").split(b"\0"):
        key, _, value = os.fsdecode(entry).partition("\n")
        if "\n" not in os.fsdecode(entry):
            value = "true"  # a key alone
        if key in _PATHS and not value.startswith(("/", "~")):
            continue  # relative to a work tree that an agent writes
        if key in _TAKEN or key.startswith(("filter.", "lfs.")):
            found.append((key, value))
    return tuple(found)


def pinned(settings: Iterable[tuple[str, str]], root_path: str) -> tuple[tuple[str, str], ...]:
    """Settings whose filter commands run in the user's checkout.

    Git runs a filter in the work tree, where ``./tools/clean`` or ``python -m clean`` would be a program that an
    agent wrote. In the user's checkout the same words name the user's own program. LFS has its program on PATH and asks
    git for the work tree, so it stays where git runs it.
    """
    return tuple((key, _in_checkout(key, value, shlex.quote(root_path))) for key, value in settings)


def config_text(settings: Iterable[tuple[str, str]]) -> bytes:
    """Settings as a configuration file, git-config(1)."""
    lines = []
    for key, value in settings:
        section, _, rest = key.partition(".")
        subsection, _, name = rest.rpartition(".")
        title = f'{section} "{_escaped(subsection)}"' if subsection else section
        quoted = _escaped(value).replace("\n", "\\n").replace("\t", "\\t")
        lines.append(f'[{title}]\n\t{name} = "{quoted}"\n')
    return os.fsencode("".join(lines))


def _in_checkout(key: str, value: str, quoted_root: str) -> str:
    kind, _, name = key.rpartition(".")
    if (
        not kind.startswith("filter.")
        or name not in _FILTER_COMMANDS
        or not value.strip()
        or _LFS.match(value)
    ):
        return value
    if name != "process":
        quoted_root = quoted_root.replace("%", "%%")  # git replaces %f in these
    return f"cd {quoted_root} && unset {_OURS} && {{ {value}\n}}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
