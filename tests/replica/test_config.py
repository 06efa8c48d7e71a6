"""`node.toml`: what it may not say is told with what it may."""

from pathlib import Path
from typing import Final

import pytest

from latewood.errors import UsageError
from latewood.replica.config import load_config

FRONT: Final = 'cluster_id = "trial"\nnode_id = 1\nlisten = "127.0.0.1:7301"\n'


def complaint(path: Path, text: str) -> str:
    """Return what is said of a file, behind its name."""
    path.write_text(FRONT + text)
    with pytest.raises(UsageError) as raised:
        load_config(path)
    return str(raised.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[raft]\ntick = 100\n",
            (
                "there is no key 'tick' in [raft]; perhaps you meant tick_ms in [raft]; "
                "[raft] has tick_ms, election_ticks, priority"
            ),
        ),
        (
            "[raft]\nzzz = 100\n",
            "there is no key 'zzz' in [raft]; [raft] has tick_ms, election_ticks, priority",
        ),
        (
            "[retention]\nmax_age = 5\n",
            (
                "there is no key 'max_age' in [retention]; perhaps you meant max_age_ms in [retention]; "
                "[retention] has max_bytes, max_age_ms, ignore_readers_silent_ms, check_ms"
            ),
        ),
        (
            '[tls]\nca = "ca.pem"\n',
            "there is no key 'ca' in [tls]; [tls] has authority, certificate, key",
        ),
        (
            'advertize = "127.0.0.1:1"\n',
            (
                "there is no key 'advertize'; perhaps you meant advertise; there are cluster_id, node_id, listen, "
                "data, advertise, metrics, machine, peers, tls, raft, limits, storage, retention"
            ),
        ),
        (
            "[limit]\npayload_bytes_max = 1\n",
            (
                "there is no key 'limit'; perhaps you meant limits; there are cluster_id, node_id, listen, data, "
                "advertise, metrics, machine, peers, tls, raft, limits, storage, retention"
            ),
        ),
    ],
)
def test_an_unknown_key_is_told_with_the_nearest_and_with_all(tmp_path: Path, text: str, said: str) -> None:
    assert complaint(tmp_path / "node.toml", text) == said


@pytest.mark.parametrize(
    ("text", "meant"),
    [("tick_ms = 5\n", "tick_ms in [raft]"), ("[raft]\nsnapshot_bytes = 9\n", "snapshot_bytes in [storage]")],
)
def test_a_key_in_the_wrong_place_is_told_with_the_right_one(tmp_path: Path, text: str, meant: str) -> None:
    assert f"; perhaps you meant {meant}; " in complaint(tmp_path / "node.toml", text)


def test_ids_of_peers_are_no_keys_of_ours(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text(FRONT + '[peers]\n17 = "127.0.0.1:7317"\n')
    assert load_config(tmp_path / "node.toml").peers == {17: "127.0.0.1:7317"}


def at(listen: str, peers: dict[int, str], top: str = "") -> str:
    """Return the text of node 1, with TLS so that it may listen anywhere."""
    rows = "\n".join(f'{key} = "{value}"' for key, value in peers.items())
    tls = 'authority = "ca.pem"\ncertificate = "node-1.pem"\nkey = "node-1.key"'
    return f'cluster_id = "trial"\nnode_id = 1\nlisten = "{listen}"\n{top}\n[peers]\n{rows}\n[tls]\n{tls}\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            at("10.0.0.1:7301", {1: "10.0.0.1:7302", 2: "10.0.0.2:7301"}),
            (
                "1 in [peers] is this node, at 10.0.0.1:7302, but it listens on 10.0.0.1:7301: "
                'write 1 = "10.0.0.1:7301" there, or advertise = "10.0.0.1:7302" if others reach it so'
            ),
        ),
        (at("10.0.0.9:7301", {1: "10.0.0.1:7301"}), 'advertise = "10.0.0.1:7301" if others reach it so'),
        (at("0.0.0.0:7301", {1: "10.0.0.1:7302"}, 'advertise = "10.0.0.1:7301"'), 'write 1 = "10.0.0.1:7301" there'),
        (at("10.0.0.1:7301", {2: "b:7301", 3: "b:7301"}), "2 and 3 in [peers] are both b:7301: write for each where"),
        (at("10.0.0.2:7301", {1: "a:7301", 2: "a:7301"}), "1 and 2 in [peers] are both a:7301"),
        (
            at("0.0.0.0:7301", {1: "a:7301"}),
            'nobody else reaches this node at 0.0.0.0:7301: write advertise = "a:7301"',
        ),
        (at("[::]:7301", {2: "b:7301"}), 'write advertise = "HOST:7301", where they do'),
    ],
)
def test_an_address_that_cannot_be_right_is_told_with_what_to_write(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "node.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as raised:
        load_config(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert said in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        at("10.0.0.1:7301", {1: "10.0.0.1:7301", 2: "10.0.0.2:7301"}),
        at("0.0.0.0:7301", {1: "10.0.0.1:7301"}, 'advertise = "10.0.0.1:7301"'),
        at("0.0.0.0:7301", {1: "10.0.0.1:9301"}, 'advertise = "10.0.0.1:9301"'),  # A port that is passed on.
        at("10.0.0.1:7301", {1: "10.0.0.1:7301"}, 'advertise = "203.0.113.7:9301"'),  # One within, another outside.
        at("10.0.0.1:7301", {1: "one.example:7301"}),
        at("localhost:7301", {1: "127.0.0.1:7301"}),
        at("127.0.0.1:0", {1: "127.0.0.1:7301", 2: "127.0.0.1:7302"}),
        at("127.0.0.1:0", {1: "127.0.0.1:0", 2: "127.0.0.1:0"}),
        at("10.0.0.4:7301", {2: "10.0.0.2:7301", 3: "10.0.0.3:7301"}),
    ],
)
def test_an_address_that_may_be_right_is_taken(tmp_path: Path, text: str) -> None:
    (tmp_path / "node.toml").write_text(text)
    load_config(tmp_path / "node.toml")


def test_a_node_may_listen_elsewhere_than_its_file_says(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text(at("10.0.0.1:7301", {1: "10.0.0.1:7301"}))
    found = load_config(tmp_path / "node.toml", {"listen": "10.0.0.1:7399"})
    assert (found.listen, found.advertise) == ("10.0.0.1:7399", "10.0.0.1:7399")
