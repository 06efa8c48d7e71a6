"""How an object store's troubles look to a caller: few kinds of error, bounded waits, and no secrets."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import obstore
import pytest
from obstore.exceptions import GenericError

from latewood.archive.object_store import ObjectStoreOptions, ObjectStoreTier, redacted
from latewood.archive.source import BytesSource, digest_of
from latewood.archive.tier import find, verify_object
from latewood.errors import (
    AccessDenied,
    CorruptError,
    Forked,
    LatewoodError,
    NotFoundError,
    ObjectConflict,
    TierUnavailable,
    UsageError,
)
from tests.archive.servers import ACCESS_KEY, BUCKET, SECRET_KEY, Server, free_ports
from tests.forking import in_child

KEY: Final = "clicks/one.parquet"
SOURCE: Final = BytesSource(b"content", Path("memory"))
DIGEST: Final = digest_of(SOURCE)
QUICK: Final[dict[str, Any]] = {"timeout_ms": 300, "connect_timeout_ms": 300, "retries_max": 1, "retry_ms": 2000}


def tier_at(endpoint: str, **changes: Any) -> ObjectStoreTier:
    settings = {"endpoint": endpoint, "access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY, "region": "x"}
    fields = {"allow_http": True, "backoff_ms": 1, **QUICK, "settings": settings, **changes}
    return ObjectStoreTier.open(f"s3://{BUCKET}/p", ObjectStoreOptions(**fields), lambda _: None)


@contextmanager
def answering(answer: bytes | None) -> Iterator[str]:
    """A server that gives everybody the same answer, or none."""
    listener = socket.create_server(("127.0.0.1", 0))
    kept: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            kept.append(connection)
            if answer is not None:
                connection.recv(65536)
                connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
        for connection in kept:
            connection.close()


def http(status: str, body: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()


def every_call(tier: ObjectStoreTier) -> Iterator[LatewoodError]:
    """The error of each call, which must be one."""
    calls: list[Callable[[], object]] = [
        lambda: tier.put(KEY, SOURCE, DIGEST),
        lambda: tier.get(KEY, 0, 1),
        lambda: tier.head(KEY),
        lambda: list(tier.list()),
        lambda: tier.delete(KEY),
    ]
    for call in calls:
        with pytest.raises(LatewoodError) as caught:
            call()
        assert SECRET_KEY not in str(caught.value)
        assert ACCESS_KEY not in str(caught.value)
        assert caught.value.__cause__ is None
        yield caught.value


def test_a_server_that_is_away_is_unavailable() -> None:
    (port,) = free_ports(1)
    assert {type(error) for error in every_call(tier_at(f"http://127.0.0.1:{port}"))} == {TierUnavailable}


@pytest.mark.slow
def test_a_server_that_never_answers_is_unavailable_in_time() -> None:
    with answering(None) as endpoint:
        assert {type(error) for error in every_call(tier_at(endpoint, retries_max=0))} == {TierUnavailable}


def test_a_server_with_errors_of_its_own_is_unavailable() -> None:
    with answering(http("503 Slow Down", "<Error><Code>SlowDown</Code></Error>")) as endpoint:
        errors = list(every_call(tier_at(endpoint)))
    assert {type(error) for error in errors} == {TierUnavailable}


def test_a_server_that_refuses_is_not_asked_again() -> None:
    body = f"<Error><Code>AccessDenied</Code><AWSAccessKeyId>{ACCESS_KEY}</AWSAccessKeyId></Error>"
    with answering(http("403 Forbidden", body)) as endpoint:
        assert {type(error) for error in every_call(tier_at(endpoint))} == {AccessDenied}


def test_a_request_that_is_wrong_is_not_unavailable() -> None:
    with answering(http("400 Bad Request", "<Error><Code>InvalidBucketName</Code></Error>")) as endpoint:
        tier = tier_at(endpoint)
        with pytest.raises(UsageError, match="InvalidBucketName"):
            tier.put(KEY, SOURCE, DIGEST)


class Flaky:
    """An object store in memory whose answers get lost."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, losses: int, *, arrives: bool) -> None:
        self.pauses: list[float] = []
        self.tier = ObjectStoreTier.open("memory:///", ObjectStoreOptions(retries_max=3), self.pauses.append)
        self._put, self._losses, self._arrives = obstore.put, losses, arrives
        monkeypatch.setattr(obstore, "put", self.put)

    def put(self, *arguments: Any, **options: Any) -> Any:
        if self._losses:
            self._losses -= 1
            if self._arrives:
                self._put(*arguments, **options)
            raise GenericError("the connection was lost")
        return self._put(*arguments, **options)


@pytest.mark.parametrize("arrives", [False, True])
def test_a_lost_answer_is_asked_for_again(monkeypatch: pytest.MonkeyPatch, *, arrives: bool) -> None:
    flaky = Flaky(monkeypatch, 1 if arrives else 3, arrives=arrives)
    assert flaky.tier.put(KEY, SOURCE, DIGEST).size == DIGEST.size
    assert flaky.tier.get(KEY, 0, 7) == b"content"
    assert flaky.pauses == ([0.1] if arrives else [0.1, 0.2, 0.4])


