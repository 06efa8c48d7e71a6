"""`latewood bench [DIR]`: measure how fast a log is on this machine."""

from pathlib import Path

import click

from latewood import kernel
from latewood.cli.arguments import PATH, SIZE
from latewood.cli.errors import ExitCode, say
from latewood.cli.measurement import MEASUREMENTS, Result, measure
from latewood.cli.output import Output, output_format
from latewood.cli.place import check_is_directory
from latewood.cli.progress import progress
from latewood.fs.disk import describe_disk


@click.command()
@click.argument("directory", metavar="[DIR]", type=PATH, default=".")
@click.option("--payload-bytes", type=SIZE, default=100, show_default=True, help="The size of each payload.")
@click.option("--seconds", type=click.FloatRange(0.01, 60), default=0.5, show_default=True, help="Time for each row.")
@output_format
def bench(directory: Path, payload_bytes: int, seconds: float, output: Output) -> int:
    """Measure appends, flushes and scans of a log on the disk of DIR, by default the current directory.

    The log is made in a directory of its own, which is removed.
    """
    check_is_directory(directory)
    disk = describe_disk(directory)
    say(f"{kernel.NAME} kernel, {disk.kind or 'unknown'} file system, payloads of {payload_bytes:,} bytes")
    results = []
    with progress("bench") as report:
        for done, name in enumerate(MEASUREMENTS, 1):
            results.append(measure(name, directory, payload_bytes, seconds))
            if report:
                report(done, len(MEASUREMENTS))
    output.rows(Result._fields, results)
    return ExitCode.OK
