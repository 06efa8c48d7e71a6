"""Every ordered write of a log, as a scene to cut the power in.

Each scene is short, so that most of its states can be enumerated; what it needs beforehand is done unobserved.  Every
scene ends with something acknowledged, so that a sync that was missing in it shows.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, NamedTuple
from unittest import mock

from latewood import LogOptions
from latewood.testing import CrashFS
from tests.crash.story import PAGES, SMALL, TINY, Promise, Story

_RESERVE_BYTES: Final = 384
"""In place of 8 MiB, so that a small segment needs several reservations."""


def _nothing(story: Story) -> None:
    del story


class Scene(NamedTuple):
    """Something that is done to a log, in a certain state."""

    act: Callable[[Story], object]
    before: Callable[[Story], object] | None = _nothing
    """None: the scene begins without a log."""
    options: LogOptions = SMALL
    small_reserve: bool = False


def create(story: Story) -> None:
    story.append(2, durable=True)


def append(story: Story) -> None:
    story.append(5)
    story.append(1, durable=True)
    story.append(2)


def append_across_sectors(story: Story) -> None:
    """Enough that a lost sector has whole records behind it."""
    story.append(12)
    story.append(1, durable=True)
    story.append(12)


def batch_across_sectors(story: Story) -> None:
    """The same in few steps, so that all its states can be tried."""
    story.append_many(14)
    story.append(1, durable=True)


def roll_across_sectors(story: Story) -> None:
    story.append(20)
    story.roll()
    append_across_sectors(story)


def batch_after_a_roll(story: Story) -> None:
    story.roll()
    batch_across_sectors(story)


def append_slowly(story: Story) -> None:
    story.append_slowly(5)
    story.flush()
    story.append_slowly(2)


def some_records(story: Story) -> None:
    story.append(3)
    story.flush()


def batch(story: Story) -> None:
    story.append_many(12)
    story.append_many(2, durable=True)
    story.append_many(3)


def flush(story: Story) -> None:
    story.append(3)
    story.flush()
    story.append(2)
    story.flush()
    story.append(1)


def checkpoint(story: Story) -> None:
    for _ in range(8):
        story.append(2)
        story.housekeep()
    story.append(2, durable=True)


def roll(story: Story) -> None:
    story.append(2)
    story.roll(watermark=7)
    story.append(1, durable=True)


def roll_by_size(story: Story) -> None:
    story.append(16)
    story.flush()


def roll_next_month(story: Story) -> None:
    """New directories are made for the new segment."""
    story.append(1)
    story.clock.advance(seconds=31 * 24 * 3600)
    story.roll()
    story.append(1, durable=True)


def two_segments(story: Story) -> None:
    story.append(9)
    story.roll()
    story.append(1)
    story.flush()


def before_an_oversize_record(story: Story) -> None:
    story.append(4)
    story.roll()
    story.close()
    story.reopen(PAGES)


def roll_an_empty_segment(story: Story) -> None:
    """A record that only fits a segment of the new options makes the empty old one go."""
    story.append(1)
    story.append(2, durable=True)


def cohort(story: Story) -> None:
    story.set_ext_id(3)
    story.append(2)
    story.set_ext_id(4)
    story.set_ext_id(5)
    story.append(1, durable=True)


def close(story: Story) -> None:
    story.append(2)
    story.close()
    story.reopen()
    story.append(2)
    story.close()
    story.reopen()
    story.append(1, durable=True)


def reader(story: Story) -> None:
    story.make_reader("billing")
    story.append(3)
    story.commit("billing", 4)
    story.append(1)
    story.commit("billing", 1)
    story.commit("billing", 1)


def reader_beside(story: Story) -> None:
    """The reader of another process makes durable what it commits, for the writer has not."""
    story.make_reader_beside("billing")
    story.append(3)
    story.commit("billing", 5)
    story.append(9)
    story.commit("billing", 8)


def reader_across_segments(story: Story) -> None:
    story.make_reader("billing")
    story.commit("billing", 3)
    story.append(2)
    story.roll()
    story.append(3)
    story.commit("billing", 11)
    story.append(1)
    story.commit("billing", 1)


def with_a_reader(story: Story) -> None:
    two_segments(story)
    story.make_reader("billing")
    story.commit("billing", 2)


def remove_reader(story: Story) -> None:
    story.remove_reader("billing")
    story.append(1, durable=True)


def with_two_readers(story: Story) -> None:
    with_much_behind(story)
    story.make_reader("audit")
    story.commit("audit", 20)


def remove_the_slower_reader(story: Story) -> None:
    """What only a removed reader still needed may go."""
    story.remove_reader("billing")
    story.cleanup()
    story.append(1, durable=True)


def with_much_behind(story: Story) -> None:
    story.append(20)
    story.roll()
    story.append(3)
    story.flush()
    story.make_reader("billing")
    story.commit("billing", 6)


def cleanup(story: Story) -> None:
    story.cleanup()
    story.commit("billing", 15)
    story.cleanup()
    story.append(1, durable=True)


def cleanup_of_all(story: Story) -> None:
    """When every sealed segment is gone, only the manifest remembers the watermark."""
    story.roll(watermark=5)
    story.commit("billing", 17)
    story.cleanup()
    story.append(1, durable=True)


def of_version_1(story: Story) -> None:
    """Sealed segments of two cohorts, a watermark, a reader, and an end that is not durable in the manifest."""
    story.append(6)
    story.set_ext_id(3)
    story.append(6)
    story.make_reader("billing")
    story.commit("billing", 4)
    story.roll(watermark=4)
    story.append(2)
    story.downgrade()


def of_version_1_without_sealed_segments(story: Story) -> None:
    with_much_behind(story)
    cleanup_of_all(story)
    story.append(3)
    story.downgrade()


def upgrade(story: Story) -> None:
    story.reopen()
    story.adopt_reader("billing")
    story.commit("billing", 2)
    story.append(1, durable=True)


def everything(story: Story) -> None:
    """One life, from beginning to end."""
    story.append(3, durable=True)
    story.make_reader("billing")
    story.append_many(5)
    story.commit("billing", 6)
    story.set_ext_id(9)
    story.append(4)
    story.roll(watermark=3)
    story.append(1)
    story.commit("billing", 5)
    story.cleanup()
    story.close()
    story.reopen()
    story.append(2, durable=True)


SCENES: Final = {
    "create": Scene(create, before=None),
    "append": Scene(append),
    "append in part": Scene(append_slowly, some_records, PAGES),
    "append across sectors": Scene(append_across_sectors, before=None, options=PAGES),
    "batch across sectors": Scene(batch_across_sectors, before=None, options=PAGES),
    "batch across sectors after a roll": Scene(batch_after_a_roll, some_records, PAGES),
    "batch": Scene(batch, some_records),
    "flush": Scene(flush, some_records),
    "checkpoint": Scene(checkpoint, some_records, PAGES, small_reserve=True),
    "roll": Scene(roll, some_records),
    "roll across sectors": Scene(roll_across_sectors, options=PAGES),
    "roll by size": Scene(roll_by_size, options=TINY),
    "roll by size, reserving": Scene(roll_by_size, small_reserve=True),
    "roll into a new month": Scene(roll_next_month, some_records),
    "roll an empty segment": Scene(roll_an_empty_segment, before_an_oversize_record, TINY),
    "cohort": Scene(cohort, some_records),
    "close": Scene(close, some_records),
    "reader": Scene(reader, some_records),
    "reader beside": Scene(reader_beside, some_records),
    "reader across segments": Scene(reader_across_segments, two_segments),
    "remove reader": Scene(remove_reader, with_a_reader),
    "remove the slower reader": Scene(remove_the_slower_reader, with_two_readers),
    "cleanup": Scene(cleanup, with_much_behind),
    "cleanup of all": Scene(cleanup_of_all, with_much_behind),
    "upgrade": Scene(upgrade, of_version_1),
    "upgrade without sealed segments": Scene(upgrade, of_version_1_without_sealed_segments),
    "everything": Scene(everything, before=None),
    "everything in pages": Scene(everything, before=None, options=PAGES),
    "everything in a filled segment": Scene(everything, before=None, options=replace(SMALL, fill=True)),
}


@contextmanager
def bounds_of(scene: Scene) -> Iterator[None]:
    """Make the bounds of the log small enough to be met in a scene; they hold for its survivors too."""
    if not scene.small_reserve:
        yield
        return
    with (
        mock.patch("latewood.log.roll.RESERVE_BYTES", _RESERVE_BYTES),
        mock.patch("latewood.log.roll.CHECKPOINT_BYTES", _RESERVE_BYTES // 2),
        mock.patch("latewood.log.durability.CHECKPOINT_BYTES", _RESERVE_BYTES // 2),
    ):
        yield


def cuts(scene: Scene, fs: CrashFS, limit: int) -> Iterator[tuple[str, CrashFS]]:
    """Play a scene, then yield what is left of the disk after a power cut at each of its steps."""
    fs.note = Promise(lost=True)
    if scene.before is None:
        return fs.cuts_during(lambda fs: scene.act(Story(fs, scene.options)), limit)
    story = Story(fs, scene.options)
    scene.before(story)
    return fs.cuts_during(lambda _: scene.act(story), limit)
