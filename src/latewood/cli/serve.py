"""`latewood serve --config node.toml`: run one node of a cluster."""

from pathlib import Path
from typing import Any, Final

import click

from latewood.cli.arguments import DURATION, SIZE

_RETENTION: Final = ("max_bytes", "max_age_ms", "ignore_readers_silent_ms")


@click.command()
@click.option(
    "--config", "path", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The node's node.toml."
)
@click.option("--listen", help="Listen here, as host:port, whatever the file says.")
@click.option("--metrics", help="Serve /metrics here, as host:port; an empty one for none.")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="Keep the node's files here.")
@click.option("--machine", help="Make the machines of partitions with this, as package.module:factory.")
@click.option("--max-bytes", type=SIZE, help="Without readers, partitions keep at most this much in sealed segments.")
@click.option("--max-age", "max_age_ms", type=DURATION, help="Without readers, partitions keep records this long.")
@click.option(
    "--ignore-readers-silent-for",
    "ignore_readers_silent_ms",
    type=DURATION,
    help="A reader that committed nothing for so long holds nothing back.",
)
@click.option("--join", is_flag=True, help="If the directory is new: be a node that a cluster is to take in.")
@click.option("--verbose", "-v", is_flag=True, help="Say what happens, on stderr.")
def serve(path: Path, data: Path | None, *, join: bool, verbose: bool, **keys: Any) -> int:
    """Run one node of a cluster until it is interrupted.

    The directory must have been made with `latewood cluster init`, or with --join.  Prints one line when it serves.
    SIGTERM and an interrupt stop it gracefully: it hands over if it leads, and makes everything durable.  Exits 0 then,
    4 if it found damage, 5 if another process has its directory.
    """
    from latewood.cli.serving import run  # noqa: PLC0415 - the engine, not for the help

    retention = _given({key: keys.pop(key) for key in _RETENTION})
    place = None if data is None else str(data.absolute())
    changes = _given({**keys, "data": place, "retention": retention or None})
    return run(path, changes, join=join, verbose=verbose)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
