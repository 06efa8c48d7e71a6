"""`latewood cluster`: files of a trial that a node takes, and commands that talk to a cluster."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from latewood.fs import PosixFS
from latewood.log import Log
from latewood.replica.certificates import certified_hosts
from latewood.replica.config import load_config
from latewood.replica.founding import check_owner
from latewood.replica.trial import load_cluster
from tests.cli.shell import complaint, ok, row, rows, run
from tests.replica.fake_cluster import FakeCluster


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    yield from running("fake")


@pytest.fixture
def foreign() -> Iterator[FakeCluster]:
    yield from running("other")


def running(name: str) -> Iterator[FakeCluster]:
    """Yield a cluster that runs in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def begin() -> FakeCluster:
        return await FakeCluster(name=name).__aenter__()

    found = asyncio.run_coroutine_threadsafe(begin(), loop).result()
    yield found
    asyncio.run_coroutine_threadsafe(found.__aexit__(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_init_writes_what_nodes_and_clients_take(tmp_path: Path) -> None:
    made = [one["path"] for one in rows("cluster", "init", tmp_path / "c", "--tls", "--port", "7400")]
    assert str(tmp_path / "c" / "cluster.toml") in made
    configs = [load_config(tmp_path / "c" / f"node-{number}" / "node.toml") for number in (1, 2, 3)]
    assert [config.node_id for config in configs] == [1, 2, 3]
    assert {config.listen for config in configs} == {f"127.0.0.1:740{number}" for number in (1, 2, 3)}
    assert len({config.data for config in configs}) == len({config.metrics for config in configs}) == 3
    peers = {number: f"127.0.0.1:740{number}" for number in (1, 2, 3)}
    assert all(config.peers == peers and config.cluster_id == "trial" for config in configs)
    found = load_cluster(tmp_path / "c")
    assert found.nodes == peers
    for tls in (found.tls, *(config.tls for config in configs)):
        assert tls is not None
        assert all(path.exists() for path in tls)


def test_without_tls_there_are_no_certificates(tmp_path: Path) -> None:
    ok("cluster", "init", tmp_path / "c", "--nodes", "1", "--name", "solo")
    assert load_config(tmp_path / "c" / "node-1" / "node.toml").tls is None
    assert load_cluster(tmp_path / "c") == ("solo", {1: "127.0.0.1:7301"}, None)
    assert not (tmp_path / "c" / "certs").exists()


def test_a_later_node_joins_and_the_others_stay(tmp_path: Path) -> None:
    ok("cluster", "init", tmp_path / "c", "--tls")
    before = {path: path.read_bytes() for path in (tmp_path / "c").rglob("*") if path.is_file()}
    ok("cluster", "init", tmp_path / "c", "--tls", "--nodes", "4")
    after = {path: path.read_bytes() for path in (tmp_path / "c").rglob("*") if path.is_file()}
    assert {path for path in before if before[path] != after[path]} == {tmp_path / "c" / "cluster.toml"}
    assert sorted(load_config(tmp_path / "c" / "node-4" / "node.toml").peers) == [1, 2, 3]
    assert sorted(load_cluster(tmp_path / "c").nodes) == [1, 2, 3, 4]
    assert rows("cluster", "init", tmp_path / "c", "--tls", "--nodes", "4") == []


def test_init_says_how_later_nodes_become_members(tmp_path: Path) -> None:
    where = tmp_path / "c"
    (first,) = run("cluster", "init", where).stderr.splitlines()
    assert f"{where}/node-1/node.toml`, and so on" in first
    later = run("cluster", "init", where, "--nodes", "5").stderr.splitlines()
    assert len(later) == 2
    for number, line in zip((4, 5), later, strict=True):
        assert f"serve --config {where}/node-{number}/node.toml`" in line
        assert f"`latewood cluster add {where} {number} 127.0.0.1:730{number}`" in line


def test_a_node_whose_file_is_lost_joins_too(tmp_path: Path) -> None:
    ok("cluster", "init", tmp_path / "c")
    (tmp_path / "c" / "node-2" / "node.toml").unlink()
    ok("cluster", "init", tmp_path / "c")
    assert sorted(load_config(tmp_path / "c" / "node-2" / "node.toml").peers) == [1, 3]


def test_nodes_have_their_directories_at_once(tmp_path: Path) -> None:
    ok("cluster", "init", tmp_path / "c")
    ok("cluster", "init", tmp_path / "c", "--nodes", "4")
    for number in (1, 2, 3, 4):
        check_owner(load_config(tmp_path / "c" / f"node-{number}" / "node.toml"), PosixFS())
    with Log.open(tmp_path / "c" / "node-4" / "data" / "parent", mode="r") as log:
        assert log.next_sequence == 0, "one that joins begins with nothing"


def test_one_node_is_made_where_it_will_run(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text('cluster_id = "prod"\nnode_id = 2\nlisten = "127.0.0.1:7302"\n[peers]\n2 = "127.0.0.1:7302"\n')
    assert "is in that file" in complaint("cluster", "init", "--config", config, "--port", "7400", code=2)
    ok("cluster", "init", "--config", config)
    check_owner(load_config(config), PosixFS())
    assert "is a node's already" in complaint("cluster", "init", "--config", config, code=1)
    complaint("cluster", "init", code=2)
    complaint("cluster", "init", tmp_path, "--config", config, code=2)


def test_a_node_that_is_there_is_told_as_that_whatever_the_others_have(tmp_path: Path, cluster: FakeCluster) -> None:
    cluster.records[7] = [b"x"]
    config = tmp_path / "node.toml"
    head = 'cluster_id = "fake"\nnode_id = 4\nlisten = "127.0.0.1:7304"\n[peers]\n4 = "127.0.0.1:7304"\n'
    config.write_text(head)
    ok("cluster", "init", "--config", config)
    config.write_text(f'{head}1 = "{cluster.addresses[0]}"\n')
    assert "is a node's already" in complaint("cluster", "init", "--config", config, code=1)


def test_another_cluster_is_not_written_over(tmp_path: Path) -> None:
    ok("cluster", "init", tmp_path / "c")
    assert "is cluster 'trial' already" in complaint("cluster", "init", tmp_path / "c", "--name", "other", code=2)
    assert "without TLS" in complaint("cluster", "init", tmp_path / "c", "--tls", code=2)


@pytest.mark.parametrize(
    "other", [["--port", "7500"], ["--host", "localhost"], ["--name", "other"], ["--nodes", "2"], ["--tls"]]
)
def test_what_differs_from_the_trial_is_refused(tmp_path: Path, other: list[str]) -> None:
    ok("cluster", "init", tmp_path / "c", "--port", "7400")
    before = {path: path.read_bytes() for path in (tmp_path / "c").rglob("*") if path.is_file()}
    said = complaint("cluster", "init", tmp_path / "c", *other, code=2)
    assert "of 3 nodes on 127.0.0.1 with ports above 7400, without TLS; that stays" in said
    assert f"leave out {' '.join(other)}, or choose another directory" in said
    assert {path: path.read_bytes() for path in (tmp_path / "c").rglob("*") if path.is_file()} == before


def test_what_is_not_said_is_as_the_trial_has_it(tmp_path: Path) -> None:
    ok("cluster", "init", tmp_path / "c", "--port", "7400", "--name", "other", "--tls", "--nodes", "2")
    assert "stays as it is" in run("cluster", "init", tmp_path / "c").stderr
    ok("cluster", "init", tmp_path / "c", "--nodes", "3")
    found = load_cluster(tmp_path / "c")
    assert (found.cluster_id, found.nodes[3]) == ("other", "127.0.0.1:7403")
    assert load_config(tmp_path / "c" / "node-3" / "node.toml").tls is not None
    assert (tmp_path / "c" / "certs" / "node-3.pem").exists()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--nodes", "101"], "1 to 100 nodes, not 101"),
        (["--port", "64000"], "--port is from 1 to 63435, not 64000"),
        (["--port", "0"], "--port is from 1 to 63435, not 0"),
        (["--name", "A B"], "'A B'"),
        (["--host", "10.0.0.1"], "10.0.0.1 is none: --tls makes certificates"),
    ],
)
def test_init_refuses_what_cannot_be(tmp_path: Path, wrong: list[str], said: str) -> None:
    assert said in complaint("cluster", "init", tmp_path / "c", *wrong, code=2)
    assert not (tmp_path / "c").exists()


def test_certs_are_made_and_added_to(tmp_path: Path) -> None:
    first = [Path(one["path"]).name for one in rows("cluster", "certs", tmp_path, "--nodes", "127.0.0.1:1,b.example:2")]
    assert sorted(first) == sorted(
        f"{name}.{kind}" for name in ("ca", "node-1", "node-2", "client") for kind in ("pem", "key")
    )
    added = [Path(one["path"]).name for one in rows("cluster", "certs", tmp_path, "--nodes", "7=10.0.0.7:1")]
    assert sorted(added) == ["node-7.key", "node-7.pem"]
    assert "4=10.0.0.4:7301" in complaint("cluster", "certs", tmp_path, "--nodes", "x=10.0.0.7:1", code=2)


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ("", "at least one node"),
        (" , ", "at least one node"),
        ("5=10.0.0.4:7301,5=10.0.0.6:7301", "node 5 twice"),
        ("10.0.0.4:7301,1=10.0.0.6:7301", "node 1 twice"),
    ],
)
def test_certs_are_for_nodes_that_are_named_once(tmp_path: Path, nodes: str, said: str) -> None:
    assert said in complaint("cluster", "certs", tmp_path / "certs", "--nodes", nodes, code=2)
    assert not (tmp_path / "certs").exists()


