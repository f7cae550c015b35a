"""The plot: defined for whatever was measured, self-contained, and honest about what is a result."""

from __future__ import annotations

import json
import re
import struct
import sys
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from omx_autoresearch.experiments.judge.calibration import AcceptanceRule
from omx_autoresearch.experiments.judge.metrics import MetricSpec
from omx_autoresearch.experiments.judge.state import ExperimentConfig, ExperimentState
from omx_autoresearch.experiments.judge.summary import quoted_claim
from omx_autoresearch.experiments.reports.plots import (
    COLOURS,
    FORMATS,
    SHAPES,
    frame_of,
    plot_specification,
    render_plot,
)
from omx_autoresearch.foundation.errors import UsageError
from tests.experiments.samples import (
    a_claim,
    a_long_story,
    a_row,
    a_state,
    a_story,
    accepted,
    judged,
)

if TYPE_CHECKING:
    from omx_autoresearch.foundation.types import MetricDirection

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)><!--"


def a_scaled(factor: float, *, shift: float = 0.0, direction: MetricDirection = "lower") -> ExperimentState:
    """The same three values in another unit."""

    def scaled(value: float) -> float:
        return value * factor + shift

    rows = [
        accepted(1, 100, 90, metric=scaled(90), incumbent_samples=(scaled(100),), interval=()),
        judged(2, 90, 95, metric=scaled(95), incumbent_samples=(scaled(90),), interval=()),
    ]
    config = ExperimentConfig("scaled", MetricSpec("m", direction), rule=AcceptanceRule(direction=direction))
    return replace(a_state(rows), config=config, baseline=scaled(100))


STATES = {
    "nothing measured": a_state(baseline=None, calibration=None),
    "no trial": a_state(),
    "one trial": a_state([judged(1, 100, 98)]),
    "every ending": a_story(),
    "all failed": a_state([a_row(n, status="failed", reason_code="timed_out") for n in range(1, 6)]),
    "failed before any baseline": a_state([a_row(1, status="failed")], baseline=None),
    "negative": a_scaled(-1, direction="higher"),
    "around zero": a_scaled(1, shift=-95),
    "all zero": a_scaled(0),
    "tiny": a_scaled(1e-12),
    "denormal": a_scaled(1e-322),
    "huge": a_scaled(1e15),
    "largest": a_scaled(1.7e306),
    "of both signs at the limit": a_state(
        [accepted(1, 1, 1, metric=-1.7e308, incumbent_samples=(), interval=())], baseline=1.7e308
    ),
    "hardly different": a_scaled(1e-3, shift=1e6),
    "far apart": a_state([judged(1, 100, 9000), accepted(2, 100, 90)]),
    "without a gain": replace(a_story(), claim=a_claim(0.001, -0.01, 0.012)),
}


def values_of(specification: dict[str, Any]) -> list[dict[str, Any]]:
    """Every row of data in a specification, through all of its views."""
    found = [row for rows in specification.get("datasets", {}).values() for row in rows]
    waiting: list[Any] = [specification]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            found += item["values"] if isinstance(item.get("values"), list) else []
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
    return [row for row in found if isinstance(row, dict)]


class Page(HTMLParser):
    """Elements and scripts of a page as a browser sees them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._in_script = tag == "script"
        if self._in_script:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_script = self._in_script and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data


@pytest.mark.requirement("SEE-04")
@pytest.mark.parametrize("name", STATES)
def test_every_state_has_a_plot(name: str) -> None:
    specification = plot_specification(STATES[name])
    json.dumps(specification, allow_nan=False)
    svg = render_plot(specification, "svg").decode("utf-8")
    assert "NaN" not in svg
    assert "Infinity" not in svg
    ElementTree.fromstring(svg)


@pytest.mark.slow
@pytest.mark.requirement("SEE-04")
def test_a_thousand_trials_are_one_plot() -> None:
    state = a_long_story(1000)
    specification = plot_specification(state)
    trials = {row["trial"] for row in values_of(specification) if "kind" in row}
    assert trials == set(range(1, 1001))
    png = render_plot(specification, "png")
    width, height = struct.unpack(">II", png[16:24])
    assert 1200 < width < 2400
    assert 600 < height < 1500


@pytest.mark.requirement("SEE-01")
@pytest.mark.parametrize("claim", [None, a_claim(), a_claim(0.001, -0.01, 0.012)])
def test_the_title_quotes_the_claim_and_no_other_number_as_a_result(claim: Any) -> None:
    state = replace(a_story(), claim=claim)
    said = quoted_claim(state)
    subtitle = " ".join(plot_specification(state)["title"]["subtitle"])
    assert subtitle == " ".join((said.sentence, *said.warnings))


@pytest.mark.requirement("SEE-04")
def test_accepted_steps_are_a_step_line_from_the_base_to_the_last_trial() -> None:
    specification = plot_specification(a_story())
    lines = [row for row in values_of(specification) if set(row) == {"trial", "value"}]
    assert [(row["trial"], row["value"]) for row in lines] == [(0, 100), (2, 90), (6, 77), (9, 77)]
    assert '"interpolate": "step-after"' in json.dumps(specification)


@pytest.mark.requirement("SEE-04")
def test_a_trial_without_a_value_stands_in_its_own_lane_and_never_at_zero() -> None:
    rows = {row["trial"]: row for row in values_of(plot_specification(a_story())) if "kind" in row}
    assert rows[3]["value"] is None
    assert rows[3]["lane"] == "no value"
    assert frame_of(a_story()).low > 70


@pytest.mark.requirement("SEE-07")
def test_the_page_tells_no_more_of_a_held_out_check_than_that_it_failed() -> None:
    row = a_row(1, reason_code="held_out_failed", reason="expected 42")
    text = json.dumps(plot_specification(a_state([row])))
    assert "the held-out check failed" in text
    assert "expected 42" not in text


@pytest.mark.requirement("SEE-04")
def test_every_ending_has_a_colour_and_a_shape_of_its_own() -> None:
    assert len(set(COLOURS.values())) == len(COLOURS)
    assert len(set(SHAPES.values())) == len(SHAPES)
    assert COLOURS.keys() == SHAPES.keys()
    svg = render_plot(plot_specification(a_story()), "svg").decode("utf-8")
    for label in ("accepted (2)", "rejected (4)", "failed (1)", "tampered (1)", "running (1)"):
        assert label in svg


def contrast(colour: str) -> float:
    """Against white, by WCAG 2.2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 1.05 / (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)


