"""`latewood append DIR`: append what comes on standard input to a log, or to a database of a store."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from latewood.cli.appending import Appending, LogSink, Sink
from latewood.cli.arguments import DURATION, SIZE, directory, refuse_options, segment_options
from latewood.cli.batch import Batch
from latewood.cli.errors import ExitCode, say
from latewood.cli.interruption import Interruption
from latewood.cli.key_rule import KeyRule
from latewood.cli.opening import is_log, open_to_append
from latewood.cli.place import check_no_shard
from latewood.cli.store_argument import database_at
from latewood.limits import U64_MAX


@click.command()
@directory
@click.option(
    "--json", "is_json", is_flag=True, help="Read JSON: payload or payload_base64, ext_id, timestamp_ns; key, too."
)
@click.option("--key-from", metavar="FIELD", help="To a database: lines are JSON, and this field of them is the key.")
@click.option("--key-separator", metavar="TEXT", help="To a database: the key is what comes before this in a line.")
@click.option("--ext-id", type=click.IntRange(0, U64_MAX), default=0, help="The ext_id of lines.")
@click.option("--durable", is_flag=True, help="Make what was read durable before reading on.")
@click.option("--ack", is_flag=True, help="Print the sequence of each record once it is durable.")
@click.option("--quiet", "-q", is_flag=True, help="Do not say at the end how many there were.")
@segment_options
@click.option("--segment-records", type=click.IntRange(min=1), help="Roll before a segment holds more records.")
@click.option("--segment-age", type=DURATION, help="Roll a segment that is this old.")
@click.option("--flush-bytes", type=SIZE, help="Flush after so many bytes, however soon that is.")
def append(
    directory: Path,
    *,
    key_from: str | None,
    key_separator: str | None,
    is_json: bool,
    ext_id: int,
    durable: bool,
    ack: bool,
    quiet: bool,
    **options: int | None,
) -> int:
    """Append each line of standard input to the log in DIR, which is made if it is not there.

    A record is a line without its newline; with --json, one JSON object on each line.  Readers see it at once.  It is
    acknowledged only when it is durable, which is at most 50 ms after it was read.

    DIR may also be a database of a store, as STORE/DATABASE, which must be there.  A key picks the shard of its
    record; --ack then prints shard and sequence, batch by batch.
    """
    keys = KeyRule(key_from, key_separator, is_json=is_json)
    run = partial(_run, durable=durable, ack=ack, quiet=quiet, is_json=is_json)
    interruption = Interruption()
    if place := database_at(directory):
        refuse_options(options, "a log; a database has them from `latewood db create`")
        from latewood.cli.database_appending import database_sink  # noqa: PLC0415 - LMDB and Arrow, only for a store

        with interruption.held_back(), database_sink(place) as sink:
            return run(sink, keys.decoder(ext_id, keyed=sink.keyed), interruption)
    refuse_options({"key_from": key_from, "key_separator": key_separator}, "a database of a store")
    check_no_shard(directory, "name the database, as STORE/DATABASE")
    is_new = not is_log(directory)
    with interruption.held_back(), open_to_append(directory, **_in_words_of_the_library(options)) as log:
        if is_new:
            say(f"made a log at {directory}")
        return run(LogSink(log), keys.decoder(ext_id, keyed=False), interruption)


def _run(
    sink: Sink,
    decode: Callable[[list[bytes]], Batch],
    interruption: Interruption,
    *,
    durable: bool,
    ack: bool,
    quiet: bool,
    is_json: bool,
) -> int:
    appending = Appending(sink, decode, interruption, ack=ack, is_json=is_json)
    try:
        appending.run(durable=durable)
    except BrokenPipeError:
        say("nobody reads the acknowledgements any more, so the rest of the input was not read")
        return ExitCode.FAILED
    finally:
        if not quiet:
            say(appending.summary())
    return ExitCode.OK


def _in_words_of_the_library(options: dict[str, int | None]) -> dict[str, int | None]:
    return {
        "segment_bytes_max": options["segment_bytes"],
        "index_interval": options["index_interval"],
        "segment_records_max": options["segment_records"],
        "segment_age_max_ms": options["segment_age"],
        "flush_bytes": options["flush_bytes"],
    }
