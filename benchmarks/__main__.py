"""Every bar in one go: ``python -m benchmarks``; ends 1 when one is missed. README.md says what is measured how."""

from __future__ import annotations

import sys

from benchmarks import acceptance, findings, hook, journal, pins, status, trial


def main() -> int:
    """Run them one after the other, since they would disturb each other."""
    missed = 0
    bars = (
        ("hook", hook.main),
        ("pins", pins.main),
        ("journal", journal.main),
        ("status", status.main),
        ("findings", findings.main),
        ("trial", trial.main),
        ("acceptance", acceptance.main),
    )
    for name, measure in bars:
        print(f"\n== {name}\n", flush=True)
        missed += measure([])
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
