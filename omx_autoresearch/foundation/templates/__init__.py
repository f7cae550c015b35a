"""Jinja2 templates for files and reports. A missing value is an error, never a blank."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jinja2


def render(name: str, **values: Any) -> str:
    """Return the template ``name`` (``mission.md.j2``) filled with ``values``.

    Only templates that end in ``.html.j2`` escape values; the others are Markdown or plain text.

    Raises:
        jinja2.UndefinedError: the template needs a value that is not given.
        jinja2.TemplateNotFound: there is no such template.
    """
    return _environment().get_template(name).render(**values)


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(  # Markdown is no HTML: escaping would change commands
        loader=jinja2.PackageLoader("omx_autoresearch.foundation", "templates"),
        undefined=jinja2.StrictUndefined,
        autoescape=lambda name: bool(name) and str(name).endswith(".html.j2"),  # noqa: S701  # Markdown is no HTML
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
