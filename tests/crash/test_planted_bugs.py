"""The tests of crashes are tested: each of these bugs must show in a scene whose power is cut, or in a swap of logs."""

import pytest

from latewood import LatewoodError
from latewood.testing import CrashFS
from tests.crash.planted import BUGS, MIXUPS, Bug, Mixup
from tests.crash.scenes import SCENES, bounds_of, cuts
from tests.crash.survivor import Violation, violation
from tests.crash.swaps import SWAPS


@pytest.mark.parametrize("bug", BUGS.values(), ids=list(BUGS))
def test_a_bug_shows(bug: Bug) -> None:
    scene = SCENES[bug.scene]
    with bounds_of(scene), bug.planted():
        survivors = (survivor for _, survivor in cuts(scene, CrashFS(), bug.states))
        found = next(filter(None, (violation(survivor, scene.options) for survivor in survivors)), None)
    print(repr(found))
    assert found, "whoever makes this mistake will not be told"


@pytest.mark.parametrize("swap", SWAPS)
def test_a_reader_of_a_log_that_was_swapped_sees_every_record_or_is_told(swap: str) -> None:
    SWAPS[swap]()


@pytest.mark.parametrize("bug", MIXUPS.values(), ids=list(MIXUPS))
def test_a_bug_that_takes_one_log_for_another_shows(bug: Mixup) -> None:
    with bug.planted(), pytest.raises((Violation, LatewoodError)):
        SWAPS[bug.swap]()
