"""Install the pinned agent CLIs: ``python -m tests.clients.support.install FOLDER``.

Needs npm. What stands there in the right version is left alone.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.clients.support.agent_clis import AGENT_CLIS


def main() -> int:
    """Install what is missing; the exit code of the first npm that failed, else 0."""
    clients_path = Path(sys.argv[1])
    for cli in AGENT_CLIS:
        if cli.binary_path(clients_path) is None:
            command = cli.install_command(clients_path)
            (clients_path / cli.name).mkdir(parents=True, exist_ok=True)
            if code := subprocess.call(command):
                return code
        sys.stdout.write(f"{cli.name} {cli.version}: {cli.binary_path(clients_path)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
