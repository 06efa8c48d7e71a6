"""The machine's own apt configuration: which mirror of Debian it uses, and which settings reach that mirror.

Reads both formats, one line a source (`*.list`) and deb822 (`*.sources`).  No mirror's name is written down here.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tools.fresh.rows import SUITES

_LINE: Final = re.compile(r"deb\s+(?:\[[^]]*\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)(?P<components>.*)")
_SCHEMES: Final = frozenset({"http", "https", "ftp", "file"})
_ARCHIVE_SUITES: Final = frozenset({*SUITES.values(), "oldstable", "stable", "testing", "sid", "unstable"})
_OFF: Final = frozenset({"no", "false", "off", "0", "without", "disable"})
_SETTINGS: Final = ("Acquire::Check-Valid-Until", "Acquire::http::Proxy", "Acquire::https::Proxy")
"""A mirror that is a snapshot, or behind a proxy, needs these in the new systems too."""


@dataclass(frozen=True, slots=True)
class Source:
    """One place that apt installs from."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]


def read_mirror(apt: Path) -> str | None:
    """Return the mirror of Debian that apt uses on this machine, or None where there is none."""
    parts = apt / "sources.list.d"
    paths = [apt / "sources.list", *sorted([*parts.glob("*.list"), *parts.glob("*.sources")])]
    found = [source for path in paths if path.is_file() for source in _read(path)]
    return mirror_among(found)


def mirror_among(sources: Iterable[Source]) -> str | None:
    """Return the first archive of Debian that is not the security one, or None.

    A path with the folder `debian` is the usual mark of an archive; a source of another vendor can have it too,
    without the component `main`.  Mirrors behind a cache are often named otherwise: they have one of Debian's suites.
    """
    archives = [source for source in sources if _may_be_archive(source)]
    by_path = [source for source in archives if "debian" in urlsplit(source.uri).path.split("/")]
    by_suite = [source for source in archives if _ARCHIVE_SUITES.intersection(source.suites)]
    first = next(iter([*by_path, *by_suite]), None)
    return first.uri.rstrip("/") if first else None


def parse_lines(text: str) -> Iterator[Source]:
    """Every `deb` line of a `sources.list`."""
    for line in text.splitlines():
        match = _LINE.fullmatch(line.partition("#")[0].strip())
        if match:
            yield Source(match["uri"], (match["suite"],), tuple(match["components"].split()))


def parse_deb822(text: str) -> Iterator[Source]:
    """Every stanza of a `*.sources` file that is turned on and offers binary packages."""
    for fields in _stanzas(text):
        is_on = fields.get("enabled", "yes").lower() not in _OFF
        if is_on and "deb" in fields.get("types", "").split():
            suites, components = fields.get("suites", "").split(), fields.get("components", "").split()
            for uri in fields.get("uris", "").split():
                yield Source(uri, tuple(suites), tuple(components))


def apt_settings(dump: str) -> str:
    """Return the lines of `apt-config dump` that a new system needs to reach the same mirror."""
    kept = [line for line in dump.splitlines() if line.split(" ", 1)[0] in _SETTINGS and not line.endswith(' "";')]
    return "".join(f"{line}\n" for line in kept)


def _read(path: Path) -> Iterator[Source]:
    text = path.read_text(errors="replace")
    return parse_deb822(text) if path.suffix == ".sources" else parse_lines(text)


def _may_be_archive(source: Source) -> bool:
    is_security = "security" in source.uri or all("security" in suite for suite in source.suites)
    return urlsplit(source.uri).scheme in _SCHEMES and "main" in source.components and not is_security


def _stanzas(text: str) -> Iterator[dict[str, str]]:
    lines = "\n".join(line.rstrip() for line in text.splitlines() if not line.startswith("#"))
    for stanza in re.split(r"\n{2,}", lines):
        unfolded = re.sub(r"\n[ \t]+", " ", stanza)
        fields = (line.partition(":") for line in unfolded.splitlines())
        yield {name.strip().lower(): value.strip() for name, _, value in fields}
