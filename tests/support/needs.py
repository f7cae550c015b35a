"""What a test needs of the machine beyond Python and git; without it the test is skipped and says why."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from omx_autoresearch.foundation.clients import CLIENT_NAMES
from omx_autoresearch.system import landlock
from omx_autoresearch.system.sandbox import box

HAS_BUBBLEWRAP = box().backend == "bubblewrap"
HAS_LANDLOCK = landlock.version() >= landlock.LEAST_VERSION

needs_bubblewrap = pytest.mark.skipif(
    not HAS_BUBBLEWRAP, reason="bubblewrap is missing, or the kernel does not let it work"
)
needs_box = pytest.mark.skipif(not box().isolates, reason="there is neither bubblewrap nor Landlock")


def _has_user_namespaces() -> bool:
    argv = ["unshare", "--user", "--map-root-user", "--mount", "true"]
    try:
        return subprocess.run(argv, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


needs_user_namespaces = pytest.mark.skipif(
    not _has_user_namespaces(), reason="the kernel does not let a process have a user namespace"
)

HELD_CLIENTS = tuple(
    pytest.param(name, marks=needs_box) if name == "codex" else pytest.param(name) for name in CLIENT_NAMES
)
"""Every agent CLI; a stop of Codex, whose tools have a sandbox of their own, is judged in a box or not at all."""

AS_ANYBODY = (
    () if os.geteuid() else ("setpriv", "--bounding-set", "-dac_override", "--inh-caps", "-dac_override")
)
"""Before a command: without root's right to write what is read-only."""

PYTHON = os.path.realpath(sys.executable)
"""An interpreter outside this environment, which a box that hides /tmp may not show."""

needs_environment_in_the_box = pytest.mark.skipif(
    sys.prefix.startswith("/tmp/"),
    reason="this environment lies in /tmp, which no box shows",
)
