"""As much of Markdown as the checks of the documentation need: fences, headings and links."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_FENCE: Final = re.compile(r"^(?P<indent> *)(?P<mark>`{3,}|~{3,})(?P<info>[^`]*)$")
_HEADING: Final = re.compile(r"^#{1,6} +(.+?) *#*$")
_CODE_SPAN: Final = re.compile(r"(`+).+?\1")
_LINK: Final = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)|^ {0,3}\[[^\]]+\]:\s*<?([^\s>]+)")
_ELSEWHERE: Final = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


class Fence(NamedTuple):
    """One fenced block: what stands after the opening fence, the number of that line, and the text inside."""

    info: str
    line: int
    text: str


def fences(page: str) -> list[Fence]:
    """Every fenced block of a page, in order."""
    return list(_split(page)[0])


def headings(page: str) -> list[str]:
    """The text of every heading, in order."""
    return [match[1] for _, line in _split(page)[1] if (match := _HEADING.match(line))]


def links(page: str) -> Iterator[tuple[int, str]]:
    """The line number and target of every link that does not lead elsewhere by its scheme."""
    for number, line in _split(page)[1]:
        for match in _LINK.finditer(_CODE_SPAN.sub("", line)):
            target = match[1] or match[2]
            if not _ELSEWHERE.match(target):
                yield number, target


def dead_links(page: Path, root: Path) -> list[str]:
    """The links of a page that lead to no file of this repository, or to no heading of it."""
    return [
        f"{page.relative_to(root)}:{number}: {target}"
        for number, target in links(page.read_text())
        if not _leads_somewhere(page, target, root.resolve())
    ]


def _leads_somewhere(page: Path, target: str, root: Path) -> bool:
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page.resolve()
    if not (file.exists() and file.is_relative_to(root)):
        return False
    return not anchor or file.suffix != ".md" or anchor in {_slug(text) for text in headings(file.read_text())}


def _slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _split(page: str) -> tuple[list[Fence], list[tuple[int, str]]]:
    """Part a page into its fenced blocks and the numbered lines between them."""
    blocks, between = list[Fence](), list[tuple[int, str]]()
    lines = enumerate(page.splitlines(), 1)
    for number, line in lines:
        if opening := _FENCE.match(line):
            inside = _until_closed(lines, opening)
            blocks.append(Fence(opening["info"].strip(), number, "".join(f"{text}\n" for text in inside)))
        else:
            between.append((number, line))
    return blocks, between


def _until_closed(lines: Iterator[tuple[int, str]], opening: re.Match[str]) -> Iterator[str]:
    for _, line in lines:
        if line.strip().startswith(opening["mark"]) and not line.strip().strip(opening["mark"][0]):
            return
        yield line.removeprefix(opening["indent"])
