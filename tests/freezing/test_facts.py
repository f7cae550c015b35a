"""Tests inside sources of Rust: kept test by test, in a file that is the work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.foundation.errors import WorkspaceFault
from omx_autoresearch.freezing import discovery, pins, restoration
from omx_autoresearch.freezing.inline_tests import inline_tests

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """\
//! Adds.
pub fn add(a: i32, b: i32) -> i32 { a - b }

#[cfg(test)]
mod tests {
    use super::*;
    const ROWS: [(i32, i32); 2] = [(1, 1), (2, 2)];

    fn check(row: (i32, i32)) { assert_eq!(add(row.0, 0), row.1, "of '{}'", 'x') }

    #[test]
    fn adds<'a>() { // "a brace in a comment: }"
        assert_eq!(add(1, 2), 3);
        let text = r#"a "quoted" }"#;
        assert!(text.len() > 3);
    }

    #[test]
    #[should_panic]
    fn panics() { panic!("}") }
}
"""
NAMES = {"tests::ROWS", "tests::check", "tests::adds", "tests::panics"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "Cargo.toml").write_text("[package]\nname = 'x'\n")
    (tmp_path / "src/lib.rs").write_text(SOURCE)
    return tmp_path


def test_each_item_of_a_module_of_tests_has_an_entry() -> None:
    assert inline_tests(SOURCE).keys() == NAMES
    assert inline_tests("pub fn add() {}\n#[cfg(not(test))]\nfn a() {}\n") == {}
    assert inline_tests("#[tokio::test]\nasync fn waits() {}\n").keys() == {"waits"}
    assert inline_tests("mod a { #[cfg(all(test, unix))] mod t { #[test] fn x() {} } }").keys() == {"a::t::x"}


@pytest.mark.parametrize(
    "text", ["", "}", "#[cfg(test", "#[cfg(test)] mod t {", 'fn "', "use a", "#", "mod t { ) }"]
)
def test_a_text_that_is_no_rust_ends(text: str) -> None:
    assert isinstance(inline_tests(text), dict)


EDITS = {
    "weakened": (("add(1, 2), 3)", "add(1, 2), add(1, 2))"), {"tests::adds"}),
    "ignored": (("#[test]\n    fn adds", "#[test]\n    #[ignore]\n    fn adds"), {"tests::adds"}),
    "no test any more": (("#[test]\n    fn adds", "fn adds"), {"tests::adds"}),
    "returning early": (('{ // "a', '{ return; // "a'), {"tests::adds"}),
    "commented out": (("    #[test]\n    #[should_panic]\n    fn panics() {", "    // {"), {"tests::panics"}),
    "the helper": (("row.1, ", "add(row.0, 0), "), {"tests::check"}),
    "the rows": (("(2, 2)", "(2, -2)"), {"tests::ROWS"}),
    "the whole module": (("#[cfg(test)]", "#[cfg(any())]"), NAMES),
    "another assertion": (("//! Adds.", "macro_rules! assert_eq { ($($x:tt)*) => {} }"), {"macro assert_eq"}),
    "an imported assertion": (
        ("use super::*;", "use super::*; use crate::same as assert_eq;"),
        {"macro assert_eq"},
    ),
}


@pytest.mark.requirement("DONE-57")
@pytest.mark.parametrize("edit", EDITS)
def test_an_inline_test_that_was_changed_or_removed_is_named(project: Path, edit: str) -> None:
    (old, new), named = EDITS[edit]
    manifest = discovery.find(str(project), commands=["cargo test"])
    assert old in SOURCE
    (project / "src/lib.rs").write_text(SOURCE.replace(old, new, 1))
    assert set(pins.compare(manifest, str(project)).changed) == {f"src/lib.rs::{name}" for name in named}


@pytest.mark.requirement("DONE-15")
def test_the_work_around_inline_tests_new_ones_and_a_formatter_are_no_tampering(project: Path) -> None:
    manifest = discovery.find(str(project), commands=["cargo test"])
    text = SOURCE.replace("a - b", "a + b").replace(
        "[(1, 1), (2, 2)]", "[\n        (1, 1),\n        (2, 2),\n    ]"
    )
    text = text.replace(
        "    #[test]\n    fn adds", "    #[test]\n    fn more() { assert!(true) }\n\n    #[test]\n    fn adds"
    )
    text = text.replace("use super::*;", "use super::*;\n    use std::fmt;").replace(
        " }\n\n    #[test]\n    #[should", "\n    }\n    #[test]\n    #[should"
    )
    (project / "src/lib.rs").write_text(text.replace('panic!("}") }', 'panic!("}")\n    }'))
    assert pins.compare(manifest, str(project)).is_intact


@pytest.mark.requirement("DONE-14", "DONE-16")
def test_inline_tests_alone_are_an_evaluator_and_come_back_from_the_disk(
    project: Path, tmp_path: Path
) -> None:
    manifest = discovery.find(str(project), commands=["cargo test"])
    assert manifest.judging_count == len(NAMES)
    (note,) = manifest.notes
    assert "src/lib.rs::tests::adds" in note
    frozen = str(tmp_path / "frozen")
    pins.pin(frozen, manifest, str(project))
    assert pins.load_manifest(frozen) == manifest


def test_a_restore_says_that_an_inline_test_is_to_be_put_back_by_hand(project: Path, tmp_path: Path) -> None:
    manifest = discovery.find(str(project), commands=["cargo test"])
    frozen = str(tmp_path / "frozen")
    pins.pin(frozen, manifest, str(project))
    (project / "src/lib.rs").write_text(SOURCE.replace("#[cfg(test)]", ""))
    (project / "src/lib.rs").write_text("pub fn add() {}\n")
    (project / "Cargo.toml").write_text("")
    with pytest.raises(WorkspaceFault, match=r"src/lib.rs::tests::adds.*put back"):
        restoration.restore(manifest, str(project), frozen_path=frozen)
    assert "name" in (project / "Cargo.toml").read_text()


@pytest.mark.requirement("DONE-57")
def test_a_module_of_tests_in_a_file_of_its_own_is_pinned(project: Path) -> None:
    (project / "src/lib.rs").write_text("mod parse;\n#[cfg(test)]\nmod tests;\n")
    (project / "src/parse.rs").write_text("#[cfg(test)] mod cases;\n")
    (project / "src/parse").mkdir()
    for name in ("src/tests.rs", "src/parse/cases.rs"):
        (project / name).write_text("#[test] fn a() {}\n")
    manifest = discovery.find(str(project), commands=["cargo test"])
    assert {"src/tests.rs", "src/parse/cases.rs"} <= {pin.path for pin in manifest.pins}


@pytest.mark.requirement("HOOK-04")
def test_a_file_that_did_not_move_is_not_read_again(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = discovery.find(str(project), commands=["cargo test"])
    cache = str(project.parent / "cache.json")
    monkeypatch.setattr(pins, "RACY_NS", -(10**12))
    assert pins.compare(manifest, str(project), cache_path=cache).is_intact
    monkeypatch.setattr("omx_autoresearch.freezing.facts.inline_tests", None)
    assert pins.compare(manifest, str(project), cache_path=cache).is_intact
