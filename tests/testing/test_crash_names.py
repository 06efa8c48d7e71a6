"""What a power cut does to the names in directories."""

import itertools
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latewood.testing import CrashFS
from tests.testing.disk import Tree, content, durable, names_after_cut, tree, trees_after_cut

ROOT = Path("/")
A, B, C = Path("/a"), Path("/b"), Path("/c")


@pytest.fixture
def fs() -> CrashFS:
    return CrashFS()


def test_a_new_name_is_lost_unless_its_directory_is_synced(fs: CrashFS) -> None:
    fs.open(A, create=True)
    assert names_after_cut(fs) == {(), ("/a",)}
    fs.sync_directory(ROOT)
    assert names_after_cut(fs) == {("/a",)}


def test_syncing_a_file_does_not_save_its_name(fs: CrashFS) -> None:
    file = fs.open(A, create=True)
    file.pwrite(b"x", 0)
    file.sync()
    assert trees_after_cut(fs) == {frozenset(), frozenset({("/a", b"x")})}


def test_a_saved_name_may_point_at_an_empty_file(fs: CrashFS) -> None:
    fs.open(A, create=True).pwrite(b"x", 0)
    fs.sync_directory(ROOT)
    assert trees_after_cut(fs) == {frozenset({("/a", data)}) for data in (b"", b"\0", b"x")}


def test_syncing_a_directory_saves_no_names_elsewhere(fs: CrashFS) -> None:
    fs.make_directory(Path("/d"))
    fs.open(Path("/d/a"), create=True)
    fs.sync_directory(ROOT)
    assert names_after_cut(fs) == {(), ("/d/a",)}


def test_names_are_lost_independently(fs: CrashFS) -> None:
    fs.open(A, create=True)
    fs.open(B, create=True)
    assert names_after_cut(fs) == {(), ("/a",), ("/b",), ("/a", "/b")}


def test_a_removed_file_may_come_back_whole(fs: CrashFS) -> None:
    durable(fs, A, b"old")
    fs.remove(A)
    assert trees_after_cut(fs) == {frozenset(), frozenset({("/a", b"old")})}
    fs.sync_directory(ROOT)
    assert trees_after_cut(fs) == {frozenset()}


def test_a_rename_is_all_or_nothing(fs: CrashFS) -> None:
    durable(fs, A, b"new")
    durable(fs, B, b"old")
    fs.rename(A, B)
    assert trees_after_cut(fs) == {frozenset({("/a", b"new"), ("/b", b"old")}), frozenset({("/b", b"new")})}


def test_a_rename_of_what_was_not_synced_may_leave_an_empty_file(fs: CrashFS) -> None:
    durable(fs, B, b"old")
    fs.open(A, create=True).pwrite(b"new", 0)
    fs.rename(A, B)
    fs.sync_directory(ROOT)
    assert trees_after_cut(fs) == {frozenset({("/b", data)}) for data in (b"", b"\0\0\0", b"new")}


def test_operations_on_one_name_are_kept_up_to_some_point(fs: CrashFS) -> None:
    fs.open(A, create=True)
    fs.rename(A, B)
    fs.rename(B, C)
    assert names_after_cut(fs) == {(), ("/a",), ("/b",), ("/c",)}


def test_a_name_that_is_used_again_follows_its_first_use(fs: CrashFS) -> None:
    durable(fs, A, b"first")
    fs.remove(A)
    fs.open(A, create=True)
    assert trees_after_cut(fs) == {frozenset({("/a", b"first")}), frozenset(), frozenset({("/a", b"")})}


def move_across(fs: CrashFS) -> None:
    fs.make_directory(Path("/d"))
    durable(fs, A, b"x")
    fs.rename(A, Path("/d/a"))


def test_a_move_across_directories_never_loses_the_file(fs: CrashFS) -> None:
    move_across(fs)
    assert names_after_cut(fs) == {("/a",), ("/d/a",), ("/a", "/d/a")}


def test_syncing_the_target_of_a_move_saves_the_new_name_alone(fs: CrashFS) -> None:
    move_across(fs)
    fs.sync_directory(Path("/d"))
    assert names_after_cut(fs) == {("/d/a",), ("/a", "/d/a")}


def test_syncing_the_source_of_a_move_does_not_lose_the_file(fs: CrashFS) -> None:
    move_across(fs)
    fs.sync_directory(ROOT)
    assert names_after_cut(fs) == {("/d/a",)}


def test_two_names_that_a_cut_left_are_one_file(fs: CrashFS) -> None:
    move_across(fs)
    (both,) = (survivor for survivor in fs.survivors() if survivor.exists(A) and survivor.exists(Path("/d/a")))
    both.open(A, write=True).pwrite(b"y", 0)
    assert content(both, Path("/d/a")) == b"y"


def test_a_directory_stays_with_its_parents(fs: CrashFS) -> None:
    fs.make_directory(Path("/d/e"))
    assert fs.after_power_cut().list(Path("/d")) == ["e"]


def test_making_a_directory_saves_no_other_name_beside_it(fs: CrashFS) -> None:
    fs.open(A, create=True)
    fs.make_directory(Path("/d"))
    assert {tuple(survivor.list(ROOT)) for survivor in fs.survivors()} == {("d",), ("a", "d")}


def test_a_directory_whose_sync_is_ignored_takes_its_files_along(fs: CrashFS) -> None:
    fs.ignore_sync("/d")
    fs.make_directory(Path("/d"))
    durable(fs, Path("/d/e/a"), b"x")
    assert names_after_cut(fs) == {(), ("/d/e/a",)}


