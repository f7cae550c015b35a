"""sha256 and sha1 without loading OpenSSL: 0.4 ms instead of 3 ms in a process that hashes a few kilobytes.

``hashlib`` loads a shared library for functions that a hook does not need. CPython's own are the same functions
under private names that change between versions, so ``hashlib`` is the fallback. Large files are hashed with
``hashlib`` where that is faster.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hashlib import sha1, sha256
else:
    try:
        from _sha1 import sha1
        from _sha256 import sha256  # CPython 3.11
    except ImportError:
        try:
            from _sha1 import sha1

            from _sha2 import sha256  # CPython 3.12 and later
        except ImportError:
            from hashlib import sha1, sha256

__all__ = ["sha1", "sha256"]
