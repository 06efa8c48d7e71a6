"""`latewood spark`: what Spark needs, and whether it is there."""

import click

from latewood.cli.errors import ExitCode
from latewood.cli.output import Output, output_format


@click.group()
def spark() -> None:
    """Say whether Spark can work with Latewood here."""


@spark.command()
@output_format
def doctor(output: Output) -> int:
    """Say what is wrong with a Spark setup: Java, versions, interpreters, the package on workers.

    Exits 1 if something is missing without which nothing works.
    """
    from latewood.spark.doctor import SparkCheck, diagnose, gather  # noqa: PLC0415 - only this command needs it

    facts = gather()
    checks = diagnose(facts)
    output.rows(SparkCheck._fields, checks)
    needed = {"pyspark", "pandas", "pyarrow", "java", "connect", "format", "workers"}
    return ExitCode.FAILED if any(check.check in needed and check.advice for check in checks) else ExitCode.OK
