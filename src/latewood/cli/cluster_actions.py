"""What `latewood cluster` does: thin, around the client."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from latewood.cli.cluster_target import Target
from latewood.cli.errors import ExitCode, say
from latewood.cli.newcomer import check_may_found
from latewood.cli.node_file import load_node
from latewood.cli.output import Output
from latewood.clock import SystemClock
from latewood.errors import UsageError
from latewood.fs import PosixFS
from latewood.replica.certificates import certified_hosts, make_certificates, node_names
from latewood.replica.client.options import Address
from latewood.replica.config import NodeConfig, load_config
from latewood.replica.founding import check_unowned, found_node, is_node, join_node
from latewood.replica.repair import SetAside, repair_node
from latewood.replica.replies import Members
from latewood.replica.trial import CLUSTER_FILE, NODE_FILE, load_cluster, write_trial
from latewood.replica.trial_plan import Wish, plan_trial


def init_cluster(directory: Path, wish: Wish, output: Output) -> int:
    """Write the files of a trial."""
    fs = PosixFS()
    known = load_cluster(directory) if fs.exists(directory / CLUSTER_FILE) else None
    name, nodes, tls = plan_trial(directory, known, wish)
    written = write_trial(fs, directory, name, nodes, tls=tls)
    if tls:
        hosts = {node_id: Address.parse(address).host for node_id, address in nodes.items()}
        written += make_certificates(fs, directory / "certs", hosts, cluster_id=name, now=datetime.now(UTC))
    for path in written:
        if path.name == NODE_FILE:
            _make_directory(load_config(path))
    output.rows(("path",), [(str(path),) for path in written])
    if not written:
        say(f"{directory} stays as it is: all of cluster {name!r}, {len(nodes)} nodes, is there already")
    for line in _next_steps(directory, known.nodes if known else nodes, nodes):
        say(line)
    return ExitCode.OK


def init_node(config: Path, output: Output) -> int:
    """Make the directory of one of a cluster's first nodes."""
    found = load_node(config)
    check_unowned(found, PosixFS())  # Before the others are asked: they would say what is true of an empty one.
    check_may_found(found)
    found_node(found, PosixFS(), SystemClock())
    output.rows(("path",), [(str(found.data),)])
    return ExitCode.OK


def make_certs(directory: Path, nodes: str, name: str, days: int, output: Output) -> int:
    """Make certificates."""
    hosts = {node_id: Address.parse(address).host for node_id, address in _numbered(nodes).items()}
    now = datetime.now(UTC)
    written = make_certificates(PosixFS(), directory, hosts, cluster_id=name, now=now, days=days)
    output.rows(("path",), [(str(path),) for path in written])
    for node_id, host in hosts.items():
        if node_names(directory, node_id).certificate not in written:
            say(_kept(directory, node_id, host))
    return ExitCode.OK


def add_node(target: Target, node_id: int, address: str, output: Output, *, learner: bool) -> int:
    """Make a node a member."""
    Address.parse(address)
    with target.connect() as client:
        members = client.add_node(node_id, address, learner=learner)
    return _show_members(members, output)


def remove_node(target: Target, node_id: int, output: Output) -> int:
    """Let a node be no member."""
    with target.connect() as client:
        members = client.remove_node(node_id)
    return _show_members(members, output)


def hand_over(target: Target, node_id: int) -> int:
    """Have another node lead."""
    with target.connect() as client:
        client.transfer_leader(node_id)
    say(f"node {node_id} leads")
    return ExitCode.OK


def mend_node(config: Path, output: Output) -> int:
    """Set aside what is damaged of a node."""
    found = load_config(config)
    repair = repair_node(found, PosixFS(), SystemClock())
    summary = {"path": found.data, "partitions": repair.partitions, "snapshots": repair.snapshots}
    output.report(summary, "set_aside", SetAside._fields, repair.set_aside)
    if repair.set_aside:
        say(f"`latewood serve --config {config}` makes them anew, with records of the other nodes")
    return ExitCode.OK


def _kept(directory: Path, node_id: int, host: str) -> str:
    """Return what to say of a certificate that was there already."""
    names = node_names(directory, node_id)
    there = certified_hosts(PosixFS(), names.certificate)
    of_another = f" for {', '.join(there) or 'no host'}, and none for {host}; nodes and clients look at its id alone"
    return (
        f"node {node_id} keeps its certificate {names.certificate}{'' if host in there else of_another}; "
        f"to have it made anew, remove it and {names.key}, and say this again"
    )


def _next_steps(directory: Path, before: Mapping[int, str], nodes: Mapping[int, str]) -> list[str]:
    """Return what to do after `init`, given the nodes that there were before: those that came since must be added."""
    added = sorted(set(nodes) - set(before))
    if not added:
        return [f"start each node with `latewood serve --config {directory}/node-1/{NODE_FILE}`, and so on"]
    return [
        f"start node {node_id} with `latewood serve --config {directory}/node-{node_id}/{NODE_FILE}`; "
        f"then `latewood cluster add {directory} {node_id} {nodes[node_id]}` makes it a member"
        for node_id in added
    ]


def _make_directory(config: NodeConfig) -> None:
    """Make a node's directory, unless there is one: whoever is not among the first joins."""
    if is_node(config, PosixFS()):
        return
    if config.node_id in config.peers:
        found_node(config, PosixFS(), SystemClock())
    else:
        join_node(config, PosixFS(), SystemClock())


def _show_members(members: Members, output: Output) -> int:
    output.show({"voters": members.voters, "learners": members.learners})
    return ExitCode.OK


def _numbered(text: str) -> dict[int, str]:
    """Return the addresses in `a:1,b:2` or `4=d:1` by the ids of their nodes.

    Raises:
        UsageError: there are none, an id is there twice, or is none.
    """
    nodes: dict[int, str] = {}
    for place, one in enumerate((part.strip() for part in text.split(",") if part.strip()), 1):
        number, equals, address = one.partition("=")
        if equals and not (number.isascii() and number.isdigit() and int(number)):
            message = f"a node is host:port, or its id and that, as in 4=10.0.0.4:7301; not {one!r}"
            raise UsageError(message)
        node_id = int(number) if equals else place
        if node_id in nodes:
            message = f"--nodes has node {node_id} twice: at {nodes[node_id]}, and as {one!r}"
            raise UsageError(message)
        nodes[node_id] = address if equals else one
    if not nodes:
        raise UsageError("--nodes names at least one node, as in 10.0.0.1:7301 or 4=10.0.0.4:7301")
    return nodes
