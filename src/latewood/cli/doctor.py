"""`latewood doctor [DIR]`: say what is installed, which kernel runs, and what the disk is like."""

import os
import platform
from importlib import import_module
from pathlib import Path

import click

from latewood import kernel
from latewood.cli.arguments import PATH
from latewood.cli.diagnosis import Check, Facts, diagnose
from latewood.cli.errors import ExitCode
from latewood.cli.output import Output, output_format
from latewood.cli.place import check_is_directory
from latewood.cli.version import package_version
from latewood.fs import PosixFS
from latewood.fs.disk import cpu_features, describe_disk, median_sync_ns
from latewood.log import LogOptions

_SYNC_ROUNDS = 50
_OPTIONAL = ("pyarrow", "rich")


@click.command()
@click.argument("directory", metavar="[DIR]", type=PATH, default=".")
@output_format
def doctor(directory: Path, output: Output) -> int:
    """Say what is installed, which kernel runs and why, and what the disk of DIR is like.

    DIR is the current directory by default.  A small file is written there, synced and removed.
    """
    output.rows(Check._fields, diagnose(_facts(directory)))
    return ExitCode.OK


def _facts(directory: Path) -> Facts:
    check_is_directory(directory)
    disk = describe_disk(directory)
    return Facts(
        version=package_version(),
        python=f"{platform.python_implementation()} {platform.python_version()} on {platform.system()}",
        kernel=kernel.NAME,
        pure_is_forced=os.environ.get("LATEWOOD_PURE") == "1",
        native_problem=_native_problem(),
        cpu=platform.machine(),
        cpu_features=cpu_features(),
        packages={name: package_version(name) for name in _OPTIONAL},
        directory=str(directory.resolve()),
        disk_kind=disk.kind,
        free_bytes=disk.free_bytes,
        is_writable=disk.is_writable,
        sync_us=median_sync_ns(PosixFS(), directory, _SYNC_ROUNDS) / 1000 if disk.is_writable else None,
        segment_bytes=LogOptions().segment_bytes_max,
    )


def _native_problem() -> str | None:
    """Return why the native kernel is not there."""
    try:
        import_module("latewood._native")
    except ImportError as error:
        return str(error)
    return None
