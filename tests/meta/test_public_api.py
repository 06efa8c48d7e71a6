"""The public API changes only on purpose."""

import enum
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import latewood
from tests.meta import public_api

SNAPSHOT = Path(__file__).with_name("public_api.txt")


def test_the_public_api_is_the_one_that_was_agreed_on() -> None:
    assert public_api.describe(latewood) == SNAPSHOT.read_text(), (
        "The public API differs from tests/meta/public_api.txt.  If that is meant, run `make api`, look at the "
        "difference, and tell the user of it in CHANGELOG.md."
    )


def test_every_exported_name_exists_once() -> None:
    assert len(latewood.__all__) == len(set(latewood.__all__))
    assert all(hasattr(latewood, name) for name in latewood.__all__)


class Colour(enum.Enum):
    RED = 1


class Point(NamedTuple):
    x: int
    y: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    size: int = 3


class Thing:
    def do(self, what: str, *, often: "int | None" = None) -> bytes:
        raise NotImplementedError

    @classmethod
    def make(cls) -> "Thing":
        raise NotImplementedError

    @property
    def name(self) -> str:
        raise NotImplementedError

    async def wait(self) -> None:
        raise NotImplementedError

    def _hidden(self) -> None:
        raise NotImplementedError


def test_a_description_says_what_a_caller_depends_on() -> None:
    module = ModuleType("tests")
    module.__dict__.update(Colour=Colour, Point=Point, Options=Options, Thing=Thing, LIMIT=3)
    module.__dict__["__all__"] = ["Colour", "Point", "Options", "Thing", "LIMIT"]
    assert public_api.describe(module).splitlines() == [
        "class Colour(Enum)",
        "    RED = 1",
        "LIMIT: int",
        "class Options",
        "    def new(*, size: int = 3) -> None",
        "    size: int",
        "class Point(tuple)",
        "    def new(x: int, y: int = 0)",
        "    x: int",
        "    y: int",
        "class Thing",
        "    def do(self, what: str, *, often: int | None = None) -> bytes",
        "    classmethod def make(cls) -> Thing",
        "    name: str",
        "    async def wait(self) -> None",
    ]
