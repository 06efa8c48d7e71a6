"""The tests of crashes are tested: each of these bugs must show in a scene whose power is cut."""

import pytest

from latewood.testing import CrashFS
from tests.crash.planted import BUGS, Bug
from tests.crash.scenes import SCENES, bounds_of, cuts
from tests.crash.survivor import violation


@pytest.mark.parametrize("bug", BUGS.values(), ids=list(BUGS))
def test_a_bug_shows(bug: Bug) -> None:
    scene = SCENES[bug.scene]
    with bounds_of(scene), bug.planted():
        survivors = (survivor for _, survivor in cuts(scene, CrashFS(), bug.states))
        found = next(filter(None, (violation(survivor, scene.options) for survivor in survivors)), None)
    print(repr(found))
    assert found, "whoever makes this mistake will not be told"