def test_certs_that_are_kept_are_told_with_what_replaces_them(tmp_path: Path) -> None:
    assert run("cluster", "certs", tmp_path, "--nodes", "10.0.0.1:1,b.example:2").stderr == ""
    before = (tmp_path / "node-1.pem").read_bytes()
    first, second = run("cluster", "certs", tmp_path, "--nodes", "10.0.0.9:1,b.example:2").stderr.splitlines()
    assert f"node 1 keeps its certificate {tmp_path / 'node-1.pem'} for 10.0.0.1, and none for 10.0.0.9" in first
    assert f"node 2 keeps its certificate {tmp_path / 'node-2.pem'}; to have it made anew, remove it and" in second
    assert (tmp_path / "node-1.pem").read_bytes() == before
    for kind in ("pem", "key"):
        (tmp_path / f"node-1.{kind}").unlink()
    assert run("cluster", "certs", tmp_path, "--nodes", "10.0.0.9:1").stderr == ""
    assert certified_hosts(PosixFS(), tmp_path / "node-1.pem") == ["10.0.0.9"]


@pytest.mark.parametrize(("holder", "whose"), [("node-2", "node 2"), ("client", "no node")])
def test_a_certificate_of_another_is_refused(tmp_path: Path, holder: str, whose: str) -> None:
    ok("cluster", "certs", tmp_path, "--nodes", "127.0.0.1:1,127.0.0.1:2")
    config = tmp_path / "node.toml"
    front = 'cluster_id = "prod"\nnode_id = 1\nlisten = "127.0.0.1:7301"\n[peers]\n1 = "127.0.0.1:7301"\n'
    config.write_text(f'{front}[tls]\nauthority = "ca.pem"\ncertificate = "{holder}.pem"\nkey = "{holder}.key"\n')
    for command in (("cluster", "init"), ("serve",)):
        said = complaint(*command, "--config", config, code=2)
        assert f"{config}: certificate in [tls], {tmp_path / holder}.pem, is of {whose}, and node_id is 1" in said
        assert "latewood:node:1" in said
    assert not (tmp_path / "data").exists()
    config.write_text(config.read_text().replace(holder, "node-1"))
    ok("cluster", "init", "--config", config)


