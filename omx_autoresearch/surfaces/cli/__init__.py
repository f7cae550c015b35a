"""The command line: ``omx-autoresearch VERB [TASK]``.

Begin with ``program``, which has the table of verbs and turns errors into exit statuses, and ``console``, which every
verb uses. A verb parses, calls one use case of a room below, and renders the view that it returns:

    init, validate, criterion, finding, direction, lifecycle, status   missions
    experiment, experiment_*                                           experiments
    install, demo                                                      agent CLIs, and a mission in a scratch folder
"""

from __future__ import annotations

import sys


def main() -> None:
    """The console script."""
    from omx_autoresearch.surfaces.cli.program import run

    sys.exit(run(sys.argv[1:]))
