"""What a trial is to be: as was wished, and for the rest as it is already, or as is usual.  Pure.

What is there stays: its nodes may be running.  So a wish that differs from it is refused, and never quietly forgotten;
more nodes than there are is what may be wished.
"""

from pathlib import Path
from typing import Final, NamedTuple

from latewood.errors import UsageError
from latewood.replica.client.options import Address
from latewood.replica.trial import Cluster, plan_nodes


class Wish(NamedTuple):
    """What was asked for, named as the options are; None: nothing."""

    name: str | None = None
    nodes: int | None = None
    host: str | None = None
    port: int | None = None
    tls: bool | None = None


class Plan(NamedTuple):
    """What a trial is to be."""

    cluster_id: str
    nodes: dict[int, str]
    tls: bool


class _Shape(NamedTuple):
    """The same as a wish, and all of it known."""

    name: str = "trial"
    nodes: int = 3
    host: str = "127.0.0.1"
    port: int = 7300
    tls: bool = False


USUAL: Final = _Shape()


def plan_trial(directory: Path, known: Cluster | None, wish: Wish) -> Plan:
    """Return what the trial in a directory is to be, given what is known of it.

    Raises:
        UsageError: it is there, and not as was wished; or there are to be no nodes, too many, or ports run out.
    """
    here = USUAL if known is None else _shape(known)
    if known is not None:
        _check_is_kept(directory, here, wish)
    given = {field: value for field, value in wish._asdict().items() if value is not None}
    name, count, host, port, tls = here._replace(**given)
    nodes = dict(known.nodes) if known else {}
    if count > len(nodes):
        nodes = plan_nodes(count, host, port) | nodes
    return Plan(name, nodes, tls)


def _shape(known: Cluster) -> _Shape:
    newest = max(known.nodes)  # New ones follow it.
    host, port = Address.parse(known.nodes[newest])
    return _Shape(known.cluster_id, len(known.nodes), host, port - newest, known.tls is not None)


def _check_is_kept(directory: Path, here: _Shape, wish: Wish) -> None:
    differs = [
        f"--{field} {wished}" if field != "tls" else "--tls"
        for field, wished, is_so in zip(Wish._fields, wish, here, strict=True)
        if wished is not None and (wished < is_so if field == "nodes" else wished != is_so)  # type: ignore[operator]
    ]
    if differs:
        tls = "with" if here.tls else "without"
        raise UsageError(
            f"{directory} is cluster {here.name!r} already, of {here.nodes} nodes on {here.host} with ports above "
            f"{here.port}, {tls} TLS; that stays: leave out {' and '.join(differs)}, or choose another directory"
        )
