"""Tests that stand in a source file of Rust, beside the work: each item of them has a digest of its own.

The file is work, so it may change; a test in it may not. The digest is of the tokens, so that a formatter changes
nothing, and each item has one, so that new tests are welcome.
"""

from __future__ import annotations

import re

from omx_autoresearch.foundation.records import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|b?r(?P<h>#*)\".*?\"(?P=h)|b?\"(?:\\.|[^\"\\])*\"|b?'(?:\\[^']+|\\'|[^\\'])'|'\w+|\w+|[^\s]",
    re.DOTALL,
)
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
_KINDS = frozenset(
    ("fn", "mod", "struct", "enum", "trait", "impl", "const", "static", "type", "macro_rules", "use", "union")
)
_TO_SEMICOLON = frozenset(("const", "static", "type", "use"))
_JUDGING = frozenset((
    "assert", "assert_eq", "assert_ne", "debug_assert", "debug_assert_eq", "debug_assert_ne", "panic", "matches",
    "unreachable", "should_panic", "test",
))  # fmt: skip
"""Macros by which a test fails: one of another meaning makes every test pass."""


def inline_tests(text: str) -> dict[str, str]:
    """The digest of each test, and of what else stands in modules of tests, by its name (``tests::adds``).

    A macro by which tests fail and that the file defines or imports itself has an entry, too.
    """
    words = [found[0] for found in _TOKEN.finditer(text) if not found[0].startswith(("//", "/*"))]
    found: dict[str, str] = {}
    for name, content in (*_tests_in(words, "", is_test=False), *_judging_macros(words)):
        label, number = name, 2
        while label in found:
            label, number = f"{name} ({number})", number + 1
        found[label] = sha256(content.encode()).hexdigest()
    return found


def test_files(text: str) -> list[str]:
    """Names of modules of tests that stand in files of their own (``#[cfg(test)] mod tests;``)."""
    plain = re.sub(r"//[^\n]*", "", text)
    return re.findall(r"#\[cfg\([^\]]*\btest\b[^\]]*\]\s*(?:pub\s+)?mod\s+(\w+)\s*;", plain)


def is_addition(name: str) -> bool:
    """True for an entry that may be new: a test, not a macro that gives all tests another meaning."""
    return not name.startswith("macro ")


def _tests_in(
    words: list[str], prefix: str, *, is_test: bool, conditions: tuple[str, ...] = ()
) -> Iterator[tuple[str, str]]:
    """Names and contents; a content begins with the conditions under which its modules are compiled at all."""
    for attributes, kind, name, body in _items(words):
        is_one = is_test or _marks_test(attributes)
        if kind == "mod" and "{" in body:
            inside = body[body.index("{") + 1 : -1]
            within = (*conditions, *(attributes if "cfg" in attributes else ()))
            yield from _tests_in(inside, f"{prefix}{name}::", is_test=is_one, conditions=within)
        elif is_one and kind != "use":
            yield f"{prefix}{name}", _normal([*conditions, *attributes, *body])


def _items(words: list[str]) -> Iterator[tuple[list[str], str, str, list[str]]]:
    """The items of a file or module: attributes, kind, name and tokens of each."""
    at = 0
    while at < len(words):
        attributes: list[str] = []
        while words[at : at + 1] == ["#"]:
            start = words.index("[", at) if "[" in words[at : at + 3] else at
            end = _closing(words, start)
            attributes += words[at : end + 1]
            at = end + 1
        start, depth, kind, name = at, 0, "", ""
        while at < len(words):
            word = words[at]
            if (
                not depth
                and not kind
                and word in _KINDS
                and not (word == "const" and words[at + 1 : at + 2] == ["fn"])
            ):
                kind, name = word, _name(words, at)
            depth += (word in _OPEN) - (word in _CLOSE)
            at += 1
            if depth <= 0 and (word == ";" or (word == "}" and kind not in _TO_SEMICOLON)):
                break
        yield attributes, kind, name, words[start:at]


def _name(words: list[str], at: int) -> str:
    if words[at] == "impl":
        end = next((i for i in range(at, len(words)) if words[i] == "{"), len(words))
        return " ".join(words[at:end])
    return next((word for word in words[at + 1 : at + 4] if re.match(r"\w", word)), "")


def _closing(words: list[str], at: int) -> int:
    depth = 0
    for index in range(at, len(words)):
        depth += (words[index] in _OPEN) - (words[index] in _CLOSE)
        if depth <= 0:
            return index
    return len(words) - 1


def _marks_test(attributes: list[str]) -> bool:
    text = " ".join(attributes)
    if re.search(r"\bcfg \( (?:all|any)? ?\(? ?(?:[^()]*, )?test\b", text):
        return True
    return bool(re.search(r"# \[ (?:\w+ : : )*\w*test\w*\b", text))


def _normal(words: list[str]) -> str:
    """The tokens without the commas that a formatter adds and takes away."""
    kept = [
        word
        for word, following in zip(words, [*words[1:], ""], strict=True)
        if word != "," or following not in _CLOSE
    ]
    return " ".join(kept)


def _judging_macros(words: list[str]) -> Iterator[tuple[str, str]]:
    for at, word in enumerate(words):
        if word == "macro_rules" and words[at + 2 : at + 3] and words[at + 2] in _JUDGING:
            yield f"macro {words[at + 2]}", "defined"
        elif word == "use":
            end = words.index(";", at) if ";" in words[at:] else len(words)
            for name in sorted(_JUDGING.intersection(words[at:end])):
                yield f"macro {name}", " ".join(words[at:end])