def test_status_shows_every_node(cluster: FakeCluster) -> None:
    where = ",".join(cluster.addresses)
    found = row("cluster", "status", where)
    assert (found["cluster"], found["leader"], found["is_led"], found["voters"]) == ("fake", 1, True, 3)
    assert [(one["node"], one["role"]) for one in found["nodes"]] == [(1, "leader"), (2, "follower"), (3, "follower")]
    table = ok("cluster", "status", where, "--format", "table")
    assert "follower" in table
    assert cluster.addresses[2] in table


def test_status_names_a_node_that_is_gone(cluster: FakeCluster) -> None:
    cluster.members[3] = "127.0.0.1:1"
    found = row("cluster", "status", cluster.addresses[0])
    assert found["is_led"]
    assert "127.0.0.1:1" in found["nodes"][2]["problem"]
    assert found["nodes"][2]["role"] is None


def test_status_asks_another_if_a_node_opens_its_storage(cluster: FakeCluster) -> None:
    cluster.opening, cluster.leader = {1}, 2
    found = row("cluster", "status", ",".join(cluster.addresses))
    assert [one["role"] for one in found["nodes"]] == [None, "leader", "follower"]
    assert "opening its storage" in found["nodes"][0]["problem"]
    assert found["is_led"]


@pytest.mark.parametrize("knows", [True, False])
def test_status_says_of_a_node_that_it_was_removed(cluster: FakeCluster, knows: bool) -> None:  # noqa: FBT001 - a parameter
    if not knows:  # It was down then, and thinks that it is a member still.
        cluster.cut_off[3] = dict(cluster.members)
    address = cluster.members.pop(3)
    result = run("cluster", "status", address, "--format", "jsonl")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["leader"], found["voters"]) == (0, 1, 2)
    assert [(one["node"], one["member"], bool(one["problem"])) for one in found["nodes"]] == [
        (1, "voter", False),
        (2, "voter", False),
        (3, None, True),
    ]
    assert "node 3 is no member any more: it was removed" in result.stderr
    assert "any more" not in run("cluster", "status", cluster.members[1]).stderr


