"""`append`, `cat`, `tail` and `readers` on a database of a store."""

import json
from pathlib import Path

import pytest

from latewood.runtime.sharding import shard_of
from tests.cli.shell import complaint, ok, row, rows, run
from tests.cli.store_kit import expected, fill, make_store, payloads


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return make_store(tmp_path / "lake")


def test_lines_are_records_without_a_key(lake: Path) -> None:
    result = run("append", lake / "clicks", stdin="a\nb\n")
    assert result.stderr == "latewood: 2 appended and durable, in 1 shard\n"
    found = rows("cat", lake / "clicks")
    assert [(one["shard"], one["sequence"], one["key"], one["payload"]) for one in found] == [
        (0, 0, None, "a"),
        (0, 1, None, "b"),
    ]


def test_a_field_of_json_lines_is_the_key(lake: Path) -> None:
    lines = ['{"user": "ann", "n": 1}', '{"user": 7}', '{"user": "ann", "n": 2}']
    ok("append", lake / "clicks", "--key-from", "user", stdin="\n".join(lines))
    found = {one["payload"]: (one["key"], one["shard"]) for one in rows("cat", lake / "clicks")}
    assert found == {
        lines[0]: ("ann", shard_of(b"ann", 2)),
        lines[1]: ("7", shard_of(b"7", 2)),
        lines[2]: ("ann", shard_of(b"ann", 2)),
    }


def test_the_key_may_stand_before_a_separator(lake: Path) -> None:
    ok("append", lake / "clicks", "--key-separator", "\t", stdin="ann\tone\tmore\n\tempty key\n")
    assert {(one["key"], one["payload"]) for one in rows("cat", lake / "clicks")} == {
        ("ann", "one\tmore"),
        ("", "empty key"),
    }


def test_what_cat_prints_append_reads_back(lake: Path) -> None:
    records = [
        {"key": "ann", "payload": "text", "ext_id": 5, "timestamp_ns": 1000},
        {"key_base64": "//8=", "payload_base64": "/w==", "timestamp_ns": 2000},
        {"payload": "no key", "ext_id": 6, "timestamp_ns": 3000},
    ]
    ok("append", lake / "clicks", "--json", stdin="\n".join(map(json.dumps, records)))
    ok("db", "create", lake, "copy", "--shards", "2")
    ok("append", lake / "copy", "--json", stdin=ok("cat", lake / "clicks", "--merged", "--format", "jsonl"))

    def content(database: str) -> list[dict[str, object]]:
        found = rows("cat", lake / database, "--merged")
        return [{name: one[name] for name in one if name not in ("shard", "sequence")} for one in found]

    assert content("copy") == content("clicks")
    assert content("copy")[0] == {"timestamp_ns": 1000, "ext_id": 5, "key": "ann", "payload": "text"}


def test_acknowledgements_have_shard_and_sequence(lake: Path) -> None:
    lines = "".join(f'{{"payload": "x", "key": "user-{number}"}}\n' for number in range(20))
    acks = ok("append", lake / "clicks", "--json", "--ack", stdin=lines).splitlines()
    assert sorted(acks) == sorted(f"{one['shard']} {one['sequence']}" for one in rows("cat", lake / "clicks"))
    assert len(set(acks)) == 20


@pytest.mark.parametrize(
    ("options", "stdin", "words"),
    [
        (["--json"], '{"payload": "a"}\nnonsense\n', "this is line 2; those before it were appended, none after it"),
        (["--key-from", "user"], '{"user": "a"}\n{"other": 1}\n', "no field 'user'"),
        (["--key-from", "user"], '{"user": "a"}\n[1]\n', "not a JSON object"),
        (["--key-separator", ":"], "a:b\nab\n", "no ':' to take the key before"),
        (["--json"], '{"payload": "a", "key": "b"}\n{"payload": "", "key": "b", "key_base64": "eA=="}\n', "both key"),
        ([], "fits\n" + "x" * 2000 + "\n", "does not fit"),
    ],
)
def test_a_line_that_is_no_record_is_named_and_those_before_it_are_kept(
    tmp_path: Path, options: list[str], stdin: str, words: str
) -> None:
    lake = make_store(tmp_path / "lake", "--segment-bytes", "1KiB")
    result = run("append", lake / "clicks", *options, stdin=stdin)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "this is line 2" in result.stderr
    assert len(rows("cat", lake / "clicks")) == 1


