"""Programs die, and operations fail, before any operation; later the power fails too.

What a dead program had written is still in memory, not on the disk.  Whoever opens the log next must not take it for
durable: it makes it so, or a power cut later takes away what was acknowledged meanwhile.
"""

from itertools import islice

import pytest

from latewood import DiskFull, LatewoodError, StorageError
from tests.crash.mortal import Killed, MortalFS
from tests.crash.scenes import SCENES, Scene, bounds_of
from tests.crash.story import Bounds, Promise, Story
from tests.crash.survivor import Seen, Violation, check_briefly, check_records, check_sidecars, open_again, require

CUTS = 4
CUTS_CAMPAIGN = 500


def begin(scene: Scene, fs: MortalFS) -> Story | None:
    """Do what comes before the scene; return the story, unless the scene begins without one."""
    fs.note = Promise(lost=True)
    if scene.before is None:
        return None
    story = Story(fs, scene.options)
    scene.before(story)
    fs.operations = 0
    fs.directories.clear()
    return story


def play(scene: Scene, fs: MortalFS, story: Story | None) -> Story:
    story = story or Story(fs, scene.options)
    scene.act(story)
    return story


def rehearse(scene: Scene) -> MortalFS:
    """Play a scene to its end, for what the file system has counted meanwhile."""
    fs = MortalFS()
    play(scene, fs, begin(scene, fs))
    return fs


def goes_on(fs: MortalFS, scene: Scene, promise: Promise, limit: int, seen: Seen) -> None:
    """Open the log again, check it, go on with it, and cut the power now and then."""
    story = Story(fs, scene.options, promise)
    check_records(story.log, promise)
    story.begin_life()
    story.set_ext_id(story.log._writer.segment.header.ext_id)  # What looks as if it were so must stay so.
    check_cuts(fs, scene, limit, seen)
    story.cleanup()
    story.append(2, durable=True)
    check_cuts(fs, scene, limit, seen)
    for name, _ in promise.readers:
        if name in {info.name for info in story.log.readers()}:
            story.adopt_reader(name)
            story.commit(name, 1)
    story.roll()
    story.append(1, durable=True)
    check_cuts(fs, scene, limit, seen)
    story.close()
    check_sidecars(open_again(fs, scene.options), story.promise, story.next_sequence)


def check_cuts(fs: MortalFS, scene: Scene, limit: int, seen: Seen) -> None:
    for survivor in islice(fs.survivors(limit), limit):
        if seen.is_new(survivor):  # Most operations leave what the one before has left.
            check_briefly(survivor, scene.options)


def die(
    scene: Scene, number: int, limit: int, seen: Seen, *, within: bool = False, dropped_site: str | None = None
) -> None:
    """Play a scene up to an operation that is not done any more, or not all of it, and go on from there."""
    fs = MortalFS()
    fs.dropped_site = dropped_site
    story = begin(scene, fs)
    fs.dies_at, fs.dies_within = (None, number) if within else (number, None)
    with pytest.raises(Killed):
        story = play(scene, fs, story)
    fs.bury()
    promise = fs.note
    assert isinstance(promise, Promise)
    if story:  # Not only what is durable: what was appended survives the program.
        promise = promise.but(end=Bounds(story.written, promise.end.high))
    try:
        goes_on(fs, scene, promise, limit, seen)
    except Exception as error:
        error.add_note(f"killed before operation {number}, owing {promise}")
        raise


@pytest.mark.parametrize("scene", SCENES.values(), ids=list(SCENES))
def test_a_program_may_die_before_any_operation(scene: Scene, campaign: bool) -> None:  # noqa: FBT001
    limit, seen = CUTS_CAMPAIGN if campaign else CUTS, Seen()
    with bounds_of(scene):
        rehearsal = rehearse(scene)
        for number in range(1, rehearsal.operations + 1):
            die(scene, number, limit, seen)
        for number in rehearsal.directories:
            die(scene, number, limit, seen, within=True)


# Linux tells every open descriptor of a file that a sync failed, so a writer hears of a reader's failed sync at its own
# next one.  The disk of these tests tells only who called: a writer that goes on beside such a reader is left out.
# A scene that begins without a log may leave none to go on with: it can only be opened again.
@pytest.mark.parametrize(
    ("scene", "reopens"),
    [
        pytest.param(scene, reopens, id=f"{name}-{'reopening' if reopens else 'going on'}")
        for name, scene in SCENES.items()
        for reopens in (True, False)
        if reopens or (name != "reader beside" and scene.before is not None)
    ],
)
@pytest.mark.parametrize("failure", [StorageError("EIO"), DiskFull("ENOSPC")], ids=["EIO", "ENOSPC"])
def test_any_operation_may_fail(scene: Scene, failure: LatewoodError, reopens: bool, campaign: bool) -> None:  # noqa: FBT001
    # A full disk takes the same ways as a broken one, but for a few that test_full_disk.py looks at.
    stride = 1 if campaign else 2 if not isinstance(failure, DiskFull) else 5
    seen = Seen()
    with bounds_of(scene):
        for number in range(1, rehearse(scene).operations + 1, stride):
            fs = MortalFS()
            story = begin(scene, fs)
            fs.fails_at, fs.failure = number, failure
            try:
                play(scene, fs, story)
            except LatewoodError as error:
                require(not isinstance(error, Violation), error)
            if not reopens:
                assert story is not None
                keep_going(story)
            fs.bury()
            promise = fs.note
            assert isinstance(promise, Promise)
            try:
                goes_on(fs, scene, promise, CUTS_CAMPAIGN if campaign else CUTS, seen)
            except Exception as error:
                error.add_note(f"operation {number}, {fs.failed}, failed, owing {promise}")
                raise


def keep_going(story: Story) -> None:
    """Go on with the same log as if nothing had happened; it may refuse, but what it acknowledges counts."""
    try:
        story.begin_life()
        story.append(2, durable=True)
        story.roll()
        story.append(1, durable=True)
        story.close()
    except LatewoodError:
        pass


def test_a_reader_that_died_making_the_readers_directory_loses_nobody_elses_commit() -> None:
    """The writer lives meanwhile, so nobody but the next reader can make that directory durable."""
    fs = MortalFS()
    story = Story(fs)
    story.append(3, durable=True)
    fs.dies_within = fs.operations + 1
    with pytest.raises(Killed):
        story.make_reader_beside("unborn")
    fs.bury()
    story.make_reader_beside("billing")
    story.commit("billing", 2)
    (reader,) = open_again(fs.after_power_cut()).readers()
    assert (reader.name, reader.sequence) == ("billing", 2)
