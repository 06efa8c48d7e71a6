"""What `latewood chunks` prints.  Apart from the commands, so that their help loads no LMDB."""

from collections.abc import Sequence
from pathlib import Path

from latewood.catalog.tables import ChunkRecord, Local, LocalAndRemote, RemoteArchived
from latewood.cli.errors import ExitCode
from latewood.cli.output import Output
from latewood.cli.store_argument import DatabasePath, chosen_names, find_database, located, open_store
from latewood.errors import NotFoundError
from latewood.jobs.handlers.chunks import Row, object_of
from latewood.runtime import Store

_COLUMNS = (
    "database",
    "chunk_id",
    "shard",
    "sequence_min",
    "sequence_max",
    "row_count",
    "size_bytes",
    "residency",
    "is_live",
    "superseded_by",
    "key_id",
    "timestamp_min_ns",
    "timestamp_max_ns",
    "generation",
    "object_key",
    "file_name",
)
_BRIEF = ("database", "chunk_id", "shard", "sequence_min", "sequence_max", "row_count", "size_bytes", "residency")
_SPARE = ("row_count", "chunk_id")


def list_chunks(path: Path, names: Sequence[str], shard: int | None, output: Output, *, is_all: bool) -> int:
    """Do what `latewood chunks ls` says."""
    place = located(path, names)
    with open_store(place.root) as store:
        rows = [
            _cells(name, row)
            for name in chosen_names(store, place.names)
            for row in _rows(store, name)
            if (is_all or row.record.is_live) and shard in (None, row.record.shard)
        ]
    output.rows(_COLUMNS, rows, brief=_BRIEF, spare=_SPARE)
    return ExitCode.OK


def inspect_chunk(place: DatabasePath, chunk_id: int, output: Output, *, deep: bool) -> int:
    """Do what `latewood chunks inspect` says."""
    with open_store(place.root) as store:
        row = next((row for row in _rows(store, place.name) if row.chunk_id == chunk_id), None)
        if row is None:
            message = f"database {place.name!r} has no chunk {chunk_id}; `latewood chunks ls` lists them"
            raise NotFoundError(message)
        fields = dict(zip(_COLUMNS, _cells(place.name, row), strict=True))
        output.show(fields | _footer(store, place.name, row.record, deep=deep))
    return ExitCode.OK


def residency_name(record: ChunkRecord) -> str:
    """Return where a chunk is, and whether its object was proved."""
    match record.residency:
        case Local():
            return "local"
        case LocalAndRemote(verified=verified):
            return "local+remote" if verified else "local+remote?"
        case RemoteArchived(verified=verified):
            return "remote" if verified else "remote?"
        case _:
            return "evicted"


def _footer(store: Store, name: str, record: ChunkRecord, *, deep: bool) -> dict[str, object]:
    with store.site_of(find_database(store, name).db_id).open_chunk(record) as reader:
        meta = reader.verify() if deep else reader.meta
    return {
        "cohorts": ", ".join(f"{cohort} from {sequence}" for sequence, cohort in meta.cohorts) or None,
        "segment_min": meta.segment_min,
        "segment_max": meta.segment_max,
        "ext_id_min": meta.ext_id_min,
        "ext_id_max": meta.ext_id_max,
        "payload_bytes": meta.payload_bytes,
        "checksum": f"{meta.checksum:08x}",
        "row_groups": len(meta.row_groups),
        "writer": meta.writer,
        "created_at_ns": meta.created_ns,
        "parents": list(meta.parents),
        "log": meta.log,
        "life": meta.life,
        "is_verified": True if deep else None,
    }


def _rows(store: Store, name: str) -> list[Row]:
    db_id = find_database(store, name).db_id
    found = [Row(key.chunk_id, record) for key, record in store.catalog.scan_chunks(db_id)]
    return sorted(found, key=lambda row: (row.record.shard, row.record.sequence_min, row.chunk_id))


def _cells(name: str, row: Row) -> tuple[object, ...]:
    record = row.record
    copy = object_of(record)
    derived = {
        "database": name,
        "chunk_id": row.chunk_id,
        "residency": residency_name(record),
        "is_live": record.is_live,
        "object_key": copy.key if copy else None,
    }
    return tuple(derived[column] if column in derived else getattr(record, column) for column in _COLUMNS)
