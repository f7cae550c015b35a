"""The report: everything that is needed to decide, one number, and no markup from a model."""

from __future__ import annotations

import base64
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest
from markdown_it import MarkdownIt

from omx_autoresearch.experiments.judge.calibration import calibrate
from omx_autoresearch.experiments.judge.metrics import Guard, MetricSpec
from omx_autoresearch.experiments.judge.state import ExperimentConfig, ExperimentLimits, ExperimentState
from omx_autoresearch.experiments.reports.pages import (
    ReportMaterial,
    html_report,
    markdown_block,
    markdown_cell,
    markdown_code,
    markdown_report,
    markdown_text,
    report_facts,
    report_files,
    with_plot,
)
from omx_autoresearch.experiments.worktrees.object_store import FileChange
from tests.experiments.samples import a_claim, a_row, a_state, a_story, accepted, commit, judged

if TYPE_CHECKING:
    from markdown_it.token import Token


HOSTILE = (
    "<script>alert(1)</script>",
    "![x](http://evil.example/p.png) [y](javascript:alert(1)) <http://evil.example>",
    "`` ` ``` code | pipe \\| end \\",
    "# head\n\n---\n\n| a | b |\n|---|---|\n\n```\nfence",
    "@everyone see #1 https://evil.example www.evil.example",
    "\u202egpj.exe\u2066 \x1b[31m\x00",
    "</td></tr></table><img src=x onerror=alert(1)>",
    "&lt;b&gt; &#60;script&#62; {{ 7 * 7 }} {% raw %}",
)
PLAIN_KINDS = {
    "text", "code_inline", "softbreak", "strong_open", "strong_close", "text_special",
}  # fmt: skip


def a_hostile(text: str) -> ExperimentState:
    """A state in which everything that a model or a file name can say says ``text``."""
    rows = (
        accepted(1, 100, 90, hypothesis_id=text, description=text, reason=text, changed_paths=(text,)),
        a_row(
            2,
            hypothesis_id=text,
            description=text,
            reason=text,
            reason_code="tampered",
            changed_paths=(text,),
        ),
        a_row(
            3,
            status="failed",
            hypothesis_id=text,
            description="",
            reason=text,
            reason_code=text,
            direction=text,
        ),
    )
    config = ExperimentConfig("speed", MetricSpec("total_ms"), measure=text, check=text, protect=(text,))
    return replace(a_state(rows), config=config, completed_reason="explicit", phase="completed")


def inline_tokens(markdown: str) -> list[Token]:
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown)
    return [child for token in tokens for child in token.children or []]


def block_kinds(markdown: str) -> list[str]:
    return [token.type for token in MarkdownIt("commonmark").enable("table").parse(markdown)]


