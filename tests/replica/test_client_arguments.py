"""What is handed to a client is looked at before anything is sent, and what is wrong with it is said in words."""

from typing import Any, Final, cast

import pytest

import latewood
from latewood.errors import UsageError
from latewood.replica.client.asynchronous import AsyncClient
from latewood.replica.client.options import Address
from latewood.replica.requests import GROUP_REQUESTS_MAX, REQUEST_WINDOW
from tests.replica.fake_cluster import FakeCluster
from tests.replica.test_client import played


@pytest.mark.parametrize("addresses", [[], "127.0.0.1:7300", ["127.0.0.1"], ["a:0"], ["a:70000"], [":7"], ["a:b"]])
def test_addresses_are_looked_at(addresses: Any) -> None:
    with pytest.raises(UsageError):
        latewood.connect(addresses)


def test_an_address_may_be_of_ipv6() -> None:
    assert Address.parse("[::1]:7300") == ("::1", 7300)


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 1},
        {"timeout_ms": 0},
        {"timeout_ms": 300_001},
        {"pipeline": REQUEST_WINDOW},
        {"attempt_ms": 1.5},
        {"batch_records_max": GROUP_REQUESTS_MAX + 1},
    ],
)
def test_options_are_looked_at(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        latewood.connect(["127.0.0.1:1"], **options)


def test_arguments_of_another_type_are_told_before_anything_is_sent() -> None:
    """A node would close the connection, and the client would try that until its time is over."""

    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        wrong: Any = "x"
        for call in (
            client.partitions(wrong),
            client.barrier(wrong),
            client.barrier(1, wrong),
            client.add_node(wrong, "127.0.0.1:1"),
            client.partition(7).append_many(cast("Any", 5)),
            client.partition(7).reader(cast("Any", 5)),
            client.resolve(cast("Any", ValueError())),
        ):
            with pytest.raises(UsageError):
                await call
        assert not cluster.records

    played(act)


WRONG_ARGUMENTS: Final[list[tuple[str, tuple[Any, ...], dict[str, Any], str]]] = [
    ("barrier", (), {"timeout": "x"}, "timeout must be seconds, as in 1.5, not 'x'"),
    ("barrier", (), {"timeout": None}, "timeout must be seconds"),
    ("barrier", (), {"timeout": float("inf")}, "timeout must be seconds"),
    ("barrier", (-1,), {}, "a global index must be from 0 to"),
    ("barrier", (1 << 70,), {}, "a global index must be from 0 to"),
    ("barrier", (1, ["a"]), {}, "a partition must be a whole number, not 'a'"),
    ("partitions", (7,), {}, "as in .7, 8., not 7"),
    ("partitions", (["a"],), {}, "a partition must be a whole number, not 'a'"),
    ("partitions", ("7",), {}, "as in .7, 8., not '7'"),
    ("transfer_leader", ("2",), {}, "the id of a node must be a whole number, not '2'"),
    ("remove_node", ("1",), {}, "the id of a node must be a whole number, not '1'"),
    ("remove_node", (0,), {}, "the id of a node is 1 or more"),
    ("add_node", ("4", "127.0.0.1:1"), {}, "the id of a node must be a whole number, not '4'"),
    ("add_node", (4, 5), {}, "an address is host:port"),
    ("tear_down", (True,), {}, "a partition must be a whole number, not True"),
    ("resume", ("x",), {}, "a partition must be a whole number, not 'x'"),
]


@pytest.mark.parametrize(("name", "arguments", "options", "text"), WRONG_ARGUMENTS)
def test_what_is_wrong_with_an_argument_is_said_in_words(
    name: str, arguments: tuple[Any, ...], options: dict[str, Any], text: str
) -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        with pytest.raises(UsageError, match=text):
            await getattr(client, name)(*arguments, **options)
        assert not cluster.seen

    played(act)


def test_a_partition_and_a_sequence_are_whole_numbers_in_bounds() -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        for wrong in (True, "7", -1, 1 << 63):
            with pytest.raises(UsageError, match="a partition must be"):
                client.partition(cast("Any", wrong))
        for call in (client.partition(7).read(1 << 70), anext(client.partition(7).scan(1 << 70))):
            with pytest.raises(UsageError, match="a sequence must be from 0 to"):
                await call
        assert not cluster.seen

    played(act)


def test_tls_is_looked_at() -> None:
    with pytest.raises(UsageError, match="tls"):
        latewood.connect(["127.0.0.1:1"], tls=cast("Any", 5))


@pytest.mark.parametrize("payload", ["text", 7, None])
def test_a_payload_is_bytes(payload: Any) -> None:
    async def act(client: AsyncClient, cluster: FakeCluster) -> None:
        for call in (client.partition(7).append(payload), client.partition(7).append_many([b"x", payload])):
            with pytest.raises(UsageError, match="a payload is bytes"):
                await call
        assert not cluster.records

    played(act)
