"""The script that measures the house counts what it says it counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts import measure_house

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

MODULE = '''"""A docstring."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.low.deep import Thing


def act() -> str:  # a comment
    """What it does."""
    from omx_autoresearch.low import deep, other

    # nothing of this counts

    return """two
lines"""
'''


def make_house(root: Path) -> None:
    package = root / measure_house.PACKAGE
    (package / "low").mkdir(parents=True)
    (package / "high").mkdir()
    for path, text in {"": "", "low/": "other = 1\n", "high/": ""}.items():
        (package / f"{path}__init__.py").write_text(text, "utf-8")
    (package / "low" / "deep.py").write_text("class Thing:\n    pass\n", "utf-8")
    (package / "high" / "door.py").write_text(MODULE, "utf-8")


def test_code_is_counted_without_docstrings_comments_and_blanks_and_each_imported_module_once(
    tmp_path: Path,
) -> None:
    make_house(tmp_path)
    door = next(found for found in measure_house.modules_below(tmp_path) if found.name.endswith("door"))
    assert (door.room, door.code_lines) == ("high", 8)
    assert door.imports == {"omx_autoresearch.low", "omx_autoresearch.low.deep"}
    assert door.function_lines == (8,)


def test_a_measure_over_its_bar_is_named_and_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_house(tmp_path)
    monkeypatch.setattr(measure_house, "ROOT", tmp_path)
    assert measure_house.main([]) == 0
    monkeypatch.setitem(measure_house.BARS, "imports_maximum", 1)
    assert measure_house.main([]) == 1
    assert "imports_maximum: 2, bar 1: missed" in capsys.readouterr().out
