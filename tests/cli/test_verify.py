import json
import shutil
from pathlib import Path

import pytest

import latewood
from latewood.catalog import Catalog
from latewood.fs import PosixFS
from latewood.queue.cursor import cursor_path
from tests.cli.conftest import flip
from tests.cli.shell import complaint, ok, row, rows, run
from tests.format.version_1 import downgrade


@pytest.mark.parametrize("flags", [[], ["--deep"]])
def test_a_sound_log_is_sound(log: Path, flags: list[str]) -> None:
    found = row("verify", log, *flags)
    assert found["is_sound"]
    assert found["findings"] == []
    assert found["records_checked"] == 100


def test_a_log_that_is_being_written_can_be_verified(log: Path) -> None:
    with latewood.open(log) as opened:
        opened.append(b"more")
        assert row("verify", log, "--deep")["records_checked"] == 101


@pytest.mark.parametrize(("name", "code"), [("", 0), ("absent", 3), ("there", 3)])
def test_verify_makes_nothing_beside_a_catalog(tmp_path: Path, name: str, code: int) -> None:
    (tmp_path / "there").mkdir()
    Catalog.open(tmp_path / "catalog.mdb").close()
    before = sorted(tmp_path.rglob("*"))
    assert run("verify", tmp_path / name).exit_code == code
    assert sorted(tmp_path.rglob("*")) == before


def test_a_flipped_payload_is_found_deep_down_by_file_and_byte(log: Path, sealed: Path) -> None:
    flip(sealed, 64 + 24)
    assert row("verify", log)["is_sound"]
    result = run("verify", log, "--deep")
    assert result.exit_code == 4
    (finding,) = json.loads(result.stdout)["findings"]
    assert (finding["severity"], finding["path"], finding["offset"]) == ("damage", str(sealed), 64)
    assert f"latewood: {sealed} at byte 64: " in result.stderr


@pytest.mark.parametrize(
    ("place", "remedy"),
    [
        ("partitions/7-2", "`latewood cluster repair --config node.toml` has it bring this partition back"),
        ("parent", "`latewood cluster repair --config node.toml` says how the node is replaced"),
        ("damaged/partitions-7-2", "restore the file from a copy"),
    ],
)
def test_damage_to_a_log_of_a_node_is_mended_as_a_nodes(
    tmp_path: Path, log: Path, sealed: Path, place: str, remedy: str
) -> None:
    flip(sealed, 64 + 24)
    node = tmp_path / "node"
    (node / place).parent.mkdir(parents=True)
    log.rename(node / place)
    (node / "node.json").touch()
    result = run("verify", node / place, "--deep")
    assert result.exit_code == 4
    (finding,) = json.loads(result.stdout)["findings"]
    assert remedy in finding["remedy"]
    assert remedy in result.stderr
    assert ("restore the file" in result.stderr) == (place.startswith("damaged"))


def test_a_readers_file_in_a_node_is_mended_as_any(tmp_path: Path, log: Path) -> None:
    with latewood.open(log) as opened, opened.reader("r") as reader:
        reader.commit()
    (tmp_path / "node" / "partitions").mkdir(parents=True)
    (tmp_path / "node" / "node.json").touch()
    partition = log.rename(tmp_path / "node" / "partitions" / "7-2")
    cursor_path(partition / "readers", "r").write_bytes(b"x" * 200)
    result = run("verify", partition)
    assert result.exit_code == 4
    assert "cluster repair" not in result.output


def test_what_is_newer_than_the_program_is_not_called_damaged(log: Path) -> None:
    segment = min(log.glob("segments/*/*/*/*.q"))
    data = bytearray(segment.read_bytes())
    data[8] = 99
    segment.write_bytes(data)
    for command in (["verify"], ["rebuild", "--yes"], ["rebuild", "--yes", "--accept-loss"]):
        line = complaint(*command[:1], log, *command[1:], code=1)
        assert line == f"{segment}: segment header version 99 is not known to this Latewood; upgrade this program"
    assert segment.read_bytes() == bytes(data)


