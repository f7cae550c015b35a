"""A scripted model server: answers every request of an agent CLI with the next turn of a script.

It runs in a thread of the test and serves a socket that listens inside the client's network namespace. So a turn may
be a function of the request that it answers: take a value out of it (a task id that a command printed), look at the
disk, kill the client.

A request that declares no tools is an auxiliary one (session title, topic, next speaker); it uses up no turn.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from tests.clients.support.wire_formats import OK, RENDERERS, Json, Turn, render

if TYPE_CHECKING:
    import socket

MISFIT = "THE SCRIPT DOES NOT FIT: "


@dataclass(frozen=True, slots=True)
class Request:
    """One request that reached the model.

    Attributes:
        kind: ``main`` uses up a turn, ``aux`` does not, ``other`` is no model call (token counts, unknown paths).
        path: of the URL, without the query.
        body: the parsed JSON.
        turn: the index of the turn that answered it; -1 where none did.
    """

    kind: Literal["main", "aux", "other"]
    path: str
    body: Json
    turn: int = -1

    @property
    def conversation(self) -> str:
        """Every text of the conversation so far, tool outputs too, oldest first, one a line."""
        for name in ("messages", "input", "contents"):
            if name in self.body:
                return "\n".join(texts(self.body[name]))
        return ""

    def find(self, pattern: str) -> str:
        """The newest match of a pattern in the conversation: its first group, or all of it.

        Raises:
            LookupError: nothing matches.
        """
        found = list(re.finditer(pattern, self.conversation))
        if not found:
            raise LookupError(f"no {pattern!r} in the request; it ends with {self.conversation[-600:]!r}")
        return found[-1].group(1 if found[-1].re.groups else 0)


def texts(value: Any) -> Iterator[str]:
    """All strings in a JSON value, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from texts(part)


Move = Turn | Callable[[Request], Turn]
"""A turn, or how to make it from the request that it answers."""


class Script:
    """The turns of one run, and how far they have been played; the last one repeats for ever.

    Attributes:
        requests: everything that arrived, in order.
        misfits: why a turn did not fit its request; the run has failed when this is not empty.
    """

    def __init__(self, *moves: Move) -> None:
        self._moves = moves
        self._lock = threading.Lock()
        self._played = 0
        self.requests: list[Request] = []
        self.misfits: list[str] = []

    def answer(self, path: str, body: Json) -> Turn | None:
        """Record a request and say what the model answers; None where it is no model call."""
        is_model_call = path.endswith(tuple(RENDERERS))
        if not is_model_call or not body.get("tools"):
            self.requests.append(Request("aux" if is_model_call else "other", path, body))
            return auxiliary_turn(body) if is_model_call else None
        with self._lock:
            request = Request("main", path, body, self._played)
            self._played += 1
            self.requests.append(request)
        try:
            return self._play(request)
        except Exception as error:  # noqa: BLE001 - a test's own function: what it raises belongs to the test
            self.misfits.append(f"turn {request.turn}: {error!r}")
            return Turn(MISFIT + repr(error))

    def _play(self, request: Request) -> Turn:
        move = self._moves[min(request.turn, len(self._moves) - 1)]
        turn = move if isinstance(move, Turn) else move(request)
        if turn.needs and turn.needs not in request.conversation:
            raise LookupError(
                f"the request lacks {turn.needs!r}; it ends with {request.conversation[-600:]!r}"
            )
        return turn


def auxiliary_turn(body: Json) -> Turn:
    """What a request without tools gets; Gemini's next-speaker check and Claude's judge of a goal want JSON."""
    if "evaluating a stop-condition hook" in json.dumps(body.get("system", "")):
        return Turn(json.dumps({"ok": False, "reason": "not yet"}))
    if body.get("generationConfig", {}).get("responseMimeType") == "application/json":
        return Turn(json.dumps({"reasoning": "scripted", "next_speaker": "user"}))
    return Turn("scripted")


class ModelServer:
    """Serves the script of the current run on a listening socket, in a thread of its own.

    Attributes:
        url: where the client finds it.
        script: what is played now; set anew for each run.
    """

    def __init__(self, listener: socket.socket) -> None:
        self.script = Script(Turn("nothing is scripted"))
        host, port = listener.getsockname()
        self.url = f"http://{host}:{port}"
        self._server = _Server((host, port), _Door, bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = listener
        self._server.model = self
        serve = partial(self._server.serve_forever, poll_interval=0.05)
        self._thread = threading.Thread(target=serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    """Knows whose script it serves."""

    daemon_threads = True
    model: ModelServer

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's signature
        """A connection that broke is a client that was killed, which a test may want; all else is a misfit."""
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError):
            self.model.script.misfits.append(repr(error))


class _Door(BaseHTTPRequestHandler):
    """The HTTP side of a model server."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        """Say nothing on the test's terminal."""

    def do_HEAD(self) -> None:
        """Claude Code looks whether anybody is there."""
        self._send(200, "application/json", b"")

    def do_POST(self) -> None:
        """Answer a model call."""
        path = urlsplit(self.path).path
        body = json.loads(self._read() or b"{}")
        turn = self.server.model.script.answer(path, body)
        if turn is None:
            self._send(404, "application/json", b"{}")
        elif turn.status != OK:
            error = {"type": "api_error", "code": turn.status, "message": turn.text}
            self._send(turn.status, "application/json", json.dumps({"error": error}).encode())
        else:
            self._send(OK, *render(path, turn, str(body.get("model", "scripted"))))

    def _send(self, status: int, content_type: str, payload: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def _read(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            data = b"".join(self._chunks())
        else:
            data = self.rfile.read(int(self.headers.get("content-length") or 0))
        return gzip.decompress(data) if self.headers.get("content-encoding") == "gzip" else data

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
