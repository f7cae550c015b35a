"""Templates: a forgotten value is an error, and Markdown is not escaped."""

from __future__ import annotations

import jinja2
import pytest

from omx_autoresearch.foundation import templates
from omx_autoresearch.missions.rules.intake import MissionDraft


def test_a_forgotten_value_is_an_error_and_never_a_blank() -> None:
    with pytest.raises(jinja2.UndefinedError, match="frontmatter"):
        templates.render("mission.md.j2", draft=MissionDraft())


def test_commands_are_not_escaped_and_what_looks_like_a_template_stays_text() -> None:
    goal = 'a < b && "c" {{ x }} {% if %}'
    assert f"\n{goal}\n" in templates.render("mission.md.j2", frontmatter="", draft=MissionDraft(goal=goal))


def test_an_unknown_template_is_named() -> None:
    with pytest.raises(jinja2.TemplateNotFound, match="nothing"):
        templates.render("nothing.md.j2")
