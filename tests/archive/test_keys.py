"""Keys are read from a file or a variable, and never shown."""

from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.archive.keys import KeyRing
from latewood.errors import KeyNotFound, NotFoundError, UsageError
from latewood.testing import MemFS

NEW: Final = "a1" * 32
OLD: Final = "b2" * 32


def written(text: bytes) -> MemFS:
    fs = MemFS()
    file = fs.open(Path("keys"), create=True)
    file.pwrite(text, 0)
    file.close()
    return fs


def test_a_key_file_has_the_current_key_first() -> None:
    fs = written(f"# rotated in May\n2026-05: {NEW}\n\n2025:{OLD.upper()}\n".encode())
    keys = KeyRing.from_file(fs, Path("keys"))
    assert keys.current_id == "2026-05"
    assert keys.ids == ("2026-05", "2025")
    assert keys.secret("2025") == bytes.fromhex(OLD)


def test_an_environment_variable_has_keys_divided_by_commas() -> None:
    keys = KeyRing.from_environment({"LATEWOOD_KEYS": f"b:{NEW},a:{OLD}"}, "LATEWOOD_KEYS")
    assert keys.ids == ("b", "a")


@pytest.mark.parametrize(
    "text",
    ["", "# nothing", f"a:{NEW[:-1]}", f"a:{NEW}00", NEW, f":{NEW}", f"a b:{NEW}", f"a:{NEW}\na:{OLD}"],
)
def test_what_is_no_key_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        KeyRing.parse(text, "the key file")
    assert NEW[:8] not in str(caught.value)


@given(st.text(alphabet=st.characters(codec="ascii"), max_size=100))
def test_no_text_makes_it_stumble(text: str) -> None:
    try:
        KeyRing.parse(text, "here")
    except UsageError as error:
        assert str(error).startswith("here")  # noqa: PT017 - either outcome is fine


def test_files_that_are_none_are_refused() -> None:
    with pytest.raises(NotFoundError):
        KeyRing.from_file(MemFS(), Path("keys"))
    for data in (b"\xff" * 40, b"#" * 70_000):
        with pytest.raises(UsageError):
            KeyRing.from_file(written(data), Path("keys"))
    with pytest.raises(UsageError):
        KeyRing.from_environment({}, "LATEWOOD_KEYS")


def test_secrets_are_never_shown() -> None:
    keys = KeyRing({"now": bytes.fromhex(NEW)}, "now")
    shown = f"{keys} {keys!r} {keys.ids} {vars(KeyRing)}"
    with pytest.raises(KeyNotFound) as caught:
        keys.secret("then")
    assert NEW not in shown + str(caught.value)
    assert repr(bytes.fromhex(NEW)) not in shown + str(caught.value)
    assert "'then'" in str(caught.value)


@pytest.mark.parametrize(
    ("secrets", "current"), [({"a": b"short"}, "a"), ({"a": bytes(32)}, "b"), ({}, "a"), ({"ä": bytes(32)}, "ä")]
)
def test_rings_that_could_not_encrypt_are_refused(secrets: dict[str, bytes], current: str) -> None:
    with pytest.raises(UsageError):
        KeyRing(secrets, current)
