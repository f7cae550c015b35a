"""Files under `.omx` are whole for every reader, however fast they are replaced."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from omx_autoresearch.journal.omx_folder import IGNORE_ALL, OmxFolder

ROOT = Path(__file__).resolve().parents[2]
NAME = "progress.json"


@pytest.mark.slow
@pytest.mark.requirement("STATE-06")
def test_a_reader_beside_a_writer_always_finds_a_whole_file(tmp_path: Path) -> None:
    with OmxFolder(str(tmp_path), ".omx/state", make=True) as folder:
        folder.replace(NAME, b"a" * 3000)
    code = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from omx_autoresearch.journal.omx_folder import OmxFolder\n"
        "with OmxFolder(sys.argv[1], '.omx/state') as folder:\n"
        "    for number in range(3000):\n"
        "        data = bytes([97 + number % 26]) * (2000 + number % 7 * 500)\n"
        "        folder.replace('progress.json', data)\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(ROOT)])
    path = tmp_path / ".omx" / "state" / NAME
    while writer.poll() is None:
        with path.open("rb") as stream:
            data = stream.read(1000)
            data += stream.read()  # a reader that takes its time
        assert len(data) >= 2000
        assert data == data[:1] * len(data)
    assert writer.returncode == 0


def test_what_is_missing_is_made_and_only_then_the_ignore_rule_is_written(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        OmxFolder(str(tmp_path), ".omx/a/b")
    assert list(tmp_path.iterdir()) == []
    with OmxFolder(str(tmp_path), ".omx/a", make=True) as folder:
        with pytest.raises(FileNotFoundError):
            folder.below("b")
        with folder.below("b", make=True) as below:
            below.replace(NAME, b"{}")
            assert below.path == str(tmp_path / ".omx" / "a" / "b")
    rule = tmp_path / ".omx" / ".gitignore"
    assert rule.read_bytes() == IGNORE_ALL
    rule.write_text("owner's")
    OmxFolder(str(tmp_path), ".omx/a/c", make=True).close()
    assert rule.read_text() == "owner's"
    assert (tmp_path / ".omx" / "a" / "b" / NAME).read_bytes() == b"{}"