class Page(HTMLParser):
    """Elements, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[dict[str, str | None]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes.append(dict(attrs))

    def handle_data(self, data: str) -> None:
        self.text += data


def reports(state: ExperimentState, material: ReportMaterial | None = None) -> tuple[str, str]:
    """Both forms, as the text that a person reads."""
    markdown = markdown_report(state, material)
    read = "\n".join(token.content for token in MarkdownIt("commonmark").enable("table").parse(markdown))
    return re.sub(r"\\([^a-zA-Z0-9\s])", r"\1", read), Page(html_report(state, material)).text


@pytest.mark.requirement("SEE-07")
def test_a_report_says_what_was_asked_seen_decided_and_spent() -> None:
    state = a_story()
    config = replace(
        state.config,
        setup="npm ci",
        guards=(Guard("peak_mb", bound=512.0),),
        held_out="/secret/held-out",
        limits=ExperimentLimits(trials=40, wall_seconds=7200.0, cost_usd=5.0),
    )
    material = ReportMaterial(frozen_paths=("measure.sh", "check.sh"), isolations=("bubblewrap", "none"))
    for text in reports(replace(state, config=config), material):
        for part in (
            "Verified: total_ms is 23.1 % lower",
            "./measure.sh",
            "./check.sh",
            "npm ci",
            "peak_mb",
            "noisy: judged on interleaved pairs",
            "Smallest gain that can be seen",
            "Trial 2",
            "Trial 6",
            "check.sh was edited",
            "9 of 40",
            "1 h 01 min of 2 h 00 min",
            "$0.48 of $5.00",
            "bubblewrap: no network",
            "none: commands ran with the user's own rights",
            "omx-autoresearch experiment accept 20260102-030405-speed",
        ):
            assert part in text, part
        assert "/secret" not in text


@pytest.mark.requirement("SEE-01")
def test_a_report_without_a_claim_quotes_no_number_and_warns_where_no_gain_is_certain() -> None:
    for text in reports(replace(a_story(), claim=None)):
        assert "Not verified yet" in text
    for text in reports(replace(a_story(), claim=a_claim(0.001, -0.01, 0.02))):
        assert "no measurement supports accepting" in text


@pytest.mark.requirement("SEE-01")
def test_a_judges_estimate_of_one_trial_is_no_second_number() -> None:
    rows = [accepted(1, 100, 90, reason="better by 9.14 %"), judged(2, 90, 91, reason="estimate -1.12 %")]
    for text in reports(a_state(rows)):
        assert "improved" in text
        assert "9.14" not in text
        assert "-1.12" not in text


def test_a_file_that_the_owner_takes_out_of_the_frozen_ones_is_not_listed_as_frozen() -> None:
    state = replace(a_state(), config=replace(a_state().config, protect=("!value.txt", "data/**")))
    facts = report_facts(state, ReportMaterial(frozen_paths=("check.sh", "data/**", "!value.txt")))
    assert facts["frozen"] == ["check.sh", "data/**"]
    named = {(fact.name, fact.text) for fact in facts["asked"]}
    assert {("Not frozen", "value.txt"), ("Protected", "data/**")} <= named


@pytest.mark.requirement("SEE-07")
def test_an_accepted_step_shows_its_files_and_lines() -> None:
    changes = {
        commit(2): (FileChange("src/a.py", "M", "", 3, 1), FileChange("b.bin", "A", "", None, None)),
        commit(6): (FileChange("new.py", "R", "old.py", 0, 0),),
    }
    for text in reports(a_story(), ReportMaterial(changes=changes)):
        flat = " ".join(text.replace("`", "").split())
        assert "src/a.py +3 -1" in flat
        assert "b.bin binary" in flat
        assert "old.py -> new.py +0 -0" in flat


@pytest.mark.requirement("SEE-05")
@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_that_a_model_writes_is_markup_in_markdown(text: str) -> None:
    tame, hostile = markdown_report(a_hostile("tame")), markdown_report(a_hostile(text))
    assert {token.type for token in inline_tokens(hostile)} <= PLAIN_KINDS
    assert block_kinds(hostile) == block_kinds(tame)
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00\x1b]", hostile)
    for token in inline_tokens(hostile):
        if token.type == "text":
            assert "evil" not in token.content  # foreign addresses stand in code, where nothing links them


@pytest.mark.requirement("SEE-05")
@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_that_a_model_writes_is_markup_in_html(text: str) -> None:
    tame, hostile = Page(html_report(a_hostile("tame"))), Page(html_report(a_hostile(text)))
    assert hostile.names == tame.names
    assert [sorted(found) for found in hostile.attributes] == [sorted(found) for found in tame.attributes]
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00\x1b]", hostile.text)
    assert "49" not in hostile.text.replace("1.49", "")  # nothing was rendered twice


@pytest.mark.requirement("SEE-05")
@pytest.mark.parametrize("text", HOSTILE)
def test_a_title_that_somebody_elses_log_gives_is_text(text: str) -> None:
    state = replace(a_state(), config=replace(a_state().config, name=text))
    material = ReportMaterial(origin="read from a log")
    kinds = {token.type for token in inline_tokens(markdown_report(state, material))}
    assert kinds <= PLAIN_KINDS
    assert Page(html_report(state, material)).names == Page(html_report(a_state(), material)).names


@pytest.mark.requirement("SEE-05")
def test_the_html_has_no_script_and_refers_to_nothing_outside() -> None:
    page = Page(html_report(a_story(), with_plot(a_story(), ReportMaterial())))
    assert "script" not in page.names
    sources = [found["src"] for found in page.attributes if "src" in found]
    assert len(sources) == 1
    assert str(sources[0]).startswith("data:image/svg+xml;base64,")
    assert not any({"href", "action", "onload"} & found.keys() for found in page.attributes)
    policy = next(found["content"] for found in page.attributes if "http-equiv" in found)
    assert str(policy).startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:;")


@pytest.mark.requirement("SEE-07")
def test_the_html_holds_the_plot() -> None:
    material = with_plot(a_story(), ReportMaterial())
    page = Page(html_report(a_story(), material))
    source = next(str(found["src"]) for found in page.attributes if "src" in found)
    assert base64.b64decode(source.partition(",")[2]) == material.svg
    assert material.svg.startswith(b"<svg")


@pytest.mark.requirement("SEE-07")
def test_a_report_without_the_extra_says_so_and_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    text = Page(html_report(a_story(), with_plot(a_story(), ReportMaterial()))).text
    assert "No plot: plots need the packages of the extra `plots`" in text
    assert "How to accept" in text


@pytest.mark.requirement("SEE-07")
def test_a_report_of_what_was_taken_over_does_not_ask_for_it_again() -> None:
    taken = replace(a_story(), applied_commit=a_story().incumbent_commit)
    for text in (markdown_report(taken), Page(html_report(taken)).text):
        assert "The final state is in the checkout" in text
        assert "How to accept" not in text


def test_everything_about_an_experiment_is_a_handful_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    files = report_files(a_story(), ReportMaterial(), b"diff")
    assert set(files) == {
        "report.md", "report.html", "trials.csv", "plot.svg", "plot.html", "plot.png", "final.patch"
    }  # fmt: skip
    assert files["plot.png"].startswith(b"\x89PNG")
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert set(report_files(a_story(), ReportMaterial())) == {"report.md", "report.html", "trials.csv"}


@pytest.mark.requirement("SEE-07")
def test_a_held_out_check_is_told_by_no_more_than_its_failure() -> None:
    row = a_row(1, reason_code="held_out_failed", reason="expected 42 in /secret")
    for text in reports(a_state([row])):
        assert "the held-out check failed" in text
        assert "secret" not in text


def test_an_experiment_at_its_very_start_has_a_report() -> None:
    state = a_state(baseline=None, calibration=None, phase="started", pin_digest="p" * 64)
    for text in reports(state):
        assert "not measured yet" in text
        assert "None yet." in text
        assert "Pinned as manifest" in text


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([(5.0, 5.0)] * 15, "deterministic: the same code gave the same value every time"),
        ([(1.0, 9.0), (8.0, 1.0)] * 8, "underpowered: only a very large gain could be seen"),
        ([(1.0, 1.1)], "too few pairs to estimate the noise"),
    ],
)
def test_the_regime_is_told_in_words(pairs: list[tuple[float, float]], words: str) -> None:
    for text in reports(a_state(calibration=calibrate(pairs))):
        assert words in text


def test_a_thousand_trials_are_a_thousand_lines() -> None:
    rows = [judged(number, 100, 101) for number in range(1, 1001)]
    assert len(report_facts(a_state(rows), ReportMaterial())["trials"]) == 1000
    assert html_report(a_state(rows)).count("<tr>") == 1001


@pytest.mark.parametrize("text", ["a|b", "a\\|b", "x\\", "`", "``", "a`b``c", " ` ", "{{ x }}", "-"])
def test_a_code_span_in_a_table_is_one_cell_that_says_the_text(text: str) -> None:
    markdown = f"| h | i |\n| --- | --- |\n| {markdown_cell(text)} | z |\n"
    spans = [token for token in inline_tokens(markdown) if token.type == "code_inline"]
    assert len(spans) == 1
    assert spans[0].content.replace("\\ |", "\\|").strip() == text.strip()
    assert inline_tokens(markdown)[-1].content == "z"


def test_outside_a_table_a_code_span_says_the_text_itself() -> None:
    (span,) = inline_tokens(markdown_code("a|b \\| `c`"))
    assert (span.type, span.content) == ("code_inline", "a|b \\| `c`")


@pytest.mark.parametrize("text", ["```\nls", "````", "~~~~~\n```", "a\n\n   ```` b"])
def test_a_command_cannot_end_its_block(text: str) -> None:
    (block,) = MarkdownIt("commonmark").parse(markdown_block(text))
    assert block.type == "fence"
    assert block.content.strip("\n") == text


def test_a_sentence_reads_the_same_in_markdown() -> None:
    text = "total_ms *is* 3 % <b>lower</b> [x](y) http://a.example/ $5 #3 @me a|b \\ `c`"
    children = inline_tokens(markdown_text(text))
    assert {token.type for token in children} <= {"text", "text_special"}
    assert "".join(token.content for token in children) == text
