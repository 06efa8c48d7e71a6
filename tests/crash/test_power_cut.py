"""The power fails at every step of every ordered write; nothing acknowledged is lost, nothing is made up."""

import re
from pathlib import Path

import pytest

from latewood.testing import CrashFS
from tests.crash.scenes import SCENES, Scene, bounds_of, cuts
from tests.crash.survivor import check, open_again

PAGE = Path(__file__).parents[2] / "docs" / "crash-safety.md"
TEARS = (512, 4096)
STATES_PER_STEP = 16
STATES_PER_STEP_CAMPAIGN = 4_000


@pytest.mark.parametrize("tear_bytes", TEARS)
@pytest.mark.parametrize("scene", SCENES.values(), ids=list(SCENES))
def test_a_power_cut_loses_nothing_acknowledged(scene: Scene, tear_bytes: int, campaign: bool) -> None:  # noqa: FBT001
    limit = STATES_PER_STEP_CAMPAIGN if campaign else STATES_PER_STEP
    with bounds_of(scene):
        count = 0
        for step, survivor in cuts(scene, CrashFS(tear_bytes=tear_bytes), limit):
            count += 1
            try:
                check(survivor, scene.options)
            except Exception as error:
                error.add_note(f"after a cut at {step!r}, owing {survivor.note}")
                raise
    assert count > 50, "a scene that is hardly cut tests nothing"


@pytest.mark.parametrize("tear_bytes", TEARS)
@pytest.mark.parametrize("scene", SCENES.values(), ids=list(SCENES))
def test_a_second_power_cut_during_recovery_loses_nothing_either(scene: Scene, tear_bytes: int, campaign: bool) -> None:  # noqa: FBT001
    """Recovery of every so many survivors is cut at each of its own steps."""
    limit, stride = (200, 3) if campaign else (12, 23)
    with bounds_of(scene):
        for number, (step, survivor) in enumerate(cuts(scene, CrashFS(tear_bytes=tear_bytes), limit)):
            if number % stride == 0:
                cut_recovery(scene, step, survivor, limit)


def cut_recovery(scene: Scene, step: str, survivor: CrashFS, limit: int) -> None:
    for again, second in survivor.cuts_during(lambda fs: open_again(fs, scene.options), limit):
        try:
            check(second, scene.options)
        except Exception as error:
            error.add_note(f"after a cut at {step!r} and another in recovery at {again!r}, owing {second.note}")
            raise


def test_the_page_on_crash_safety_lists_every_scene() -> None:
    _, _, rest = PAGE.read_text().partition("| section | scenes |")
    tests, _, _ = rest.partition("\n\n")  # Other tables follow.
    listed = {
        name
        for row in re.findall(r"^\| [a-z, ]+ \|(.*)\|$", tests, re.MULTILINE)
        for name in re.findall(r"`(.*?)`", row)
    }
    assert listed == SCENES.keys()
