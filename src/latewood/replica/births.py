"""Identities of the logs of a node: computed from cluster, node, partition and birth, so that any other log is refused.

A partition has the same identity on every node of its cluster, however it came there: by its entries, after a
snapshot, or after a repair.  So a position in the files of one node is one in the files of any other.  A parent log is
one node's.

Format: docs/format/entry.md.
"""

import struct
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from latewood.errors import StrayLog
from latewood.format.identity import IDENTITY_BYTES
from latewood.fs import FileSystem
from latewood.log.head import identity_of

_PARTITION: Final = b"lw partition"
_PARENT: Final = b"lw parent log"


class Births(NamedTuple):
    """The identities of the logs of one node."""

    cluster_id: str
    node_id: int

    def partition(self, partition_id: int, born: int) -> bytes:
        """Return the identity of a partition, whose first write is the parent entry `born`."""
        return self._birth(_PARTITION, partition_id, born)

    def parent(self) -> bytes:
        """Return the identity of the node's parent log."""
        return self._birth(_PARENT, self.node_id)

    def _birth(self, kind: bytes, *numbers: int) -> bytes:
        name = self.cluster_id.encode()
        said = struct.pack(f"<I{len(name)}s{len(numbers)}Q", len(name), name, *numbers)
        return blake2b(said, digest_size=IDENTITY_BYTES, person=kind).digest()


def check_birth(fs: FileSystem, path: Path, birth: bytes, what: str) -> None:
    """Check that a directory has no other log than the one that it is for; what an older program made is believed.

    Raises:
        StrayLog: it has.
    """
    identity = identity_of(fs, path)
    if identity is not None and identity.identity != birth:
        raise StrayLog(f"this is the log {identity.identity.hex()}, and {what} is {birth.hex()}", path)
