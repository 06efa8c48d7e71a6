"""What a node is told: `node.toml`, checked once.  Values; nothing is opened here.

```toml
cluster_id = "trial"
node_id = 1
data = "data"                     # relative to this file
listen = "127.0.0.1:7301"
metrics = "127.0.0.1:9301"        # "" for none
machine = "package.module:factory" # what makes the machines of partitions; without it they are logs

[peers]                           # the first members; of a node that joins, whom it may ask
1 = "127.0.0.1:7301"
2 = "127.0.0.1:7302"
3 = "127.0.0.1:7303"

[tls]                             # without it, plain text, on loopback alone
authority = "ca.pem"
certificate = "node-1.pem"
key = "node-1.key"

[retention]                       # without it, records of partitions that are logs stay for ever
max_age_ms = 604_800_000
```
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from latewood.errors import NotFoundError, UsageError
from latewood.limits import MiB, check_name
from latewood.queue.retention import RetentionPolicy
from latewood.replica.addresses import check_loopback, is_everywhere, may_be_same, split_address
from latewood.replica.bundle import ENTRY_BYTES_MAX
from latewood.replica.config_keys import check_keys
from latewood.replica.factory import check_path
from latewood.replica.tls import Credentials


class RaftSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the nodes watch each other."""

    tick_ms: int = 100
    """The unit of time: a leader is heard once in this."""
    election_ticks: int = 10
    """After so many without a word, others stand for election, at a chance moment before twice as many."""
    priority: int = 0
    """Of two nodes that could lead, the one of higher priority does."""


class Bounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a node takes on."""

    payload_bytes_max: int = 1 * MiB
    """Of one record."""
    partition_ops_max: int = 65_536
    """Records of a partition that were taken and are not applied."""
    partition_bytes_max: int = 64 * MiB
    partition_age_max_ms: int = 30_000
    partition_lag_max: int = 1_000_000
    total_ops_max: int = 262_144
    total_bytes_max: int = 256 * MiB


class StorageSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How much a node keeps."""

    snapshot_bytes: int = 64 * MiB
    """After so many bytes of entries a snapshot is taken; the parent log keeps up to two times this."""
    parent_segment_bytes: int = 16 * MiB
    partition_segment_bytes: int = 4 * MiB
    apply_threads: int = 2
    machine_wait_ms: int = 10_000
    """A machine that takes longer for one entry, or for one piece of its snapshot, is said to hang."""


class RetentionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What partitions whose log is their state may forget.  What every named reader has passed goes in any case."""

    max_bytes: int | None = None
    """Without readers, a partition keeps at most this much in sealed segments."""
    max_age_ms: int | None = None
    """Without readers, a segment stays this long after its newest record was taken."""
    ignore_readers_silent_ms: int | None = None
    """A reader that has committed nothing for so long holds nothing back; it may meet `DataLost`."""
    check_ms: int = 10_000
    """So often a leader looks."""

    @property
    def policy(self) -> RetentionPolicy:
        """The same, as the log has it.

        Raises:
            UsageError: a value is below 0.
        """
        return RetentionPolicy(
            max_bytes=self.max_bytes,
            max_age_ms=self.max_age_ms,
            ignore_readers_silent_ms=self.ignore_readers_silent_ms,
        )


class _TLSTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    authority: str
    certificate: str
    key: str


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    cluster_id: str
    node_id: int
    listen: str
    data: str = "data"
    advertise: str = ""
    metrics: str = ""
    machine: str = ""
    peers: dict[str, str] = {}
    tls: _TLSTable | None = None
    raft: RaftSettings = RaftSettings()
    limits: Bounds = Bounds()
    storage: StorageSettings = StorageSettings()
    retention: RetentionSettings | None = None


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """All that a node is told."""

    cluster_id: str
    node_id: int
    data: Path
    listen: str
    advertise: str
    metrics: str
    peers: dict[int, str]
    tls: Credentials | None
    raft: RaftSettings = RaftSettings()
    limits: Bounds = Bounds()
    storage: StorageSettings = StorageSettings()
    machine: str = ""
    """What makes the machines of partitions; empty: they are logs."""
    retention: RetentionSettings | None = None
    """None: as a leader this node has nothing forgotten."""


def load_config(path: Path, changes: Mapping[str, Any] | None = None) -> NodeConfig:
    """Return the configuration in a file; `changes` are top-level keys that count instead, tables key by key.

    Raises:
        NotFoundError: there is no such file.
        UsageError: it is not TOML, or a value is wrong; the text says which.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        message = f"there is no configuration {path}; `latewood cluster init` writes one"
        raise NotFoundError(message) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error
    try:
        whole = _merged(table, changes or {})
        check_keys(whole, _File)
        found = _checked(msgspec.convert(whole, _File), path.absolute().parent)
        _check_addresses(found, moved="listen" in (changes or {}))
    except (msgspec.ValidationError, UsageError) as error:
        raise UsageError(f"{path}: {error}") from error
    return found


