"""A file that a later program wrote is refused by everything, called damage by nothing, and never touched."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from latewood import LogOptions, Queue, UnsupportedVersion
from latewood.format.segment import FOOTER_SIZE
from latewood.fs import FileSystem
from latewood.log.layout import Layout
from latewood.log.rebuild import rebuild
from latewood.queue.verify import verify_queue
from latewood.testing import FakeClock, MemFS

ROOT: Final = Path("/q")
LAYOUT: Final = Layout(ROOT)
NEWER: Final = 99
OPTIONS: Final = LogOptions(segment_bytes_max=512)


def open_log(fs: FileSystem, mode: str = "a") -> Queue:
    return Queue.open(ROOT, OPTIONS, mode=mode, fs=fs, clock=FakeClock(), background=False)  # type: ignore[arg-type]


def segments(fs: MemFS) -> list[Path]:
    return [path for path in fs.walk(LAYOUT.segments) if path.suffix == ".q"]


def current_manifest(fs: MemFS) -> Path:
    return ROOT / f"manifest.{fs._inode_at(ROOT / 'manifest.current').content()[0]}"


def footer_of(fs: MemFS, path: Path) -> int:
    return fs._inode_at(path).size - FOOTER_SIZE


FILES: Final[dict[str, Callable[[MemFS], tuple[Path, int]]]] = {
    "manifest": lambda fs: (current_manifest(fs), 4),
    "header of a sealed segment": lambda fs: (segments(fs)[0], 8),
    "footer of a sealed segment": lambda fs: (segments(fs)[0], footer_of(fs, segments(fs)[0]) + 8),
    "header of the open segment": lambda fs: (segments(fs)[-1], 8),
    "position of a reader": lambda _: (ROOT / "readers" / "billing.meta", 4096 + 8),
    "identity": lambda _: (LAYOUT.identity, 8),
    "checkpoint": lambda _: (LAYOUT.checkpoint, 8),
    "pointer to the last sealed segment": lambda _: (LAYOUT.sealed_pointer, 8),
}
"""Each file of a log, and where its version stands."""


def written() -> MemFS:
    fs = MemFS()
    with open_log(fs) as log:
        for _ in range(2):
            log.append_many([b"x"] * 3)
            log.roll()
        log.append(b"y", durable=True)
        with log.reader("billing", start=0) as reader:
            reader.poll()
            reader.commit()
    return fs


def of_later(fs: MemFS, path: Path, at: int) -> MemFS:
    file = fs.open(path, write=True)
    file.pwrite(NEWER.to_bytes(2, "little"), at)
    file.close()
    return fs


def contents(fs: MemFS) -> dict[Path, bytes]:
    return {
        path: fs._inode_at(path).content()
        for path in fs.walk(ROOT)
        if path.suffix != ".lock" and path.name not in ("wake", "next.q")
    }


COMMANDS: Final[dict[str, Callable[[MemFS], object]]] = {
    "verify": lambda fs: verify_queue(fs, LAYOUT),
    "verify --deep": lambda fs: verify_queue(fs, LAYOUT, deep=True),
    "rebuild --dry-run": lambda fs: rebuild(fs, LAYOUT, dry_run=True),
    "rebuild": lambda fs: rebuild(fs, LAYOUT),
    "rebuild --accept-loss": lambda fs: rebuild(fs, LAYOUT, accept_loss=True),
}
NOT_READ: Final = {
    ("rebuild --dry-run", "position of a reader"),
    ("rebuild", "position of a reader"),
    ("rebuild --accept-loss", "position of a reader"),
}
"""A rebuild is of the log; readers' files are left as they are."""


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("file", FILES)
def test_a_newer_file_is_refused_by_every_command_and_left_as_it_is(command: str, file: str) -> None:
    fs = written()
    of_later(fs, *FILES[file](fs))
    before = contents(fs)
    if (command, file) in NOT_READ:
        COMMANDS[command](fs)
        assert contents(fs)[ROOT / "readers" / "billing.meta"] == before[ROOT / "readers" / "billing.meta"]
        return
    with pytest.raises(UnsupportedVersion, match=r"version 99 is not known to this Latewood; upgrade this program"):
        COMMANDS[command](fs)
    assert contents(fs) == before


@pytest.mark.parametrize("file", sorted(set(FILES) - {"header of a sealed segment", "footer of a sealed segment"}))
def test_a_log_with_a_newer_file_is_not_appended_to(file: str) -> None:
    fs = written()
    path, at = FILES[file](fs)
    before = contents(of_later(fs, path, at))
    if file == "position of a reader":  # That reader alone is refused: the log has others, and no harm comes to it.
        with open_log(fs) as log:
            log.append(b"z")
            with pytest.raises(UnsupportedVersion):
                log.reader("billing")
            with pytest.raises(UnsupportedVersion):
                log.reader("billing", start=0)
            with pytest.raises(UnsupportedVersion):
                log.cleanup()
        assert contents(fs)[path] == before[path]
        return
    with pytest.raises(UnsupportedVersion):
        open_log(fs)
    assert contents(fs)[path] == before[path]


@pytest.mark.parametrize("damage", ["the pointer is damaged", "the pointer is lost"])
def test_a_newer_manifest_is_not_replaced_though_its_pointer_is_damaged(damage: str) -> None:
    fs = written()
    of_later(fs, current_manifest(fs), 4)
    if damage == "the pointer is lost":
        fs.remove(ROOT / "manifest.current")
    else:
        file = fs.open(ROOT / "manifest.current", write=True)
        file.pwrite(b"\x07", 0)
    before = contents(fs)
    for accept_loss in (False, True):
        with pytest.raises(UnsupportedVersion):
            rebuild(fs, LAYOUT, accept_loss=accept_loss)
    assert contents(fs) == before
