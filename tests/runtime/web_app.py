"""What the tests of web servers have served: the records of a store, for gunicorn and for uvicorn.

For gunicorn this module is both the configuration and the application.  Its master opens the store before it forks, and
appends to it; each worker opens the store again to read.  The workers of uvicorn are spawned, and each of them imports
this module for itself.
"""

import json
import os
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Final

from latewood.errors import Forked
from latewood.runtime import Store

VARIABLE: Final = "LATEWOOD_TEST_STORE"
"""Names the directory of the store."""
NAME: Final = "clicks"


class Served:
    """The stores of one process: the one that it may have inherited, and its own."""

    inherited: Store
    own: Store


def root() -> Path:
    return Path(os.environ[VARIABLE])


def answer(path: str) -> bytes:
    """Say which worker this is, and what it found."""
    found = refusals() if path == "/inherited" else records()
    return json.dumps({"worker": os.getpid(), "found": found}).encode()


def records() -> list[str]:
    return sorted(record.payload.decode() for record in Served.own.database(NAME).scan())


def refusals() -> list[str]:
    """Use the store that the master has opened, and return what its methods raise."""
    store, found = Served.inherited, []
    for use in (lambda: store.database(NAME), store.databases, store.run_jobs, lambda: store.create_database("other")):
        try:
            use()
        except Forked as error:
            found.append(str(error))
        else:
            found.append("nothing was raised")
    return found


# -- gunicorn ---------------------------------------------------------------------------------------------


def preloaded() -> Callable[..., Iterable[bytes]]:
    """In the master, before it forks: open the store, and return the application."""
    Served.inherited = Store.open(root())
    Served.inherited.create_database(NAME, shards=2).append_many([b"a", b"b"])
    return application


def post_fork(_server: object, _worker: object) -> None:
    """In each worker, before it serves."""
    Served.own = Store.open(root(), mode="r")


def child_exit(_server: object, _worker: object) -> None:
    """In the master, when a worker has ended."""
    Served.inherited.database(NAME).append(b"a worker has ended")


def on_exit(_server: object) -> None:
    """In the master, at its end."""
    Served.inherited.close()


def application(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    body = answer(environ["PATH_INFO"])
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]


# -- uvicorn ----------------------------------------------------------------------------------------------

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


async def asgi(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await receive()
        with Store.open(root(), mode="r") as Served.own:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    body = answer(scope["path"])
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