@pytest.mark.parametrize("kind", COLOURS)
def test_marks_stand_out_on_white(kind: str) -> None:
    assert contrast(COLOURS[kind]) >= 3.0  # type: ignore[index]


@pytest.mark.requirement("SEE-04")
def test_one_wide_interval_does_not_flatten_the_rest() -> None:
    state = a_state([judged(1, 100, 98, interval=(-5.0, 5.0)), accepted(2, 100, 95)])
    frame = frame_of(state)
    assert frame.high - frame.low < 30


def test_values_far_apart_are_drawn_on_a_logarithmic_axis_that_says_so() -> None:
    assert frame_of(STATES["far apart"]).is_log
    assert not frame_of(a_story()).is_log
    assert "logarithmic" in json.dumps(plot_specification(STATES["far apart"]))


def test_neighbouring_ticks_read_differently_though_values_hardly_differ() -> None:
    svg = render_plot(plot_specification(STATES["hardly different"]), "svg").decode("utf-8")
    ticks = re.findall(r">(1000000\.0\d*)<", svg)
    assert len(ticks) > 3
    assert len(set(ticks)) == len(ticks)


@pytest.mark.requirement("SEE-05")
@pytest.mark.parametrize("plot_format", FORMATS)
def test_what_a_hypothesis_says_is_never_active(plot_format: Any) -> None:
    rows = [judged(1, 100, 98, hypothesis_id=HOSTILE, description=HOSTILE, reason=HOSTILE)]
    state = replace(a_state(rows), config=ExperimentConfig(HOSTILE, MetricSpec("total_ms", unit=HOSTILE)))
    data = render_plot(plot_specification(state, origin=HOSTILE), plot_format)
    if plot_format == "html":
        page = Page(data.decode("utf-8"))
        assert [name for name, _ in page.elements].count("script") == 2
        assert "img" not in {name for name, _ in page.elements}
        assert "owned" in page.scripts[1]  # as data of the second one, which is ours
    elif plot_format == "svg":
        names = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(data).iter()}
        assert not names & {"script", "img", "image", "a", "foreignObject"}
    else:
        assert data.startswith(b"\x89PNG")


@pytest.mark.requirement("SEE-05")
def test_the_page_refers_to_nothing_outside_and_allows_nothing_else() -> None:
    page = Page(render_plot(plot_specification(a_story()), "html").decode("utf-8"))
    for _, attributes in page.elements:
        assert not {"src", "href", "srcset", "action"} & attributes.keys()
    policy = next(found["content"] for name, found in page.elements if "http-equiv" in found)
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy


def test_the_page_says_without_its_script_what_the_plot_says() -> None:
    text = render_plot(plot_specification(a_story()), "html").decode("utf-8")
    assert "<noscript><p>speed. Verified: total_ms is 23.1 % lower" in text


@pytest.mark.requirement("SEE-05")
@pytest.mark.parametrize("missing", ["altair", "vl_convert"])
def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UsageError, match="extra `plots`") as caught:
        render_plot(plot_specification(a_story()), "svg")
    assert caught.value.next_step == "pip install 'omx-autoresearch[plots]'"


def test_another_format_is_refused() -> None:
    with pytest.raises(UsageError, match="'gif' is not a plot format"):
        render_plot(plot_specification(a_state()), "gif")  # type: ignore[arg-type]


def test_the_same_state_gives_the_same_specification() -> None:
    assert plot_specification(a_story()) == plot_specification(a_story())
