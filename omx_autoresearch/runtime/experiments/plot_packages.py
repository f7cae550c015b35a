"""The packages of the extra ``plots``, loaded when a plot is wanted, and the files that they make of a specification.

Nothing is fetched: fonts, libraries and data come from the installed packages, and a specification that names an
address is refused by the converter. What a hypothesis says is data in every form: escaped JSON inside the page, text in
the pictures.
"""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any

from omx_autoresearch import templates
from omx_autoresearch.core.values import dataclass
from omx_autoresearch.errors import UsageError

if TYPE_CHECKING:
    from typing import Literal

    PlotFormat = Literal["html", "svg", "png"]

FORMATS: tuple[PlotFormat, ...] = ("html", "svg", "png")
PNG_SCALE = 2.0
"""Pixels of a PNG for each unit of the plot."""

_IN_SCRIPT = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
"""What could end a script element or a line of it; each is the same character to whoever reads the JSON."""


@dataclass(frozen=True, slots=True)
class PlotPackages:
    """Modules ``altair`` and ``vl_convert``."""

    altair: Any
    vl_convert: Any


def plot_packages() -> PlotPackages:
    """The packages that draw.

    Raises:
        UsageError: one is missing; the message names the extra.
    """
    try:
        return PlotPackages(importlib.import_module("altair"), importlib.import_module("vl_convert"))
    except ImportError as error:
        raise UsageError(
            f"plots need the packages of the extra `plots`; {error.name or error} cannot be loaded",
            next_step="pip install 'omx-autoresearch[plots]'",
        ) from None


def render_plot(specification: dict[str, Any], plot_format: PlotFormat) -> bytes:
    """One specification as a file.

    Args:
        specification: from `plot_specification`.
        plot_format: ``html`` is one page without any outside reference, ``svg`` and ``png`` are pictures.

    Raises:
        UsageError: the extra is not installed, or there is no such format.
    """
    if plot_format not in FORMATS:
        raise UsageError(
            f"{plot_format!r} is no format of a plot", next_step=f"use one of {', '.join(FORMATS)}"
        )
    converter = plot_packages().vl_convert
    version = _vega_lite_version(specification, converter)
    if plot_format == "html":
        return _page(specification, converter.javascript_bundle(vl_version=version)).encode("utf-8")
    if plot_format == "svg":
        svg: str = converter.vegalite_to_svg(specification, vl_version=version, allowed_base_urls=[])
        return svg.encode("utf-8")
    png: bytes = converter.vegalite_to_png(
        specification, vl_version=version, scale=PNG_SCALE, allowed_base_urls=[]
    )
    return png


def _vega_lite_version(specification: dict[str, Any], converter: Any) -> str | None:
    """The converter's own copy of the version that the specification was made for; its newest where it has none."""
    name = str(specification.get("$schema", "")).rpartition("/v")[2].removesuffix(".json")
    wanted = ".".join(name.split(".")[:2])
    return wanted if wanted in converter.get_vegalite_versions() else None


def _page(specification: dict[str, Any], library: str) -> str:
    title = specification.get("title") or {}
    return templates.render(
        "experiment_plot.html.j2",
        title=title.get("text", "experiment") if isinstance(title, dict) else str(title),
        summary=specification.get("description", ""),
        library=library,
        specification=in_script(specification),
    )


def in_script(value: Any) -> str:
    """JSON that stands safely inside a script element of a page."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False)
    for character, code in _IN_SCRIPT.items():
        text = text.replace(character, code)
    return text
