"""The documentation is true: links lead somewhere, choices are written up whole, and what the README shows works."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.meta import markdown

ROOT: Final = Path(__file__).parents[2]
RUNNER: Final = Path(__file__).with_name("run_blocks.py")
RUNNABLE: Final = {"python", "console run"}

ADR_NAME: Final = re.compile(r"^\d{4}-[a-z0-9-]+\.md$")
ADR_HEADINGS: Final = {"Context", "Choice", "Consequences", "Rejected"}
PAGE_IN_DOCSTRING: Final = re.compile(r"\bdocs/[\w./-]+\.md\b")


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]


def adr_problems(page: Path) -> list[str]:
    """What is wrong with one architecture decision record."""
    problems = [] if ADR_NAME.match(page.name) else [f"{page.name}: name it NNNN-what-was-chosen.md"]
    missing = ADR_HEADINGS - set(markdown.headings(page.read_text()))
    return problems + [f"{page.name}: no heading {heading}" for heading in sorted(missing)]


def run_page(page: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a page's runnable blocks in a directory, with the commands of this environment first on the path."""
    blocks = [fence for fence in markdown.fences(page.read_text()) if fence.info in RUNNABLE]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return subprocess.run(
        [sys.executable, RUNNER],
        input=json.dumps([page.name, blocks]),
        cwd=directory,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    dead = markdown.dead_links(page, ROOT)
    assert not dead, "\n".join(dead)


def test_every_page_that_the_source_names_exists() -> None:
    dead = [
        f"{module.relative_to(ROOT)}: {name}"
        for module in sorted(ROOT.glob("src/**/*.py"))
        for name in PAGE_IN_DOCSTRING.findall(ast.get_docstring(ast.parse(module.read_text())) or "")
        if not (ROOT / name).is_file()
    ]
    assert not dead, "\n".join(dead)


def test_every_choice_is_written_up_whole() -> None:
    records = sorted(ROOT.glob("docs/adr/*.md"))
    assert records
    problems = [problem for page in records for problem in adr_problems(page)]
    assert not problems, "\n".join(problems)


def test_no_two_choices_share_a_number() -> None:
    numbers = [page.name[:4] for page in ROOT.glob("docs/adr/*.md")]
    assert len(numbers) == len(set(numbers))


@pytest.mark.slow
def test_what_the_readme_shows_works(tmp_path: Path) -> None:
    assert any(fence.info == "python" for fence in markdown.fences((ROOT / "README.md").read_text()))
    result = run_page(ROOT / "README.md", tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


def test_dead_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A heading, here\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[fine](there.md) [fine](there.md#a-heading-here) [fine](https://elsewhere.invalid/x)\n"
        "`[code](gone.md)` [dead](gone.md)\n"
        "```\n[fenced](gone.md)\n```\n"
        "[dead](there.md#no-such-heading) ![dead](picture.svg)\n"
        "[outside](../)\n"
        "[reference]: also-gone.md\n"
    )
    assert markdown.dead_links(page, tmp_path) == [
        "page.md:2: gone.md",
        "page.md:6: there.md#no-such-heading",
        "page.md:6: picture.svg",
        "page.md:7: ../",
        "page.md:8: also-gone.md",
    ]


def test_a_half_written_choice_is_found(tmp_path: Path) -> None:
    page = tmp_path / "choice.md"
    page.write_text("# Choice\n\n## Context\n\n## Consequences\n")
    assert adr_problems(page) == ["choice.md: name it NNNN-what-was-chosen.md", "choice.md: no heading Rejected"]


def test_blocks_share_a_namespace_and_a_directory(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nfrom pathlib import Path\nname = 'made'\n```\n"
        "```python\nPath(name).touch()\n```\n"
        "```console run\n$ test -f made && \\\n> mv made moved\nno answer is run\n```\n"
        "```console\n$ false\n```\n"
    )
    result = run_page(page, tmp_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "moved").exists()


@pytest.mark.parametrize(
    ("block", "complaint"),
    [
        ("```python\n\nraise ValueError\n```\n", 'File "page.md", line 3'),
        ("```console run\n$ false\n$ true\n```\n", "page.md:1: a command of this block exits 1"),
    ],
)
def test_a_block_that_fails_is_found_by_its_line(tmp_path: Path, block: str, complaint: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(block)
    result = run_page(page, tmp_path)
    assert result.returncode
    assert complaint in result.stderr
