"""What a reviewer's last message says: tolerant of how it is written, strict in what it says."""

from __future__ import annotations

import json

import pytest

from omx_autoresearch.missions.rules.review_reports import Reset, report_of_review, said_reset

NONCE = "0a1b2c3d4e5f"


def verdict(word: object = "approved", **more: object) -> str:
    return json.dumps({"nonce": NONCE, "verdict": word, **more})


@pytest.mark.requirement("DONE-11")
@pytest.mark.case("ART-03")
@pytest.mark.parametrize(
    "word",
    ["not approved", "DISAPPROVED", "approved with blockers", "Approved", " approved\n", "APPROVED", "", None, True,
     ["approved"], {"approved": True}, 1],
)  # fmt: skip
def test_only_the_exact_word_approves(word: object) -> None:
    report = report_of_review(0, verdict(word), NONCE)
    assert (report.verdict, report.cause) == ("error", "bad-report")
    assert "verdict must be exactly approved or rejected" in report.summary


@pytest.mark.requirement("DONE-11", "DONE-12", "DONE-53")
@pytest.mark.parametrize(
    ("exit_status", "message", "cause"),
    [
        (1, verdict(), "reviewer-failed"),
        (None, verdict(), "reviewer-failed"),
        (0, "", "bad-report"),
        (0, "It is fine.\n", "bad-report"),
        (0, f'{{"nonce": "{NONCE}", "verdict": "rejected", "verdict": "approved"}}', "bad-report"),
        (0, '{"verdict": "approved"}', "bad-report"),
        (0, '{"nonce": "another", "verdict": "approved"}', "bad-report"),
        (0, '{"nonce": null, "verdict": "approved"}', "bad-report"),
        (0, verdict(approved=False), "bad-report"),
        (0, verdict(approved="true"), "bad-report"),
        (0, verdict("rejected", approved=True), "bad-report"),
        (0, f'{{"nonce": "{NONCE}", "summary": "APPROVED"}}', "bad-report"),
        (0, verdict(blockers=["one"]), "bad-report"),
        (0, f"{verdict('rejected')}\n{verdict('approved')}", "bad-report"),
        (0, f"{verdict('approved')}\nOr rather:\n{verdict('rejected')}", "bad-report"),
        (0, f'{verdict()}\nIt ends with {{"nonce": "", "verdict": "rejected"}}.', "bad-report"),
        (0, f'{{"quoted": {verdict()}}}', "bad-report"),
    ],
)
def test_every_doubt_is_an_error_and_never_an_approval(
    exit_status: int | None, message: str, cause: str
) -> None:
    report = report_of_review(exit_status, message, NONCE)
    assert (report.verdict, report.cause) == ("error", cause)


@pytest.mark.requirement("DONE-53")
@pytest.mark.parametrize(
    "message",
    [
        verdict(),
        f"I read it twice.\n\n{verdict()}\n",
        f"```json\n{verdict()}\n```\n",
        f"**{verdict()}**",
        f"`{verdict()}`",
        f"{verdict()}\n\nThis is my verdict on the report.",
        json.dumps(json.loads(verdict()), indent=2),
        f"{verdict()}\n{verdict()}",
        f'The report says {{"verdict": "rejected"}} about {{x}} and [{{ }}].\n{verdict()}',
        verdict(approved=True),
        verdict(reason="it holds"),
    ],
)
def test_a_verdict_counts_however_a_model_writes_it_down(message: str) -> None:
    assert report_of_review(0, message, NONCE).verdict == "passed"


def test_a_verdict_has_a_summary_whatever_it_is_called() -> None:
    told = [
        report_of_review(0, verdict("rejected", **{name: "thin"}), NONCE) for name in ("summary", "reason")
    ]
    assert [(report.verdict, report.summary) for report in told] == [("failed", "thin")] * 2
    assert report_of_review(0, verdict("rejected"), NONCE).summary == "rejected"


def test_a_message_without_a_verdict_is_told_by_its_end() -> None:
    assert "it ends with: Invalid API key" in report_of_review(0, "Hm.\nInvalid API key\n", NONCE).summary
    assert "exit status 1: Please log in" in report_of_review(1, "Please log in\n", NONCE).summary


def test_an_error_that_a_client_prints_as_json_is_told_by_its_message() -> None:
    nested = json.dumps({"error": {"code": 401, "message": "Invalid API key"}})
    for error in ({"message": "Invalid API key"}, {"type": "Error", "message": nested, "code": 401}):
        printed = f"    at async run (x.js:1:2)\n{json.dumps({'error': error}, indent=2)}\n"
        assert report_of_review(145, printed, NONCE).summary.endswith("exit status 145: Invalid API key")


def test_a_message_of_nothing_but_braces_is_read_quickly_enough_to_end() -> None:
    assert report_of_review(0, "{" * 500_000, NONCE).cause == "bad-report"
    assert report_of_review(0, '{"a":' * 100_000, NONCE).cause == "bad-report"


@pytest.mark.requirement("DONE-52")
@pytest.mark.parametrize(
    ("said", "reset"),
    [
        ("Claude AI usage limit reached|1733050800", Reset(at_epoch=1733050800.0)),
        ('{"type":"usage_limit_reached","resets_at":1733050800}', Reset(at_epoch=1733050800.0)),
        ("Rate limit reached. Please try again in 20s.", Reset(in_seconds=20.0)),
        ("You've hit your usage limit. Try again in 3 hours 42 minutes.", Reset(in_seconds=13320.0)),
        ("Please retry in 34.07s.", Reset(in_seconds=34.07)),
        ('"retryDelay": "59s"', Reset(in_seconds=59.0)),
        ("retry-after: 1500ms", Reset(in_seconds=1.5)),
        ("5-hour limit reached, resets 3pm", None),
        ("Not logged in. Please run /login", None),
        ("the plan resets the counters in the second step", None),
    ],
)
def test_the_end_of_a_limit_is_read_where_it_is_said(said: str, reset: Reset | None) -> None:
    assert said_reset(f"some words before\n{said}\n") == reset
