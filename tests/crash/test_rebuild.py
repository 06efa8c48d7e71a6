"""A lost manifest is made again from the segments, though the power fails before, during and after that."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from latewood import ManifestCorrupted, NotFoundError, Queue
from latewood.log.layout import Layout
from latewood.log.rebuild import begin_life, rebuild
from latewood.testing import CrashFS
from tests.crash.scenes import SCENES, cuts
from tests.crash.story import ROOT, Bounds, Promise, Story
from tests.crash.survivor import check, open_again, require

LAYOUT: Final = Layout(ROOT)
MANIFESTS: Final = ("manifest.1", "manifest.2", "manifest.current")


def lose(fs: CrashFS, *names: str) -> None:
    """Remove files for good."""
    for name in names:
        if fs.exists(ROOT / name):
            fs.remove(ROOT / name)
    fs.sync_directory(ROOT)


def overwrite(fs: CrashFS, path: Path, data: bytes, offset: int = 0) -> None:
    file = fs.open(path, write=True)
    file.pwrite(data, offset)
    file.sync()


def lose_everything(fs: CrashFS) -> None:
    lose(fs, *MANIFESTS)


def lose_the_pointer(fs: CrashFS) -> None:
    lose(fs, "manifest.current")


def damage_the_pointer(fs: CrashFS) -> None:
    overwrite(fs, ROOT / "manifest.current", b"\x07")


def damage_both_slots(fs: CrashFS) -> None:
    for name in MANIFESTS[:2]:
        overwrite(fs, ROOT / name, b"?", 40)


LOSSES: Final = [lose_everything, lose_the_pointer, damage_the_pointer, damage_both_slots]


def a_log(fs: CrashFS) -> Story:
    story = Story(fs)
    story.append(9)
    story.roll(watermark=4)
    story.append(6)
    story.make_reader("billing")
    story.commit("billing", 11)
    return story


def mend(fs: CrashFS) -> None:
    """Rebuild if the log refuses; a rebuild that was cut is done again."""
    try:
        open_again(fs).close()
    except ManifestCorrupted:
        require(rebuild(fs, LAYOUT).written, "nothing was rebuilt")


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "cut"])
@pytest.mark.parametrize("lose_some", LOSSES)
def test_a_rebuild_that_is_cut_is_done_again(lose_some: Callable[[CrashFS], None], is_closed: bool) -> None:  # noqa: FBT001
    fs = CrashFS()
    story = a_log(fs)
    if is_closed:
        story.close()
    fs = fs.after_power_cut()
    lose_some(fs)
    with pytest.raises(ManifestCorrupted):
        open_again(fs)
    for step, survivor in fs.cuts_during(lambda fs: rebuild(fs, LAYOUT)):
        try:
            mend(survivor)
            check(survivor)
        except Exception as error:
            error.add_note(f"after a cut at {step!r}, owing {survivor.note}")
            raise


@pytest.mark.parametrize(
    "name", ["batch", "roll", "roll by size", "roll an empty segment", "cohort", "close", "reader"]
)
def test_whatever_a_power_cut_leaves_can_be_rebuilt(name: str, campaign: bool) -> None:  # noqa: FBT001
    scene, limit = SCENES[name], 400 if campaign else 12
    for step, survivor in cuts(scene, CrashFS(), limit):
        lose_everything(survivor)
        try:
            require(rebuild(survivor, LAYOUT).written, "nothing was rebuilt")
            check(survivor, scene.options)
        except Exception as error:
            error.add_note(f"after a cut at {step!r}, owing {survivor.note}")
            raise


def test_a_cut_before_the_first_segment_leaves_nothing_to_rebuild() -> None:
    for _, survivor in cuts(SCENES["create"], CrashFS(), 30):
        promise = survivor.note
        assert isinstance(promise, Promise)
        if survivor.exists(ROOT):
            lose_everything(survivor)
        try:
            rebuild(survivor, LAYOUT)
        except NotFoundError:
            assert promise.end == Bounds(0, 0), "durable records, and no segment"
        else:
            check(survivor)


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
def test_a_new_life_that_is_cut_is_begun_or_not_and_nothing_else_changes(is_closed: bool) -> None:  # noqa: FBT001
    fs = CrashFS()
    story = a_log(fs)
    if is_closed:
        story.close()
    else:
        fs._locks.clear()
    lives = set()
    for step, survivor in fs.cuts_during(lambda fs: begin_life(fs, LAYOUT)):
        try:
            with Queue.open(ROOT, mode="r", fs=survivor) as log:
                assert log.identity is not None
                lives.add(len(log.identity.lives))
            check(survivor)
        except Exception as error:
            error.add_note(f"after a cut at {step!r}, owing {survivor.note}")
            raise
    assert lives == {1, 2}
