"""The logs of a database, shard by shard: what `latewood segments` and `latewood seal` say of STORE/DATABASE."""

from collections.abc import Sequence

from latewood.cli.errors import ExitCode, say
from latewood.cli.output import Output
from latewood.cli.store_argument import DatabasePath, find_database, open_store
from latewood.log.listing import SegmentInfo, list_segments


def list_database_segments(place: DatabasePath, output: Output, brief: Sequence[str], spare: Sequence[str]) -> int:
    """Do what `latewood segments` says of a database: of each shard what its log still has."""
    with open_store(place.root) as store:
        shards = find_database(store, place.name).shards
        rows = [(shard.number, *segment) for shard in shards for segment in list_segments(shard.log)]
    output.rows(("shard", *SegmentInfo._fields), rows, brief=("shard", *brief), spare=spare)
    return ExitCode.OK


def seal_database(place: DatabasePath, output: Output) -> int:
    """Do what `latewood seal` says of a database: seal the open segment of each shard."""
    with open_store(place.root, "w") as store:
        rows = [(shard.number, shard.log.seal()) for shard in find_database(store, place.name).shards]
    if all(sealed is None for _, sealed in rows):
        say("the open segments have no records: nothing to seal")
    output.rows(("shard", "segment_id"), rows)
    return ExitCode.OK