def test_a_database_without_keys_refuses_them(lake: Path) -> None:
    ok("db", "create", lake, "plain", "--no-keys")
    ok("append", lake / "plain", stdin="x\n")
    assert "key" not in row("cat", lake / "plain")
    assert "nothing here has keys" in run("append", lake / "plain", "--json", stdin='{"payload":"","key":"a"}').stderr
    assert "made without keys" in complaint("append", lake / "plain", "--key-separator", ":", code=2, stdin="a:b\n")
    assert "payload" in ok("cat", lake / "plain", "--format", "table")


def test_a_log_has_no_keys_and_none_of_the_options_of_a_database(log: Path) -> None:
    assert "nothing here has keys" in run("append", log, "--json", stdin='{"payload":"","key":"a"}').stderr
    assert "--key-from is for a database" in complaint("append", log, "--key-from", "a", code=2, stdin="")
    assert "--shard is for a database" in complaint("cat", log, "--shard", "0", code=2)
    assert "--merged is for a database" in complaint("cat", log, "--merged", code=2)


def test_a_database_has_none_of_the_options_of_a_log(lake: Path) -> None:
    line = complaint("append", lake / "clicks", "--segment-bytes", "1MiB", code=2, stdin="")
    assert "--segment-bytes is for a log" in line


@pytest.mark.parametrize("command", ["append", "cat", "tail"])
def test_a_store_is_no_database_and_what_is_missing_is_not_made(lake: Path, command: str) -> None:
    assert "is a store; name one of its databases" in complaint(command, lake, code=2, stdin="")
    assert "there is no database 'none'" in complaint(command, lake / "none", code=3, stdin="")
    assert not (lake / "none").exists()


def test_cat_takes_a_range_a_shard_a_time_and_a_generation(lake: Path) -> None:
    fill(lake, range(40))
    ok("flush", lake, "--wait")
    generation = row("status", lake)["generation"]
    fill(lake, range(40, 60))
    ok("flush", lake, "--wait")
    database = lake / "clicks"
    assert {one["shard"] for one in rows("cat", database, "--shard", "1")} == {1}
    assert [one["sequence"] for one in rows("cat", database, "--start", "2", "--stop", "4")] == [2, 3, 2, 3]
    assert sorted(one["payload"] for one in rows("cat", database, "--as-of", str(generation))) == expected(range(40))
    merged = rows("cat", database, "--merged")
    times = [one["timestamp_ns"] for one in merged]
    assert times == sorted(times)
    since = merged[50]["timestamp_ns"]
    assert {one["payload"] for one in rows("cat", database, "--since", str(since))} >= {
        one["payload"] for one in merged[50:]
    }
    assert "there is no shard 9" in complaint("cat", database, "--shard", "9", code=2)


def test_every_format_shows_shard_and_key(lake: Path) -> None:
    ok("append", lake / "clicks", "--key-separator", ":", stdin="ann:hello\n")
    shard = shard_of(b"ann", 2)
    database = lake / "clicks"
    assert json.loads(ok("cat", database, "--format", "json"))[0]["key"] == "ann"
    heading, line = ok("cat", database, "--format", "csv").splitlines()
    assert heading == "shard,sequence,timestamp_ns,ext_id,key,key_base64,payload,payload_base64"
    assert line.startswith(f"{shard},0,")
    assert ok("cat", database, "--raw") == "hello\n"
    heading, line = ok("cat", database, "--format", "table").splitlines()
    assert heading.split() == ["shard", "sequence", "timestamp", "ext", "id", "key", "payload"]
    assert line.split()[-2:] == ["ann", "hello"]


