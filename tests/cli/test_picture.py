"""`latewood picture`: every shard, reader and tier is in it, and it is sound XML whatever things are called."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import latewood
from latewood.cli.picture_plan import Bar, Kind, Needle, Panel, Picture, Stretch
from latewood.cli.picture_svg import COLOURS, draw
from latewood.runtime import Store
from tests.cli.conftest import flip
from tests.cli.shell import complaint, ok
from tests.cli.store_kit import fill, make_store

SVG = "{http://www.w3.org/2000/svg}"


def drawn(*arguments: str | Path) -> ET.Element:
    return ET.fromstring(ok("picture", *arguments, "-o", "-"))  # noqa: S314 - we have drawn it ourselves


def words(picture: ET.Element) -> list[str]:
    return [text.text or "" for text in picture.iter(f"{SVG}text")]


def colours(picture: ET.Element) -> set[str]:
    return {rect.get("fill", "") for rect in picture.iter(f"{SVG}rect")}


def titles(picture: ET.Element) -> str:
    return "\n".join(title.text or "" for title in picture.iter(f"{SVG}title"))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with records in every tier, readers, and an empty database; not to be changed."""
    root = make_store(tmp_path_factory.mktemp("picture") / "lake", "--segment-bytes", "4096", archive=True)
    for moves in (("flush", "archive", "evict"), ("flush", "archive"), ("flush",), ()):
        fill(root, range(150))
        for move in moves:
            ok(move, root, "--wait", *(["--yes"] if move == "evict" else []))
    ok("db", "create", root, "empty")
    with Store.open(root) as store:
        clicks = store.database("clicks")
        for shard in clicks.shards:
            shard.log.roll()
        fill_end = {shard.shard: shard.next_sequence for shard in clicks.stats()}
        for name, places in {"billing": fill_end, "audit": {0: 10, 1: 20}}.items():
            with clicks.reader(name, places) as reader:
                reader.commit()
        clicks.append_many([b"open"] * 4, [b"user-%d" % number for number in range(4)])
    return root


def test_every_database_shard_reader_and_tier_is_drawn(lake: Path) -> None:
    picture = drawn(lake)
    found = words(picture)
    assert {"lake", "clicks", "empty"} <= set(found)
    assert found.count("shard 0") == 2
    assert found.count("shard 1") == 1
    assert sum(word.startswith("audit: ") for word in found) == 2
    assert sum(word.startswith("billing: ") for word in found) == 2
    assert set(COLOURS.values()) <= colours(picture)
    for kind in Kind:
        assert f": {kind.value}, sequences " in titles(picture)


def test_one_database_is_drawn_alone(lake: Path) -> None:
    found = words(drawn(lake / "clicks"))
    assert "lake/clicks" in found
    assert "empty" not in found


def test_the_legend_says_how_much_there_is(lake: Path) -> None:
    with Store.open(lake, mode="r") as store:
        records = sum(shard.next_sequence for shard in store.database("clicks").stats())
    assert records == 4 * 150 + 4
    assert any(
        f", {records} records, generation " in word or f"{records:,} records" in word for word in words(drawn(lake))
    )
    assert any(word.endswith(" 150 records") and "chunk" in word for word in words(drawn(lake)))


def test_a_log_is_drawn_beside_its_writer(log: Path) -> None:
    with latewood.open(log) as writer:
        writer.append(b"one more")
        with writer.reader("billing", 40) as reader:
            reader.commit()
        picture = drawn(log)
    assert "billing: 61 behind" in words(picture)
    assert "101 records" in words(picture)[1]
    assert {COLOURS[Kind.SEALED], COLOURS[Kind.OPEN]} <= colours(picture)
    assert COLOURS[Kind.LOCAL] not in colours(picture)


def test_a_damaged_reader_is_told_in_the_picture(log: Path) -> None:
    with latewood.open(log) as writer, writer.reader("billing", 40) as reader:
        reader.commit()
    for at in (24, 4096 + 24):
        flip(log / "readers" / "billing.meta", at)
    assert any(word.startswith("reader billing: ") for word in words(drawn(log)))


def test_a_log_without_records_is_a_picture_too(tmp_path: Path) -> None:
    ok("init", tmp_path / "events")
    assert "empty" in words(drawn(tmp_path / "events"))


def test_a_store_without_databases_is_a_picture_too(tmp_path: Path) -> None:
    Store.open(tmp_path / "lake").close()
    assert "nothing is there" in words(drawn(tmp_path / "lake"))


def test_a_picture_replaces_a_picture_and_nothing_else(log: Path, tmp_path: Path) -> None:
    file = tmp_path / "log.svg"
    for _ in range(2):
        assert not ok("picture", log, "-o", file)
    ET.parse(file)  # noqa: S314 - as above
    other = tmp_path / "letter.txt"
    other.write_text("dear reader")
    assert "is no picture" in complaint("picture", log, "-o", other, code=2)
    assert other.read_text() == "dear reader"
    assert "is no picture" in complaint("picture", log, "-o", tmp_path, code=2)


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    complaint("picture", tmp_path / "nothing", "-o", "-", code=3)
    Store.open(tmp_path / "lake").close()
    complaint("picture", tmp_path / "lake" / "clicks", "-o", "-", code=3)


def test_names_are_escaped_everywhere() -> None:
    nasty = "<&\"'>\x00\x1b[31m\u2028]]>"
    stretch = Stretch(Kind.SEALED, 0, 10, 5, nasty)
    bar = Bar(nasty, 0, 10, [stretch], [Needle(nasty, 3, 7)])
    picture = ET.fromstring(draw(Picture(nasty, nasty, [Panel(nasty, [bar], [nasty])])))  # noqa: S314 - as above
    shown = nasty.replace("\x00", "\\x00").replace("\x1b", "\\x1b").replace("\u2028", "\\u2028")
    assert words(picture).count(shown) == 5
    assert f"{shown}: 7 behind" in words(picture)
    assert picture.get("aria-label") == shown
    assert f"{shown}: sealed segment, sequences 0 to 9, 5 B" in titles(picture)


def test_a_path_with_special_characters_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "a&b<c>"
    ok("init", path)
    assert "a&b<c>" in words(drawn(path))


def test_texts_stay_within_the_picture(lake: Path) -> None:
    picture = drawn(lake)
    width, height = float(picture.get("width", 0)), float(picture.get("height", 0))
    for text in picture.iter(f"{SVG}text"):
        size, x, y = (float(text.get(name, 0)) for name in ("font-size", "x", "y"))
        reach = len(text.text or "") * size * 0.6 * (0.5 if text.get("text-anchor") == "middle" else 1)
        assert x + reach <= width, text.text
        assert y <= height, text.text
