"""A cluster for a trial: the files of its nodes, and one that says to clients where they are.

`<directory>/cluster.toml` is for clients, `<directory>/node-<id>/node.toml` for `latewood serve`.  What is there stays
as it is; a node that is added to them later joins, and is no member until it is made one.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from latewood.errors import NotFoundError, UsageError
from latewood.fs import FileSystem
from latewood.fs.atomic import replace_file
from latewood.limits import check_name
from latewood.replica.addresses import check_loopback
from latewood.replica.certificates import Names, authority_names, client_names, node_names
from latewood.replica.client.options import PORT_MAX, Address
from latewood.replica.tls import Credentials

CLUSTER_FILE: Final = "cluster.toml"
NODE_FILE: Final = "node.toml"
_METRICS_ABOVE: Final = 2_000
_NODES_MAX: Final = 100
_PORT_MAX: Final = PORT_MAX - _METRICS_ABOVE - _NODES_MAX
"""Of the port below those of the nodes: those of their metrics must be ports too."""


class Cluster(NamedTuple):
    """What a client must know."""

    cluster_id: str
    nodes: dict[int, str]
    """Where each can be reached."""
    tls: Credentials | None


class _TLSTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    authority: str
    certificate: str
    key: str


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cluster_id: str
    nodes: dict[str, str]
    tls: _TLSTable | None = None


def plan_nodes(count: int, host: str, port: int) -> dict[int, str]:
    """Return the addresses of nodes 1 to `count`, on ports above `port`.

    Raises:
        UsageError: there are none, too many, or ports run out.
    """
    if not 1 <= count <= _NODES_MAX:
        message = f"a trial has 1 to {_NODES_MAX} nodes, not {count}"
        raise UsageError(message)
    if not 0 < port <= _PORT_MAX:
        message = f"--port is from 1 to {_PORT_MAX}, not {port}: above it are those of the nodes and of their metrics"
        raise UsageError(message)
    shown = f"[{host}]" if ":" in host else host
    return {number: f"{shown}:{port + number}" for number in range(1, count + 1)}


def load_cluster(path: Path) -> Cluster:
    """Return the cluster that a `cluster.toml`, or the directory with it, tells of.

    Raises:
        NotFoundError: there is none.
        UsageError: it is not what `write_trial` writes.
    """
    file = path / CLUSTER_FILE if path.is_dir() else path
    try:
        found = msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), _File)
        nodes = {int(key): address for key, address in found.nodes.items()}
        for address in nodes.values():
            Address.parse(address)
    except FileNotFoundError:
        message = f"there is no {file}; `latewood cluster init` writes one, or name nodes as host:port"
        raise NotFoundError(message) from None
    except (OSError, ValueError, UsageError) as error:  # msgspec's and tomllib's errors are ValueErrors
        raise UsageError(f"{file}: {error}") from error
    if found.tls is None:
        return Cluster(found.cluster_id, nodes, None)
    files = [file.parent / name for name in (found.tls.authority, found.tls.certificate, found.tls.key)]
    return Cluster(found.cluster_id, nodes, Credentials(*files))


def write_trial(fs: FileSystem, directory: Path, cluster_id: str, nodes: Mapping[int, str], *, tls: bool) -> list[Path]:
    """Write the files of a cluster, as far as they are not there; return those that were written.

    Certificates are expected in `<directory>/certs`.  Nodes that are not in the cluster's file yet are told to join.

    Raises:
        UsageError: a name or an address is wrong, or the file that is there tells of another cluster.
    """
    check_name(cluster_id, "cluster")
    known = load_cluster(directory) if fs.exists(directory / CLUSTER_FILE) else None
    if known is not None and (known.cluster_id, known.tls is not None) != (cluster_id, tls):
        what = "with" if known.tls else "without"
        message = f"{directory} is cluster {known.cluster_id!r} already, {what} TLS; choose another directory"
        raise UsageError(message)
    every = dict(nodes) | (known.nodes if known else {})
    for address in () if tls else every.values():  # Before a file is written: a node would refuse it.
        check_loopback(Address.parse(address).host, "--tls makes certificates too")
    written = []
    for node_id, address in every.items():
        path = directory / f"node-{node_id}" / NODE_FILE
        if not fs.exists(path):
            others = {key: value for key, value in known.nodes.items() if key != node_id} if known else every
            fs.make_directory(path.parent)
            replace_file(fs, path, _node_text(cluster_id, node_id, address, others, tls=tls).encode())
            written.append(path)
    if known is None or every != known.nodes:
        replace_file(fs, directory / CLUSTER_FILE, _cluster_text(cluster_id, every, tls=tls).encode())
        written.append(directory / CLUSTER_FILE)
    return written


def _node_text(cluster_id: str, node_id: int, address: str, peers: Mapping[int, str], *, tls: bool) -> str:
    host, port = Address.parse(address)
    metrics = f"[{host}]" if ":" in host else host
    lines = [
        f'cluster_id = "{cluster_id}"',
        f"node_id = {node_id}",
        'data = "data"',
        f'listen = "{address}"',
        f'metrics = "{metrics}:{port + _METRICS_ABOVE}"' if port + _METRICS_ABOVE <= PORT_MAX else 'metrics = ""',
        "",
        "[peers]" if node_id in peers else "[peers] # whom it asks; `latewood cluster add` makes it a member",
        *(f'{key} = "{value}"' for key, value in sorted(peers.items())),
    ]
    if tls:
        certs = Path("..") / "certs"
        lines += _tls_lines(certs, node_names(certs, node_id))
    return "\n".join(lines) + "\n"


def _cluster_text(cluster_id: str, nodes: Mapping[int, str], *, tls: bool) -> str:
    lines = [f'cluster_id = "{cluster_id}"', "", "[nodes]", *(f'{key} = "{nodes[key]}"' for key in sorted(nodes))]
    if tls:
        lines += _tls_lines(Path("certs"), client_names(Path("certs")))
    return "\n".join(lines) + "\n"


def _tls_lines(certs: Path, names: Names) -> list[str]:
    authority = authority_names(certs).certificate
    rows = (("authority", authority), ("certificate", names.certificate), ("key", names.key))
    return ["", "[tls]", *(f'{field} = "{path.as_posix()}"' for field, path in rows)]
