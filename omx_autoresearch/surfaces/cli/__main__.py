"""``python -m omx_autoresearch.surfaces.cli``: the console script without a script."""

from __future__ import annotations

from omx_autoresearch.surfaces.cli import main

if __name__ == "__main__":
    main()
