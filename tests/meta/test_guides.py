"""What the guides show works, and the guide for operators knows every error."""

from pathlib import Path
from typing import Final

import pytest

from latewood import errors
from tests.meta import markdown
from tests.meta.test_docs import ROOT, RUNNABLE, run_page

PAGES: Final = [
    page
    for page in [*sorted(ROOT.glob("docs/guide/*.md")), *sorted(ROOT.glob("docs/format/*.md"))]
    if any(fence.info in RUNNABLE for fence in markdown.fences(page.read_text()))
]
OPERATING: Final = ROOT / "docs" / "guide" / "operating.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_shows_works(page: Path, tmp_path: Path) -> None:
    result = run_page(page, tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_guide_for_operators_knows_every_error() -> None:
    names = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert {"Poisoned", "ManifestCorrupted"} <= names
    text = OPERATING.read_text()
    assert not {name for name in names if f"`{name}`" not in text and f"`latewood.{name}`" not in text}
