"""The log of a shard: made once, with its database, and opened ever after.

Only the store appends to it.  Opening never makes one: a log that is missing is an error, like one that ends before its
chunks do.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from latewood.archive.log_check import ChunkFiles, log_behind
from latewood.catalog.tables import DbRecord
from latewood.format.identity import Owner
from latewood.format.store_layout import DatabaseLayout
from latewood.jobs.handlers.site import FLUSH_READER
from latewood.log import LogOptions
from latewood.log.layout import Layout
from latewood.log.rebuild import rebuild
from latewood.queue import Queue, open_queue
from latewood.runtime.room import check_room_for_log
from latewood.runtime.site import StoreSite


def make_log(
    site: StoreSite,
    path: Path,
    record: DbRecord,
    first_sequence: int,
    identity: bytes | None,
    *,
    is_continued: bool = False,
) -> None:
    """Make the log of a shard, durable on return, whose first record will have this sequence.

    `identity` is what it is called; None: random.  One that is continued takes the place of the log of that identity,
    in a new life that begins with that sequence.
    """
    options = _options(record, first_sequence)
    if is_continued and identity is not None:
        open_queue(path, options, fs=site.fs, clock=site.clock, owner=Owner.STORE, birth=identity).close()
        rebuild(site.fs, Layout(path))
    with open_queue(path, options, fs=site.fs, clock=site.clock, owner=Owner.STORE, birth=identity) as log:
        log.reader(FLUSH_READER).close()


def open_log(
    site: StoreSite,
    layout: DatabaseLayout,
    record: DbRecord,
    mode: Literal["w", "r"],
    files: ChunkFiles,
    shard: int,
    covered: Callable[[], int],
) -> Queue:
    """Open the log of a shard; `covered` tells how far its chunks go, and `files` are the files of all of them.

    Raises:
        LogBehind: it is not there, or is another log, or ends before that.  Nothing was written.
        CatalogBehind: chunks that the catalog does not know have what lies between its chunks and the log.
        TooManyFiles: this process has too many files open.  Nothing was written.
    """
    check_room_for_log(record, shard, writable=mode == "w")
    path, identity = layout.shard(shard), record.log_identity(shard)
    if (behind := log_behind(site.fs, path, covered(), identity, files, shard, covered)) is not None:
        raise behind
    options = _options(record, 0)
    if mode == "r":
        return open_queue(path, options, mode="r", fs=site.fs, clock=site.clock)
    return open_queue(path, options, fs=site.fs, clock=site.clock, owner=Owner.STORE, birth=identity)


def _options(record: DbRecord, first_sequence: int) -> LogOptions:
    options = record.options
    return LogOptions(
        segment_bytes_max=options.segment_bytes_max,
        segment_age_max_ms=options.segment_age_max_ms,
        keyed=options.keyed,
        first_sequence=first_sequence,
    )