def _merged(table: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    tables = {key: table.get(key, {}) | value for key, value in changes.items() if isinstance(value, dict)}
    return {**table, **changes, **tables}


def _checked(found: _File, directory: Path) -> NodeConfig:
    check_name(found.cluster_id, "cluster")
    if not 0 < found.node_id < 1 << 63:
        message = f"node_id is a number from 1 on, not {found.node_id}"
        raise UsageError(message)
    if not all(key.isascii() and key.isdigit() for key in found.peers):
        raise UsageError("the keys in [peers] are ids of nodes")
    host, _ = split_address(found.listen)
    advertise = found.advertise or found.listen
    for address in [advertise, *found.peers.values(), *([found.metrics] if found.metrics else [])]:
        split_address(address)
    tls = found.tls
    if tls is None:
        check_loopback(host)
    credentials = (
        Credentials(directory / tls.authority, directory / tls.certificate, directory / tls.key) if tls else None
    )
    _check_bounds(found)
    if found.machine:
        check_path(found.machine)
    if found.retention is not None:
        _check_retention(found.retention)
    return NodeConfig(
        cluster_id=found.cluster_id,
        node_id=found.node_id,
        data=directory / found.data,
        listen=found.listen,
        advertise=advertise,
        metrics=found.metrics,
        peers={int(key): address for key, address in found.peers.items()},
        tls=credentials,
        raft=found.raft,
        limits=found.limits,
        storage=found.storage,
        machine=found.machine,
        retention=found.retention,
    )


def _check_addresses(found: NodeConfig, *, moved: bool) -> None:
    """Refuse addresses that cannot be right; a node that was `moved` tells the others where it is now."""
    nodes: dict[tuple[str, int], int] = {}
    for node_id, address in found.peers.items():
        first = nodes.setdefault(split_address(address), node_id)
        if first != node_id and split_address(address)[1]:
            message = f"{first} and {node_id} in [peers] are both {address}: write for each where that node listens"
            raise UsageError(message)
    own = found.peers.get(found.node_id, "")
    if is_everywhere(found.advertise):
        place = own or f"HOST:{split_address(found.listen)[1]}"
        message = f'nobody else reaches this node at {found.advertise}: write advertise = "{place}", where they do'
        raise UsageError(message)
    if own and not moved and not may_be_same(own, found.advertise) and not may_be_same(own, found.listen):
        message = (
            f"{found.node_id} in [peers] is this node, at {own}, but it listens on {found.listen}: "
            f'write {found.node_id} = "{found.advertise}" there, or advertise = "{own}" if others reach it so'
        )
        raise UsageError(message)


def _check_retention(found: RetentionSettings) -> None:
    _ = found.policy  # Checks its own.
    if found.check_ms < 1:
        raise UsageError(f"check_ms is at least 1, not {found.check_ms}")


def _check_bounds(found: _File) -> None:
    least = {
        "tick_ms": 5,
        "election_ticks": 3,
        "snapshot_bytes": 1 << 16,
        "parent_segment_bytes": 2 * ENTRY_BYTES_MAX,
        "partition_segment_bytes": 1 << 16,
    }
    for table in (found.raft, found.limits, found.storage):
        for name in table.__struct_fields__:
            value, low = getattr(table, name), least.get(name, 0 if name == "priority" else 1)
            if value < low:
                message = f"{name} is at least {low}, not {value}"
                raise UsageError(message)
    for name in ("parent_segment_bytes", "partition_segment_bytes"):
        segment_bytes, payload_bytes = getattr(found.storage, name), found.limits.payload_bytes_max
        if 2 * payload_bytes > segment_bytes:
            message = f"payload_bytes_max is at most half of {name}, {segment_bytes:,}; not {payload_bytes:,}"
            raise UsageError(message)
