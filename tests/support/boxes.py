"""The boxes that a command may run in, each as a machine would have it."""

from __future__ import annotations

import pytest

from omx_autoresearch.system import landlock, sandbox, seccomp
from omx_autoresearch.system.surroundings import Surroundings
from tests.support.needs import HAS_BUBBLEWRAP, HAS_LANDLOCK

BOXES = (
    pytest.param(
        "bubblewrap", marks=pytest.mark.skipif(not HAS_BUBBLEWRAP, reason="bubblewrap does not work")
    ),
    pytest.param("landlock", marks=pytest.mark.skipif(not HAS_LANDLOCK, reason="the kernel has no Landlock")),
)


def take_box(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Make this a machine with that box: bubblewrap, landlock, fenced or none, or ``NAME without mounts``."""
    monkeypatch.setattr(sandbox, "_found", [])
    kind = name.removesuffix(" without mounts")
    if kind != name:
        monkeypatch.setattr(Surroundings, "arrange", lambda _wanted: "this system has no such mounts")
    if kind != "bubblewrap":
        monkeypatch.setattr(sandbox, "_PLACES", ())
        monkeypatch.setattr(sandbox, "_on_path", lambda: iter(()))
    if kind in ("fenced", "none"):
        monkeypatch.setattr(seccomp, "box_filter", lambda **_options: b"")
    if kind == "none":
        monkeypatch.setattr(landlock, "version", lambda: 0)
    assert sandbox.box().backend == kind
