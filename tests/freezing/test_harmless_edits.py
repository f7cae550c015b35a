"""Edits of frozen Python that change nothing of what it judges, and edits that do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.freezing import discovery, pins

if TYPE_CHECKING:
    from pathlib import Path

BEFORE = """#!/usr/bin/env python
import sys, os
from a import c, b

def test(  ):
    '''  Tests.
       All. '''
    import json
    assert os.name != u'x' and ('a'
        'b') == 'ab' and json
"""
AFTER = '''#!/usr/bin/env python
# Sorted, and wrapped.
import os
import sys

from a import b, c


def test():
    """Tests.
    All."""
    import json

    assert os.name != "x" and ("a" "b") == "ab" and json
'''


def edited(root: Path, path: str, after: str, *, mode: int = 0o755) -> tuple[str, ...]:
    """What is still taken for a change where the runs see the frozen copies."""
    work, frozen = root / "work", str(root / "frozen")
    (work / "tests").mkdir(parents=True)
    (work / path).write_text(BEFORE)
    (work / path).chmod(0o755)
    (work / "tests" / "test_it.py").touch()
    manifest = discovery.find(str(work), commands=["python check.py && pytest tests"])
    pins.pin(frozen, manifest, str(work))
    (work / path).write_text(after)
    (work / path).chmod(mode)
    assert pins.compare(manifest, str(work)).changed == (path,)
    return pins.compare(manifest, str(work), frozen_path=frozen).changed


@pytest.mark.requirement("DONE-25")
@pytest.mark.parametrize("path", ["check.py", "tests/test_a.py", "tests/helper.py", "conftest.py"])
def test_python_that_a_formatter_went_over_is_no_change_where_its_frozen_copy_judges(
    tmp_path: Path, path: str
) -> None:
    assert edited(tmp_path, path, AFTER) == ()


@pytest.mark.requirement("DONE-25")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"ab"', '"abc"'),
        ("import os", "import os as sys"),
        ("from a import b, c", "from a import b"),
        ("from a import b, c", "from .a import b, c"),
        ("import os\nimport sys\n", "import os\nx = 1\nimport sys\n"),
        ("def test", "async def test"),
        ("#!/usr/bin/env python", "#!/bin/true"),
        ("    import json\n\n", ""),
        ('("a" "b")', '("a", "b")'),
    ],
)
def test_python_that_reads_otherwise_is_a_change(tmp_path: Path, old: str, new: str) -> None:
    assert old in AFTER
    assert edited(tmp_path, "check.py", AFTER.replace(old, new)) == ("check.py",)


@pytest.mark.requirement("DONE-25")
def test_a_formatted_script_that_may_no_longer_be_run_is_a_change(tmp_path: Path) -> None:
    assert edited(tmp_path, "check.py", AFTER, mode=0o644) == ("check.py",)
