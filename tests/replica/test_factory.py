"""A user's machines by name: what cannot be one is refused, and says why."""

from pathlib import Path

import pytest

from latewood.errors import UsageError
from latewood.replica.config import load_config
from latewood.replica.factory import load_factory
from latewood.replica.machine import LogMachine

MODULE = """
class Counter:
    log_is_state = False
    def __init__(self, partition_id):
        if partition_id == 13:
            raise OSError("not this one")
        self.partition_id = partition_id
    def apply(self, entry): ...
    def snapshot(self): return ()
    def restore(self, pieces): ...

class Half:
    def __init__(self, partition_id): ...
    def apply(self, entry): ...

class Holder:
    Counter = Counter

constant = 7
def wrong_call(): ...
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "users_machines.py").write_text(MODULE)
    (tmp_path / "users_broken.py").write_text("import nothing_of_this_name\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize("path", ["users_machines:Counter", "users_machines:Holder.Counter"])
def test_a_factory_is_found_by_its_path(path: str) -> None:
    machine = load_factory(path)(5)
    assert machine.partition_id == 5  # type: ignore[attr-defined]
    assert isinstance(load_factory("latewood.replica.machine:LogMachine")(3), LogMachine)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("users_machines", r'"package\.module:factory", not "users_machines"'),
        ("users machines:Counter", "not"),
        ("os; import sys:x", "not"),
        ("no_such_module:make", "cannot be imported: ModuleNotFoundError"),
        ("users_broken:make", "nothing_of_this_name"),
        ("users_machines:missing", "has no missing"),
        ("users_machines:constant", "is a int; it must be callable"),
        ("users_machines:wrong_call", "makes none of partition 0: TypeError"),
        ("users_machines:Half", "which has no snapshot, no restore, no log_is_state"),
    ],
)
def test_what_makes_no_machines_is_refused(path: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        load_factory(path)


def test_a_factory_that_fails_later_names_the_partition() -> None:
    factory = load_factory("users_machines:Counter")
    with pytest.raises(UsageError, match="makes none of partition 13: OSError: not this one"):
        factory(13)


def test_the_path_is_checked_with_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text('cluster_id = "c"\nnode_id = 1\nlisten = "127.0.0.1:1"\nmachine = "counter.py"\n')
    with pytest.raises(UsageError, match=r'node\.toml: machine is "package\.module:factory", not "counter\.py"'):
        load_config(path)
    assert load_config(path, {"machine": "users_machines:Counter"}).machine == "users_machines:Counter"
