"""Who is at the other end: mutual TLS 1.3, and the node's id in its certificate.

Every node and every client has a certificate of the cluster's own authority.  A node's names it with the URI
`latewood:node:<id>` among its alternative names; whoever has none is a client.  Host names are not looked at: which
node answers is what counts, and the id says that.
"""

import ssl
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from latewood.errors import UsageError

NODE_URI: Final = "latewood:node:"


class Credentials(NamedTuple):
    """Where the files are, all in PEM."""

    authority: Path
    certificate: Path
    key: Path


def server_context(credentials: Credentials) -> ssl.SSLContext:
    """Return what a node listens with: whoever connects must have a certificate of the authority.

    Raises:
        UsageError: a file is missing, or not what it should be.
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER, credentials)
    context.num_tickets = 0  # Nobody comes back to resume: connections last.
    return context


def client_context(credentials: Credentials) -> ssl.SSLContext:
    """Return what a node, or a client, connects with.

    Raises:
        UsageError: a file is missing, or not what it should be.
    """
    return _context(ssl.PROTOCOL_TLS_CLIENT, credentials)


def node_id_of(certificate: Mapping[str, Any] | None) -> int:
    """Return the node that a certificate, as `getpeercert` returns it, is of; 0 if it is of none."""
    for kind, value in (certificate or {}).get("subjectAltName", ()):
        text = value.removeprefix(NODE_URI)
        if kind == "URI" and text != value and text.isascii() and text.isdigit():
            return int(text)
    return 0


def check_is_of(credentials: Credentials, node_id: int) -> None:
    """Refuse a certificate that others would not take for that of this node.

    Raises:
        UsageError: it is another's, or a client's; or a file is missing, or not what it should be.
    """
    certificate = _seen_by_others(credentials)
    found = node_id_of(certificate)
    if certificate and found != node_id:
        message = (
            f"certificate in [tls], {credentials.certificate}, is of {f'node {found}' if found else 'no node'}, and "
            f"node_id is {node_id}: write the files of the one that has the URI {NODE_URI}{node_id}"
        )
        raise UsageError(message)


def _seen_by_others(credentials: Credentials) -> Mapping[str, Any] | None:
    """Return a certificate as others see it, by a conversation with ourselves; None if they would not believe it.

    There is nothing in `ssl` that reads a certificate from a file.
    """
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = client_context(credentials)
    context.verify_mode = ssl.CERT_NONE  # Of a client's certificate, a client would only say that it is no server's.
    client = context.wrap_bio(back, there)
    server = server_context(credentials).wrap_bio(there, back, server_side=True)
    try:
        for end in (client, server, client, server):
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
        return server.getpeercert()
    except ssl.SSLError:
        return None


def _context(protocol: int, credentials: Credentials) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    what = f"the certificate {credentials.certificate} with its key {credentials.key}"
    try:
        context.load_cert_chain(credentials.certificate, credentials.key)
        what = f"the authority's certificate {credentials.authority}"
        context.load_verify_locations(credentials.authority)
    except FileNotFoundError as error:
        raise UsageError(f"what TLS needs is not there: {_missing(credentials)}") from error
    except OSError as error:  # ssl.SSLError is one
        raise UsageError(f"cannot use {what}: {error}") from error
    return context


def _missing(credentials: Credentials) -> str:
    """Return which files are not there; `ssl` does not say."""
    kinds = ("the authority's certificate", "the certificate", "the key")
    missing = [f"{kind} {path}" for kind, path in zip(kinds, credentials, strict=True) if not path.exists()]
    return " and ".join(missing)