def test_tail_prints_the_youngest_of_all_shards(lake: Path) -> None:
    lines = [{"key": f"user-{n}", "payload": str(n), "timestamp_ns": 1000 + n} for n in range(30)]
    ok("append", lake / "clicks", "--json", stdin="\n".join(map(json.dumps, lines)))
    assert [one["payload"] for one in rows("tail", lake / "clicks", "-n", "4")] == ["26", "27", "28", "29"]
    assert len(rows("tail", lake / "clicks")) == 10
    assert rows("tail", lake / "clicks", "-n", "0") == []
    assert len(rows("tail", lake / "clicks", "-n", "99")) == 30


def test_a_reader_goes_on_where_it_stopped_also_in_chunks(lake: Path) -> None:
    fill(lake, range(20))
    assert len(rows("tail", lake / "clicks", "--reader", "etl")) == 20
    fill(lake, range(20, 30))
    ok("flush", lake, "--wait")
    assert row("readers", "lag", lake / "clicks") == {"name": "etl", "lag": 10}
    found = rows("tail", lake / "clicks", "--reader", "etl")
    assert sorted(one["payload"] for one in found) == expected(range(20, 30))
    assert rows("tail", lake / "clicks", "--reader", "etl") == []
    assert row("readers", "ls", lake / "clicks")["lag"] == 0


def test_readers_are_moved_and_removed(lake: Path) -> None:
    fill(lake, range(20))
    database = lake / "clicks"
    assert "there is no reader 'etl'" in complaint("readers", "seek", database, "etl", "--latest", code=3)
    assert row("readers", "seek", database, "etl", "--earliest", "--create")["lag"] == 20
    assert run("readers", "lag", database, "etl", "--max", "19").exit_code == 1
    assert run("readers", "lag", database, "etl", "--max", "20").exit_code == 0
    assert row("readers", "seek", database, "etl", "--sequence", "3")["positions"] == {"0": 3, "1": 3}
    assert row("readers", "seek", database, "etl", "--latest")["lag"] == 0
    assert row("readers", "seek", database, "etl", "--time", "1h")["lag"] == 20
    assert "would remove" in run("readers", "rm", database, "etl", "--dry-run").stderr
    ok("readers", "rm", database, "etl", "--yes")
    assert rows("readers", "ls", database) == []
    assert "there is no reader 'etl'" in complaint("readers", "lag", database, "etl", code=3)


def test_a_store_can_be_where_one_stands(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lake)
    ok("append", "clicks", stdin="record 0\n")
    assert payloads(Path()) == ["record 0"]
    assert row("db", "info", "clicks")["records"] == 1


@pytest.fixture
def damaged(lake: Path) -> Path:
    """Return the database with a reader whose position in one shard is damaged, and a sound reader."""
    fill(lake, range(20))
    for name in ("audit", "etl"):
        ok("readers", "seek", lake / "clicks", name, "--sequence", "3", "--create")
    (position,) = lake.glob("databases/*-clicks/readers/etl/00001.meta")
    position.write_bytes(b"\xff" * len(position.read_bytes()))
    return lake / "clicks"


def test_a_damaged_reader_of_a_database_is_listed_among_the_others(damaged: Path) -> None:
    result = run("readers", "ls", damaged)
    assert result.exit_code == 4
    assert len(result.stdout.splitlines()) == 2
    assert "readers/etl/00001.meta at byte " in result.stderr
    assert "`latewood readers seek`" in result.stderr
    assert run("status", damaged.parent).exit_code == 0


def test_seek_mends_a_damaged_reader_of_a_database(damaged: Path) -> None:
    assert row("readers", "seek", damaged, "etl", "--sequence", "7")["positions"] == {"0": 7, "1": 7}
    assert [one["problem"] for one in rows("readers", "ls", damaged)] == [None, None]


def test_rm_forgets_a_damaged_reader_of_a_database(damaged: Path) -> None:
    ok("readers", "rm", damaged, "etl", "--yes")
    assert [one["reader"] for one in rows("readers", "ls", damaged)] == ["audit"]
