"""The mirror that `make fresh` takes from the machine's own apt configuration."""

from pathlib import Path

import pytest

from tools.fresh.sources import Source, apt_settings, mirror_among, parse_deb822, parse_lines, read_mirror

DEB822 = """\
# The archive
Types: deb deb-src
# of the distribution
URIs: http://one.example/debian/
  http://two.example/debian
Suites: bookworm bookworm-updates
Components: main
 contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main
Enabled: no


Types: deb-src
URIs: http://source.example/debian
Suites: bookworm
Components: main
"""


def test_a_line_is_read_with_its_options_and_without_its_comment() -> None:
    text = "deb [arch=amd64 signed-by=/k.gpg] http://a.example/debian trixie main contrib # the archive\n"
    assert list(parse_lines(text)) == [Source("http://a.example/debian", ("trixie",), ("main", "contrib"))]


@pytest.mark.parametrize(
    "line", ["", "# deb http://a.example/debian sid main", "deb-src http://a.example/debian sid main"]
)
def test_a_comment_or_a_source_of_sources_is_no_source(line: str) -> None:
    assert not list(parse_lines(line))


def test_a_stanza_is_read_with_all_its_addresses_unless_it_is_off_or_has_only_sources() -> None:
    suites, components = ("bookworm", "bookworm-updates"), ("main", "contrib")
    expected = [Source(uri, suites, components) for uri in ("http://one.example/debian/", "http://two.example/debian")]
    assert list(parse_deb822(DEB822)) == expected


@pytest.mark.parametrize(
    ("uri", "suite", "component"),
    [
        ("http://security.example/debian-security", "trixie-security", "main"),
        ("http://a.example/debian", "trixie-security", "main"),
        ("http://vendor.example/apt", "vendor-trixie", "main"),
        ("http://vendor.example/linux/debian", "trixie", "stable"),
        ("cdrom:[Debian]/", "trixie", "main"),
    ],
)
def test_what_is_no_archive_of_debian_is_passed_over(uri: str, suite: str, component: str) -> None:
    archive = Source("https://a.example/mirror/debian/20250520T000000Z/", ("trixie",), ("main",))
    other = Source(uri, (suite,), (component,))
    assert mirror_among([other]) is None
    assert mirror_among([other, archive]) == "https://a.example/mirror/debian/20250520T000000Z"


def test_a_mirror_of_another_name_is_known_by_its_suite_and_comes_second() -> None:
    cache, archive = (Source(f"http://a.example/{name}", ("trixie",), ("main",)) for name in ("cache", "debian"))
    assert mirror_among([cache]) == "http://a.example/cache"
    assert mirror_among([cache, archive]) == "http://a.example/debian"


def test_both_formats_are_read_and_the_oldest_file_comes_first(tmp_path: Path) -> None:
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    assert read_mirror(tmp_path) is None
    (parts / "debian.sources").write_text(DEB822)
    assert read_mirror(tmp_path) == "http://one.example/debian"
    (tmp_path / "sources.list").write_text("deb http://zero.example/debian bookworm main\n")
    assert read_mirror(tmp_path) == "http://zero.example/debian"


def test_only_the_settings_that_reach_the_mirror_are_taken() -> None:
    dump = 'APT "";\nAcquire::Check-Valid-Until "false";\nAcquire::http::Proxy "";\nAcquire::Languages "none";\n'
    assert apt_settings(dump) == 'Acquire::Check-Valid-Until "false";\n'
