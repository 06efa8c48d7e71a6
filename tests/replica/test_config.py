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
