"""What `latewood serve` says: of damage what helps, of a warning once."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import latewood
from latewood.cli.errors import ExitCode
from latewood.clock import SystemClock
from latewood.fs import PosixFS
from latewood.replica.config import NodeConfig, load_config
from latewood.replica.engine import ConfState, Snapshot
from latewood.replica.entry_store import SegmentedLogStore
from latewood.replica.founding import check_owner, found_node, parent_options
from latewood.replica.native import REMEDY
from latewood.replica.recovery import NodeLayout
from tests.cli.shell import PROGRAM, TIMEOUT_S, complaint, process
from tests.patience import wait_until
from tests.replica.processes import SOURCES, free_ports

NODE: Final = 'cluster_id = "c"\nnode_id = 1\nlisten = "{0}"\n[peers]\n1 = "{0}"\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the configuration of a node that is founded."""
    path, (port,) = tmp_path / "node.toml", free_ports(1)
    here = f"127.0.0.1:{port}"
    path.write_text(NODE.format(here))
    found_node(load_config(path), PosixFS(), SystemClock())
    return path


def serve(path: Path) -> str:
    """Serve a node that is damaged, in a process of its own, and return what it says."""
    command = [*PROGRAM, "serve", "--config", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert done.returncode == ExitCode.CORRUPT, done
    return done.stderr


def begin_behind_a_snapshot(config: NodeConfig) -> None:
    """Have the parent log of a node begin behind a snapshot that is not there."""
    parent = NodeLayout(config.data).parent
    with SegmentedLogStore.open(parent, parent_options(config), background=False) as store:
        store.install(Snapshot(9, 1, ConfState((1,)), b"9-1"))
        store.sync()


@pytest.mark.slow
@pytest.mark.needs("native")
def test_a_node_without_the_snapshot_that_it_begins_behind_is_told_how_it_is_replaced(path: Path) -> None:
    begin_behind_a_snapshot(load_config(path))
    for said in (serve(path), complaint("cluster", "repair", "--config", path, code=ExitCode.CORRUPT)):
        assert "it is replaced, not mended: `latewood cluster remove CLUSTER 1`" in said
        assert "peers" not in said
        assert "cluster repair" not in said


@pytest.mark.slow
@pytest.mark.needs("native")
def test_a_damaged_node_json_is_put_back_as_it_is_said(path: Path) -> None:
    config = load_config(path)
    owner = config.data / "node.json"
    before = owner.read_bytes()
    owner.write_bytes(b"\0" * len(before))
    for said in (serve(path), complaint("cluster", "repair", "--config", path, code=ExitCode.CORRUPT)):
        assert "latewood " not in said.removeprefix("latewood: "), "no command does it"
        (line,) = re.findall(r"start the node: (\{.*\})$", said.strip())
        assert line.encode() + b"\n" == before
    owner.write_text(line)
    check_owner(config, PosixFS())


@pytest.mark.slow
@pytest.mark.needs("native")
@pytest.mark.parametrize(
    ("flags", "said"),
    [([], r"latewood: warning: the machine"), (["-v"], r"\d+ ERROR latewood\.replica\.hanging: the machine")],
)
def test_a_warning_of_a_node_is_said_once(tmp_path: Path, path: Path, flags: list[str], said: str) -> None:
    (tmp_path / "hanging_machine.py").write_text(
        "import time\n"
        "class Machine:\n"
        "    log_is_state = False\n"
        "    def __init__(self, partition_id): pass\n"
        "    def apply(self, entry): time.sleep(600)\n"
        "    def snapshot(self): return ()\n"
        "    def restore(self, pieces): pass\n"
    )
    path.write_text(f"{path.read_text()}[raft]\ntick_ms = 10\n[storage]\nmachine_wait_ms = 50\n")
    arguments = ("serve", "--config", str(path), "--machine", "hanging_machine:Machine", *flags)
    with process(*arguments, prefix=["env", f"PYTHONPATH={SOURCES}:{tmp_path}"]) as node:
        node.line()
        with latewood.connect([load_config(path).listen]) as client:
            client.partition(7).append(b"a")
        wait_until(lambda: any("hangs" in line for line in node.errors()))
        node.popen.terminate()
        node.end()
    (line,) = (line for line in node.errors() if "partition 7 hangs" in line)
    assert re.search(said, line)


@pytest.mark.parametrize("flags", [[], ["--join"]], ids=["a member", "a newcomer"])
def test_without_the_native_module_one_line_says_what_to_do_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "latewood._native", None)
    config = tmp_path / "node.toml"
    config.write_text(NODE.format("127.0.0.1:7301"))
    said = complaint("serve", "--config", config, *flags, code=ExitCode.NOT_FOUND)
    assert said == f"a node of a cluster needs the native module, which is not built here: {REMEDY}"
    assert list(tmp_path.iterdir()) == [config]