def test_retries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    flaky = Flaky(monkeypatch, 100, arrives=False)
    with pytest.raises(TierUnavailable):
        flaky.tier.put(KEY, SOURCE, DIGEST)
    assert len(flaky.pauses) == 3


def test_pauses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    flaky = Flaky(monkeypatch, 100, arrives=False)
    options = ObjectStoreOptions(retries_max=12, backoff_ms=100, backoff_max_ms=1000)
    with pytest.raises(TierUnavailable):
        ObjectStoreTier.open("memory:///", options, flaky.pauses.append).put(KEY, SOURCE, DIGEST)
    assert flaky.pauses[:5] == [0.1, 0.2, 0.4, 0.8, 1.0]
    assert max(flaky.pauses) == 1.0


@pytest.mark.parametrize("size", [10, 17 * 1024 * 1024])
@pytest.mark.parametrize("kind", ["memory", pytest.param("weed", marks=pytest.mark.slow)])
def test_an_upload_in_parts_that_breaks_off_makes_no_object(
    kind: str, size: int, request: pytest.FixtureRequest
) -> None:
    tier = ObjectStoreTier.open("memory:///", ObjectStoreOptions(create_bytes_max=1))
    if kind == "weed":
        tier = request.getfixturevalue("weed").tier(f"parts-{size}", create_bytes_max=1)
    good, bad = BytesSource(bytes(size), Path("good")), BytesSource(b"\1" * size, Path("bad"))
    with pytest.raises(CorruptError):
        tier.put(KEY, bad, digest_of(good))
    assert find(tier, KEY) is None
    assert tier.put(KEY, good, digest_of(good)).size == size
    with pytest.raises(ObjectConflict):
        tier.put(KEY, bad, digest_of(bad))
    assert verify_object(tier, KEY, digest_of(good)).size == size


def test_secrets_are_never_shown() -> None:
    options = ObjectStoreOptions(settings={"access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY})
    tier = ObjectStoreTier.open(f"s3://{BUCKET}/p", options)
    assert SECRET_KEY not in f"{options!r} {tier!r} {tier.name}"
    text = f"PUT https://h/b?X-Amz-Signature=abc&sig=d%2Fe&x=1 said {SECRET_KEY}\nDebug source: {SECRET_KEY}"
    assert redacted(text, options.settings) == "PUT https://h/b?X-Amz-Signature=***&sig=***&x=1 said ***"


@pytest.mark.parametrize("settings", [{"nonsense": "value-of-it"}, {"secret_acces_key": SECRET_KEY}])
def test_settings_that_no_store_knows_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        ObjectStoreTier.open("s3://bucket", ObjectStoreOptions(settings=settings))
    assert SECRET_KEY not in str(caught.value)


def test_memory_has_no_settings() -> None:
    with pytest.raises(UsageError):
        ObjectStoreTier.open("memory:///", ObjectStoreOptions(settings={"region": "x"}))


@pytest.mark.parametrize(
    ("url", "settings"), [("gs://bucket/p", {}), ("az://container/p", {"account_name": "account"})]
)
def test_other_clouds_can_be_named(url: str, settings: dict[str, str]) -> None:
    options = ObjectStoreOptions(settings={**settings, "skip_signature": "true"})
    assert ObjectStoreTier.open(url, options).name == url


@pytest.mark.slow
def test_a_real_server_refuses_a_wrong_secret(weed: Server) -> None:
    settings = {"endpoint": weed.endpoint, "access_key_id": ACCESS_KEY, "region": "us-east-1"}
    tier = tier_at(weed.endpoint, settings={**settings, "secret_access_key": "wrong-one"})
    for error in every_call(tier):
        assert isinstance(error, AccessDenied)


@pytest.mark.slow
def test_credentials_come_from_the_environment(weed: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_ENDPOINT", weed.endpoint)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    tier = ObjectStoreTier.open(f"s3://{BUCKET}/environment", ObjectStoreOptions(allow_http=True))
    assert tier.put(KEY, SOURCE, DIGEST).size == DIGEST.size
    assert tier.get(KEY, 0, 7) == b"content"


def test_a_bucket_that_is_not_there_is_not_found(moto: Server) -> None:
    settings = {"endpoint": moto.endpoint, "access_key_id": "a", "secret_access_key": "b", "region": "us-east-1"}
    tier = ObjectStoreTier.open("s3://nowhere/p", ObjectStoreOptions(allow_http=True, settings=settings))
    with pytest.raises(NotFoundError):
        tier.put(KEY, SOURCE, DIGEST)


def test_a_forked_child_is_told_that_it_cannot_ask_a_store_that_its_parent_has_used() -> None:
    """It waited for ever: the threads that would do it are the parent's."""
    tier = ObjectStoreTier.open("memory:///")
    tier.put(KEY, SOURCE, DIGEST)

    def work() -> None:
        for one in (tier, ObjectStoreTier.open("memory:///")):
            with pytest.raises(Forked, match="spawn"):
                one.head(KEY)
            with pytest.raises(Forked, match="spawn"):
                list(one.list())

    in_child(work)
    assert tier.head(KEY).size == SOURCE.size
