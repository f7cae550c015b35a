"""The command line: ``omx-autoresearch VERB [TASK]``.

    program      the verbs and the quick help; a verb's module is imported when it runs
    boundary     one place where errors become exit statuses and texts
    caller       who calls, from where, and which mission is meant
    documents    what ``--json`` prints, one class a document
    display      printing for people
    scratch      a mission in a folder of its own, for ``demo`` and ``doctor``

The verbs stand in beginning, looking, checking, owning, amending, setting_up, hooking, demo and former.
"""

from __future__ import annotations

import sys


def main() -> None:
    """The console script."""
    from omx_autoresearch.surfaces.cli.error_handler import run

    sys.exit(run(sys.argv[1:]))