def test_status_shows_nodes_that_are_no_members_beside_those_that_are(cluster: FakeCluster) -> None:
    named = ",".join(cluster.addresses)
    removed, new = cluster.members.pop(2), cluster.members.pop(3)
    cluster.cut_off[3] = {}
    result = run("cluster", "status", named, "--format", "jsonl")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["leader"], found["voters"]) == (0, 1, 1)
    assert [(one["node"], one["address"], one["member"]) for one in found["nodes"]] == [
        (1, cluster.addresses[0], "voter"),
        (2, removed, None),
        (3, new, None),
    ]
    assert [one["problem"] for one in found["nodes"][1:]] == [
        line.removeprefix("latewood: ") for line in result.stderr.splitlines()
    ]
    assert "node 2 is no member any more" in result.stderr
    assert "node 3 is no member yet" in result.stderr
    by_new_first = row("cluster", "status", ",".join(reversed(named.split(","))))
    assert [(one["node"], one["member"]) for one in by_new_first["nodes"]] == [(1, "voter"), (3, None), (2, None)]


def test_status_tells_a_node_of_another_cluster(cluster: FakeCluster, foreign: FakeCluster) -> None:
    foreign.records[7] = [b"of another"]
    named = f"{cluster.addresses[1]},{foreign.addresses[0]}"
    result = run("cluster", "status", named, "--format", "jsonl")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["cluster"], len(found["nodes"])) == (0, "fake", 4)
    assert "node 1 is of another cluster, 'other'" in result.stderr
    assert rows("cluster", "status", named, "--partitions") == []


def test_status_says_of_a_node_that_it_is_no_member_yet(cluster: FakeCluster) -> None:
    address = cluster.members.pop(3)
    cluster.cut_off[3] = {}
    result = run("cluster", "status", address)
    assert result.exit_code == 1
    assert result.stderr == "latewood: node 3 is no member yet: `latewood cluster add` takes it in\n"


