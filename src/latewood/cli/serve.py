"""`latewood serve --config node.toml`: run one node of a cluster."""

from pathlib import Path

import click


@click.command()
@click.option(
    "--config", "path", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The node's node.toml."
)
@click.option("--listen", help="Listen here, as host:port, whatever the file says.")
@click.option("--metrics", help="Serve /metrics here, as host:port; an empty one for none.")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="Keep the node's files here.")
@click.option("--join", is_flag=True, help="If the directory is new: be a node that a cluster is to take in.")
@click.option("--verbose", "-v", is_flag=True, help="Say what happens, on stderr.")
def serve(path: Path, listen: str | None, metrics: str | None, data: Path | None, *, join: bool, verbose: bool) -> int:
    """Run one node of a cluster until it is interrupted.

    The directory must have been made with `latewood cluster init`, or with --join.  Prints one line when it serves.
    SIGTERM and an interrupt stop it gracefully: it hands over if it leads, and makes everything durable.  Exits 0 then,
    4 if it found damage, 5 if another process has its directory.
    """
    from latewood.cli.serving import run  # noqa: PLC0415 - the engine, not for the help

    changes = {"listen": listen, "metrics": metrics, "data": None if data is None else str(data.absolute())}
    return run(path, {key: value for key, value in changes.items() if value is not None}, join=join, verbose=verbose)
