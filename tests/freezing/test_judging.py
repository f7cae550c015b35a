"""What judges though no command names it: helpers that tests import, and data that a check walks; and what is work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.freezing import discovery, pins

if TYPE_CHECKING:
    from pathlib import Path


def laid(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return str(root)


WALKS_ANSWERS = "from pathlib import Path\nfor one in Path('inputs').glob('*'): Path('answers') / one.name\n"
CASES: dict[str, tuple[str, dict[str, str], set[str]]] = {
    "a helper of Python": (
        "python3 -m pytest",
        {
            "tests/test_a.py": "import judge, work\nfrom support.asserts import same\n",
            "judge.py": "",
            "support/asserts.py": "",
            "work.py": "",
        },
        {"judge.py", "support/asserts.py"},
    ),
    "a helper by what it imports": (
        "python3 -m pytest",
        {
            "tests/test_a.py": "import common, work\n",
            "common.py": "import unittest\n",
            "work.py": "import json\n",
        },
        {"common.py"},
    ),
    "a helper that a helper imports": (
        "python3 check.py",
        {"check.py": "import harness\n", "harness.py": "from fakes import clock\n", "fakes.py": ""},
        {"check.py", "harness.py", "fakes.py"},
    ),
    "a package of Go": (
        "go test ./...",
        {
            "go.mod": "module example.com/x\n",
            "a_test.go": 'package x\n\nimport (\n\t"testing"\n\n\tm "example.com/x/internal/must"\n'
            '\t"example.com/x/parse"\n)\n',
            "internal/must/must.go": "package must\n",
            "parse/parse.go": "package parse\n",
            "a.go": "package x\n",
        },
        {"internal/must/must.go"},
    ),
    "a module of node": (
        "node --test",
        {
            "a.test.js": "const same = require('./lib/assert'); const {work} = require('./work')\n",
            "lib/assert.js": "",
            "work.js": "",
        },
        {"lib/assert.js"},
    ),
    "a module of TypeScript": (
        "npx vitest run",
        {
            "a.spec.ts": "import { same } from '../x/helpers'\nimport './dev/harness'\n",
            "dev/harness/index.ts": "",
        },
        {"dev/harness/index.ts"},
    ),
    "cases with a suffix of their own": (
        "prove t/*.t",
        {"t/a.t": "", "t/b.t": "", "x.pl": ""},
        {"t/a.t", "t/b.t"},
    ),
    "a folder that a script walks": (
        "./check.sh",
        {
            "check.sh": '#!/bin/sh\nfor f in reference/*.txt; do cmp "$f" "out/${f##*/}" || exit 1; done\n',
            "reference/a.txt": "",
            "out/a.txt": "",
        },
        {"check.sh", "reference/a.txt"},
    ),
    "a folder behind a variable": (
        "./check.sh",
        {
            "check.sh": '#!/bin/sh\nDIR=${1:-x}\nCASES="reference"\nfor f in "$CASES"/*.txt; do cmp "$f" b; done\n',
            "reference/a.txt": "",
        },
        {"reference/a.txt"},
    ),
    "a golden file beside the test, by a joined text": (
        "pytest -q",
        {"tests/test_a.py": "open(os.path.dirname(__file__) + '/../data/want.txt')\n", "data/want.txt": ""},
        {"data/want.txt"},
    ),
    "what a formatted text leads to": (
        "python3 check.py",
        {"check.py": "open(f'vectors/{name}.bin')\n", "vectors/a.bin": ""},
        {"vectors/a.bin"},
    ),
    "folders that a check in Python walks": (
        "python3 check.py",
        {"check.py": WALKS_ANSWERS, "inputs/1": "", "answers/1": "", "src/a.py": ""},
        {"check.py", "inputs/1", "answers/1"},
    ),
    "a golden file by a path that a test builds": (
        "pytest -q",
        {
            "tests/test_a.py": "p = Path(__file__).parent.parent / 'data' / 'golden.txt'\n",
            "data/golden.txt": "",
            "docs/golden.md": "",
        },
        {"tests/test_a.py", "data/golden.txt"},
    ),
    "a golden file by a path that node joins": (
        "node --test",
        {
            "a.test.js": "fs.readFileSync(path.join(__dirname, 'data', 'want.json'))\n",
            "data/want.json": "",
            "data2/x.json": "",
        },
        {"a.test.js", "data/want.json"},
    ),
}


@pytest.mark.requirement("DONE-14", "WORK-06")
@pytest.mark.parametrize("case", CASES)
def test_what_pinned_files_lean_on_is_pinned(tmp_path: Path, case: str) -> None:
    command, files, expected = CASES[case]
    manifest = discovery.find(laid(tmp_path, files), commands=[command])
    found = {pin.path for pin in manifest.pins if pin.kind == "file"}
    assert found & set(files) >= expected
    assert not found & {
        "work.py",
        "work.js",
        "src/a.py",
        "docs/golden.md",
        "out/a.txt",
        "a.go",
        "parse/parse.go",
    }


WORKS: dict[str, tuple[str, dict[str, str], str]] = {
    "prose that a check reads": (
        "./check.sh",
        {"check.sh": "#!/bin/sh\nfor f in poems/*.md; do test -s $f; done\n", "poems/a.md": ""},
        "poems/a.md",
    ),
    "a page": (
        "./check.sh",
        {"check.sh": "#!/bin/sh\ngrep -q x docs/index.txt\n", "docs/index.txt": ""},
        "docs/index.txt",
    ),
    "sources beside data": (
        "python3 check.py",
        {"check.py": "import sys\nsys.path.append('solver')\n", "solver/a.py": "", "solver/table.txt": ""},
        "solver/table.txt",
    ),
    "what is written": (
        "python3 check.py",
        {"check.py": "open('results/a.csv', 'w')\n", "results/a.csv": ""},
        "results/a.csv",
    ),
    "a file at the top": (
        "python3 check.py",
        {"check.py": "open('table.csv')\n", "table.csv": ""},
        "table.csv",
    ),
    "what one line reads": ("grep -q done log/a.txt", {"log/a.txt": ""}, "log/a.txt"),
    "what the goal names": (
        "python3 check.py",
        {"check.py": "open('data/people.csv')\n", "data/people.csv": ""},
        "data/people.csv",
    ),
    "a module that tests import": (
        "pytest",
        {"tests/test_a.py": "import parser_\n", "parser_.py": ""},
        "parser_.py",
    ),
}


@pytest.mark.requirement("WORK-06")
@pytest.mark.parametrize("case", WORKS)
def test_what_a_mission_is_about_is_not_pinned(tmp_path: Path, case: str) -> None:
    command, files, work = WORKS[case]
    manifest = discovery.find(laid(tmp_path, files), commands=[command], goal="clean up data/people.csv")
    assert work not in {pin.path for pin in manifest.pins}


@pytest.mark.requirement("DONE-15")
@pytest.mark.parametrize(
    ("planted", "tampers"),
    [
        ("tests/helper.js", True),
        ("tests/node_modules/chai/index.js", True),
        ("tests/other.js", False),
        ("node_modules/other/index.js", False),
    ],
)
def test_a_module_that_node_would_find_first_tampers(tmp_path: Path, planted: str, *, tampers: bool) -> None:
    files = {
        "tests/a.test.js": "require('./helper'); require('chai'); require('node:fs')\n",
        "tests/helper/index.js": "",
        "node_modules/chai/index.js": "",
    }
    root = laid(tmp_path, files)
    manifest = discovery.find(root, commands=["node --test"])
    laid(tmp_path, {planted: ""})
    assert pins.compare(manifest, root).is_intact is not tampers


@pytest.mark.requirement("DONE-15")
@pytest.mark.parametrize(
    ("script", "planted"),
    [
        ('ENV=.env\nif [ -f "$ENV" ]; then . "$ENV"; fi\n', ".env"),
        ('for f in conf.d/*.sh; do [ -r "$f" ] && . "$f"; done\n', "conf.d/new.sh"),
        ("test -r ./local.sh && source ./local.sh\n", "local.sh"),
    ],
)
def test_a_file_that_a_script_reads_where_it_is_there_tampers(
    tmp_path: Path, script: str, planted: str
) -> None:
    root = laid(tmp_path, {"check.sh": f"#!/bin/sh\n{script}grep -q x y\n", "conf.d/a.sh": ""})
    manifest = discovery.find(root, commands=["./check.sh"])
    laid(tmp_path, {"conf.d/notes.txt": "", "other.sh": ""})
    assert pins.compare(manifest, root).is_intact
    laid(tmp_path, {planted: ""})
    assert pins.compare(manifest, root).added == (planted,)


@pytest.mark.requirement("DONE-15")
def test_a_program_that_a_build_makes_is_not_pinned(tmp_path: Path) -> None:
    root = laid(tmp_path, {"Makefile": "check: prog\n\t./prog --selftest\nprog: a.c\n\tcc a.c -o prog\n"})
    (tmp_path / "prog").write_bytes(b"\x7fELF\0")
    manifest = discovery.find(root, commands=["make check"])
    assert [pin.path for pin in manifest.pins if pin.kind == "file"] == ["Makefile"]
