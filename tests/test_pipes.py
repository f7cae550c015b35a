"""The gates of the tests themselves: a process that dies before its gate fails a test, and hangs none."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.pipes import let_go, word_from

if TYPE_CHECKING:
    from pathlib import Path


def test_a_gate_that_nobody_comes_to_is_a_failure_and_no_hang(tmp_path: Path) -> None:
    for name in ("gate", "answer"):  # one each: the ends of one pipe would let each other through
        os.mkfifo(tmp_path / name)
    with pytest.raises(AssertionError, match="nobody came to read"):
        let_go(tmp_path / "gate", seconds=0.05)
    with pytest.raises(AssertionError, match="nobody came to write"):
        word_from(tmp_path / "answer", seconds=0.05)


def test_a_word_goes_through_a_gate_both_ways(tmp_path: Path) -> None:
    for name in ("gate", "answer"):
        os.mkfifo(tmp_path / name)
    process = subprocess.Popen(["sh", "-c", 'read x < gate; echo "$x!" > answer'], cwd=tmp_path)
    let_go(tmp_path / "gate")
    assert word_from(tmp_path / "answer") == "go!\n"
    assert process.wait(timeout=60) == 0
