"""`latewood cluster`: set a trial up, look at a cluster, change who is a member and who leads."""

from pathlib import Path

import click

from latewood.cli.arguments import PATH
from latewood.cli.cluster_target import Target, cluster_argument
from latewood.cli.output import Output, output_format

# ruff: noqa: PLC0415 - asyncio and TLS are loaded when a command runs, not for its help

_NODE = click.IntRange(min=1)


@click.group()
def cluster() -> None:
    """Set a trial up, look at a cluster, change its members.

    CLUSTER is the directory that `latewood cluster init` filled, or addresses: `10.0.0.1:7301,10.0.0.2:7301`, with
    --ca, --cert and --key where there is TLS.
    """


@cluster.command()
@click.argument("directory", metavar="[DIR]", type=PATH, required=False)
@click.option("--config", type=PATH, help="Make only the node that this file tells of, one of a cluster's first.")
@click.option("--nodes", type=_NODE, help="How many.  [default: 3]")
@click.option("--name", help="What the cluster is called.  [default: trial]")
@click.option("--host", help="Where they listen.  [default: 127.0.0.1]")
@click.option("--port", type=int, help="Node 1 listens on the next one, and so on.  [default: 7300]")
@click.option("--tls", is_flag=True, help="Make certificates too.  Without it, plain text, on loopback alone.")
@output_format
def init(
    directory: Path | None,
    config: Path | None,
    nodes: int | None,
    name: str | None,
    host: str | None,
    port: int | None,
    output: Output,
    *,
    tls: bool,
) -> int:
    """Make a trial cluster in DIR: a node.toml and a directory for each node, and cluster.toml for clients.

    What is there stays, and what is not said is as DIR has it; options that differ from it are refused.  With more
    --nodes than before, the new ones are told to join: start them, then `latewood cluster add`.

    With --config instead of DIR: make the directory of one node, on the machine where it will run.
    """
    from latewood.cli.cluster_actions import init_cluster, init_node
    from latewood.replica.trial_plan import Wish

    if (directory is None) == (config is None):
        raise click.UsageError("give either DIR or --config", click.get_current_context())
    wish = Wish(name, nodes, host, port, tls or None)
    if config is not None:
        if wish != Wish():
            raise click.UsageError("all else about the node of --config is in that file", click.get_current_context())
        return init_node(config, output)
    assert directory is not None
    return init_cluster(directory, wish, output)


@cluster.command()
@click.argument("directory", metavar="DIR", type=PATH)
@click.option("--nodes", metavar="LIST", required=True, help="host:port of node 1, 2 …, by commas; or 4=host:port.")
@click.option("--name", default="trial", show_default=True, help="What the cluster is called.")
@click.option("--days", type=_NODE, default=365, show_default=True, help="How long they are valid.")
@output_format
def certs(directory: Path, nodes: str, name: str, days: int, output: Output) -> int:
    """Make an authority in DIR, and certificates for nodes and for clients.

    For a trial: the authority's key stays in DIR.  What is there stays too, and signs what is new; a
    certificate that is asked for and was there already is told of, with how to replace it.
    """
    from latewood.cli.cluster_actions import make_certs

    return make_certs(directory, nodes, name, days, output)


@cluster.command()
@cluster_argument
@click.option("--partitions", is_flag=True, help="List the partitions, as the leader has them, instead of nodes.")
@output_format
def status(target: Target, output: Output, *, partitions: bool) -> int:
    """Show the members of a cluster, each as it sees itself.  Exits 1 if no majority of the voters has a leader.

    So does --partitions: then it lists what the node has that answered, which may be behind, and says so.

    A node that CLUSTER names and that is no member, not yet or not any more, is shown too if it answers, and told of
    on stderr.
    """
    from latewood.cli.cluster_look import show_partitions, show_status

    return show_partitions(target, output) if partitions else show_status(target, output)


@cluster.command()
@cluster_argument
@click.argument("node_id", metavar="NODE", type=_NODE)
@click.argument("address")
@click.option("--learner", is_flag=True, help="It gets everything and has no vote.")
@output_format
def add(target: Target, node_id: int, address: str, output: Output, *, learner: bool) -> int:
    """Make the running node NODE at ADDRESS a member: first a learner, and a voter once it has caught up."""
    from latewood.cli.cluster_actions import add_node

    return add_node(target, node_id, address, output, learner=learner)


@cluster.command()
@cluster_argument
@click.argument("node_id", metavar="NODE", type=_NODE)
@output_format
def remove(target: Target, node_id: int, output: Output) -> int:
    """Let NODE be a member no more.  It may be down; its files stay.  Exits 3 if it is no member."""
    from latewood.cli.cluster_actions import remove_node

    return remove_node(target, node_id, output)


@cluster.command()
@click.option("--config", type=PATH, required=True, help="The node's node.toml.")
@output_format
def repair(config: Path, output: Output) -> int:
    """Read all files of a node that is stopped, and set aside what is damaged and the other nodes have too.

    Partitions and snapshots are moved to `damaged` in its data directory; started again, the node makes them anew from
    its parent log and from the other nodes.  The parent log is never changed: if that is damaged the node has to be
    replaced, and this says how.  Exits 4 then, 5 if the node runs.
    """
    from latewood.cli.cluster_actions import mend_node

    return mend_node(config, output)


@cluster.command("transfer-leader")
@cluster_argument
@click.argument("node_id", metavar="NODE", type=_NODE)
def transfer_leader(target: Target, node_id: int) -> int:
    """Have NODE lead."""
    from latewood.cli.cluster_actions import hand_over

    return hand_over(target, node_id)
