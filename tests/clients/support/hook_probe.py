"""A hook that records what an agent CLI sends and answers as it is told.

    python -I hook_probe.py LOG LABEL REFUSALS

Appends ``{"label", "answer", "event"}`` to LOG, one JSON object a line. The first REFUSALS calls under a label are
refused with the reason ``PROBE-LABEL-N`` (N counts from 0); later ones get no answer, which allows.
"""

from __future__ import annotations

import json
import sys


def main() -> None:
    """Answer one call."""
    log_path, label, refusals = sys.argv[1:4]
    event = json.load(sys.stdin)
    with open(log_path, "a+", encoding="utf-8") as log:
        log.seek(0)
        earlier = sum(json.loads(line)["label"] == label for line in log)
        answer = f"PROBE-{label}-{earlier}" if earlier < int(refusals) else ""
        log.write(json.dumps({"label": label, "answer": answer, "event": event}) + "\n")
    if answer:
        sys.stdout.write(json.dumps({"decision": "block", "reason": answer}))


if __name__ == "__main__":
    main()