def test_a_renamed_directory_keeps_its_files(fs: CrashFS) -> None:
    durable(fs, Path("/d/a"), b"x")
    fs.rename(Path("/d"), Path("/e"))
    assert names_after_cut(fs) == {("/d/a",), ("/e/a",)}


def test_a_lock_is_not_held_after_a_cut(fs: CrashFS) -> None:
    fs.lock(A)
    for survivor in fs.survivors():
        survivor.lock(A).close()


def test_a_write_to_a_file_without_a_name_changes_no_state(fs: CrashFS) -> None:
    durable(fs, A, b"x")
    file = fs.open(A, write=True)
    mapping = file.map(1, writable=True)
    fs.remove(A)
    fs.sync_directory(ROOT)
    file.pwrite(b"y", 0)
    mapping.view[0] = 0
    file.sync()
    assert trees_after_cut(fs) == {frozenset()}


def test_a_long_chain_of_names_is_sampled_and_keeps_its_rules(fs: CrashFS) -> None:
    fs.make_directory(Path("/d"))
    for number in range(14):
        fs.open(Path(f"/{number}"), create=True)
        fs.rename(Path(f"/{number}"), Path(f"/d/{number}"))
        fs.rename(Path(f"/d/{number}"), Path("/d/all"))
    states = trees_after_cut(fs, limit=300)
    assert {len(state) for state in states} >= {0, 1}
    assert tree(fs) in states


@dataclass(eq=False)
class Primitive:
    """One change in one directory, as the oracle sees it."""

    directory: str
    changes: dict[str, str | None]
    partner: "Primitive | None" = None


@dataclass
class Oracle:
    """Names by their definition: every subset of all operations ever, if it is legal and holds the synced ones."""

    done: list[Primitive] = field(default_factory=list)
    synced: set[Primitive] = field(default_factory=set)

    def add(self, *primitives: Primitive) -> None:
        self.done += primitives

    def sync(self, directory: str) -> None:
        needed = self.synced | {primitive for primitive in self.done if primitive.directory == directory}
        self.synced = set.intersection(*(kept for kept in self._legal() if needed <= kept))

    def states(self) -> set[Tree]:
        return {self._tree(kept) for kept in self._legal() if self.synced <= kept}

    def _legal(self) -> list[set[Primitive]]:
        subsets = itertools.product((False, True), repeat=len(self.done))
        kept = ({p for p, keep in zip(self.done, subset, strict=True) if keep} for subset in subsets)
        return [each for each in kept if self._is_legal(each)]

    def _is_legal(self, kept: set[Primitive]) -> bool:
        by_name: dict[tuple[str, str], list[bool]] = {}
        for primitive in self.done:
            for name in primitive.changes:
                by_name.setdefault((primitive.directory, name), []).append(primitive in kept)
        prefixes = all(flags == sorted(flags, reverse=True) for flags in by_name.values())
        return prefixes and all(p.partner is None or p.partner in kept for p in kept)

    def _tree(self, kept: set[Primitive]) -> Tree:
        names: dict[str, str | None] = {}
        for primitive in self.done:
            if primitive in kept:
                names |= {f"{primitive.directory}/{name}": value for name, value in primitive.changes.items()}
        return frozenset((path, value.encode()) for path, value in names.items() if value is not None)


class Pair:
    """A CrashFS and its oracle, doing the same."""

    def __init__(self) -> None:
        self.fs, self.oracle = CrashFS(), Oracle()
        self.names: dict[str, str] = {}
        for directory in ("/x", "/y"):
            self.fs.make_directory(Path(directory))

    def create(self, path: str, number: int) -> None:
        if path in self.names:
            return
        file = self.fs.open(Path(path), create=True)
        file.pwrite(str(number).encode(), 0)
        file.sync()
        self.names[path] = str(number)
        self.oracle.add(Primitive(path[:2], {path[3:]: str(number)}))

    def remove(self, path: str) -> None:
        if self.names.pop(path, None) is not None:
            self.fs.remove(Path(path))
            self.oracle.add(Primitive(path[:2], {path[3:]: None}))

    def rename(self, source: str, target: str) -> None:
        if source == target or source not in self.names:
            return
        self.fs.rename(Path(source), Path(target))
        value = self.names[target] = self.names.pop(source)
        if source[:2] == target[:2]:
            self.oracle.add(Primitive(source[:2], {source[3:]: None, target[3:]: value}))
        else:
            addition = Primitive(target[:2], {target[3:]: value})
            self.oracle.add(addition, Primitive(source[:2], {source[3:]: None}, addition))

    def sync(self, directory: str) -> None:
        self.fs.sync_directory(Path(directory))
        self.oracle.sync(directory)


paths = st.sampled_from(["/x/1", "/x/2", "/y/1", "/y/2"])
name_steps = st.one_of(
    st.tuples(st.just("create"), paths, paths),
    st.tuples(st.just("rename"), paths, paths),
    st.tuples(st.just("rename"), paths, paths),
    st.tuples(st.just("remove"), paths, paths),
    st.tuples(st.just("sync"), paths, paths),
)


@pytest.mark.slow
@given(st.lists(name_steps, max_size=7))
@settings(max_examples=300)
def test_the_states_are_those_of_their_definition(steps: list[tuple[str, str, str]]) -> None:
    pair = Pair()
    pair.create("/x/1", 100)
    for number, (kind, first, second) in enumerate(steps):
        match kind:
            case "create":
                pair.create(first, number)
            case "rename":
                pair.rename(first, second)
            case "remove":
                pair.remove(first)
            case _:
                pair.sync(first[:2])
    assert trees_after_cut(pair.fs) == pair.oracle.states()
