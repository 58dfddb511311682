"""Edge: a real HTTP server in a thread, with scripted answers; it records the requests."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Reply:
    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)


class CutOff(Exception):
    """The server closes the connection without an answer."""


@dataclass
class Seen:
    method: str
    path: str
    body: bytes
    request_id: str | None
    authorization: str | None
    traceparent: str | None = None


@dataclass
class Node:
    """One server; `answer` is what it does with a request, `seen` what it was asked."""

    url: str
    seen: list[Seen] = field(default_factory=list)
    answer: Callable[[Seen], Reply] = lambda _: Reply()


def error(name: str, status: int, *, code: int = 1, family: str = "Rejected", **headers: str) -> Reply:
    body = {"error": name, "code": code, "family": family, "message": f"because {name}", "retryable": False}
    return Reply(status, json.dumps(body).encode(), {k.replace("_", "-"): v for k, v in headers.items()})


def not_controller(to: str | None = None) -> Reply:
    if to is None:
        return error("NOT_CONTROLLER", 503, family="Unavailable")
    return error("NOT_CONTROLLER", 421, family="Unavailable", X_Controller=to)


@contextmanager
def node() -> Iterator[Node]:
    class Handler(BaseHTTPRequestHandler):
        def handle_one(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            seen = Seen(
                self.command,
                self.path,
                body,
                self.headers.get("X-Request-Id"),
                self.headers.get("Authorization"),
                self.headers.get("traceparent"),
            )
            told.seen.append(seen)
            try:
                reply = told.answer(seen)
            except CutOff:
                self.close_connection = True
                return
            self.send_response(reply.status)
            for name, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(ConnectionError):  # a client that has another node's answer is gone
                self.wfile.write(reply.body)

        do_GET = do_POST = do_PATCH = do_DELETE = handle_one

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told = Node(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield told
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
