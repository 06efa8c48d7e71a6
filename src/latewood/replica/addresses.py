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


def check_loopback(host: str) -> None:
    """Refuse plain text where others could listen.

    Raises:
        UsageError: the host is not this machine alone.
    """
    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        message = f"plain text is for loopback addresses alone, and {host} is none: give [tls] in the configuration"
        raise UsageError(message)