def test_a_durable_record_that_is_gone_from_the_open_segment_is_damage(log: Path) -> None:
    segment = max(log.glob("segments/*/*/*/*.q"))
    data = bytearray(segment.read_bytes())
    data[104:144] = bytes(40)
    segment.write_bytes(data)
    result = run("verify", log)
    assert result.exit_code == 4
    assert f"{segment} at byte 104: a durable record is damaged" in result.stderr


def test_an_open_segment_without_a_header_is_damage(log: Path) -> None:
    segment = max(log.glob("segments/*/*/*/*.q"))
    segment.write_bytes(segment.read_bytes()[:40])
    assert run("verify", log).exit_code == 4
    for command in ("cat", "info", "append"):
        assert complaint(command, log, code=4, stdin="a\n").startswith(f"{segment} at byte ")


def test_a_missing_open_segment_is_corruption(log: Path) -> None:
    segment = max(log.glob("segments/*/*/*/*.q"))
    segment.unlink()
    for command in ("cat", "tail", "info", "segments", "append", "seal"):
        assert complaint(command, log, code=4, stdin="a\n").startswith(
            f"{segment} at byte 0: the active segment is missing"
        )
    assert run("verify", log).exit_code == 4


def test_damage_is_said_in_every_format(log: Path, sealed: Path) -> None:
    sealed.unlink()
    for name in ("table", "json", "jsonl", "csv"):
        result = run("verify", log, "--format", name)
        assert result.exit_code == 4
        assert str(sealed) in result.stdout
        assert str(sealed) in result.stderr


def test_a_warning_is_no_damage(log: Path) -> None:
    (log / "segments" / "current.sealed").unlink()
    found = row("verify", log)
    assert found["is_sound"]
    assert [finding["severity"] for finding in found["findings"]] == ["warning"]


@pytest.mark.parametrize(
    "command", [["info"], ["cat"], ["tail"], ["segments"], ["append"], ["seal"], ["init"]], ids=str
)
def test_a_corrupt_manifest_stops_every_command_and_names_the_cure(log: Path, command: list[str]) -> None:
    slot = log / f"manifest.{(log / 'manifest.current').read_bytes()[0]}"
    flip(slot, 10)
    line = complaint(*command, log, code=4, stdin="a\n")
    assert line.startswith(f"{slot} at byte ")
    assert "`latewood rebuild`" in line


def test_a_corrupt_manifest_is_rebuilt(log: Path) -> None:
    before = ok("cat", log)
    (log / "manifest.current").unlink()
    assert run("verify", log).exit_code == 4
    look = run("rebuild", log, "--dry-run")
    assert look.exit_code == 0
    assert json.loads(look.stdout)["written"] is False
    assert run("verify", log).exit_code == 4
    assert "--yes" in complaint("rebuild", log, code=2)
    done = run("rebuild", log, "--yes")
    assert done.exit_code == 0
    assert "`latewood verify --deep`" in done.stderr
    assert json.loads(done.stdout)["problems"] == []
    assert row("verify", log, "--deep")["is_sound"]
    assert ok("cat", log) == before


def test_a_missing_segment_needs_consent(log: Path) -> None:
    second = sorted(log.glob("segments/*/*/*/*.q"))[1]
    second.unlink()
    (log / "manifest.current").unlink()
    result = run("rebuild", log, "--yes")
    assert result.exit_code == 4
    assert "are missing before it" in result.stderr
    assert "--accept-loss" in result.stderr
    assert len(json.loads(result.stdout)["problems"]) == 1
    assert run("rebuild", log, "--dry-run", "--accept-loss").exit_code == 4
    assert run("rebuild", log, "--yes", "--accept-loss").exit_code == 0
    assert ok("tail", log, "-n", "1", "--raw") == "record 99\n"


def test_a_loss_that_was_accepted_is_no_damage_any_more(log: Path) -> None:
    second, third = rows("segments", log)[1:3]
    Path(second["path"]).unlink()
    assert run("verify", log).exit_code == 4
    assert run("rebuild", log, "--yes", "--accept-loss").exit_code == 0
    found = row("verify", log, "--deep")
    assert found["is_sound"]
    (finding,) = found["findings"]
    assert (finding["severity"], finding["path"]) == ("warning", third["path"])
    lost = f"records {second['first_sequence']} to {third['first_sequence'] - 1} before it are lost"
    assert finding["problem"] == f"{lost}: a rebuild accepted that"
    Path(third["path"]).unlink()
    assert "the segment is missing" in run("verify", log).stderr


