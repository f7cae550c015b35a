"""Install the pinned agent CLIs where the tests look for them: ``python -m tests.clients.support.install``.

Needs npm. What stands there in the right version is left alone.
"""

from __future__ import annotations

import subprocess
import sys

from tests.clients.support.agent_clis import AGENT_CLIS


def main() -> int:
    """Install what is missing; the exit code of the first npm that failed, else 0."""
    for cli in AGENT_CLIS:
        if cli.binary_path() is None:
            cli.folder().mkdir(parents=True, exist_ok=True)
            sys.stdout.write(f"installing {cli.package}@{cli.version} in {cli.folder()}\n")
            sys.stdout.flush()
            if code := subprocess.call(cli.install_command()):
                return code
        sys.stdout.write(f"{cli.name} {cli.version}: {cli.binary_path()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
