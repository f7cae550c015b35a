"""Directions: which are the same, which nearly, what a pivot changes, what is tried next."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from omx_autoresearch.missions.rules.directions import (
    AXES,
    AXIS_LIMIT,
    FRESH,
    SUMMARY_LIMIT,
    Direction,
    Tried,
    by_diversity,
    changed_axes,
    direction_faults,
    direction_of,
    fingerprint_of,
    kept,
    near,
    near_key,
    perturbation,
    pivot_faults,
    repeated,
    words_of,
)

TEXT = "Profile markdown rendering"


def tried(*summaries: str) -> tuple[Tried, ...]:
    """These directions, each declared once."""
    return tuple(Tried(fingerprint_of(text), text, 0, 0, 1, near_key(text)) for text in summaries)


def along(**axes: str) -> Direction:
    """A direction that says this of its axes."""
    return direction_of("try it", axes, is_pivot=True)


# --- the same


@pytest.mark.requirement("DIR-01")
@pytest.mark.case("BUD-05")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (TEXT, " profile  Markdown-Rendering! "),
        (TEXT, "PROFILE MARKDOWN RENDERING"),
        (TEXT, "`profile` **markdown** (rendering)…"),
        (TEXT, "\uff30\uff52\uff4f\uff46\uff49\uff4c\uff45 markdown\u3000rendering"),
        (TEXT, "profile mark\u200bdown ren\u00addering\ufeff"),
        ("caf\u00e9 latte", "cafe\u0301 latte"),
        ("stra\u00dfe", "STRASSE"),
        ("\u03c3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2", "\u03a3\u038a\u03a3\u03a5\u03a6\u039f\u03a3"),
        ("\u2460 ﬁle", "1 file"),
        ("\u4f18\u5316\u6e32\u67d3", "\u4f18\u5316 \u6e32\u67d3\u3002"),
        ("\u2764", "\u2764\ufe0f"),
        ("\uac00", "\u1100\u1161"),
    ],
)
def test_case_punctuation_spacing_width_and_encoding_make_no_other_direction(one: str, other: str) -> None:
    assert fingerprint_of(one) == fingerprint_of(other) != ""
    assert repeated(other, tried("something else", one)) == tried(one)[0]
    assert near(other, tried(one)) is None


@pytest.mark.requirement("DIR-01")
@pytest.mark.case("BUD-05")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("\u4f18\u5316\u6e32\u67d3", "\u4f18\u5316\u7f13\u5b58"),
        (TEXT, "rendering markdown profile"),
        ("\U0001f680", "\U0001f525"),
        ("\U0001f680", "\U0001f680 \U0001f680"),
        ("\u043f\u0440\u043e\u0444\u0438\u043b\u044c", "\u043f\u0430\u043c\u044f\u0442\u044c"),
        ("\u0627\u0644\u0630\u0627\u0643\u0631\u0629", "\u0627\u0644\u0648\u0642\u062a"),
        ("\u0e01\u0e32\u0e23", "\u0e01\u0e32"),
        ("rewrite it in C", "rewrite it in C++"),
        ("x < y", "x > y"),
        ("try 0.1", "try 0.2"),
        ("word " * 2_000 + "a", "word " * 2_000 + "b"),
        ("\U0003ffff a", "\U0003fffe a"),  # what no table knows is a sign all the same
    ],
)
def test_different_words_are_different_directions_in_every_script_and_at_any_length(
    one: str, other: str
) -> None:
    assert "" != fingerprint_of(one) != fingerprint_of(other) != ""
    assert repeated(other, tried(one)) is None


@pytest.mark.requirement("DIR-01")
@pytest.mark.case("BUD-05")
@pytest.mark.parametrize(
    "text", ["", "   ", "...", "\u3002\uff01", "\u200b", "\ufe0f", "\0", "\ud800", "`'`"]
)
def test_what_has_no_word_is_refused(text: str) -> None:
    assert fingerprint_of(text) == ""
    assert "say in words" in direction_faults(text, {})[0]


def test_a_fingerprint_is_readable_and_safe_as_a_name() -> None:
    assert fingerprint_of(TEXT).startswith("profile-markdown-rendering-")
    assert fingerprint_of("\u4f18\u5316").isalnum()
    for text in (TEXT * 500, "../../etc/passwd", "a\nb $(reboot)", "\u4f18\u5316 gpu"):
        found = fingerprint_of(text)
        assert len(found) <= 80
        assert found.replace("-", "").isalnum()
        assert found.isascii()


@given(st.text(max_size=60))
def test_a_fingerprint_does_not_depend_on_how_the_text_is_encoded(text: str) -> None:
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert fingerprint_of(unicodedata.normalize(form, text)) == fingerprint_of(text)
    assert fingerprint_of(text.casefold()) == fingerprint_of(text)
    assert fingerprint_of(f"\t{text}!\r\n") == fingerprint_of(text)


@given(st.text(max_size=40), st.text(max_size=40))
def test_only_texts_of_the_same_words_share_a_fingerprint(one: str, other: str) -> None:
    assert (fingerprint_of(one) == fingerprint_of(other)) == (words_of(one) == words_of(other))
    assert bool(fingerprint_of(one)) == (
        not any("say in words" in fault for fault in direction_faults(one, {}))
    )


# --- nearly the same


@pytest.mark.requirement("DIR-02")
@pytest.mark.case("BUD-05")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (TEXT, "rendering markdown profile"),
        (TEXT, "profiles markdown renderings"),
        ("index the caches", "cache index the"),
        ("read a query", "queries: read a"),
        ("three batches", "batch three"),
        ("train with x + y", "train with x y"),
        ("\u4f18\u5316\u6e32\u67d3", "\u6e32\u67d3\u4f18\u5316"),
        (f"\U0001f680 {TEXT}", TEXT),
    ],
)
def test_word_order_plural_and_symbols_make_a_direction_near(one: str, other: str) -> None:
    found = near(other, tried("something else", one))
    assert found is not None
    assert found.summary == one
    assert repeated(other, tried(one)) is None


@pytest.mark.requirement("DIR-02")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (TEXT, "profile markdown parsing"),
        (TEXT, "profile markdown"),
        ("process", "proces"),
        ("\U0001f680", "\U0001f525"),
        ("\u4f18\u5316\u6e32\u67d3", "\u4f18\u5316\u7f13\u5b58"),
    ],
)
def test_other_words_are_not_near(one: str, other: str) -> None:
    assert near(other, tried(one)) is None


@given(st.lists(st.text("abcdefgs ", min_size=1, max_size=6), min_size=1, max_size=5), st.randoms())
def test_any_order_of_the_same_words_is_equal_or_near(words: list[str], random: object) -> None:
    text = " ".join(words)
    assume(words_of(text))
    shuffled = list(words_of(text))
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    known = tried(text)
    assert repeated(" ".join(shuffled), known) or near(" ".join(shuffled), known)


# --- what may be declared


@pytest.mark.requirement("DIR-01")
def test_a_fault_says_what_was_received_and_what_would_count() -> None:
    assert direction_faults("x" * SUMMARY_LIMIT, {"objective": "y" * AXIS_LIMIT}) == []
    assert direction_faults("x" * 10_240, {}) == [], "ten kilobytes are no fault"
    (long,) = direction_faults("x" * (SUMMARY_LIMIT + 1), {})
    assert f"at most {SUMMARY_LIMIT} characters, received {SUMMARY_LIMIT + 1}" in long
    (unknown,) = direction_faults("x", {"speed": "more"})
    assert "no axis 'speed'" in unknown
    assert "search_space" in unknown
    (wide,) = direction_faults("x", {"objective": "y" * (AXIS_LIMIT + 1)})
    assert "the axis objective" in wide


def test_a_direction_is_one_line_with_its_axes_in_order() -> None:
    direction = direction_of(
        " a\n b ", {"objective": " new\tone ", "search_space": "wide", "environment": " "}
    )
    assert (direction.summary, list(direction.axes.items())) == (
        "a b",
        [("search_space", "wide"), ("objective", "new one")],
    )
    long = direction_of("word " * 1_000, {})
    assert len(kept(long).summary) == 300
    assert kept(long).fingerprint == long.fingerprint == fingerprint_of("word " * 1_000)
    assert kept(direction) == direction


@pytest.mark.requirement("DIR-04")
def test_a_pivot_names_an_axis_and_changes_it_against_each_recent_direction() -> None:
    recent = (along(search_space="the parser"), along(search_space="the cache", representation="tree"))
    assert pivot_faults(along(search_space="the network"), recent) == []
    assert pivot_faults(along(objective="latency"), recent) == []
    (same,) = pivot_faults(along(search_space="The Parser!"), recent)
    assert "changes no structural axis" in same
    (unnamed,) = pivot_faults(along(), recent)
    assert "name the axis" in unnamed
    assert len(pivot_faults(along(representation="trees"), recent[1:])) == 1
    assert pivot_faults(along(objective="latency"), ()) == []


@pytest.mark.requirement("DIR-04")
@pytest.mark.parametrize(
    ("axis", "other"),
    [("8 layers", "16 layers"), ("4", "5"), ("lr 0.1", "lr=0.25"), ("caches", "the cache the")],
)
def test_another_number_or_order_in_the_same_words_is_no_change_of_structure(axis: str, other: str) -> None:
    same = other == "the cache the"
    assert bool(changed_axes({"search_space": axis}, {"search_space": other})) is same


@pytest.mark.requirement("DIR-04")
def test_leaving_an_axis_out_is_no_change() -> None:
    assert changed_axes({}, {"search_space": "wide"}) == ()
    assert changed_axes({"search_space": "wide"}, {}) == ("search_space",)


# --- what is tried next


@pytest.mark.requirement("DIR-05")
def test_the_same_history_offers_the_same_axis_and_never_one_that_was_named_more_often() -> None:
    recent = (along(search_space="a", objective="b"), along(search_space="c"))
    history = tried("one", "two")
    offered = perturbation(history, recent)
    assert offered in set(AXES) - {"search_space", "objective"}
    assert offered == perturbation(reversed(history), recent)
    assert set(FRESH) == set(AXES)
    only = along(**dict.fromkeys((axis for axis in AXES if axis != "environment"), "x"))
    assert perturbation(history, (only,)) == "environment"


@pytest.mark.requirement("DIR-05")
@given(st.lists(st.text(min_size=1, max_size=8), max_size=6))
def test_an_offer_depends_on_the_history_alone(summaries: list[str]) -> None:
    assert perturbation(tried(*summaries), ()) == perturbation(tried(*summaries), ())
    assert perturbation(tried(*summaries), ()) in AXES


def test_other_histories_offer_other_axes() -> None:
    assert len({perturbation(tried(str(number)), ()) for number in range(60)}) == len(AXES)


@pytest.mark.requirement("DIR-06")
def test_of_several_open_directions_the_most_different_one_comes_first() -> None:
    recent = (direction_of("tune the parser", {"search_space": "parser"}),)
    deeper = direction_of("tune the parser more", {"search_space": "parser"})
    beside = direction_of("profile io", {"search_space": "parser"})
    other = direction_of("tune the parser of html", {"search_space": "html", "representation": "tokens"})
    assert by_diversity((deeper, beside, other), recent) == (other, beside, deeper)
    assert by_diversity((deeper, beside), ()) == (deeper, beside), "of equals the older one comes first"


@given(st.permutations([direction_of(f"way {n}", {AXES[n]: "x"}) for n in range(4)]))
def test_an_order_of_open_directions_is_by_distance(waiting: list[Direction]) -> None:
    recent = (direction_of("way 0", {AXES[0]: "x"}),)
    ordered = by_diversity(waiting, recent)
    changes = [len(changed_axes(item.axes, recent[0].axes)) for item in ordered]
    assert all(one >= two for one, two in pairwise(changes))
