"""Hard bounds, each with its reason."""

import re
from typing import Final

from latewood.errors import BadName, UsageError

KiB: Final = 1024
MiB: Final = 1024 * KiB

SEGMENT_BYTES_MIN: Final = 512
"""Room for the header and some records; tests use it."""

SEGMENT_BYTES_MAX: Final = 0xFFFF_FFF8
"""The header stores max_size in 32 bits, and records are 8-byte aligned."""

SEGMENT_ID_MAX: Final = 0xFFFF_FFFF
"""The header stores segment_index in 32 bits."""

MANIFEST_BYTES_MAX: Final = 1024 * MiB
"""About 18 million segments.  A larger file is damage, not a manifest."""

BATCH_BYTES_MAX: Final = 1 * MiB
"""So much of a batch is packed, written and published as one; it bounds the memory and the time that takes."""

BATCH_RECORDS_SMALL: Final = 32
"""Batches below this are packed straight into the mapping: a system call would cost more than its page faults."""

CHECKPOINT_BYTES: Final = 1 * MiB
"""After so many bytes the open segment is synced in the background: recovery scans about this much."""

LATE_MAX: Final = 16_384
"""What the books of a replica only write down, until they take it in: enough to share that work.  Acknowledgements wait
for enough nodes, however many entries that are."""

FILL_BYTES_PER_S: Final = 32 * MiB
"""A log that grows faster needs the disk for its records: then segments are not filled ahead."""

RESERVE_BYTES: Final = 8 * MiB
"""Appends never run further ahead of the last checkpoint, so recovery never reads more."""

READ_RECORDS_MAX: Final = 1024
"""Records handed out by one scan of a reader: bounds its memory, and what a lost reader repeats."""

READ_BYTES_MAX: Final = 4 * MiB
"""Payload bytes handed out by one scan, beyond its first record."""

VERIFY_THREADS_MAX: Final = 4
"""Segments that a deep check looks at together: summing releases the GIL, and each takes a mapping of its size."""

ARROW_RECORDS_MAX: Final = 65_536
"""Rows in one Arrow batch."""

ARROW_BYTES_MAX: Final = 2 * MiB
"""Payload bytes in one Arrow batch, beyond its first record: memory that the next batch finds warm."""

ARROW_SCAN_BYTES_MAX: Final = 16 * MiB
"""Payload bytes behind one Arrow batch that has none of them: what one call of the kernel passes over."""

TIMESTAMP_NS_MAX: Final = (1 << 63) - 1
"""Footers and Arrow store times in 63 bits: until the year 2262."""

CHUNK_LEVEL_MAX: Final = 22
"""zstd knows no higher level."""

READER_PREFIX_OWN: Final = "latewood-"
"""How the names of readers begin that are ours, such as a store's in its logs: no policy calls them silent."""

KEY_BYTES_MAX: Final = 64 * KiB
"""A key picks a shard and is compared; what is longer belongs into the payload."""

U64_MAX: Final = (1 << 64) - 1
"""What the formats store an ext_id or a watermark in."""

MANIFEST_RETRIES_MAX: Final = 100
"""How often a reader takes a fresh look when a writer replaced the manifest under it."""

U32_MAX: Final = (1 << 32) - 1
"""What the catalog's keys store a component, or half a metric's key, in."""

U16_MAX: Final = (1 << 16) - 1
"""What the catalog's keys store a shard, a kind of job or a priority in."""

CATALOG_TABLES_MAX: Final = 32
"""Named databases in the catalog's environment; LMDB allocates for each."""

CATALOG_READERS_MAX: Final = 1024
"""Read transactions at a time, over all processes: one 64-byte slot each in the lock file."""

CATALOG_PAGE_ROWS: Final = 1024
"""Rows that one short read transaction of a scan takes, so that no scan pins old pages or fills the memory."""

CATALOG_BATCH_OPS_MAX: Final = 10_000
"""Operations in one transaction: bounds the memory of a batch, and how long its neighbours wait for it."""

