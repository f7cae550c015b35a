"""Count what one use case runs through: ``python scripts/trace_modules.py [--json]``.

Two use cases, each as a user meets it, in a process of its own: a stop that the hook of a bound session refuses, and an
accepted trial of an experiment. Counted are the modules and functions of the package that were entered (the body of a
module does not count), the modules that were loaded, and how deep the calls went. What a forked supervisor does is its
own. A use case over its bar makes the exit status 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

if TYPE_CHECKING:
    from types import CodeType, FrameType

PACKAGE = "omx_autoresearch"
BARS = {"refused stop": 45, "accepted trial": 40}
"""Modules that a use case may run through."""


class Trace:
    """Notes every function of the package that is called while it listens, in every thread."""

    def __init__(self) -> None:
        self._prefix = str(ROOT / PACKAGE) + os.sep
        self._entered: set[CodeType] = set()
        self._depths = threading.local()
        self.depth = 0

    def start(self) -> None:
        """Listen from now on, in this thread and in those that begin later."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def stop(self) -> None:
        """Listen no more."""
        sys.setprofile(None)
        threading.setprofile(None)

    def facts(self) -> dict[str, Any]:
        """What was counted, modules with the number of their functions."""
        functions: dict[str, set[str]] = {}
        for code in self._entered:
            name = code.co_filename.removeprefix(self._prefix).removesuffix(".py").replace(os.sep, ".")
            functions.setdefault(name, set()).add(f"{code.co_qualname}:{code.co_firstlineno}")
        loaded = [name for name in sys.modules if name.partition(".")[0] == PACKAGE]
        return {
            "modules": len(functions),
            "functions": sum(map(len, functions.values())),
            "loaded": len(loaded),
            "depth": self.depth,
            "by_module": {name: len(found) for name, found in sorted(functions.items())},
        }

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(self._prefix) or code.co_name == "<module>":
            return
        if event == "call":
            depth = self._depths.now = getattr(self._depths, "now", 0) + 1
            self.depth = max(self.depth, depth)
            self._entered.add(code)
        elif event == "return":
            self._depths.now = getattr(self._depths, "now", 1) - 1


def refused_stop(folder: Path) -> dict[str, Any]:
    """The hook's own entry, with the arguments of the installed script, in this process."""
    from benchmarks import hook
    from omx_autoresearch.agents.hook_lines import program_of_script

    home, out_path = folder / "home", folder / "trace.json"
    hook.install_hook(home)
    installed = program_of_script((home / "hook").read_text(encoding="utf-8"))
    entry = installed.entry_path if installed else ""
    repository = hook.make_repository(folder / "repository")
    hook.bind_mission(home, repository)
    (repository / "file0000.txt").write_text("edited\n", encoding="utf-8")
    program = f"""
import json, os, runpy, sys
sys.path.append({str(ROOT)!r})
from scripts.trace_modules import Trace
trace = Trace()
def leave(status):
    trace.stop()
    open({str(out_path)!r}, "w").write(json.dumps(trace.facts()))
    os.close(1)
    raise SystemExit(status)
os._exit = leave
sys.argv = [{entry!r}, {str(home)!r}, "claude"]
trace.start()
runpy.run_path({entry!r}, run_name="__main__")
"""
    said = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        input=hook.payload(repository, hook.SESSION),
        capture_output=True,
        check=False,
    )
    if b'"block"' not in said.stdout:
        raise SystemExit(f"the stop was not refused: {said.stdout!r} {said.stderr.decode()}")
    facts: dict[str, Any] = json.loads(out_path.read_text(encoding="utf-8"))
    return facts


def accepted_trial(folder: Path) -> dict[str, Any]:
    """`run_iteration` of a controller whose baseline is established, with two calibration pairs."""
    from benchmarks.trial import make_project
    from omx_autoresearch import (
        AutoresearchController,
        ExperimentConfig,
        ExperimentHypothesis,
        ExperimentWorkspace,
        HypothesisOutcome,
        MetricSpec,
    )

    def make(workspace: ExperimentWorkspace) -> HypothesisOutcome:
        Path(workspace.path, "v").write_text("90000\n", encoding="utf-8")
        return HypothesisOutcome()

    project = make_project(folder / "repository", 50)
    config = ExperimentConfig(
        "trace", MetricSpec("ms"), measure="./measure.sh", check="./check.sh", calibration_pairs=2
    )
    trace = Trace()
    with AutoresearchController(str(project), config, home_path=str(folder / "home")) as controller:
        controller.establish_baseline()
        trace.start()
        row = controller.run_iteration(ExperimentHypothesis("h"), make)
        trace.stop()
    if row.status != "accepted":
        raise SystemExit(f"the trial was {row.status}: {row.reason}")
    return trace.facts()


def traces() -> dict[str, dict[str, Any]]:
    """What each use case runs through, with its bar."""
    found: dict[str, dict[str, Any]] = {}
    for name, run in (("refused stop", refused_stop), ("accepted trial", accepted_trial)):
        with tempfile.TemporaryDirectory(prefix="trace-") as folder:
            found[name] = run(Path(folder)) | {"bar": BARS[name]}
    return found


def print_traces(found: dict[str, dict[str, Any]]) -> None:
    """A line a use case."""
    for name, facts in found.items():
        print(
            f"{name:16} {facts['functions']} functions in {facts['modules']} modules (bar {facts['bar']}),"
            f" {facts['depth']} deep, {facts['loaded']} modules loaded"
        )


def main(argv: list[str] | None = None) -> int:
    """Print the counts; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="everything, as one JSON object")
    options = parser.parse_args(argv)
    found = traces()
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        print_traces(found)
    return int(any(facts["modules"] > facts["bar"] for facts in found.values()))


if __name__ == "__main__":
    raise SystemExit(main())
