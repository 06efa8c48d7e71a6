"""`latewood cat` and `latewood tail` on a database of a store."""

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from latewood.cli.database_records import database_layout, in_batches
from latewood.cli.records import RecordFormat, print_records
from latewood.cli.store_argument import DatabasePath, find_database, open_store
from latewood.clock import SystemClock
from latewood.fs import PosixFS
from latewood.runtime import Database, DatabaseReader, DatabaseRecord, Store
from latewood.runtime.readers import Readers

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FOLLOWER = "tail"
"""What a reader without a name is called; it is never committed, so no file has that name."""


def cat_database(
    place: DatabasePath,
    start: int | None,
    stop: int | None,
    since_ns: int | None,
    chosen: RecordFormat,
    **options: Any,
) -> None:
    """Print records of a database; `options` are those of `Database.scan`."""
    with open_store(place.root) as store:
        database = find_database(store, place.name)
        first = start if since_ns is None else moment(since_ns)
        records = database.scan(first, stop, **options)
        print_records(in_batches(records), chosen, database_layout(keyed=database.keyed))


def tail_database(place: DatabasePath, count: int, name: str | None, chosen: RecordFormat, *, follow: bool) -> None:
    """Print the last records of a database or, with a reader's name, those that it has not committed."""
    with open_store(place.root) as store:
        database = find_database(store, place.name)
        layout = database_layout(keyed=database.keyed)
        if name is None:
            print_records(_last(database, count, follow=follow), chosen, layout)
            return
        with committing_readers(store, database).open(name, database.shards, "resume", merged=False) as reader:
            print_records(_unread(reader, follow=follow), chosen, layout)


def moment(time_ns: int) -> datetime:
    """Return a time as the library wants it, cut to microseconds."""
    return _EPOCH + timedelta(microseconds=time_ns // 1000)


def committing_readers(store: Store, database: Database) -> Readers:
    """Return the readers of a database that another process may be writing: their files are their own."""
    layout = store.layout.located(database.record.options.wal_dir)
    return Readers(PosixFS(), layout, SystemClock().now_ns, database.shards, writable=True)


def _last(database: Database, count: int, *, follow: bool) -> Iterator[list[DatabaseRecord]]:
    """Yield the youngest records of all shards together and, if asked, those that come."""
    ends = {shard.shard: shard.next_sequence for shard in database.stats()}
    starts = {one.shard: max(one.first_sequence, ends[one.shard] - count) for one in database.stats()}
    if count:
        yield list(deque(database.scan(starts, ends, merged=True), maxlen=count))
    if follow:
        with database.readers().open(_FOLLOWER, database.shards, ends, merged=False, kept=False) as reader:
            while True:
                yield reader.poll(timeout=None)


def _unread(reader: DatabaseReader, *, follow: bool) -> Iterator[list[DatabaseRecord]]:
    """Yield what the reader has not committed; whoever asks for more has dealt with what came before."""
    while records := reader.poll(timeout=None if follow else 0.0):
        yield records
        reader.commit()
