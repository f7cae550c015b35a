"""What pinned scripts import: named for the owner, never pinned unasked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omx_autoresearch.freezing import readings

if TYPE_CHECKING:
    from pathlib import Path


def test_unpinned_modules_that_a_pinned_script_imports_are_named(tmp_path: Path) -> None:
    for name, text in {
        "bench/measure.py": "import json\nfrom helper import report\nimport work.core\nfrom work import parse\n",
        "bench/helper.py": "",
        "work/__init__.py": "",
        "work/core.py": "",
        "work/parse.py": "",
        "broken.py": "import (",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    def notes(pinned: list[str]) -> list[str]:
        imports = {path: readings.readings_of(str(tmp_path), path).imports for path in pinned}
        return readings.unpinned_imports(imports, pinned)

    (note,) = notes(["bench/measure.py", "work/core.py", "broken.py"])
    assert note.startswith("bench/measure.py imports bench/helper.py, work/__init__.py, work/parse.py, ")
    assert "--protect bench/helper.py" in note
    assert notes(["bench/helper.py", "check.sh"]) == []
