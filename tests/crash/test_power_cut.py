"""The power fails at every step of every ordered write; nothing acknowledged is lost, nothing is made up."""

import re
from pathlib import Path

import pytest

from latewood.testing import CrashFS
from tests.crash.scenes import SCENES, Scene, bounds_of, cuts
from tests.crash.story import ROOT, Promise
from tests.crash.survivor import Seen, check, open_again
from tests.format.version_1 import downgrade

PAGE = Path(__file__).parents[2] / "docs" / "crash-safety.md"
TEARS = (512, 4096)
STATES_PER_STEP = 16
STATES_PER_STEP_CAMPAIGN = 4_000


def check_new(survivor: CrashFS, scene: Scene, seen: Seen, where: str) -> None:
    """Check a survivor, unless another was the same: most cuts leave that, whatever the size of a tear."""
    if not seen.is_new(survivor):
        return
    try:
        check(survivor, scene.options)
    except Exception as error:
        error.add_note(f"after a cut {where}, owing {survivor.note}")
        raise


@pytest.mark.parametrize("scene", SCENES.values(), ids=list(SCENES))
def test_a_power_cut_loses_nothing_acknowledged(scene: Scene, campaign: bool) -> None:  # noqa: FBT001
    limit = STATES_PER_STEP_CAMPAIGN if campaign else STATES_PER_STEP
    seen = Seen()
    with bounds_of(scene):
        for tear_bytes in TEARS:
            count = 0
            for step, survivor in cuts(scene, CrashFS(tear_bytes=tear_bytes), limit):
                count += 1
                check_new(survivor, scene, seen, f"at {step!r}, torn at {tear_bytes}")
            assert count > 50, "a scene that is hardly cut tests nothing"


@pytest.mark.parametrize("scene", SCENES.values(), ids=list(SCENES))
def test_a_second_power_cut_during_recovery_loses_nothing_either(scene: Scene, campaign: bool) -> None:  # noqa: FBT001
    """Recovery of every so many survivors is cut at each of its own steps."""
    limit, stride = (200, 3) if campaign else (12, 23)
    seen = Seen()
    with bounds_of(scene):
        for tear_bytes in TEARS:
            for number, (step, survivor) in enumerate(cuts(scene, CrashFS(tear_bytes=tear_bytes), limit)):
                if number % stride:
                    continue
                for again, second in survivor.cuts_during(lambda fs: open_again(fs, scene.options), limit):
                    where = f"at {step!r} and another in recovery at {again!r}, torn at {tear_bytes}"
                    check_new(second, scene, seen, where)


@pytest.mark.parametrize("scene", SCENES.values(), ids=list(SCENES))
def test_every_state_that_version_1_could_leave_is_upgraded(scene: Scene, campaign: bool) -> None:  # noqa: FBT001
    limit, stride = (100, 2) if campaign else (4, 3)
    seen, upgraded = Seen(), 0
    with bounds_of(scene):
        for number, (step, survivor) in enumerate(cuts(scene, CrashFS(), limit)):
            if number % stride or not survivor.exists(ROOT):
                continue
            assert isinstance(survivor.note, Promise)
            survivor.note = survivor.note.but(named=False)
            downgrade(survivor, ROOT)
            check_new(survivor, scene, seen, f"at {step!r} in version 1")
            upgraded += 1
    assert upgraded > 5, "a scene that is hardly cut tests nothing"


def test_the_page_on_crash_safety_lists_every_scene() -> None:
    _, _, rest = PAGE.read_text().partition("| section | scenes |")
    tests, _, _ = rest.partition("\n\n")  # Other tables follow.
    listed = {
        name
        for row in re.findall(r"^\| [a-z, ]+ \|(.*)\|$", tests, re.MULTILINE)
        for name in re.findall(r"`(.*?)`", row)
    }
    assert listed == SCENES.keys()
