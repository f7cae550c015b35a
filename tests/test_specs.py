"""What specs/ takes from the code is what the code says today."""

from __future__ import annotations

import json
import pkgutil
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from omx_autoresearch.foundation import errors
from omx_autoresearch.missions.rules import mission
from scripts import generate_specs

ROOT = Path(__file__).resolve().parent.parent
SPECS = ROOT / "specs"


def _tree(root: type[errors.AutoresearchError]) -> list[type[errors.AutoresearchError]]:
    return [root, *(found for kind in root.__subclasses__() for found in _tree(kind))]


def _in_errors_module() -> list[type[errors.AutoresearchError]]:
    return [kind for kind in _tree(errors.AutoresearchError) if kind.__module__ == errors.__name__]


@pytest.mark.requirement("LIFE-08")
def test_schemas_and_diagram_are_what_the_code_says() -> None:
    names = [str(path.relative_to(ROOT)) for path in generate_specs.stale()]
    assert names == [], "run: python scripts/generate_specs.py"


@pytest.mark.requirement("LIFE-08")
def test_the_diagram_shows_every_step_of_the_table() -> None:
    block = generate_specs.lifecycle_block()
    for step, sources, target in mission.TRANSITIONS:
        for source in sources:
            assert re.search(rf"{source} --> {target}: {step}\b", block), f"{source} {step}"


@pytest.mark.parametrize("path", sorted((SPECS / "schemas").glob("*.json")), ids=lambda path: path.stem)
def test_a_published_schema_is_a_schema(path: Path) -> None:
    Draft202012Validator.check_schema(json.loads(path.read_text(encoding="utf-8")))


@pytest.mark.requirement("CLI-03")
def test_every_error_has_its_section_with_status_cause_and_cure() -> None:
    page = (SPECS / "errors.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", page, flags=re.MULTILINE | re.DOTALL))
    assert sorted(sections) == sorted({kind.slug for kind in _in_errors_module()})
    for kind in _in_errors_module():
        text = sections[kind.slug]
        assert f"Exit status {kind.exit_code}." in text, kind.slug
        assert "**Cause**" in text, kind.slug
        assert "**Cure**" in text, kind.slug


def exists(name: str) -> bool:
    """True when the package has a module of this name, or a module with this class, function or table."""
    try:
        pkgutil.resolve_name(f"omx_autoresearch.{name}")
    except (ImportError, AttributeError):
        return False
    return True


def test_the_glossary_names_what_the_code_has() -> None:
    rows = re.findall(r"^\| .* \| `([\w.]+)` \|$", (SPECS / "glossary.md").read_text("utf-8"), re.MULTILINE)
    assert len(rows) > 50
    assert [name for name in rows if not exists(name)] == []
    assert not exists("freezing.pins.absent")


def test_the_tree_drawn_in_errors_is_the_tree() -> None:
    drawn = re.findall(
        r"^[\s│├└─]*(\w+)\s+(\d)\s+([\w-]+)",
        (errors.__doc__ or "").split("A refusal,")[0],
        flags=re.MULTILINE,
    )
    assert drawn == [(kind.__name__, str(kind.exit_code), kind.slug) for kind in _in_errors_module()]


def test_links_between_pages_lead_somewhere() -> None:
    pages = [*SPECS.rglob("*.md"), *ROOT.glob("*.md")]
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []


def test_a_decision_says_problem_decision_alternatives_and_consequences() -> None:
    for page in (SPECS / "decisions").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert re.match(r"# \d{4} ", text), page.name
        for part in ("Problem", "Decision", "Alternatives", "Consequences"):
            assert f"**{part}.**" in text, f"{page.name}: {part}"


def test_decisions_are_numbered_without_a_gap() -> None:
    numbers = [int(page.name[:4]) for page in sorted((SPECS / "decisions").glob("*.md"))]
    assert numbers == list(range(1, len(numbers) + 1))


def test_what_the_readme_tells_to_read_is_there() -> None:
    order = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Read the code")[2]
    named = re.findall(r"`([a-z_/.]+(?:\.py|/))`", order)
    assert len(named) >= 8
    gone = [
        name for name in named if not any((at / name).exists() for at in (ROOT, ROOT / "omx_autoresearch"))
    ]
    assert gone == []


def test_every_page_is_in_the_order_of_reading() -> None:
    index = (SPECS / "README.md").read_text(encoding="utf-8")
    assert [
        page.name for page in SPECS.glob("*.md") if page.name != "README.md" and page.name not in index
    ] == []
