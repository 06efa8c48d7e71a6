"""`latewood.connect`: a cluster, seen from a program.

`tls` names the files of a certificate, `{"cert": …, "key": …, "ca": …}`, or is an `ssl.SSLContext`.  Without it the
conversation is in plain text, which nodes allow on loopback only.
"""

import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from latewood.errors import UsageError
from latewood.replica.client.asynchronous import AsyncClient
from latewood.replica.client.options import ClientOptions
from latewood.replica.client.synchronous import Client
from latewood.replica.tls import Credentials, client_context

TLS: TypeAlias = "ssl.SSLContext | Mapping[str, str | Path] | None"


def connect(addresses: Sequence[str], *, tls: TLS = None, cluster_id: str = "", **options: Any) -> Client:
    """Return a client for the cluster that has nodes at `addresses`; one that answers is enough to find the others.

    Nothing is sent before the first call.  `cluster_id` guards against talking to another cluster.  Options are those
    of `ClientOptions`: `latewood.connect(["10.0.0.1:7300"], timeout_ms=5_000)`.

    Raises:
        UsageError: no addresses, an unknown option, or a value out of bounds or of another type.
    """
    return Client(addresses, cluster_id=_cluster(cluster_id), tls=_context(tls), options=_options(options))


async def connect_async(
    addresses: Sequence[str], *, tls: TLS = None, cluster_id: str = "", **options: Any
) -> AsyncClient:
    """Return the same for asyncio; use it in the event loop that called."""
    return AsyncClient(addresses, cluster_id=_cluster(cluster_id), tls=_context(tls), options=_options(options))


def _cluster(given: object) -> str:
    if not isinstance(given, str):
        message = f"cluster_id is a text, as in 'trial', not {given!r}"
        raise UsageError(message)
    return given


def _options(fields: Mapping[str, Any]) -> ClientOptions:
    names = list(ClientOptions.__dataclass_fields__)
    unknown = sorted(set(fields) - set(names))
    if unknown:
        message = f"unknown option {unknown[0]!r}; the options are {', '.join(names)}"
        raise UsageError(message)
    return ClientOptions(**fields)


def _context(tls: TLS) -> ssl.SSLContext | None:
    if tls is None or isinstance(tls, ssl.SSLContext):
        return tls
    given: object = tls  # A caller without a type checker may give anything.
    if not isinstance(given, Mapping) or set(given) != {"cert", "key", "ca"}:
        raise UsageError("tls is an ssl.SSLContext, or names the files of a certificate: cert, key and ca")
    return client_context(Credentials(Path(tls["ca"]), Path(tls["cert"]), Path(tls["key"])))
