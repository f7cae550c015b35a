"""Measure the house: ``python scripts/measure_house.py [--json] [--trace]``.

For each room and for the whole: modules, lines of code (no blanks, comments, docstrings), how many modules of the
package a module imports (anywhere in it, for type checkers too), and how long its functions are. ``--trace`` adds what
one refused stop and one trial run through (``scripts/trace_modules.py``). A measure over its bar makes the exit 1.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import statistics
import sys
import tokenize
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts import trace_modules  # noqa: E402 - found from the line above

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PACKAGE = "omx_autoresearch"
BARS = {"code_lines": 29_500, "modules": 200, "imports_average": 5.5, "imports_maximum": 20}
ENTRY_POINTS = frozenset({PACKAGE, f"{PACKAGE}.surfaces.cli", f"{PACKAGE}.surfaces.hook"})
"""Modules that only bring others together; the largest number of imports is looked for among the rest."""
_NO_CODE = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)


@dataclass(frozen=True, slots=True)
class Module:
    """What was counted of one module: its name, lines of code, imported modules, and the lines of each function."""

    name: str
    code_lines: int
    imports: frozenset[str]
    function_lines: tuple[int, ...]

    @property
    def room(self) -> str:
        """The top folder that it stands in; the package itself for those beside the rooms."""
        return [*self.name.split("."), PACKAGE][1]


def modules_below(root: Path) -> list[Module]:
    """Every module of the package below a checkout's root, by name."""
    paths = {_name_of(path.relative_to(root)): path for path in (root / PACKAGE).rglob("*.py")}
    return [_measured(name, paths) for name in sorted(paths)]


def _name_of(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _measured(name: str, paths: dict[str, Path]) -> Module:
    source = paths[name].read_text("utf-8")
    tree = ast.parse(source)
    functions = [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    imports = frozenset(_imported(tree, paths)) - {name}
    return Module(name, _code_lines(source, tree), imports, tuple(functions))


def _code_lines(source: str, tree: ast.Module) -> int:
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            code.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(code)


def _imported(tree: ast.Module, paths: dict[str, Path]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in paths)
        elif isinstance(node, ast.ImportFrom) and node.module in paths:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in paths else node.module


def measures(modules: Iterable[Module]) -> dict[str, Any]:
    """The measures of some modules together."""
    found = list(modules)
    fan_outs = [len(module.imports) for module in found]
    firm = [module for module in found if module.name not in ENTRY_POINTS] or found
    largest = max(firm, key=lambda module: len(module.imports))
    functions = sorted(lines for module in found for lines in module.function_lines) or [0]
    return {
        "modules": len(found),
        "code_lines": sum(module.code_lines for module in found),
        "imports_average": round(statistics.fmean(fan_outs), 2),
        "imports_maximum": len(largest.imports),
        "imports_most": largest.name,
        "functions": len(functions),
        "function_median": statistics.median(functions),
        "function_p90": functions[len(functions) * 9 // 10],
        "function_maximum": functions[-1],
    }


def report(root: Path) -> dict[str, Any]:
    """The whole house, each room, and which bars are missed."""
    modules = modules_below(root)
    rooms: dict[str, list[Module]] = defaultdict(list)
    for module in modules:
        rooms[module.room].append(module)
    whole = measures(modules)
    return {
        "house": whole,
        "bars": BARS,
        "missed": [name for name, bar in BARS.items() if whole[name] > bar],
        "rooms": {room: measures(inside) for room, inside in sorted(rooms.items())},
    }


def print_report(found: dict[str, Any]) -> None:
    """One line a room, the whole, and each bar."""
    print(f"{'room':18} {'modules':>7} {'code':>6} {'imports':>7} {'most':>4}  functions (median, p90, most)")
    for room, facts in [*found["rooms"].items(), ("all", found["house"])]:
        print(
            f"{room:18} {facts['modules']:7} {facts['code_lines']:6} {facts['imports_average']:7}"
            f" {facts['imports_maximum']:4}  {facts['functions']} ({facts['function_median']:g},"
            f" {facts['function_p90']}, {facts['function_maximum']})"
        )
    for name, bar in found["bars"].items():
        said = "missed" if name in found["missed"] else "held"
        print(f"{name}: {found['house'][name]}, bar {bar}: {said}")


def main(argv: list[str] | None = None) -> int:
    """Print the measures; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="everything, as one JSON object")
    parser.add_argument("--trace", action="store_true", help="run a stop and a trial too (half a minute)")
    options = parser.parse_args(argv)
    found = report(ROOT)
    if options.trace:
        found["traces"] = trace_modules.traces()
        found["missed"] += [
            name for name, facts in found["traces"].items() if facts["modules"] > facts["bar"]
        ]
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        print_report(found)
        if options.trace:
            trace_modules.print_traces(found["traces"])
    return int(bool(found["missed"]))


if __name__ == "__main__":
    raise SystemExit(main())
