"""The ``.git`` of a work tree: a small repository of its own, made anew whenever the tree is restored.

An agent may use git in its work tree as anywhere: log, diff, commit, stash, branch, gc. All of that happens in this
folder, which lies inside the tree (a sandbox that lets an agent write nothing else does not stop it) and reaches
neither the user's references nor ours. Runtime and checkpoints never ask it anything.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from omx_autoresearch.errors import WorkspaceFault
from omx_autoresearch.system.object_store import alternate_line, format_settings
from omx_autoresearch.system.removal import remove
from omx_autoresearch.system.user_settings import config_text

if TYPE_CHECKING:
    from omx_autoresearch.system.object_store import ObjectStore
    from omx_autoresearch.system.user_repository import UserRepository

_FOLDERS = ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info")
_COPIED = ("info/exclude", "info/attributes", "info/sparse-checkout", "shallow")
_REFERENCES = ("refs/heads", "refs/tags", "refs/remotes")

_SETTINGS = (
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
        _write(path, "config", config_text((*format_settings(repository), *settings, *_SETTINGS)))
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


def _write(folder: str, name: str, data: bytes) -> None:
    with open(os.path.join(folder, name), "wb") as stream:
        stream.write(data)