def test_a_loss_before_the_open_segment_can_be_accepted_too(log: Path) -> None:
    Path(rows("segments", log)[-2]["path"]).unlink()
    assert run("rebuild", log, "--yes", "--accept-loss").exit_code == 0
    assert len(row("verify", log)["findings"]) >= 1


@pytest.mark.parametrize("slot", [0, 4096])
def test_a_damaged_slot_of_a_reader_is_told_of_though_the_other_is_sound(log: Path, slot: int) -> None:
    for place in ("--earliest", "--latest"):
        ok("readers", "seek", log, "billing", place, "--create")
    assert row("verify", log)["findings"] == []
    flip(log / "readers" / "billing.meta", slot + 20)
    (finding,) = row("verify", log)["findings"]
    assert (finding["severity"], finding["offset"]) == ("warning", slot)
    assert "one of its two slots is not sound" in finding["problem"]


def test_a_reader_that_committed_once_has_no_damaged_slot(log: Path) -> None:
    ok("readers", "seek", log, "billing", "--latest", "--create")
    with latewood.open(log, mode="r") as opened:
        opened.reader("once").close()
    assert row("verify", log)["findings"] == []


def test_a_log_that_was_never_finished_is_called_that(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "manifest.1").touch()
    for command in ("verify", "info", "cat"):
        line = complaint(command, tmp_path / "log", code=3)
        assert "its creation was cut short" in line
        assert "`latewood init`" in line
    ok("init", tmp_path / "log")
    ok("verify", tmp_path / "log")


def test_a_rebuild_that_is_not_needed_says_so(log: Path) -> None:
    look = run("rebuild", log, "--dry-run")
    assert look.exit_code == 0
    assert "there is nothing to do: the manifest is sound, and lists the same segments" in look.stderr
    assert json.loads(look.stdout)["is_needed"] is False
    (log / "manifest.current").unlink()
    look = run("rebuild", log, "--dry-run")
    end = json.loads(look.stdout)["next_sequence_min"]
    assert f"from 0 to at least {end}: the records of the last one are counted when the log is opened" in look.stderr
    assert json.loads(look.stdout)["is_needed"] is True


@pytest.mark.parametrize("lost", ["manifest.current", "index.meta", None])
def test_a_missing_newest_segment_needs_consent_as_long_as_anything_remembers_it(log: Path, lost: str | None) -> None:
    newest = max(log.glob("segments/*/*/*/*.q"))
    first = rows("segments", log)[-1]["first_sequence"]
    newest.unlink()
    if lost:
        (log / lost).unlink()
    for flag in ("--dry-run", "--yes"):
        result = run("rebuild", log, flag)
        assert result.exit_code == 4
        assert f"records {first} to 99, which were durable, are missing" in result.stderr
    assert run("rebuild", log, "--yes", "--accept-loss").exit_code == 0


def test_a_torn_tail_needs_no_consent(log: Path) -> None:
    newest = max(log.glob("segments/*/*/*/*.q"))
    end = row("info", log)["active_bytes"]
    flip(newest, end + 4)
    (log / "manifest.current").unlink()
    assert run("rebuild", log, "--yes").exit_code == 0
    ok("append", log, stdin="more\n")
    assert ok("tail", log, "-n", "2", "--raw") == "record 99\nmore\n"


def test_a_log_that_is_being_written_is_not_rebuilt(log: Path) -> None:
    with latewood.open(log):
        assert "is being written by process" in complaint("rebuild", log, "--yes", code=5)


