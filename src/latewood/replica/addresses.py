"""Addresses: host and port, and which of them stay on this machine."""

import ipaddress
from typing import Final

from latewood.errors import UsageError

_PORT_MAX: Final = 65_535


def split_address(address: str) -> tuple[str, int]:
    """Return host and port.

    Raises:
        UsageError: it is no address.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > _PORT_MAX:
        message = f"an address is host:port, with a port up to {_PORT_MAX}, not {address!r}"
        raise UsageError(message)
    return host.strip("[]"), int(port)


def is_everywhere(address: str) -> bool:
    """Say whether it is all addresses of a machine: one can listen there, and nobody connect to it from elsewhere."""
    ip = _ip(split_address(address)[0])
    return ip is not None and ip.is_unspecified


def may_be_same(one: str, other: str) -> bool:
    """Say whether two addresses may be the same place; for all that is known here a name may be any host.

    Port 0 is whichever is free.
    """
    (host, port), (other_host, other_port) = split_address(one), split_address(other)
    if port != other_port and port and other_port:
        return False
    ip, other_ip = _ip(host), _ip(other_host)
    return ip is None or other_ip is None or ip == other_ip or ip.is_unspecified or other_ip.is_unspecified


def check_loopback(host: str, mend: str = "give [tls] in the configuration") -> None:
    """Refuse plain text where others could listen; `mend` says what to do instead.

    Raises:
        UsageError: the host is not this machine alone.
    """
    ip = _ip(host)
    if host != "localhost" and (ip is None or not ip.is_loopback):
        message = f"plain text is for loopback addresses alone, and {host} is none: {mend}"
        raise UsageError(message)


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address that a host is; None if it is a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
