"""Settings: what counts before what, what is refused, and that no secret is shown."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.archive.object_store import ObjectStoreTier
from latewood.catalog import CatalogOptions
from latewood.errors import NotFoundError, UsageError
from latewood.fs import PosixFS
from latewood.jobs import JobOptions
from latewood.runtime import DatabaseOptions, Store
from latewood.runtime.opening import load_settings, open_archive, open_keys
from latewood.settings.settings import Settings, make_settings, store_fields

KEY = "k1:" + "ab" * 32


def settings(file: dict[str, Any] | None = None, environ: dict[str, str] | None = None, **chosen: Any) -> Settings:
    keys = {name.replace("__", "."): value for name, value in chosen.items()}
    return make_settings(
        DatabaseOptions, file=file or {}, file_name="latewood.toml", environ=environ or {}, chosen=keys
    )


def origin(found: Settings, key: str) -> str:
    (shown,) = (one for one in found.shown if one.key == key)
    return shown.origin


def test_what_nobody_sets_is_as_the_options_have_it() -> None:
    found = settings()
    assert (found.catalog, found.jobs, found.database, found.workers) == (CatalogOptions(), JobOptions(), {}, 2)
    assert found.archive_url is None
    assert {one.origin for one in found.shown} == {"default"}


def test_an_argument_counts_before_the_environment_and_that_before_the_file() -> None:
    file, environ = {"jobs": {"lease_ms": 11_000}}, {"LATEWOOD_JOBS_LEASE_MS": "12000"}
    assert settings(file).jobs.lease_ms == 11_000
    assert settings(file, environ).jobs.lease_ms == 12_000
    found = settings(file, environ, jobs__lease_ms=13_000)
    assert found.jobs.lease_ms == 13_000
    assert origin(found, "jobs.lease_ms") == "argument"
    assert origin(settings(file, environ), "jobs.lease_ms") == "environment: LATEWOOD_JOBS_LEASE_MS"
    assert origin(settings(file), "jobs.lease_ms") == "latewood.toml"
    assert settings(file, environ, jobs__lease_ms=None).jobs.lease_ms == 12_000


@given(st.sets(st.sampled_from(["argument", "environment", "file"])))
def test_the_first_that_says_something_is_heard(layers: set[str]) -> None:
    file = {"jobs": {"poll_ms": 3}} if "file" in layers else {}
    environ = {"LATEWOOD_JOBS_POLL_MS": "2"} if "environment" in layers else {}
    found = settings(file, environ, jobs__poll_ms=1 if "argument" in layers else None)
    ranked = [("argument", 1), ("environment", 2), ("file", 3)]
    assert found.jobs.poll_ms == next((value for layer, value in ranked if layer in layers), JobOptions().poll_ms)


def test_nested_names_have_two_underscores_in_the_environment() -> None:
    environ = {
        "LATEWOOD_JOBS_BACKOFF__FIRST_MS": "5",
        "LATEWOOD_JOBS_BACKOFF__JITTER": "0.25",
        "LATEWOOD_ARCHIVE_SETTINGS__AWS_REGION": "eu-north-1",
    }
    found = settings({}, environ)
    assert (found.jobs.backoff.first_ms, found.jobs.backoff.jitter) == (5, 0.25)
    assert found.object_store is not None
    assert found.object_store.settings == {"aws_region": "eu-north-1"}


def test_no_two_settings_have_the_same_name_in_the_environment() -> None:
    names = [field.variable for field in store_fields(DatabaseOptions)]
    assert len(names) == len(set(names)) > 30


@pytest.mark.parametrize(
    ("text", "value"), [("4096", 4096), ("64KiB", 65_536), ("1.5MB", 1_500_000), (70_000, 70_000), ("2M", 2 << 20)]
)
def test_sizes_may_have_a_unit(text: str | int, value: int) -> None:
    assert settings({"database": {"chunk_bytes": text}}).database == {"chunk_bytes": value}
    assert settings({}, {"LATEWOOD_DATABASE_CHUNK_BYTES": str(text)}).database == {"chunk_bytes": value}


@pytest.mark.parametrize(("text", "value"), [("30s", 30_000), ("1h30m", 5_400_000), ("250", 250)])
def test_durations_may_have_a_unit(text: str, value: int) -> None:
    assert settings({}, {"LATEWOOD_DATABASE_RETENTION_MAX_AGE_MS": text}).database == {"retention_max_age_ms": value}


@pytest.mark.parametrize(("text", "value"), [("true", True), ("Yes", True), ("1", True), ("off", False), ("0", False)])
def test_switches(text: str, value: bool) -> None:  # noqa: FBT001 - a table of cases
    found = settings({}, {"LATEWOOD_ARCHIVE_ALLOW_HTTP": text}).object_store
    assert found is not None
    assert found.allow_http is value


def test_an_empty_variable_takes_a_value_away_that_need_not_be() -> None:
    file = {"archive": {"url": "attic"}, "database": {"key_id": "k1"}}
    assert settings(file, {"LATEWOOD_ARCHIVE_URL": "", "LATEWOOD_DATABASE_KEY_ID": ""}).archive_url is None
    with pytest.raises(UsageError, match="LATEWOOD_JOBS_LEASE_MS must be a whole number such as 30s, not ''"):
        settings({}, {"LATEWOOD_JOBS_LEASE_MS": ""})


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ({"jobs": {"lese_ms": 1}}, ["latewood.toml", "'jobs.lese_ms'", "perhaps you meant 'jobs.lease_ms'", "poll_ms"]),
        ({"job": {"lease_ms": 1}}, ["no setting 'job'", "[archive], [encryption], [catalog], [jobs], [database]"]),
        ({"job": {}}, ["no setting 'job'"]),
        ({"jobs": 3}, ["no setting 'jobs'"]),
        ({"jobs": {"lease_ms": True}}, ["jobs.lease_ms must be a whole number, not True"]),
        ({"jobs": {"lease_ms": "soon"}}, ["jobs.lease_ms must be a whole number such as 30s, not 'soon'"]),
        ({"jobs": {"lease_ms": 1.5}}, ["must be a whole number, not 1.5"]),
        ({"jobs": {"attempts_max": "5"}}, ["must be a whole number, not '5'"]),
        ({"jobs": {"lease_ms": {"a": 1}}}, ["jobs.lease_ms must be a whole number"]),
        ({"jobs": {"lease_ms": 0}}, ["latewood.toml: [jobs] lease_ms must be a whole number from"]),
        ({"jobs": {"workers": 0}}, ["latewood.toml: jobs.workers must be from 1 to 256"]),
        ({"jobs": {"backoff": {"jitter": 2}}}, ["latewood.toml: [jobs.backoff] a pause grows"]),
        ({"database": {"shards": 3}}, ["no setting 'database.shards'"]),
        ({"database": {"segment_bytes_max": 1}}, ["latewood.toml: [database] segment_bytes_max must be"]),
        ({"archive": {"url": 3}}, ["archive.url must be a text, not 3"]),
        ({"archive": {"allow_http": "yes"}}, ["archive.allow_http must be a switch, not 'yes'"]),
        ({"encryption": {"key_file": "a", "key_environment": "B"}}, ["not both"]),
    ],
)
def test_what_is_wrong_in_the_file_is_named(file: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        settings(file)
    assert [word for word in words if word not in str(caught.value)] == []


def test_what_is_wrong_in_the_environment_is_named() -> None:
    with pytest.raises(UsageError, match="LATEWOOD_JOBS_LESE_MS is no setting; perhaps you meant LATEWOOD_JOBS_LEASE"):
        settings({}, {"LATEWOOD_JOBS_LESE_MS": "1"})
    with pytest.raises(UsageError, match=r"environment: LATEWOOD_JOBS_LEASE_MS: .jobs. lease_ms must be"):
        settings({}, {"LATEWOOD_JOBS_LEASE_MS": "0"})
    with pytest.raises(UsageError, match="LATEWOOD_ARCHIVE_SETTINGS is no setting"):
        settings({}, {"LATEWOOD_ARCHIVE_SETTINGS": "x"})
    with pytest.raises(UsageError, match=r"no setting 'jobs\.x'"):
        settings(jobs__x=1)


def test_variables_that_are_no_settings_are_left_alone() -> None:
    environ = {"LATEWOOD_PURE": "1", "LATEWOOD_DEBUG": "1", "PATH": "/", "LATEWOOD_ENCRYPTION_KEYS": KEY}
    assert settings({"encryption": {"key_environment": "LATEWOOD_ENCRYPTION_KEYS"}}, environ).key_environment


SECRETS = ("topsecret", "AKIASECRET")


@pytest.mark.parametrize("name", ["aws_secret_access_key", "aws_session_token", "sas_token", "anything_else"])
def test_a_secret_is_never_shown(name: str) -> None:
    file = {"archive": {"settings": {name: "topsecret", "aws_endpoint": "http://store", "aws_region": "eu"}}}
    found = settings(file, {"LATEWOOD_ARCHIVE_SETTINGS__AWS_ACCESS_KEY_ID": "AKIASECRET"})
    shown = {one.key: one.value for one in found.shown}
    assert shown[f"archive.settings.{name}"] == shown["archive.settings.aws_access_key_id"] == "set"
    assert shown["archive.settings.aws_endpoint"] == "http://store"
    assert not [secret for secret in SECRETS if secret in repr(found)]
    assert found.object_store is not None
    assert found.object_store.settings[name] == "topsecret"


def test_a_secret_of_the_wrong_kind_is_not_shown_either() -> None:
    with pytest.raises(UsageError) as caught:
        settings({"archive": {"settings": {"aws_secret_access_key": [123456]}}})
    assert "123456" not in str(caught.value)


def test_a_url_with_credentials_is_not_shown() -> None:
    found = settings({"archive": {"url": "s3://me:topsecret@bucket"}})
    assert {one.value for one in found.shown if one.key == "archive.url"} == {"set"}


# -- the file, the archive and the keys ---------------------------------------------------------------------


def write(root: Path, text: str) -> Path:
    root.mkdir(exist_ok=True)
    (root / "latewood.toml").write_text(text)
    return root


def test_no_file_is_no_settings(tmp_path: Path) -> None:
    assert load_settings(tmp_path, PosixFS(), environ={}).archive_url is None


def test_a_file_that_is_not_toml_is_named_with_its_line(tmp_path: Path) -> None:
    write(tmp_path, "[jobs]\nlease_ms = = 3\n")
    with pytest.raises(UsageError, match=r"latewood\.toml: .*line 2"):
        load_settings(tmp_path, PosixFS(), environ={})
    (tmp_path / "latewood.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"latewood\.toml"):
        load_settings(tmp_path, PosixFS(), environ={})


def test_a_path_is_from_the_stores_root(tmp_path: Path) -> None:
    write(tmp_path, '[archive]\nurl = "attic"\n[encryption]\nkey_file = "keys"\n')
    (tmp_path / "keys").write_text(KEY)
    found = load_settings(tmp_path, PosixFS(), environ={})
    tier, keys = open_archive(found, tmp_path, PosixFS()), open_keys(found, tmp_path, PosixFS(), {})
    assert tier is not None
    assert tier.name == (tmp_path / "attic").as_uri()
    assert keys is not None
    assert keys.ids == ("k1",)


def test_a_url_is_an_object_store(tmp_path: Path) -> None:
    found = settings({"archive": {"url": "memory:///", "timeout_ms": 5}})
    assert isinstance(open_archive(found, tmp_path, PosixFS()), ObjectStoreTier)
    with pytest.raises(UsageError):
        open_archive(settings({"archive": {"url": "gopher://x"}}), tmp_path, PosixFS())


def test_keys_come_from_a_variable_too(tmp_path: Path) -> None:
    found = settings({"encryption": {"key_environment": "MY_KEYS"}})
    keys = open_keys(found, tmp_path, PosixFS(), {"MY_KEYS": KEY})
    assert keys is not None
    assert keys.current_id == "k1"
    with pytest.raises(UsageError, match="MY_KEYS is not set"):
        open_keys(found, tmp_path, PosixFS(), {})
    with pytest.raises(NotFoundError):
        open_keys(settings({"encryption": {"key_file": "none"}}), tmp_path, PosixFS(), {})


def test_a_store_is_opened_with_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write(
        tmp_path / "lake",
        '[archive]\nurl = "attic"\n[jobs]\nlease_ms = "40s"\n[database]\nkeyed = false\nchunk_bytes = "1MiB"\n',
    )
    monkeypatch.setenv("LATEWOOD_JOBS_LEASE_MS", "41s")
    with Store.open(root) as store:
        plain = store.create_database("plain")
        keyed = store.create_database("keyed", keyed=True)
        assert (plain.keyed, keyed.keyed) == (False, True)
        assert keyed.record.options.chunk_bytes == 1 << 20
        assert store.jobs.options.lease_ms == 41_000
        assert store.site_of(plain.db_id).tier is not None
    with Store.open(root, job_options=JobOptions(lease_ms=7_000)) as store:
        assert store.jobs.options.lease_ms == 7_000


def test_a_store_with_a_wrong_setting_is_not_made(tmp_path: Path) -> None:
    root = write(tmp_path / "lake", "[jobs]\nleases = 1\n")
    with pytest.raises(UsageError, match=r"no setting 'jobs\.leases'"):
        Store.open(root)
    assert [path.name for path in root.iterdir()] == ["latewood.toml"]
