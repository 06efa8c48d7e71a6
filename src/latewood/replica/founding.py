"""What makes a directory a node's: it is one of a new cluster's first members, or joins one that is there.

A node never founds a cluster by itself when it starts: one that lost its disk would begin at nothing, and could vote
for others that know as little.  So `serve` refuses a directory that was not made by `cluster init`, or by `--join`.

In this order: 1. the parent log begins, durably; 2. `node.json` says whose directory it is.  A crash between leaves one
that can be made again; and a directory with a `node.json` and no parent log has lost it.
"""

from typing import Final

import msgspec

from latewood.clock import Clock
from latewood.errors import ConflictError, CorruptError, Locked, NotFoundError, UnsupportedVersion, UsageError
from latewood.fs import FileSystem, Lock, replace_file
from latewood.log import LogOptions
from latewood.replica.births import Births
from latewood.replica.config import NodeConfig
from latewood.replica.engine import ConfState, HardState, Snapshot
from latewood.replica.entry_store import SegmentedLogStore
from latewood.replica.recovery import NodeLayout

_NAME: Final = "node.json"
_BYTES_MAX: Final = 4096
_VERSION: Final = 1


class _Version(msgspec.Struct):
    version: int = _VERSION
    """The first programs did not write it."""


class _Owner(msgspec.Struct, frozen=True):
    cluster_id: str
    node_id: int
    version: int = _VERSION


def found_node(config: NodeConfig, fs: FileSystem, clock: Clock) -> None:
    """Make the directory of one of a new cluster's first members: those in [peers].

    Raises:
        UsageError: the node is not among them.
        ConflictError: the directory is a node's already.
    """
    if config.node_id not in config.peers:
        message = f"node {config.node_id} is not among the first members in [peers]: {sorted(config.peers)}"
        raise UsageError(message)
    check_unowned(config, fs)
    layout = NodeLayout(config.data)
    fs.make_directory(layout.root)
    with open_parent(config, fs, clock) as store:
        if store.snapshot is None:
            store.install(Snapshot(1, 1, ConfState(tuple(sorted(config.peers))), b""))
            store.set_hard_state(HardState(1, 0, 1))
            store.sync()
    _own(config, fs)


def join_node(config: NodeConfig, fs: FileSystem, clock: Clock) -> None:
    """Make the directory of a node that a cluster is to take in; it knows nothing until its leader tells it.

    Raises:
        ConflictError: the directory is a node's already.
    """
    check_unowned(config, fs)
    fs.make_directory(config.data)
    open_parent(config, fs, clock).close()
    _own(config, fs)


def check_owner(config: NodeConfig, fs: FileSystem) -> None:
    """Refuse to start in a directory that is nobody's, or somebody else's.

    Raises:
        NotFoundError: it was never made a node's.
        UsageError: it is another node's, or another cluster's.
        CorruptError: its parent log is gone.
        UnsupportedVersion: a later program made it.
    """
    found = _owner(config, fs)
    if found is None:
        message = (
            f"{config.data} is no directory of a node. If there was one, and it is lost: {replacement(config)}. "
            f"If there was none: `latewood serve --config FILE --join` makes a node for `latewood cluster add`, "
            f"and `latewood cluster init --config FILE` a first member of a cluster that has never been"
        )
        raise NotFoundError(message)
    if found != _Owner(config.cluster_id, config.node_id):
        message = (
            f"{config.data} is of node {found.node_id} of cluster {found.cluster_id!r}, "
            f"not of node {config.node_id} of {config.cluster_id!r}"
        )
        raise UsageError(message)
    parent = NodeLayout(config.data).parent
    if not fs.exists(parent / "manifest.current"):  # Made anew it would vote as if it had never promised anything.
        error = CorruptError("the parent log of this node is gone", parent, 0)
        error.mend = replacement(config)
        raise error


def hold_node(config: NodeConfig, fs: FileSystem) -> Lock:
    """Return the right to run a node, held until it is closed.

    The parent log has a lock too, but is opened late, and again after troubles.

    Raises:
        Locked: another process runs it.
    """
    try:
        return fs.lock_root(NodeLayout(config.data).lock)
    except Locked as error:
        error.add_note(f"node {config.node_id} of cluster {config.cluster_id!r} runs already")
        raise


def replacement(config: NodeConfig) -> str:
    """Return how a node is replaced that has lost what only it knew."""
    node = config.node_id
    return (
        f"only this node knew what it had promised to the others, so it is replaced, not mended: "
        f"`latewood cluster remove CLUSTER {node}`; then give it in its configuration a node_id that no node ever had, "
        f"another data directory and, with TLS, a certificate of that id; "
        f"`latewood serve --config FILE --join`; `latewood cluster add CLUSTER ID {config.advertise}`"
    )


def is_node(config: NodeConfig, fs: FileSystem) -> bool:
    """Say whether a directory is a node's."""
    return _owner(config, fs) is not None


def check_unowned(config: NodeConfig, fs: FileSystem) -> None:
    """Refuse to make a node's directory anew.

    Raises:
        ConflictError: it is a node's already.
    """
    if is_node(config, fs):
        message = f"{config.data} is a node's already; a node that lost its data is removed, and another one added"
        raise ConflictError(message)


def births_of(config: NodeConfig) -> Births:
    """Return what the logs of a node are called."""
    return Births(config.cluster_id, config.node_id)


def open_parent(config: NodeConfig, fs: FileSystem, clock: Clock) -> SegmentedLogStore:
    """Open the parent log of a node that does not run, making it if it is not there.

    Raises:
        CorruptError, UnsupportedVersion, Locked: as `SegmentedLogStore.open`.
    """
    path, birth = NodeLayout(config.data).parent, births_of(config).parent()
    return SegmentedLogStore.open(path, parent_options(config), birth=birth, fs=fs, clock=clock, background=False)


def parent_options(config: NodeConfig) -> LogOptions:
    """Return how the parent log is kept."""
    return LogOptions(segment_bytes_max=config.storage.parent_segment_bytes, fill=True)


def _owner(config: NodeConfig, fs: FileSystem) -> _Owner | None:
    path = config.data / _NAME
    if not fs.exists(path):
        return None
    file = fs.open(path)
    try:
        raw = file.pread(_BYTES_MAX, 0)
        if (version := msgspec.json.decode(raw, type=_Version).version) != _VERSION:
            raise UnsupportedVersion("node.json", version, path)
        return msgspec.json.decode(raw, type=_Owner)
    except msgspec.DecodeError as error:
        damage = CorruptError(f"it does not say whose directory this is: {error}", path, 0)
        damage.mend = _by_hand(config)
        raise damage from None
    finally:
        file.close()


def _own(config: NodeConfig, fs: FileSystem) -> None:
    replace_file(fs, config.data / _NAME, _line(config) + b"\n")


def _line(config: NodeConfig) -> bytes:
    return msgspec.json.encode(_Owner(config.cluster_id, config.node_id))


def _by_hand(config: NodeConfig) -> str:
    """Return how the file is put back.  No program does it: the file guards against a configuration with wrong data."""
    return (
        f"that is all that the file is for: if you are sure that {config.data} is of node {config.node_id} of cluster "
        f"{config.cluster_id!r}, and of no other, write this line into it, and start the node: {_line(config).decode()}"
    )