def test_there_must_be_something_to_rebuild_from(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for flag in ("--yes", "--dry-run"):
        assert "no segments" in complaint("rebuild", tmp_path / "empty", flag, code=3)
    assert list((tmp_path / "empty").iterdir()) == []


def test_rebuild_makes_nothing_where_nothing_is(tmp_path: Path) -> None:
    for flag in ("--yes", "--dry-run"):
        assert complaint("rebuild", tmp_path / "nothing", flag, code=3).startswith("there is no log at ")
    assert not (tmp_path / "nothing").exists()


# -- which log it is ----------------------------------------------------------------------------------


def test_info_and_verify_say_which_log_it_is(log: Path) -> None:
    with latewood.open(log, mode="r") as opened:
        identity = opened.identity
    assert identity is not None
    fields = {"identity": identity.identity.hex(), "life": f"{identity.life:016x}", "owner": "anybody"}
    assert row("info", log).items() >= fields.items()
    assert row("verify", log).items() >= fields.items()


@pytest.mark.parametrize("damage", ["missing", "torn", "another life's"])
def test_verify_warns_of_an_identity_that_is_not_the_manifests(log: Path, damage: str) -> None:
    raw = (log / "identity").read_bytes()
    run("rebuild", log, "--new-life", "--yes")
    (log / "identity").unlink()
    if damage != "missing":
        (log / "identity").write_bytes(raw if damage == "another life's" else raw[:20])
    found = row("verify", log)
    assert found["is_sound"]
    (finding,) = found["findings"]
    assert (finding["severity"], finding["path"]) == ("warning", str(log / "identity"))
    latewood.open(log).close()
    assert row("verify", log)["findings"] == []


def test_an_identity_of_another_log_is_damage_and_the_log_is_not_appended_to(log: Path, tmp_path: Path) -> None:
    latewood.open(tmp_path / "other").close()
    shutil.copy(tmp_path / "other" / "identity", log / "identity")
    result = run("verify", log)
    assert result.exit_code == 4
    (finding,) = json.loads(result.stdout)["findings"]
    assert (finding["severity"], finding["path"]) == ("damage", str(log / "identity"))
    assert "came from another log" in complaint("append", log, stdin="x\n", code=4)
    (log / "identity").unlink()
    latewood.open(log).close()
    assert row("verify", log)["findings"] == []


def test_inspect_knows_what_the_file_identity_is(log: Path) -> None:
    assert "`latewood info` shows that" in complaint("inspect", log / "identity", code=2)


def test_a_rebuild_says_that_the_identity_was_lost(log: Path) -> None:
    for lost in (*log.glob("manifest.*"), log / "identity"):
        lost.unlink()
    result = run("rebuild", log, "--yes")
    assert json.loads(result.stdout)["identity"] is None
    assert "so the log has a new one: positions that name another are refused" in result.stderr


def test_a_copy_that_was_put_in_its_place_begins_a_new_life(log: Path) -> None:
    before = row("info", log)
    assert "would begin a new life at sequence 100" in run("rebuild", log, "--new-life", "--dry-run").stderr
    assert row("info", log) == before
    result = run("rebuild", log, "--new-life", "--yes")
    assert result.exit_code == 0
    assert "positions up to sequence 100 stay valid; those beyond it are refused" in result.stderr
    after = row("info", log)
    assert (after["identity"], after["next_sequence"]) == (before["identity"], 100)
    assert after["life"] != before["life"]
    shown = json.loads(result.stdout)
    assert (shown["identity"], shown["life"], shown["start_sequence"]) == (after["identity"], after["life"], 100)
    assert row("verify", log, "--deep")["findings"] == []


@pytest.mark.parametrize("flag", ["--catalog", "--accept-loss"])
def test_a_new_life_makes_nothing_again(log: Path, flag: str) -> None:
    assert "--new-life" in complaint("rebuild", log, "--new-life", flag, "--yes", code=2)


def test_a_log_of_an_older_program_has_no_lives(log: Path) -> None:
    downgrade(PosixFS(), log)
    assert row("info", log)["identity"] is None
    line = run("rebuild", log, "--new-life", "--yes").stderr
    assert "an older program made this log; opening it to append gives it an identity of its own" in line


def test_a_new_life_is_not_begun_beside_a_writer(log: Path) -> None:
    with latewood.open(log):
        assert "is being written by process" in complaint("rebuild", log, "--new-life", "--yes", code=5)
