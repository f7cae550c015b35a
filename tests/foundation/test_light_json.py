"""JSON without its package is JSON as the package has it, value for value and error for error."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omx_autoresearch.foundation import json_codec

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None))
FINITE = SCALARS.filter(lambda value: not isinstance(value, float) or math.isfinite(value))
VALUES = st.recursive(
    FINITE, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


def _pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(items)


DECODE = json_codec.decoder(_pairs)


def _outcome(call: Any, argument: Any) -> Any:
    try:
        return repr(call(argument))
    except (ValueError, TypeError) as error:
        return (type(error), str(error))


@given(VALUES)
def test_a_value_is_written_and_read_as_the_package_does(value: Any) -> None:
    compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode(value)
    assert json_codec.encoder()(value) == compact
    spaced = json_codec.encoder(is_ascii=True, separators=(", ", ": "))(value)
    assert spaced == json.dumps(value)
    assert repr(DECODE(spaced)) == repr(json.loads(spaced))
    assert json_codec.pretty(value) == json.dumps(value, ensure_ascii=False, indent=2)


@given(st.text(st.sampled_from('{}[]":,0123456789.eE+-truefalsn \t\n\r\v\xa0NaIity\\/u"x'), max_size=25))
def test_a_text_that_is_no_json_fails_as_in_the_package(text: str) -> None:
    assert _outcome(DECODE, text) == _outcome(json.JSONDecoder(object_pairs_hook=_pairs).decode, text)


@pytest.mark.parametrize(
    "text",
    ["", " ", "\ufeff1", "1 2", '{"a":1}x', '"\t"', "[1,]", '{"a" 1}', "\xa01", '\n\n{"a":}', "NaN", "1e999"],
)
def test_an_error_names_the_same_line_and_column(text: str) -> None:
    assert _outcome(DECODE, text) == _outcome(json.JSONDecoder(object_pairs_hook=_pairs).decode, text)


def test_what_the_callers_functions_raise_comes_through() -> None:
    def refuse(what: Any) -> Any:
        raise ValueError(f"no {what}")

    assert _outcome(json_codec.decoder(refuse), "{}") == (ValueError, "no []")
    assert _outcome(json_codec.decoder(_pairs, parse_float=refuse), "1.5") == (ValueError, "no 1.5")
    assert _outcome(json_codec.decoder(_pairs, parse_constant=refuse), "NaN") == (ValueError, "no NaN")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [float("-inf")]])
def test_a_number_that_is_none_is_never_written(value: Any) -> None:
    for write in (json_codec.encoder(), json_codec.pretty):
        with pytest.raises(ValueError, match="JSON"):
            write(value)


def test_what_json_has_no_form_for_is_never_written() -> None:
    for write in (json_codec.encoder(), json_codec.pretty):
        with pytest.raises(TypeError):
            write({"a": {1, 2}})
    inside_itself: list[Any] = []
    inside_itself.append(inside_itself)
    with pytest.raises(RecursionError):
        json_codec.encoder()(inside_itself)


def test_without_the_accelerators_the_package_does_it() -> None:
    program = (
        "import sys; sys.modules['_json'] = None\n"
        "from omx_autoresearch.foundation import json_codec as j\n"
        "value = {'a': [1, 2.5, None, 'é'], 'b': {}}\n"
        "text = j.encoder()(value)\n"
        "assert not j.HAS_ACCELERATORS and j.decoder(dict)(text) == value\n"
        "print(text, len(j.pretty(value).splitlines()))\n"
    )
    said = subprocess.run([sys.executable, "-X", "utf8", "-c", program], capture_output=True, check=True)
    assert said.stdout.decode() == '{"a":[1,2.5,null,"é"],"b":{}} 9\n'


def test_neither_reading_nor_writing_loads_the_package() -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from omx_autoresearch.foundation import json_codec as j\n"
        "j.pretty(j.decoder(dict)(j.encoder()({'a': [1]})))\n"
        "print(*(name for name in ('json', 're', 'enum', 'functools', 'collections') if name in sys.modules))\n"
    )
    root = json_codec.__file__.rsplit("/", 3)[0]
    said = subprocess.run([sys.executable, "-I", "-S", "-c", program, root], capture_output=True, check=True)
    assert said.stdout == b"\n"


def test_what_json_has_no_form_for_may_be_given_one() -> None:
    write = json_codec.encoder(default=sorted)
    assert write({"a": {2, 1}, "b": ({3},)}) == '{"a":[1,2],"b":[[3]]}'
