"""What `latewood picture` draws: a log or a store as it is now.  Works beside a writer.

Of each shard the log is looked at first, and the catalog after it: so no record is in neither.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from latewood.catalog.tables import ChunkRecord, Local, LocalAndRemote
from latewood.cli.human import format_time
from latewood.cli.opening import open_to_read
from latewood.cli.picture_plan import Bar, Kind, Needle, Panel, Picture, Stretch
from latewood.cli.place import is_store
from latewood.cli.store_argument import chosen_names, database_at, find_database, open_store
from latewood.log.listing import list_segments
from latewood.queue import Queue
from latewood.queue.listing import list_readers
from latewood.runtime import Database, Store


def look(path: Path, now_ns: int) -> Picture:
    """Return what is to be drawn of a store, of one database of it, or of a log.

    Raises:
        NotFoundError: nothing is there.
        CorruptError: something is damaged.
    """
    if is_store(path):
        return _store_picture(path, (), now_ns)
    if place := database_at(path):
        return _store_picture(place.root, (place.name,), now_ns)
    with open_to_read(path) as log:
        return _log_picture(log, path, now_ns)


def _store_picture(root: Path, names: Sequence[str], now_ns: int) -> Picture:
    with open_store(root) as store:
        panels = [_database_panel(store, name) for name in chosen_names(store, names)]
        generation = store.generation
    title = f"{root.absolute().name}/{names[0]}" if names else root.absolute().name
    count = "" if names else f"{len(panels)} databases, " if len(panels) != 1 else "1 database, "
    return Picture(title, f"{count}{_records(panels)}, generation {generation}, {format_time(now_ns)}", panels)


def _log_picture(log: Queue, path: Path, now_ns: int) -> Picture:
    segments = list(_segments(log))
    readers = list_readers(log)
    needles = [
        Needle(one.name, one.sequence, one.lag) for one in readers if one.sequence is not None and one.lag is not None
    ]
    problems = [f"reader {one.name}: {one.problem}" for one in readers if one.problem]
    bar = Bar("log", segments[0].start, segments[-1].stop, segments, needles)
    panel = Panel(path.name or str(path), [bar], problems)
    return Picture(path.absolute().name, f"{_records([panel])}, {format_time(now_ns)}", [panel])


def _records(panels: Sequence[Panel]) -> str:
    count = sum(bar.stop - bar.first for panel in panels for bar in panel.bars)
    return f"{count:,} record{'' if count == 1 else 's'}"


def _database_panel(store: Store, name: str) -> Panel:
    database = find_database(store, name)
    logs = {shard.number: list(_segments(shard.log)) for shard in database.shards}
    chunks = _chunks(store, database)
    positions = database.readers().positions()
    bars = []
    for shard, segments in logs.items():
        own, stop = chunks.get(shard, []), segments[-1].stop
        first = min(own[0].start if own else segments[0].start, segments[0].start)
        needles = [
            Needle(one.name, one.sequence, max(0, stop - one.sequence)) for one in positions if one.shard == shard
        ]
        bars.append(Bar(f"shard {shard}", first, stop, [*own, *segments], needles))
    return Panel(name, bars)


def _segments(log: Queue) -> Iterator[Stretch]:
    for one in list_segments(log):
        kind = Kind.SEALED if one.state == "sealed" else Kind.OPEN
        stop = one.first_sequence + one.record_count
        yield Stretch(kind, one.first_sequence, stop, one.size_bytes, f"segment {one.segment_id}")


def _chunks(store: Store, database: Database) -> dict[int, list[Stretch]]:
    """Return the chunks that are read, by shard and in order."""
    found: dict[int, list[Stretch]] = {}
    rows = [(key.chunk_id, record) for key, record in store.catalog.scan_chunks(database.db_id) if record.is_live]
    for chunk_id, record in sorted(rows, key=lambda row: row[1].sequence_min):
        stretch = Stretch(
            _kind(record), record.sequence_min, record.sequence_max + 1, record.size_bytes, f"chunk {chunk_id}"
        )
        found.setdefault(record.shard, []).append(stretch)
    return found


def _kind(record: ChunkRecord) -> Kind:
    match record.residency:
        case Local():
            return Kind.LOCAL
        case LocalAndRemote():
            return Kind.COPIED
        case _:
            return Kind.ARCHIVED
