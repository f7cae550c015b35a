"""Values of the owner's environment that validators need and that nobody shall read in what they print.

A declared variable whose name or value is a secret's stands in no contract and no journal: the contract has
:data:`WITHHELD` in its place, and the value stands in ``secrets.json`` of the mission, which only its user can read.
Commands get the value. Everything else, each record and each kept output, has ``[redacted]`` where the value stood, as
it is, as JSON writes it, or as an address writes it.

Values of fewer than eight characters are not masked: they would be found in everything.
"""

from __future__ import annotations

import os

from omx_autoresearch.foundation import json_codec
from omx_autoresearch.foundation.errors import CommandFault
from omx_autoresearch.foundation.records import replace
from omx_autoresearch.foundation.text import REDACTED
from omx_autoresearch.journal.safe_files import read_bounded, replace_file, storage_failed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from omx_autoresearch.journal.layout import MissionFolder
    from omx_autoresearch.missions.rules.mission import Contract
    from omx_autoresearch.missions.rules.run_reports import RunReport

WITHHELD = "[kept in secrets.json]"
LEAST_CHARACTERS = 8
_LIMIT_BYTES = 1024 * 1024
_WORDS = frozenset(
    ("auth", "cookie", "credential", "credentials", "dsn", "key", "pass", "passphrase", "passwd", "password", "pat",
     "pin", "pwd", "secret", "secrets", "token", "tokens")
)  # fmt: skip
_ENDS = ("password", "passwd", "secret", "token", "apikey")
_ADDRESS_WITH_LOGIN = r"\A[A-Za-z][\w+.-]*://[^\s/@]*?:([^\s/@]+)@"
_PLAIN = (
    r"[-+]?[0-9][0-9.,:eE+-]*"
    r"|[A-Za-z]+(?:[-_. ](?:[A-Za-z]+|[0-9]{1,8}|[A-Za-z]{1,3}[0-9]{1,4}))*"
    r"|~?\.{0,2}/.*|[A-Za-z][\w+.-]*://.*"
)
"""Numbers, words, paths, and addresses without a password: settings, which are shown."""


def is_secret(name: str, value: str) -> bool:
    """Whether a declared variable is a secret, by its name or by its value."""
    import re

    if len(value) < LEAST_CHARACTERS:
        return False
    if is_secret_name(name) or re.match(_ADDRESS_WITH_LOGIN, value):
        return True
    return re.fullmatch(_PLAIN, value) is None


def is_secret_name(name: str) -> bool:
    """Whether a variable's name is that of a secret: one of its words, or its end, is one of a secret's."""
    low = name.lower()
    return low.endswith(_ENDS) or not _WORDS.isdisjoint(low.split("_"))


def keep_secrets(folder: MissionFolder, secrets: Mapping[str, str]) -> None:
    """Keep the secrets of a mission in the place of those before; its folder is there.

    Raises:
        StorageFailed: the system refused.
    """
    if secrets or os.path.lexists(folder.secrets_path):
        replace_file(folder.secrets_path, (json_codec.pretty(dict(secrets)) + "\n").encode("utf-8"))


def secrets_of(folder: MissionFolder) -> dict[str, str]:
    """The secrets of a mission, by the names of their variables.

    Raises:
        StorageFailed: the system refused the read.
        StateUntrusted: the file is no regular file, or too large.
    """
    try:
        found = json_codec.decode(read_bounded(folder.secrets_path, _LIMIT_BYTES))
    except (FileNotFoundError, ValueError):
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def for_run(folder: MissionFolder, contract: Contract) -> tuple[Contract, tuple[str, ...]]:
    """The contract with its secrets, for one run, and the forms in which that run may give them away.

    Raises:
        CommandFault: the value of one is not kept any more.
        StateUntrusted: they cannot be read.
    """
    secrets = secrets_of(folder)
    return with_secrets(contract, secrets, task_id=folder.task_id), forms_of(secrets.values())


def with_secrets(contract: Contract, secrets: Mapping[str, str], *, task_id: str = "") -> Contract:
    """The contract with its secrets, for one run; it is never recorded.

    Raises:
        CommandFault: the value of one is not kept any more.
    """
    withheld = [name for name, value in contract.environment.items() if value == WITHHELD]
    if gone := [name for name in withheld if name not in secrets]:
        raise CommandFault(
            f"the value of {gone[0]}, which the commands of {task_id} need, is no longer in secrets.json",
            next_step=f"where {gone[0]} is set: omx-autoresearch amend {task_id} --reason 'its value again'",
        )
    if not withheld:
        return contract
    return replace(
        contract, environment={**contract.environment, **{name: secrets[name] for name in withheld}}
    )


# --- masking


def forms_of(values: Iterable[str]) -> tuple[str, ...]:
    """Every text that gives one of these values away, the longest first."""
    import re
    from urllib.parse import quote, unquote

    found: set[str] = set()
    for value in values:
        parts = {value, *(line.strip() for line in value.splitlines())}
        if password := re.match(_ADDRESS_WITH_LOGIN, value):
            parts |= {password[1], unquote(password[1])}
        for part in parts:
            escaped = json_codec.encode(part).decode("utf-8")[1:-1]
            found |= {part, escaped, quote(part, safe="")}
    return tuple(sorted((form for form in found if len(form) >= LEAST_CHARACTERS), key=len, reverse=True))


def masked(text: str, forms: tuple[str, ...]) -> str:
    """A text without these forms."""
    for form in forms:
        text = text.replace(form, REDACTED)
    return text


def masked_data(value: Any, forms: tuple[str, ...]) -> Any:
    """The data of a record without these forms, in keys as in values."""
    if isinstance(value, str):
        return masked(value, forms)
    if isinstance(value, dict):
        return {masked(str(name), forms): masked_data(item, forms) for name, item in value.items()}
    if isinstance(value, list):
        return [masked_data(item, forms) for item in value]
    return value


def masked_bytes(data: bytes, forms: tuple[str, ...]) -> bytes:
    """An output without these forms."""
    for form in forms:
        data = data.replace(form.encode("utf-8", "surrogatepass"), REDACTED.encode("ascii"))
    return data


def masked_output(output: bytes, path: str, forms: tuple[str, ...]) -> bytes:
    """What was read of a kept output without these forms, which are taken out of its file, too.

    Raises:
        StorageFailed: the system refused; the file is gone then.
    """
    if not forms:
        return output
    try:
        with open(path, "rb") as stream:
            data = stream.read()
        if (clean := masked_bytes(data, forms)) != data:
            os.unlink(path)
            replace_file(path, clean)
    except OSError as error:
        raise storage_failed("mask", path, error) from error
    return masked_bytes(output, forms)


def masked_report(report: RunReport, forms: tuple[str, ...]) -> RunReport:
    """A report whose summary has none of these forms."""
    return replace(report, summary=masked(report.summary, forms)) if forms else report
