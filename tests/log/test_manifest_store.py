"""The manifest on disk: two slots that take turns, while others read."""

from pathlib import Path

import pytest

from latewood import ManifestCorrupted, StorageError
from latewood.format.entries import SegmentEntry
from latewood.format.manifest import Manifest, encode
from latewood.log.layout import Layout
from latewood.log.manifest import ManifestStore, first_manifest
from latewood.testing import CrashFS, MemFS
from tests.format.codecs import IDENTITY

LAYOUT = Layout(Path("q"))


def stored(fs: MemFS) -> ManifestStore:
    fs.make_directory(LAYOUT.root)
    return ManifestStore(fs, LAYOUT)


def following(manifest: Manifest, sealed: int = 1) -> Manifest:
    """The manifest after so many more rolls."""
    entries = manifest.entries
    for number in range(len(entries), len(entries) + sealed):
        entries = entries.append(SegmentEntry(number, number, 500, 0, 0, f"segments/2026/03/02/{number:09}.q"))
    return manifest._replace(generation=manifest.generation + 1, next_sequence=len(entries), entries=entries)


def raw(manifest: Manifest) -> bytes:
    return encode(manifest)


def content(fs: MemFS, name: str) -> bytes:
    file = fs.open(LAYOUT.root / name)
    return file.pread(file.size(), 0)


def test_what_is_stored_is_loaded() -> None:
    store = stored(MemFS())
    manifest = first_manifest(LAYOUT, 0, 0, IDENTITY)
    for _ in range(5):
        store.store(manifest)
        assert raw(store.load()) == raw(store.load_while_written()) == raw(manifest)
        manifest = following(manifest, sealed=2)


def test_each_slot_holds_a_whole_manifest_though_only_the_end_is_written() -> None:
    fs = MemFS()
    store = stored(fs)
    manifest = first_manifest(LAYOUT, 0, 0, IDENTITY)
    history = []
    for _ in range(6):
        store.store(manifest)
        history.append(raw(manifest))
        manifest = following(manifest)
    assert {content(fs, "manifest.1"), content(fs, "manifest.2")} == set(history[-2:])


def test_a_roll_writes_two_entries_and_the_front_however_long_the_table_is() -> None:
    fs = MemFS()
    store = stored(fs)
    manifest = following(first_manifest(LAYOUT, 0, 0, IDENTITY), sealed=1_000)
    for _ in range(2):
        store.store(manifest)
        manifest = following(manifest)
    before = fs.counts.bytes_written
    store.store(manifest)
    assert fs.counts.bytes_written - before < 300
    assert raw(ManifestStore(fs, LAYOUT).load()) == raw(manifest)


def test_a_table_without_its_oldest_entries_is_written_whole() -> None:
    fs = MemFS()
    store = stored(fs)
    manifest = first_manifest(LAYOUT, 0, 0, IDENTITY)
    for _ in range(4):
        store.store(manifest)
        manifest = following(manifest, sealed=3)
    for _ in range(3):
        manifest = manifest._replace(generation=manifest.generation + 1, entries=manifest.entries.without_first(2))
        store.store(manifest)
        assert raw(ManifestStore(fs, LAYOUT).load()) == raw(manifest)


def test_a_store_that_fails_leaves_the_manifest_before_and_the_next_one_is_whole() -> None:
    fs = MemFS()
    store = stored(fs)
    first = first_manifest(LAYOUT, 0, 0, IDENTITY)
    second, third = following(first), following(following(first))
    store.store(first)
    store.store(second)
    fs.fail("sync", "manifest.1", StorageError("no"))
    with pytest.raises(StorageError):
        store.store(third)
    fs.heal()
    assert raw(store.load()) == raw(second)
    store.store(following(third))
    assert raw(store.load()) == raw(following(third))


def test_a_power_cut_at_any_step_leaves_the_manifest_before_or_after() -> None:
    fs = CrashFS()
    store = stored(fs)
    manifest = first_manifest(LAYOUT, 0, 0, IDENTITY)
    for _ in range(3):
        store.store(manifest)
        manifest = following(manifest, sealed=20)
    before = store.load()
    cuts = fs.cuts_during(lambda _: store.store(manifest), limit=100)
    found = {raw(ManifestStore(survivor, LAYOUT).load()) for _, survivor in cuts}
    assert found == {raw(before), raw(manifest)}


def test_a_reader_looks_again_when_it_meets_a_slot_that_is_being_written(monkeypatch: pytest.MonkeyPatch) -> None:
    store = stored(MemFS())
    manifest = following(first_manifest(LAYOUT, 0, 0, IDENTITY))
    store.store(manifest)
    looks = [raw(manifest)[:60]] * 6 + [raw(manifest)]
    monkeypatch.setattr(store._slots, "read", lambda *_: looks.pop(0))
    with pytest.raises(ManifestCorrupted):
        store.load()
    assert raw(store.load_while_written()) == raw(manifest)
    assert looks == []


def test_damage_that_stays_is_told_of_however_often_a_reader_looks() -> None:
    fs = MemFS()
    store = stored(fs)
    store.store(first_manifest(LAYOUT, 0, 0, IDENTITY))
    fs.open(LAYOUT.root / "manifest.1", write=True).pwrite(b"X", 30)
    with pytest.raises(ManifestCorrupted):
        store.load_while_written()
