"""Names of metrics are texts of any script, and never anything but data."""

from __future__ import annotations

import pytest

from omx_autoresearch.foundation.metric_texts import NAME_LIMIT, name_faults, near_name, normal_name


@pytest.mark.case("MET-12")
@pytest.mark.requirement("METRIC-05")
@pytest.mark.parametrize(
    "name",
    [
        "ms",
        "combined_\u00b5s",
        "a-b",
        "a/b",
        "p99.9",
        "recall@10",
        "f1:macro",
        "c++",
        "hit%",
        "größe",
        "处理时间",
        "हिन्दी",
        "__class__",
        "constructor",
        "_",
        "2nd",
        "x" * NAME_LIMIT,
    ],
)
def test_a_name_of_any_script_may_stand(name: str) -> None:
    assert name_faults(name) == []


@pytest.mark.requirement("METRIC-05")
@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a=b", "-x", ".x", "a\nb", "a\u200bb", "a\x1bb", "x" * 300, "a\u202eb"]
)
def test_a_name_outside_of_the_grammar_is_refused_in_one_readable_sentence(name: str) -> None:
    faults = name_faults(name)
    assert len(faults) == 1
    assert faults[0].isprintable()


@pytest.mark.case("MET-12")
def test_a_micro_sign_and_a_greek_mu_are_one_letter() -> None:
    assert normal_name("combined_\u00b5s") == normal_name("combined_\u03bcs")
    assert normal_name("\uff4d\uff53") == "ms"


def test_the_nearest_name_is_found_or_none_is_guessed() -> None:
    assert near_name("total_ms", ["size", "Total-MS"]) == "Total-MS"
    assert near_name("total_ms", ["size", "loss"]) == ""
    assert near_name("total_ms", []) == ""
