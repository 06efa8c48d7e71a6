"""What `latewood cluster status` shows: nodes, each as it sees itself, and partitions as the leader has them."""

from typing import TYPE_CHECKING, Final, NamedTuple

from latewood.cli.cluster_target import Target
from latewood.cli.errors import ExitCode, say
from latewood.cli.output import Output
from latewood.errors import LatewoodError
from latewood.replica.replies import NodeProgress, PartitionInfo, StatusReply

if TYPE_CHECKING:
    from latewood.replica.client.synchronous import Client

_COLUMNS: Final = (
    "node",
    "address",
    "member",
    "role",
    "term",
    "committed",
    "applied",
    "durable",
    "first_index",
    "last_index",
    "snapshot_index",
    "partitions",
    "queued_ops",
    "queued_bytes",
    "problem",
)
_BRIEF: Final = ("node", "address", "member", "role", "term", "committed", "applied", "partitions", "problem")
_PARTITIONS_BRIEF: Final = (
    "partition",
    "first_sequence",
    "next_sequence",
    "applied_global",
    "queued_ops",
    "queued_bytes",
    "master",
)
_NOT_LED: Final = "no majority of the voters has a leader: start more nodes, or wait for an election"


class _Look(NamedTuple):
    """A cluster, as its nodes see it."""

    seen: StatusReply
    """What the node said that answered first."""
    places: dict[str, StatusReply]
    """What was said at each address that was asked, where somebody answered."""
    found: list[tuple[NodeProgress, StatusReply | str]]
    """Each member, and what it said, or why it said nothing."""
    leader: int
    """0: nobody."""
    term: int
    is_told: bool
    """Who the members are was said by a leader."""

    @property
    def outsiders(self) -> dict[str, StatusReply]:
        """By address, what nodes said that are no members; each once."""
        members = {(self.seen.cluster_id, member.node_id) for member, _ in self.found}
        nodes = {(reply.cluster_id, reply.node_id): (place, reply) for place, reply in self.places.items()}
        return dict(nodes[node] for node in nodes if node not in members)

    def why_outside(self, reply: StatusReply) -> str:
        """Return what to say of a node that is no member."""
        node = reply.node_id
        if reply.cluster_id != self.seen.cluster_id:
            return f"node {node} is of another cluster, {reply.cluster_id!r}"
        if not reply.nodes:
            return f"node {node} is no member yet: `latewood cluster add` takes it in"
        if not self.is_told:
            return f"node {node} is no member any more, as far as is known; nobody that leads can be asked"
        return f"node {node} is no member any more: it was removed; stop it, or `latewood cluster add` takes it back"

    @property
    def voters(self) -> int:
        return sum(member.role == "voter" for member, _ in self.found)

    @property
    def is_led(self) -> bool:
        """Whether a majority of the voters follows one leader, and that is there and says so."""
        said = [answer for member, answer in self.found if member.role == "voter" and isinstance(answer, StatusReply)]
        leads = any(answer.node_id == self.leader and answer.role == "leader" for answer in said)
        return leads and 2 * sum(answer.leader == self.leader for answer in said) > self.voters


def show_status(target: Target, output: Output) -> int:
    """Ask every node, and show them."""
    with target.connect() as client:
        look = _looked(client, target.addresses())
    outsiders = [(place, reply, look.why_outside(reply)) for place, reply in look.outsiders.items()]
    summary = {
        "cluster": look.seen.cluster_id,
        "leader": look.leader or None,
        "term": look.term,
        "voters": look.voters,
        "is_led": look.is_led,
    }
    rows = [_row(member, answer) for member, answer in look.found]
    rows += [[reply.node_id, place, None, *_figures(reply), why] for place, reply, why in outsiders]
    if output.format == "table":
        output.rows(_COLUMNS, rows, brief=_BRIEF)
        output.show(summary)
    else:
        output.report(summary, "nodes", _COLUMNS, rows)
    for _, _, why in outsiders:
        say(why)
    if look.found and not look.is_led:
        say(_NOT_LED)
    return ExitCode.OK if look.is_led else ExitCode.FAILED


def show_partitions(target: Target, output: Output) -> int:
    """List partitions, as the leader has them; without a leader as the node has them that answered, and say so."""
    with target.connect() as client:
        look = _looked(client, target.addresses())
        asked = look.leader if look.is_led else look.seen.node_id
        wanted = (look.seen.cluster_id, asked)
        places = [place for place, reply in look.places.items() if (reply.cluster_id, reply.node_id) == wanted]
        found = client.partitions(address=places[0] if places else None)
    columns = PartitionInfo.__struct_fields__
    rows = [[getattr(one, column) for column in columns] for one in found]
    output.rows(columns, rows, brief=_PARTITIONS_BRIEF)
    if look.is_led:
        return ExitCode.OK
    say(f"{_NOT_LED}; these are as node {asked} has them: what was acknowledged since, elsewhere, it cannot know")
    return ExitCode.FAILED


def _looked(client: "Client", addresses: list[str]) -> _Look:
    """Ask nodes who the members are, and then each of those; whoever leads knows best."""
    seen = client.status()
    answers: dict[str, StatusReply | str] = {}

    def ask(address: str) -> StatusReply | str:
        if address not in answers:
            answers[address] = _ask(client, address)
        return answers[address]

    for address in [*addresses, seen.leader_address, *(one.address for one in seen.nodes)]:
        ask(address)
    heard = [seen, *(one for one in answers.values() if isinstance(one, StatusReply))]
    ours = [one for one in heard if one.cluster_id == seen.cluster_id]
    told = max((one for one in ours if one.role == "leader"), key=lambda one: one.term, default=None)
    members = (told or next(filter(_is_member, ours), seen)).nodes
    found = [(member, ask(member.address)) for member in members]
    leader, term = seen.leader, seen.term
    for _, answer in found:
        if isinstance(answer, StatusReply) and answer.term >= term and answer.leader:
            leader, term = answer.leader, answer.term
    places = {place: answer for place, answer in answers.items() if isinstance(answer, StatusReply)}
    return _Look(seen, places, found, leader, term, told is not None)


def _is_member(reply: StatusReply) -> bool:
    """Say whether a node is a member as far as it knows."""
    return any(one.node_id == reply.node_id for one in reply.nodes)


def _ask(client: "Client", address: str) -> StatusReply | str:
    if not address:
        return "nobody knows where it is"
    try:
        return client.status(address)
    except LatewoodError as error:
        return str(error)


def _row(member: NodeProgress, answer: StatusReply | str) -> list[object]:
    if isinstance(answer, str):
        return [member.node_id, member.address, member.role, None, *[None] * 10, answer]
    return [member.node_id, member.address, member.role, *_figures(answer), None]


def _figures(answer: StatusReply) -> list[object]:
    names = ("role", "term", "committed", "applied", "durable", "first_index", "last_index", "snapshot_index")
    return [getattr(answer, name) for name in (*names, "partition_count", "queued_ops", "queued_bytes")]
