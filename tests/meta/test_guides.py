"""What the guides show works, and the guide for operators knows every error."""

from pathlib import Path
from typing import Final

import pytest

from latewood import errors, limits
from latewood.fs import file
from tests.meta import markdown
from tests.meta.test_docs import ROOT, RUNNABLE, run_page

PAGES: Final = [
    page
    for page in [*sorted(ROOT.glob("docs/guide/*.md")), *sorted(ROOT.glob("docs/format/*.md"))]
    if any(fence.info in RUNNABLE for fence in markdown.fences(page.read_text()))
]
BOUNDS: Final = {
    "docs/adr/0008-one-native-module.md": [
        f"Batches of {limits.BATCH_RECORDS_SMALL} records",
        f"pieces of {file._PIECE_BYTES // limits.KiB} KiB",
        f"pieces of {limits.BATCH_BYTES_MAX // limits.MiB} MiB",
    ],
    "docs/adr/0012-background-checkpoints.md": [
        f"After each {limits.CHECKPOINT_BYTES // limits.MiB} MiB",
        f"reserves {limits.RESERVE_BYTES // limits.MiB} MiB",
    ],
    "docs/format/checkpoint.md": [
        f"after each {limits.CHECKPOINT_BYTES // limits.MiB} MiB",
        f"reserves {limits.RESERVE_BYTES // limits.MiB} MiB",
    ],
    "docs/format/record.md": [f"in {limits.BATCH_BYTES_MAX // limits.MiB} MiB"],
    "docs/guide/durability.md": [f"in {limits.BATCH_BYTES_MAX // limits.MiB} MiB"],
    "docs/guide/readers-and-retention.md": [f"at {limits.READ_BYTES_MAX // limits.MiB} MiB"],
}
"""What pages say of the bounds in `latewood.limits`."""
OPERATING: Final = ROOT / "docs" / "guide" / "operating.md"


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_shows_works(page: Path, tmp_path: Path) -> None:
    result = run_page(page, tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_guide_for_operators_knows_every_error() -> None:
    names = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert {"Poisoned", "ManifestCorrupted"} <= names
    text = OPERATING.read_text()
    assert not {name for name in names if f"`{name}`" not in text and f"`latewood.{name}`" not in text}


@pytest.mark.parametrize("page", BOUNDS)
def test_a_page_names_the_bounds_of_the_source(page: str) -> None:
    text = " ".join((ROOT / page).read_text().split())
    assert [bound for bound in BOUNDS[page] if bound not in text] == []
