"""What a new system inherits from this machine's environment: the way to the network, and nothing else."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

BUNDLE: Final = Path("/etc/ssl/certs/ca-certificates.crt")
"""Where Debian keeps the certificates that it trusts, in one file."""

_AUTHORITIES: Final = (
    "SSL_CERT_FILE",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
)
"""The variables that name a file of certificates, in the order in which this machine's bundle is looked for."""

_PREFIXES: Final = ("PIP_", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTRIES_", "CARGO_REGISTRY_", "CARGO_SOURCE_")
_SUFFIX: Final = "_PROXY"
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def environment_of(user: str, home: str, machine: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of a process in a new system."""
    own = {"PATH": _PATH, "HOME": home, "LANG": "C.UTF-8", "USER": user, "LOGNAME": user}
    return inherited(machine) | own


def inherited(machine: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are passed on: proxies, package indexes, and trust in this machine's authorities.

    A value that names a path of this machine means nothing in the new system and is left out.  Where this machine has
    authorities of its own, every program is pointed to their copy, not only those whose variables are set here.
    """
    kept = {name: value for name, value in machine.items() if _is_network(name) and not _is_path(value)}
    if any(machine.get(name) for name in _AUTHORITIES):
        kept |= dict.fromkeys(_AUTHORITIES, str(BUNDLE))
    return kept


def bundle_of(machine: Mapping[str, str]) -> Path:
    """Return the file of certificates that this machine trusts; it need not exist."""
    named = (Path(machine[name]) for name in _AUTHORITIES if machine.get(name))
    return next((path for path in named if path.is_file()), BUNDLE)


def _is_network(name: str) -> bool:
    return name.upper().endswith(_SUFFIX) or name.startswith(_PREFIXES)


def _is_path(value: str) -> bool:
    return value.startswith(("/", "~", ".", "file:"))
