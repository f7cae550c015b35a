"""Settings of a client that end the hold: they turn its hooks off, or let it override a refusal early.

An agent can write some of these files, so ``status`` reads them as well as ``doctor``. A file is parsed only if a
setting of interest stands in its bytes.
"""

from __future__ import annotations

from omx_autoresearch.foundation import json_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from omx_autoresearch.agents.parts import Installation

_MAX_BYTES = 4 * 1024 * 1024


def turned_off(installation: Installation, environ: Mapping[str, str] | None = None) -> list[str]:
    """The settings that turn hooks off, as ``a.b is true in PATH`` or ``NAME is set``.

    Args:
        installation: where the client keeps its settings.
        environ: the environment of the client; None if it is unknown.
    """
    switches = [(keys, True) for keys in installation.off_switches]
    switches += [(keys, False) for keys in installation.on_switches]
    faults = []
    for path in _paths(installation):
        settings = _settings(path, installation, tuple(keys[-1] for keys, _ in switches))
        faults += [
            f"{'.'.join(keys)} is {str(bad).lower()} in {path}"
            for keys, bad in switches
            if _value_at(settings, keys) is bad
        ]
    return faults + [f"{name} is set" for name in installation.off_variables if (environ or {}).get(name)]


def lowered_caps(installation: Installation) -> list[str]:
    """The caps that other settings files lower, below what the installer writes, as ``NAME is N in PATH``."""
    return [
        f"{name} is {value} in {path}"
        for name, wanted in installation.environment
        for path in _paths(installation)
        if (value := _value_at(_settings(path, installation, (name,)), ("env", name))) is not None
        and not is_raised(str(value), wanted)
    ]


def is_raised(value: str, wanted: str) -> bool:
    """Whether a cap is as high as the installer's; 0 means no cap."""
    return value.isdigit() and (int(value) == 0 or int(value) >= int(wanted))


def _paths(installation: Installation) -> tuple[str, ...]:
    """The files that may hold a switch, each once."""
    paths = (*installation.settings_paths.values(), *installation.managed_paths, installation.features_path)
    return tuple(dict.fromkeys(filter(None, paths)))


def _settings(path: str, installation: Installation, names: tuple[str, ...]) -> Any:
    """The parsed file; None where it names no setting of interest, or the client cannot read it."""
    from omx_autoresearch.agents.machine import without_waiting

    try:
        with open(path, "rb", opener=without_waiting) as stream:
            text = (stream.read(_MAX_BYTES) or b"").decode("utf-8-sig", "replace")
    except OSError:
        return None
    if not any(name in text for name in names):
        return None
    if not path.endswith(".toml") and not installation.allows_comments:
        try:
            return json_codec.decoder(dict)(text)
        except (ValueError, RecursionError):
            return None
    from omx_autoresearch.agents.settings_text import TextFault, toml_values, value_at

    try:
        return toml_values(text) if path.endswith(".toml") else value_at(text, (), comments=True)
    except TextFault:
        return None


def _value_at(settings: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        settings = settings.get(key) if isinstance(settings, dict) else None
    return settings