CATALOG_VALUE_BYTES_MAX: Final = 4 * MiB
"""One row: facts, not data.  A commit keeps what it changes in memory, and the writer is one for all."""

CATALOG_GROUP_BATCHES_MAX: Final = 256
"""Batches that one durable commit takes along."""

CATALOG_ID_BLOCK: Final = 256
"""Ids that one durable commit reserves.  What a crash leaves of them is never given out."""

CATALOG_TRUNCATE_ROWS_MAX: Final = 1024
"""Rows of the change log that one commit removes; the next goes on."""

CATALOG_WAITERS_MAX: Final = 65_536
"""Waiters for a generation at a time: a leak of them is an error, not a full memory."""

CATALOG_WAITERS_STORED: Final = 16
"""Waiters that a generation's record shows, for inspection: each commit writes that record."""

CATALOG_WAITER_LOOK_MS: Final = 50
"""The clock that was passed in may jump: it is looked at so often while somebody waits."""

CATALOG_RETRIES_MAX: Final = 5
"""How often a commit is tried again when the disk is full, with a pause that doubles from 10 ms."""

CHUNK_FILE_NAME_BYTES_MAX: Final = 120
"""What the chunk table allows for a file name."""

CHUNK_FOOTER_BYTES_MAX: Final = 16 * MiB
"""A Parquet footer of ours has some hundred bytes for each row group.  A larger one is damage, or an attack."""

CHUNK_ROW_GROUP_BYTES_MAX: Final = 512 * MiB
"""What one row group may take in memory, and so the largest record that a chunk can hold."""

CHUNK_ROW_GROUP_ROWS_MAX: Final = 1 << 20
"""Rows in one row group: bounds what its integer columns take, which compress to almost nothing."""

CHUNK_ROW_GROUPS_MAX: Final = 32_767
"""Parquet numbers row groups with 16 bits in places."""

CRYPT_FRAME_BYTES_MIN: Final = 256
"""Below this the tags weigh more than what they protect; tests use it."""

CRYPT_FRAME_BYTES_MAX: Final = 16 * MiB
"""A frame is decrypted as a whole: this bounds what a header can make a reader allocate."""

TIER_PIECE_BYTES: Final = 8 * MiB
"""So much of an object is read, checked or sent at a time."""

TIER_CREATE_BYTES_MAX: Final = 128 * MiB
"""Object stores make an object on condition only from memory: up to here that is what we do."""

JOB_BYTES_MAX: Final = 1 * MiB
"""A new job with its payload.  Errors are added to it, and its repair carries the payload too: so it is well below
CATALOG_VALUE_BYTES_MAX, or a job could be lost for being too large to be repaired."""

JOB_ERROR_CHARS_MAX: Final = 4096
"""What is kept of a job's error message, and as much of its traceback."""

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def check_name(name: str, what: str) -> str:
    """Return `name` if it can be a file name on every system.

    Raises:
        BadName: it cannot.
    """
    given: object = name  # A caller without a type checker may give anything.
    if not isinstance(given, str) or not _NAME.fullmatch(given):
        message = f"{what} name {name!r} must match [a-z0-9][a-z0-9_-]{{0,63}}"
        raise BadName(message)
    return name


def check_reader_name(name: str) -> str:
    """Return `name` if a user may call a reader of a store, or of a query, so.

    Raises:
        BadName: it cannot be a file name, or is of those that are ours.
    """
    if name.startswith(READER_PREFIX_OWN):
        message = (
            f"reader name {name!r}: names that begin with {READER_PREFIX_OWN!r} are the system's own; choose another"
        )
        raise BadName(message)
    return check_name(name, "reader")


def check_number(number: object, number_max: int, what: str) -> int:
    """Return `number` if it is from 0 to `number_max`, and so can be stored.

    Raises:
        UsageError: it is not.
    """
    if not isinstance(number, int):
        message = f"{what} must be a whole number, not {number!r}"
        raise UsageError(message)
    if not 0 <= number <= number_max:
        message = f"{what} must be from 0 to {number_max:,}, not {number:,}"
        raise UsageError(message)
    return number
