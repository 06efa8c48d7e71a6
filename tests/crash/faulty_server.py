"""A server between a client and another server: it passes requests on, and makes trouble when it is told to."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import urlsplit

Mood = Literal["well", "ill", "moody", "slow", "forgetful"]
"""ill: it answers 500 to everything.  moody: to every second request.  slow: it never answers in time.
forgetful: it does what it is asked, and answers 500."""

_BUSY = b"<Error><Code>InternalError</Code></Error>"


class FaultyServer:
    """Listens on a port of its own from `start` to `stop`, again and again."""

    def __init__(self, endpoint: str, port: int) -> None:
        self.mood: Mood = "well"
        self.requests = 0
        self.never = threading.Event()
        self._target, self._port = urlsplit(endpoint), port
        self._server: ThreadingHTTPServer | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        self.never.clear()
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), self._handler())
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Be away: connections are refused from now on."""
        if self._server is not None:
            self.never.set()
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def passed_on(self, method: str, path: str, headers: Any, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(str(self._target.hostname), self._target.port, timeout=30)
        try:
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def answer(self, method: str, path: str, headers: Any, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        self.requests += 1
        mood = self.mood
        if mood == "slow":
            self.never.wait(5)
        if mood == "ill" or (mood == "moody" and self.requests % 2):
            return 500, [], _BUSY
        found = self.passed_on(method, path, headers, body)
        return (500, [], _BUSY) if mood == "forgetful" else found

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, headers, data = outer.answer(self.command, self.path, self.headers, body)
                length = next((value for name, value in headers if name.lower() == "content-length"), str(len(data)))
                self.send_response(status)
                for name, value in headers:
                    if name.lower() not in {"content-length", "transfer-encoding", "connection", "server", "date"}:
                        self.send_header(name, value)
                self.send_header("Content-Length", length if self.command == "HEAD" else str(len(data)))
                self.send_header("Connection", "close")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)
                self.close_connection = True

            do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = handle_any  # noqa: N815 - what the server calls

            def handle(self) -> None:
                try:
                    super().handle()
                except OSError:  # The client has given up.
                    self.close_connection = True

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


@contextmanager
def faulty(endpoint: str, port: int) -> Iterator[FaultyServer]:
    """Give a server that is there, and well."""
    server = FaultyServer(endpoint, port)
    server.start()
    try:
        yield server
    finally:
        server.stop()
