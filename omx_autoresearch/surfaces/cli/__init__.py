"""The command line: ``omx-autoresearch VERB [TASK]``.

Begin with ``program``, which has the table of verbs and turns errors into exit statuses, and ``console``, which every
verb uses. A verb parses, calls one use case of a room below, and renders the view that it returns:

    init, validate, criterion, finding, direction, lifecycle, status   missions
    experiment, experiment_*                                           experiments
    install, demo                                                      agent CLIs, and a mission in a scratch folder
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """The console script; where the system refuses memory or files, it says so without asking for more of them."""
    try:
        from omx_autoresearch.surfaces.cli.program import run

        status = run(sys.argv[1:])
    except (ImportError, MemoryError, OSError) as error:
        os.write(
            2,
            f"error: omx-autoresearch could not be loaded: {str(error) or type(error).__name__}\n{_CURE}".encode(),
        )
        status = 1
    sys.exit(status)


_CURE = """\
  next: raise the limits on memory (ulimit -v) and open files (ulimit -n), or install omx-autoresearch again;
        then run the same command again
"""
