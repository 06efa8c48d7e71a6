"""A second process that reads a store again and again while another one writes it, and believes nothing."""

from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc

from latewood.archive.keys import KeyRing
from latewood.runtime import Database, Store
from latewood.runtime.record import DatabaseRecord
from tests.runtime.pond import LAKE, NAME, REMOTE, directory_tier

KEYS: Final = KeyRing({"old": bytes(range(32)), "new": bytes(range(100, 132))}, "old")


class Torn(AssertionError):
    """A read had a gap, a duplicate, or something that was never written there."""


def check_scan(db: Database, shard: int) -> int:
    """Read a shard as records; return how many there are."""
    least = db.shards[shard].end()
    _check(((record.sequence, record.payload) for record in db.scan(shard=shard)), shard, least)
    return least


def check_table(db: Database, shard: int) -> None:
    """Read a shard as a table."""
    least = db.shards[shard].end()
    table = db.to_arrow(shard=shard, columns=["sequence", "payload"])
    _check(zip(table["sequence"].to_pylist(), table["payload"].to_pylist(), strict=True), shard, least)


def check_columns(db: Database) -> None:
    """Read all shards as batches, only their sequences."""
    least = [shard.end() for shard in db.shards]
    at = [0] * len(least)
    for batch in db.arrow_batches(columns=["shard", "sequence"]):
        shard = batch.column("shard")[0].as_py()
        first, last = (pc.min_max(batch.column("sequence"))[name].as_py() for name in ("min", "max"))
        if first != at[shard] or last + 1 - first != batch.num_rows:
            raise Torn(f"shard {shard}: {first} to {last} after {at[shard]}")
        at[shard] = last + 1
    if any(found < wanted for found, wanted in zip(at, least, strict=True)):
        raise Torn(f"{at} records, and there were {least} before")


def check_polled(records: Sequence[DatabaseRecord], positions: dict[int, int]) -> None:
    """Look whether a reader has gone on from where it was."""
    for record in records:
        if record.sequence != positions[record.shard]:
            raise Torn(f"the reader is at {record[:2]} instead of {positions}")
        positions[record.shard] += 1


def payload_of(shard: int, sequence: int) -> bytes:
    return b"%d/%d " % (shard, sequence) + b"x" * (sequence % 50)


def _check(found: Iterator[Any], shard: int, least: int) -> None:
    at = 0
    for sequence, payload in found:
        if sequence != at or payload != payload_of(shard, sequence):
            raise Torn(f"shard {shard}: {sequence}, {payload!r} in place of {at}")
        at += 1
    if at < least:
        raise Torn(f"shard {shard}: {at} records, and there were {least} before")


def watch(home: Path, told: Connection) -> None:
    """Read until told to end; answer with the number of rounds, or what went wrong."""
    rounds = 0
    try:
        with Store.open(home / LAKE, mode="r", tier=directory_tier(home / REMOTE), keys=KEYS) as store:
            db = store.database(NAME)
            with db.reader("watcher") as reader:
                positions = reader.positions
                while not told.poll():
                    for shard in range(len(db.shards)):
                        check_scan(db, shard)
                        check_table(db, shard)
                    check_columns(db)
                    check_polled(reader.poll(5_000), positions)
                    rounds += 1
        told.send(rounds)
    except BaseException as error:
        told.send(repr(error))
        raise