def test_status_of_a_removed_node_without_the_others_says_what_it_knows(cluster: FakeCluster) -> None:
    address = cluster.members.pop(3)
    cluster.cut_off[3] = dict.fromkeys((1, 2), "127.0.0.1:1")
    result = run("cluster", "status", address)
    assert result.exit_code == 1
    assert "node 3 is no member any more, as far as is known" in result.stderr


def test_status_fails_while_the_others_do_not_know_that_their_leader_is_gone(cluster: FakeCluster) -> None:
    cluster.members[1] = "127.0.0.1:1"
    result = run("cluster", "status", cluster.addresses[1], "--format", "jsonl")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["is_led"] is False


def test_status_fails_without_a_majority(cluster: FakeCluster) -> None:
    address = cluster.addresses[0]
    cluster.members[2] = cluster.members[3] = "127.0.0.1:1"
    result = run("cluster", "status", address, "--format", "jsonl")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["is_led"] is False
    assert "no majority" in result.stderr


def test_partitions_are_listed(cluster: FakeCluster) -> None:
    cluster.records[7] = [b"a", b"b"]
    assert [
        (one["partition"], one["next_sequence"])
        for one in rows("cluster", "status", cluster.addresses[0], "--partitions")
    ] == [(7, 2)]


def test_partitions_of_a_node_that_is_no_member_are_shown(cluster: FakeCluster) -> None:
    cluster.records[7] = [b"a", b"b"]
    address = cluster.members.pop(3)
    cluster.cut_off[3] = {}
    result = run("cluster", "status", address, "--partitions", "--format", "jsonl", "--timeout", "3")
    assert (result.exit_code, json.loads(result.stdout)["partition"]) == (1, 7)
    assert "as node 3 has them" in result.stderr


def test_partitions_without_a_leader_are_one_nodes_and_no_success(cluster: FakeCluster) -> None:
    cluster.records[7] = [b"a", b"b"]
    cluster.leader = 0
    result = run("cluster", "status", cluster.addresses[1], "--partitions", "--format", "jsonl")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["partition"] == 7, "what is known is shown"
    assert "no majority of the voters has a leader" in result.stderr
    assert "as node 2 has them" in result.stderr


def test_members_and_leader_are_changed(cluster: FakeCluster) -> None:
    where = cluster.addresses[0]
    assert row("cluster", "add", where, "2", cluster.addresses[1])["voters"] == [1, 2, 3]
    assert "is node 2, not node 4" in complaint("cluster", "add", where, "4", cluster.addresses[1], code=2)
    assert "starts node 4 there" in complaint("cluster", "add", where, "4", "127.0.0.1:9", "--timeout", "0.3", code=1)
    assert "node 4 is no member of cluster 'fake', which has 1, 2, 3" in complaint(
        "cluster", "remove", where, "4", code=3
    )
    assert row("cluster", "remove", where, "2")["voters"] == [1, 3]
    ok("cluster", "transfer-leader", where, "3")
    assert cluster.leader == 3


def test_nobody_there_is_said_in_time() -> None:
    for where in ("127.0.0.1:1", "localhost:1"):
        said = complaint("cluster", "status", where, code=1)
        assert f"{where}: the connection was refused: nobody listens there; does the node run" in said
    assert "nothing was done" in complaint("cluster", "remove", "127.0.0.1:1", "4", "--timeout", "0.1", code=1)


def test_files_for_tls_go_with_addresses_and_all_together(tmp_path: Path) -> None:
    ok("cluster", "init", tmp_path / "c")
    files = ["--ca", "x", "--cert", "y", "--key", "z"]
    assert "go with addresses" in complaint("cluster", "status", tmp_path / "c", *files, code=2)
    for where in (tmp_path / "c", "127.0.0.1:1"):
        assert "give --cert and --key too" in complaint("cluster", "status", where, "--ca", "x", code=2)


def test_a_directory_without_a_cluster_is_not_found(tmp_path: Path) -> None:
    assert "latewood cluster init" in complaint("cluster", "status", tmp_path, code=3)
    (tmp_path / "cluster.toml").write_text("nodes = 3\n")
    assert "cluster.toml" in complaint("cluster", "status", tmp_path, code=2)
