"""The log of a shard is replaced by one that goes on behind the chunks, though the power fails meanwhile."""

from pathlib import Path
from typing import Final

from latewood.log import LogOptions
from latewood.queue import open_queue
from latewood.runtime.continuation import replace_log
from latewood.testing import CrashFS
from tests.crash.survivor import require

SHARDS: Final = Path("/lake/shards")
SHARD: Final = SHARDS / "00000"
FIRST: Final = 200
NOW_MS: Final = 7
OPTIONS: Final = LogOptions(segment_bytes_max=4096)


def make(fs: CrashFS, path: Path) -> None:
    options = LogOptions(segment_bytes_max=4096, first_sequence=FIRST)
    with open_queue(path, options, fs=fs, background=False) as log:
        log.reader("latewood-flush").close()


def replace(fs: CrashFS) -> None:
    kept = replace_log(fs, SHARD, lambda path: make(fs, path), NOW_MS)
    require(kept is None or kept == SHARDS / f"00000.{NOW_MS}.old", "the old log is elsewhere")


def an_old_log(fs: CrashFS) -> None:
    with open_queue(SHARD, OPTIONS, fs=fs, background=False) as log:
        log.append_many([b"old"] * 5, durable=True)


def ends(fs: CrashFS) -> dict[str, int]:
    """Return the logs beside each other, by name, with where they end; what cannot be read is not there."""
    found = {}
    for name in fs.list(SHARDS):
        if name.endswith(".new"):
            continue
        with open_queue(SHARDS / name, mode="r", fs=fs) as log:
            found[name] = log.next_sequence
    return found


def test_whatever_a_cut_leaves_has_the_old_log_whole_and_can_be_done_again() -> None:
    fs = CrashFS()
    an_old_log(fs)
    fs = fs.after_power_cut()
    seen = set()
    for step, survivor in fs.cuts_during(replace):
        try:
            found = ends(survivor)
            seen.add(tuple(found))
            require(5 in found.values(), f"the old log is gone: {found}")
            require(set(found.values()) <= {5, FIRST}, f"a log that nobody made: {found}")
            if found.get("00000") != FIRST:
                replace(survivor)
            require(ends(survivor) == {"00000": FIRST, f"00000.{NOW_MS}.old": 5}, f"{ends(survivor)} in the end")
        except Exception as error:
            error.add_note(f"after a cut at {step!r}")
            raise
    assert seen == {("00000",), (f"00000.{NOW_MS}.old",), ("00000", f"00000.{NOW_MS}.old")}, "a cut at every step"


def test_a_log_that_is_gone_is_made_behind_the_chunks_though_the_power_fails() -> None:
    fs = CrashFS()
    fs.make_directory(SHARDS)
    for _, survivor in fs.cuts_during(replace):
        if not ends(survivor):
            replace(survivor)
        assert ends(survivor) == {"00000": FIRST}
