"""Which cluster a command is about: a directory with its file, or addresses."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from latewood.cli.arguments import PATH
from latewood.errors import UsageError

if TYPE_CHECKING:
    from latewood.replica.client.synchronous import Client

R = TypeVar("R")


class Target(NamedTuple):
    """A cluster, as the command line names it."""

    name: str
    ca: Path | None
    cert: Path | None
    key: Path | None
    timeout_ms: int

    def connect(self) -> "Client":
        """Return a client.

        Raises:
            NotFoundError, UsageError: that is no cluster.
        """
        from latewood.replica.client.connecting import connect  # noqa: PLC0415 - asyncio, only when a command runs
        from latewood.replica.tls import client_context  # noqa: PLC0415 - as above
        from latewood.replica.trial import load_cluster  # noqa: PLC0415 - as above

        files = self._tls_files()
        if self._is_addresses:
            return connect(self.addresses(), tls=files, timeout_ms=self.timeout_ms)
        if files is not None:
            message = (
                f"--ca, --cert and --key go with addresses; what clients of {self.name} need is in its cluster.toml"
            )
            raise UsageError(message)
        cluster = load_cluster(Path(self.name))
        tls = client_context(cluster.tls) if cluster.tls else None
        return connect(self.addresses(), tls=tls, cluster_id=cluster.cluster_id, timeout_ms=self.timeout_ms)

    def addresses(self) -> list[str]:
        """Return where it says that nodes are.

        Raises:
            NotFoundError, UsageError: that is no cluster.
        """
        from latewood.replica.trial import load_cluster  # noqa: PLC0415 - as above

        if self._is_addresses:
            return [one.strip() for one in self.name.split(",") if one.strip()]
        return list(load_cluster(Path(self.name)).nodes.values())

    def _tls_files(self) -> dict[str, Path] | None:
        """Return the files that options name; None if they name none.

        Raises:
            UsageError: they name some, and not all.
        """
        files = {"ca": self.ca, "cert": self.cert, "key": self.key}
        given = {field: path for field, path in files.items() if path is not None}
        missing = [f"--{field}" for field in files if field not in given]
        if given and missing:
            message = f"TLS needs --ca, --cert and --key, all three; give {' and '.join(missing)} too"
            raise UsageError(message)
        return given or None

    @property
    def _is_addresses(self) -> bool:
        return ":" in self.name and not Path(self.name).exists()


def cluster_argument(function: Callable[..., R]) -> Callable[..., R]:
    """Give a command its CLUSTER, and the options that come with it."""

    @click.argument("name", metavar="CLUSTER")
    @click.option("--ca", type=PATH, help="The authority's certificate, where CLUSTER is addresses.")
    @click.option("--cert", type=PATH, help="Our certificate.")
    @click.option("--key", type=PATH, help="Its key.")
    @click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(0.1, 300),
        default=10.0,
        show_default=True,
        help="How many seconds to wait for the cluster.",
    )
    @wraps(function)
    def command(*args: Any, name: str, ca: Path, cert: Path, key: Path, timeout_s: float, **kwargs: Any) -> R:
        return function(*args, target=Target(name, ca, cert, key, int(timeout_s * 1000)), **kwargs)

    return command
