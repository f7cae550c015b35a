"""Signals by number: the functions under ``signal`` without its enumerations, which cost a process 3 ms.

``_signal`` is the module that does the work on every CPython; ``signal`` wraps each constant of it in an ``enum``. Type
checkers see the public module.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from signal import (
        SIG_DFL,
        SIG_IGN,
        SIGALRM,
        SIGCHLD,
        SIGCONT,
        SIGHUP,
        SIGINT,
        SIGKILL,
        SIGPIPE,
        SIGQUIT,
        SIGTERM,
        SIGXFSZ,
        alarm,
        set_wakeup_fd,
        signal,
    )
else:
    try:
        import _signal as _source
    except ImportError:
        import signal as _source
    SIG_DFL, SIG_IGN = _source.SIG_DFL, _source.SIG_IGN
    SIGALRM, alarm = _source.SIGALRM, _source.alarm
    SIGCHLD, SIGCONT, SIGHUP, SIGINT = _source.SIGCHLD, _source.SIGCONT, _source.SIGHUP, _source.SIGINT
    SIGKILL, SIGPIPE, SIGQUIT = _source.SIGKILL, _source.SIGPIPE, _source.SIGQUIT
    SIGTERM, SIGXFSZ = _source.SIGTERM, _source.SIGXFSZ
    set_wakeup_fd, signal = _source.set_wakeup_fd, _source.signal

__all__ = [
    "SIGALRM",
    "SIGCHLD",
    "SIGCONT",
    "SIGHUP",
    "SIGINT",
    "SIGKILL",
    "SIGPIPE",
    "SIGQUIT",
    "SIGTERM",
    "SIGXFSZ",
    "SIG_DFL",
    "SIG_IGN",
    "alarm",
    "set_wakeup_fd",
    "signal",
]
