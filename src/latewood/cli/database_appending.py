"""A database of a store, as `latewood append` fills it."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby

from latewood.cli.batch import Batch
from latewood.cli.store_argument import DatabasePath, find_database, open_store
from latewood.format.keyed import SIZE
from latewood.log.roll import check_payload
from latewood.runtime import Database


@contextmanager
def database_sink(place: DatabasePath) -> Iterator["DatabaseSink"]:
    """Open a database to append.

    Raises:
        NotFoundError: there is none.
        Locked: another process has the store open to write.
    """
    with open_store(place.root, "w") as store:
        yield DatabaseSink(find_database(store, place.name))


class DatabaseSink:
    """Appends batches, each to the shards that its keys pick."""

    is_ordered = False

    def __init__(self, database: Database) -> None:
        self._database = database
        self.keyed = database.keyed
        self.segment_bytes_max = database.record.options.segment_bytes_max
        self._first = self._acknowledged = self._ends()

    @property
    def written(self) -> int:
        """How many records were appended."""
        return sum(self._ends()) - sum(self._first)

    @property
    def durable(self) -> int:
        """How many of them are durable."""
        return sum(self._acknowledged) - sum(self._first)

    def append(self, batch: Batch) -> None:
        """Append all of them; nothing of it if one of them is too large."""
        largest = max(self.stored_bytes(batch, index) for index in range(len(batch.payloads)))
        check_payload(largest, self.segment_bytes_max)
        at = 0
        for ext_id, run in groupby(batch.ext_ids):
            stop = at + sum(1 for _ in run)
            times, keys = batch.timestamps_ns, batch.keys
            self._database.append_many(
                batch.payloads[at:stop],
                keys and keys[at:stop],
                ext_id=ext_id,
                timestamps_ns=times and times[at:stop],
            )
            at = stop

    def stored_bytes(self, batch: Batch, index: int) -> int:
        """Return the length of a payload with its key in front."""
        key = batch.keys[index] if batch.keys else None
        return len(batch.payloads[index]) + (SIZE + len(key or b"") if self.keyed else 0)

    def flush(self) -> str:
        """Make everything durable, and return shard and sequence of what became so."""
        ends = self._ends()
        self._database.flush()
        before, self._acknowledged = self._acknowledged, ends
        spans = zip(before, ends, strict=True)
        return "".join(f"{shard} {at}\n" for shard, span in enumerate(spans) for at in range(*span))

    def place(self) -> str:
        """Return in how many shards they are."""
        changed = sum(end > first for first, end in zip(self._first, self._acknowledged, strict=True))
        return f"in {changed:,} {'shard' if changed == 1 else 'shards'}"

    def _ends(self) -> list[int]:
        return [shard.log.next_sequence for shard in self._database.shards]
