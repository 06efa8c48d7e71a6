"""Certificates for a trial: an authority of the cluster's own, and what it signs for nodes and clients.

A node's certificate names its id with a URI, as `tls` reads it, and the host that it listens on; a client's has
neither.  The authority's key stays beside them, so that nodes can be added later: keep it elsewhere, or remove it,
where it matters.  Nothing that exists is written over.
"""

import ipaddress
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from latewood.errors import UsageError
from latewood.fs import FileSystem
from latewood.fs.atomic import replace_file
from latewood.replica.tls import NODE_URI

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, CertificateBuilder, GeneralName, Name

# ruff: noqa: PLC0415 - `cryptography` is an extra, and takes 50 ms to import

DAYS: Final = 365
_COMMON_NAME_MAX: Final = 64
_BACKDATE: Final = timedelta(minutes=5)
"""Clocks differ: a certificate that begins now would not be valid elsewhere yet."""


class Names(NamedTuple):
    """The files of one holder."""

    certificate: Path
    key: Path


def authority_names(directory: Path) -> Names:
    """Return where the authority is."""
    return Names(directory / "ca.pem", directory / "ca.key")


def node_names(directory: Path, node_id: int) -> Names:
    """Return where a node's certificate is."""
    return Names(directory / f"node-{node_id}.pem", directory / f"node-{node_id}.key")


def client_names(directory: Path) -> Names:
    """Return where the clients' certificate is."""
    return Names(directory / "client.pem", directory / "client.key")


def make_certificates(
    fs: FileSystem, directory: Path, nodes: Mapping[int, str], *, cluster_id: str, now: datetime, days: int = DAYS
) -> list[Path]:
    """Make what is missing of an authority, a certificate for each node (its id, and its host), and one for clients.

    Returns the files that were made.  An authority that is there signs the new ones.

    Raises:
        UsageError: half of a pair is missing, the authority cannot be read, or `cryptography` is not installed.
    """
    office = _Office(fs, directory, cluster_id, now, days)
    fs.make_directory(directory)
    office.open()
    for node_id, host in nodes.items():
        office.issue(node_names(directory, node_id), f"node {node_id}", node_id, host)
    office.issue(client_names(directory), "client", 0, "")
    fs.sync_directory(directory)
    return office.made


def certified_hosts(fs: FileSystem, path: Path) -> list[str]:
    """Return the hosts that a certificate names.

    Raises:
        UsageError: it is none that we can read.
    """
    from cryptography import x509

    try:
        extensions = x509.load_pem_x509_certificate(_read(fs, path)).extensions
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    except ValueError as error:
        raise UsageError(f"{path} is no certificate that we can read: {error}") from error
    return [str(host) for kind in (x509.IPAddress, x509.DNSName) for host in names.get_values_for_type(kind)]


class _Office:
    """Signs, and keeps a list of what it has made."""

    def __init__(self, fs: FileSystem, directory: Path, cluster_id: str, now: datetime, days: int) -> None:
        try:
            import cryptography  # noqa: F401 - only to see whether it is there
        except ImportError:
            raise UsageError("certificates need the extra: pip install 'latewood[cluster]'") from None
        self._fs, self._names, self._cluster_id = fs, authority_names(directory), cluster_id
        self._begin, self._end = now.astimezone(UTC) - _BACKDATE, now.astimezone(UTC) + timedelta(days=days)
        self.made: list[Path] = []

    def open(self) -> None:
        """Read the authority, or make it."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        if not self._is_there(self._names):
            self._key = ec.generate_private_key(ec.SECP256R1())
            name = _name(f"latewood cluster {self._cluster_id}")
            builder = self._builder(name, name, self._key)
            self._certificate = _sign(_as_authority(builder, self._key), self._key)
            self._keep(self._names, self._certificate, self._key)
            return
        try:
            key = load_pem_private_key(_read(self._fs, self._names.key), None)
            self._certificate = x509.load_pem_x509_certificate(_read(self._fs, self._names.certificate))
        except ValueError as error:
            message = f"{self._names.certificate} and {self._names.key} are no authority that we can read: {error}"
            raise UsageError(message) from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != self._certificate.public_key():
            message = f"{self._names.key} is not the key of {self._names.certificate}"
            raise UsageError(message)
        self._key = key

    def issue(self, names: Names, title: str, node_id: int, host: str) -> None:
        """Make a certificate for a node, or with 0 for clients, unless it is there."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        if self._is_there(names):
            return
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(_name(f"latewood {self._cluster_id} {title}"), self._certificate.subject, key)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH]  # A node connects to others, and is connected to.
        if node_id:
            uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
            identity = [x509.UniformResourceIdentifier(f"{NODE_URI}{node_id}"), *_host_names(host)]
            builder = builder.add_extension(x509.SubjectAlternativeName(identity), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        self._keep(names, _sign(builder, self._key), key)

    def _is_there(self, names: Names) -> bool:
        there = [self._fs.exists(path) for path in names]
        if any(there) and not all(there):
            missing = names[there.index(False)]
            message = f"{missing} is missing beside its other half; remove that, or bring it back"
            raise UsageError(message)
        return all(there)

    def _builder(self, subject: "Name", issuer: "Name", key: "EllipticCurvePrivateKey") -> "CertificateBuilder":
        from cryptography import x509

        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._begin)
            .not_valid_after(self._end)
        )

    def _keep(self, names: Names, certificate: "Certificate", key: "EllipticCurvePrivateKey") -> None:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        replace_file(self._fs, names.key, private)  # files are made for their owner alone
        replace_file(self._fs, names.certificate, certificate.public_bytes(Encoding.PEM))
        self.made += [names.certificate, names.key]


def _name(text: str) -> "Name":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:_COMMON_NAME_MAX])])


def _host_names(host: str) -> "list[GeneralName]":
    from cryptography import x509

    if not host:
        return []
    try:
        return [x509.IPAddress(ipaddress.ip_address(host))]
    except ValueError:
        return [x509.DNSName(host)]


def _as_authority(builder: "CertificateBuilder", key: "EllipticCurvePrivateKey") -> "CertificateBuilder":
    from cryptography import x509

    usage = dict.fromkeys(
        (
            "digital_signature",
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    return (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(**usage, key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _sign(builder: "CertificateBuilder", key: "EllipticCurvePrivateKey") -> "Certificate":
    from cryptography.hazmat.primitives.hashes import SHA256

    return builder.sign(key, SHA256())


def _read(fs: FileSystem, path: Path) -> bytes:
    file = fs.open(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()
