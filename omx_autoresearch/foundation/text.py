"""Foreign text, made harmless on its way to a terminal, a page, a reply or a record.

:func:`harmless` keeps the lines, :func:`one_line` makes one line of bounded length, :func:`quoted` puts a foreign value
into one of our messages, :func:`head_and_tail` cuts an output, and :func:`redacted` takes secrets out.

**What is redacted.** Output that goes into refusals, reports and pages may be read by others, so anything that
looks like a secret is replaced by ``[redacted]``; the file keeps it. Exactly these are redacted:

- the value after a name that ends in ``secret``, ``token``, ``password``, ``passwd``, ``passphrase``, ``api_key``,
  ``apikey``, ``access_key``, ``secret_key``, ``private_key`` or ``credentials`` (any case, ``-`` for ``_``), with
  ``=`` or ``:``, quoted or not, if it has six characters or more and is no plain number (``max_token=4096`` stays);
  after ``:`` it must also hold a digit, so that ``unexpected token: identifier`` stays readable;
- the word after ``Bearer`` or ``Authorization: Basic`` (twelve characters or more);
- the password in ``scheme://user:password@host``;
- tokens with a known beginning: ``sk-``, ``ghp_ gho_ ghu_ ghs_ ghr_``, ``github_pat_``, ``glpat-``, ``xoxa- xoxb-
  xoxp- xoxr- xoxs-``, ``AKIA``/``ASIA``, ``AIza``, ``hf_``, ``npm_``, ``pypi-``, and JSON web tokens (``eyJ...``);
- PEM blocks of private keys, also where the beginning or the end was cut off.

A secret of any other shape is not recognised: this narrows a leak, it does not prove that there is none.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from typing import Any

MARK = "[omx-autoresearch]"
"""Begins each of our texts that a client may feed back as a prompt."""
LINE_LIMIT = 600
QUOTE_LIMIT = 80

REDACTED = "[redacted]"
# How many bytes are looked at for one character shown: escape sequences and long characters need room.
_WINDOW_FACTOR = 8
_WINDOW_LEAST_BYTES = 4096

_ESCAPES = (
    r"\x1b[\]PX^_][^\x07\x1b\x9c\r\n]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS, SOS, PM, APC, unterminated ones too
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor
    r"|\x1b[ -/]*[0-~]?"  # the rest
)
# C0 and C1 without tab and newline, DEL, soft hyphen, bidirectional and zero-width marks, line separators, byte order
# mark, surrogates, and the tag characters that hide text from people but not from models.
_HARMFUL = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_NAMED = (
    r"""(?i)((?:secret|token|password|passwd|passphrase|api[_-]?key|(?:access|secret|private)[_-]key|credentials)"""
    r"""["']?[ \t]{0,8}[=:][ \t]{0,8})(?:"([^"\n]{6,})"|'([^'\n]{6,})'|([^\s"',;]{6,}))"""
)
_KNOWN = (
    r"\b(?:sk-[\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}"
    r"|A[KS]IA[0-9A-Z]{16}\b|AIza[\w-]{30,}|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{30,}"
    r"|eyJ[\w-]{8,800}\.eyJ[\w-]{8,}(?:\.[\w-]*)?)"
)
_HEADER = r"""(?i)\b(bearer[ \t]+|authorization["']?[ \t]*[=:][ \t]*["']?basic[ \t]+)[\w.~+/=-]{12,}"""
_ADDRESS = r"(\b[a-zA-Z][\w+.-]{0,20}://[^\s/:@]{0,200}:)[^\s/@]{1,400}(?=@)"
# Every repetition is bounded or cannot fail after it: output is foreign, and must not make this slow.
_KEY_BLOCK = (
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:(?!-----END)[\s\S])*(?:-----END [A-Z ]*PRIVATE KEY-----)?"
    r"|\A(?:[A-Za-z0-9+/=\r]*\n)+-----END [A-Z ]*PRIVATE KEY-----"
)
_BEGINNINGS = (
    "sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "akia", "asia", "aiza", "hf_",
    "npm_", "pypi-", "eyj",
)  # fmt: skip
_NAMES = ("secret", "token", "passw", "passphrase", "key", "credentials")


def head_and_tail(data: bytes, limit: int) -> str:
    """Return output as harmless text of at most ``limit`` characters (100 or more): its head and its tail.

    Terminal sequences are taken out, broken UTF-8 becomes U+FFFD, control and invisible characters are shown by their
    code, secrets are redacted (see the module), and a note in the middle says how large the output is. The cost
    depends on ``limit``, not on the size of the output.
    """
    limit = max(limit, 100)
    window = max(limit * _WINDOW_FACTOR, _WINDOW_LEAST_BYTES)
    if len(data) <= 2 * window:
        text = redacted(harmless(data.decode("utf-8", "replace"))).strip("\n")
        return text if len(text) <= limit else _joined(text, text, len(data), limit)
    # A secret that the window cuts in two would not be known: begin and end at a line, or at least at a word.
    head = data[: _last_break(data[:window])]
    tail = data[len(data) - window + _first_break(data[-window:]) :]
    shown = [redacted(harmless(part.decode("utf-8", "replace"))) for part in (head, tail)]
    return _joined(shown[0].lstrip("\n"), shown[1].rstrip("\n"), len(data), limit)


def _last_break(window: bytes) -> int:
    line = window.rfind(b"\n", len(window) // 2)
    return max(line, window.rfind(b" ") if line < 0 else line) + 1 or len(window)


def _first_break(window: bytes) -> int:
    line = window.find(b"\n", 0, len(window) // 2)
    return (line if line >= 0 else window.find(b" ")) + 1


def _joined(head: str, tail: str, size_bytes: int, limit: int) -> str:
    note = f"\n[... cut: {size_bytes} bytes in all ...]\n"
    room = limit - len(note)
    begin = room // 3
    return head[:begin] + note + tail[len(tail) - min(room - begin, len(tail)) :]


def harmless(text: str) -> str:
    r"""Return text that no terminal, parser or reader is harmed by: one line ending, no control characters.

    Terminal sequences (colours, titles, links) are taken out; a carriage return becomes a newline; other control,
    invisible and direction characters and lone surrogates are shown by their code (``\x00``, ``\u202e``).
    """
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    import re

    text = without_escapes(text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return re.sub(_HARMFUL, lambda match: _code(match.group()), text)


def without_escapes(text: str) -> str:
    """Text without terminal sequences (colours, cursor, titles, links), unterminated ones too."""
    if "\x1b" not in text and "\x9b" not in text:
        return text
    import re

    return re.sub(_ESCAPES, "", text)


def printable(text: str, *, keep: str = "") -> str:
    """Text whose control, invisible and direction characters are spaces, but those in ``keep``."""
    return text if text.isprintable() else "".join(c if c.isprintable() or c in keep else " " for c in text)


def one_line(text: str, limit: int = LINE_LIMIT) -> str:
    """Text as one printable line of at most ``limit`` characters; ``…`` ends one that was cut."""
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def count_of(number: int, noun: str, plural: str = "") -> str:
    """A number and its noun: ``1 file``, ``2 files``; ``plural`` where it is not the noun and an s."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def duration_text(seconds: float) -> str:
    """A length of time for people: ``1 h 01 min``, ``2 min 05 s``, ``4.2 s``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def escaped(text: str) -> str:
    """Text with everything that cannot be seen as its code."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def quoted(value: Any, limit: int = QUOTE_LIMIT) -> str:
    """A foreign value for one of our messages: a text in quotes and escaped, anything else as Python writes it; cut."""
    if isinstance(value, str):
        return f"'{escaped(value[:limit])}{'...' if len(value) > limit else ''}'"
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}..."


def _code(character: str) -> str:
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def redacted(text: str) -> str:
    """Return text with what looks like a secret replaced by ``[redacted]``; the module says exactly what does."""
    low = text.lower()
    rules: list[tuple[str, str]] = []
    # Compiling a pattern costs a hook more than looking for the words that it needs.
    if "private key-----" in low:
        rules.append((_KEY_BLOCK, REDACTED))
    if "bearer" in low or "authorization" in low:
        rules.append((_HEADER, rf"\1{REDACTED}"))
    if "://" in low and "@" in low:
        rules.append((_ADDRESS, rf"\1{REDACTED}"))
    if any(beginning in low for beginning in _BEGINNINGS):
        rules.append((_KNOWN, REDACTED))
    has_name = any(name in low for name in _NAMES)
    if not rules and not has_name:
        return text
    import re

    for pattern, replacement in rules:
        text = re.sub(pattern, replacement, text)
    return re.sub(_NAMED, _redact_value, text) if has_name else text


def _redact_value(match: re.Match[str]) -> str:
    name, value = match.group(1), next(filter(None, match.groups()[1:]))
    is_prose = ":" in name and not any(character.isdigit() for character in value)
    if is_prose or value == REDACTED or value.replace(".", "", 1).isdigit():
        return match.group()
    quote = match.group()[len(name)]
    return f"{name}{quote}{REDACTED}{quote}" if quote in "\"'" else f"{name}{REDACTED}"
