//! The Raft core: tikv/raft-rs behind plain values.
//!
//! Nothing here opens a file, sends a byte, reads a clock or calls Python back.  `latewood.replica.engine` says in
//! which order whoever drives it must write and send.  A panic of the engine poisons the core: every later call
//! fails, and the node must start again from what is durable.

mod values;
mod window;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use ::raft::eraftpb::{
    ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, Entry, EntryType, Message, MessageType,
};
use ::raft::{Config, Error, INVALID_ID, RawNode, SnapshotStatus, StateRole};
use bytes::Bytes;
use protobuf::Message as _;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList};

use crate::checked::{self, Checked, Made};
use values::{ConfValue, EntryValue, Options, ReadyValue, Recovered, SnapshotValue, StatusValue};
use window::Window;

pyo3::import_exception!(latewood.errors, Poisoned);
pyo3::import_exception!(latewood.errors, UsageError);

/// Token, first, end, bytes.
type Fetch = (u64, u64, u64, u64);

/// One node's Raft.  Private by name: the public names of this module are those of the kernel, which has a pure twin.
#[pyclass(module = "latewood._native", name = "_RaftCore")]
pub struct RaftCore {
    node: RawNode<Window>,
    window_bytes_max: usize,
    poisoned: Option<String>,
}

impl RaftCore {
    /// Run the engine; if it panics, never again.
    fn run<T>(&mut self, action: impl FnOnce(&mut RawNode<Window>) -> T) -> PyResult<T> {
        if let Some(reason) = &self.poisoned {
            return Err(checked::error::<Poisoned>(&format!("the engine broke before: {reason}")));
        }
        watched(|| action(&mut self.node)).map_err(|reason| {
            self.poisoned = Some(reason.clone());
            checked::error::<Poisoned>(&format!("the engine broke: {reason}"))
        })
    }

    /// Have every later call fail: there was no memory for what the engine said.
    fn break_off(&mut self, what: &str) {
        self.poisoned = Some(format!("there was no memory for {what}, and the engine does not say it twice"));
    }

    /// Append what is proposed, all or none; the index of the first, or 0.
    fn append<'py>(&mut self, py: Python<'py>, entries: Vec<Entry>) -> PyResult<Bound<'py, PyAny>> {
        // What is appended must be told, and telling takes memory.
        let (first, none) = ((self.node.raft.raft_log.last_index() + 1).made(py)?, 0u64.made(py)?);
        self.run(|node| {
            if node.raft.state != StateRole::Leader {
                return Ok(none);
            }
            let mut message = Message::default();
            message.set_msg_type(MessageType::MsgPropose);
            message.from = node.raft.id;
            message.set_entries(entries.into());
            match node.raft.step(message) {
                Ok(()) => Ok(first),
                Err(Error::ProposalDropped) => Ok(none),
                Err(error) => Err(usage(&error)),
            }
        })?
    }
}

#[pymethods]
impl RaftCore {
    /// Start from what a log store recovered.
    #[new]
    fn new(node: u64, options: Options, recovered: &Bound<'_, PyAny>) -> PyResult<Self> {
        let recovered: Recovered<'_> = recovered.extract()?;
        let window_bytes_max = options.window_bytes_max;
        let config = Config { id: node, applied: recovered.applied, ..options.into() };
        config.validate().map_err(|error| usage(&error))?;
        let window = recovered.window().map_err(|why| checked::error::<UsageError>(&why))?;
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let node =
            watched(|| RawNode::new(&config, window, &logger)).map_err(|why| checked::error::<UsageError>(&why))?;
        Ok(Self { node: node.map_err(|error| usage(&error))?, window_bytes_max, poisoned: None })
    }

    /// Let one unit of time pass.
    fn tick(&mut self) -> PyResult<()> {
        self.run(|node| is_installing(node) || node.tick()).map(drop)
    }

    /// As the leader, say that we are there, and how far is committed.
    fn tell_commit(&mut self) -> PyResult<()> {
        self.run(RawNode::ping)
    }

    /// Take in messages that `sender` sent.
    fn step(&mut self, sender: u64, messages: &Bound<'_, PyAny>) -> PyResult<()> {
        for message in messages.extract::<Vec<Bound<'_, PyBytes>>>()? {
            let message = Message::parse_from_carllerche_bytes(&Bytes::from_owner(PyBackedBytes::from(message)))
                .map_err(|error| checked::error::<UsageError>(&format!("no message: {error}")))?;
            if message.from != sender || message.to != self.node.raft.id {
                let route = format!("a message of node {} to node {}", message.from, message.to);
                return Err(checked::error::<UsageError>(&format!("{route} came from node {sender}")));
            }
            let refused = match message.get_msg_type() {
                // Only a leader proposes, after admission, and only its own node tells it to hand over.
                MessageType::MsgPropose | MessageType::MsgTransferLeader => true,
                MessageType::MsgTimeoutNow => is_installing(&self.node),
                // Nobody who joins is asked before a leader has told it everything.  Who is asked and knows nothing has
                // lost what it knew: its vote could make a leader of somebody who lacks what it once acknowledged.
                MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => {
                    self.node.raft.raft_log.last_index() == 0
                }
                _ => false,
            };
            if refused {
                continue;
            }
            match self.run(|node| node.step(message))? {
                // A node that is no member any more still talks; that is no error of ours.
                Ok(()) | Err(Error::StepPeerNotFound | Error::ProposalDropped) => {}
                Err(error) => return Err(usage(&error)),
            }
        }
        Ok(())
    }

    /// Append entries as the leader: the index of the first, 0 if they were refused.
    fn propose<'py>(&mut self, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (py, data) = (data.py(), data.extract::<Vec<Bound<'_, PyBytes>>>()?);
        if data.is_empty() {
            return 0u64.made(py);
        }
        let own = |data| Bytes::from_owner(PyBackedBytes::from(data)); // Python's own bytes: nothing is copied.
        self.append(py, data.into_iter().map(|data| Entry { data: own(data), ..Entry::default() }).collect())
    }

    /// Propose a change of membership: its index, 0 if it was refused.
    fn propose_change<'py>(
        &mut self,
        changes: &Bound<'py, PyAny>,
        context: Vec<u8>,
        joint: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, changes) = (changes.py(), changes.extract::<Vec<(i32, u64)>>()?);
        let outgoing = !self.node.raft.prs().conf().to_conf_state().voters_outgoing.is_empty();
        if self.node.raft.has_pending_conf() || outgoing != changes.is_empty() {
            return 0u64.made(py); // The engine would put an empty entry in its place.
        }
        let mut change = ConfChangeV2 { context: context.into(), ..ConfChangeV2::default() };
        change.set_transition(if joint { ConfChangeTransition::Implicit } else { ConfChangeTransition::Auto });
        for (kind, node_id) in changes {
            let kind = match kind {
                0 => ConfChangeType::AddNode,
                1 => ConfChangeType::RemoveNode,
                2 => ConfChangeType::AddLearnerNode,
                _ => return Err(checked::error::<UsageError>(&format!("no change of membership is called {kind}"))),
            };
            let mut single = ConfChangeSingle { node_id, ..ConfChangeSingle::default() };
            single.set_change_type(kind);
            change.mut_changes().push(single);
        }
        let data = change.write_to_bytes().map_err(|error| checked::error::<UsageError>(&error.to_string()))?;
        let mut entry = Entry { data: data.into(), ..Entry::default() };
        entry.set_entry_type(EntryType::EntryConfChangeV2);
        self.append(py, vec![entry])
    }

    /// Make a committed change of membership take effect; who is a member now.
    fn apply_change<'py>(&mut self, py: Python<'py>, kind: i32, data: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        if kind != EntryType::EntryConfChangeV2 as i32 {
            return Err(checked::error::<UsageError>(&format!(
                "an entry of kind {kind} is no change of membership of ours"
            )));
        }
        let change =
            ConfChangeV2::parse_from_bytes(data).map_err(|error| checked::error::<UsageError>(&error.to_string()))?;
        let applied = self.run(|node| {
            let conf = node.apply_conf_change(&change)?;
            if node.raft.state == StateRole::Leader && !node.raft.promotable() {
                // The engine lets a leader that is no voter any more go on.  It would refuse every proposal, and
                // panic at the next commit.
                let term = node.raft.term;
                node.raft.become_follower(term, INVALID_ID);
            }
            Ok(conf)
        })?;
        let conf = applied.map_err(|error: Error| usage(&error))?;
        ConfValue::from(&conf).made(py).inspect_err(|_| self.break_off("who is a member now"))
    }

    /// Ask for a linearizable read.
    fn read_index(&mut self, context: Vec<u8>) -> PyResult<()> {
        self.run(|node| node.read_index(context))
    }

    /// Whether there is anything to do.
    fn has_ready(&mut self) -> PyResult<bool> {
        self.run(|node| node.has_ready())
    }

    /// Take what is to be done.  The engine may go on at once; `on_persisted` says when it is durable.
    fn ready<'py>(&mut self, py: Python<'py>) -> PyResult<Checked<ReadyValue<'py>>> {
        let taken = self.run(|node| {
            let mut ready = node.ready();
            let taken = values::Taken::new(&mut ready, node.raft.state as u8, node.raft.leader_id);
            if let Some(snapshot) = &taken.snapshot {
                node.mut_store().install(snapshot);
            }
            node.mut_store().append(&taken.entries);
            node.advance_append_async(ready);
            taken
        })?;
        taken.to_python(py).map(Checked).inspect_err(|_| self.break_off("what is to be done"))
    }

    /// This ready, and every one before it, is durable.
    fn on_persisted(&mut self, number: u64) -> PyResult<()> {
        self.run(|node| node.on_persist_ready(number))
    }

    /// Committed entries up to `index` were handed on.
    fn on_applied(&mut self, index: u64) -> PyResult<()> {
        let bytes_max = self.window_bytes_max;
        self.run(|node| {
            node.advance_apply_to(index);
            node.mut_store().trim(index, bytes_max);
        })
    }

    /// Old entries that are needed: token, first, end, bytes.
    fn fetches<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let fetches: Vec<Fetch> = self.run(|node| node.store().take_fetches())?;
        fetches.made(py).inspect_err(|_| self.break_off("the entries that it needs"))
    }

    /// Answer a request for old entries.
    fn on_fetched(&mut self, token: u64, entries: &Bound<'_, PyAny>) -> PyResult<()> {
        let entries =
            entries.extract::<Vec<EntryValue<'_>>>()?.into_iter().map(values::entry).collect::<PyResult<_>>()?;
        self.run(|node| {
            for waiter in node.mut_store().answer(token, entries) {
                node.on_entries_fetched(waiter);
            }
            node.mut_store().end_loan();
        })
    }

    /// The least index of a snapshot that some node waits for; 0: none.
    fn wants_snapshot(&mut self) -> PyResult<Checked<u64>> {
        self.run(|node| node.store().wants_snapshot()).map(Checked)
    }

    /// Have a snapshot ready for nodes that are too far behind.
    fn set_snapshot(&mut self, snapshot: &Bound<'_, PyAny>) -> PyResult<()> {
        let snapshot: SnapshotValue = snapshot.extract()?;
        self.run(|node| node.mut_store().set_snapshot(values::snapshot(snapshot)))
    }

    /// Forget entries up to `index`.
    fn compact(&mut self, index: u64) -> PyResult<()> {
        if index > self.node.raft.raft_log.applied() {
            return Err(checked::error::<UsageError>(&format!("entry {index} is not applied yet")));
        }
        self.run(|node| node.mut_store().compact(index))
    }

    /// The last messages to a node were lost.
    fn report_unreachable(&mut self, node: u64) -> PyResult<()> {
        self.run(|raw| raw.report_unreachable(node))
    }

    /// How sending a snapshot ended.
    fn report_snapshot(&mut self, node: u64, arrived: bool) -> PyResult<()> {
        let status = if arrived { SnapshotStatus::Finish } else { SnapshotStatus::Failure };
        self.run(|raw| raw.report_snapshot(node, status))
    }

    /// Ask a node to take over.
    fn transfer_leader(&mut self, node: u64) -> PyResult<()> {
        self.run(|raw| raw.transfer_leader(node))
    }

    /// Stand for election now, if this node may: one that has no vote would win, and panic.
    fn campaign(&mut self) -> PyResult<()> {
        let may = |node: &RawNode<Window>| node.raft.promotable() && !is_installing(node);
        let campaign = |node: &mut RawNode<Window>| if may(node) { node.campaign() } else { Ok(()) };
        self.run(campaign)?.map_err(|error| usage(&error))
    }

    /// The engine in figures.
    fn status<'py>(&mut self, py: Python<'py>) -> PyResult<Checked<(StatusValue, Bound<'py, PyList>)>> {
        let (status, progress) = self.run(|node| values::status(node))?;
        let progress = checked::collect(progress.into_iter().map(|one| one.made(py)))?;
        Ok(Checked((status, checked::list(py, progress)?)))
    }
}

/// Whether a snapshot is on its way to the disk.  Until it is applied the node must not stand for election: the engine
/// would look for the entries that the snapshot took the place of.
fn is_installing(node: &RawNode<Window>) -> bool {
    node.store().compacted().0 > node.raft.raft_log.applied
}

fn usage(error: &Error) -> PyErr {
    checked::error::<UsageError>(&error.to_string())
}

/// Run the engine; if it panics, return why and where, and print nothing: whoever called gets an error.
fn watched<T>(action: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    thread_local! {
        static WATCHED: Cell<bool> = const { Cell::new(false) };
        static REASON: Cell<String> = const { Cell::new(String::new()) };
    }
    HOOK.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |panic| {
            if WATCHED.get() {
                REASON.set(panic.to_string().replace('\n', " "));
            } else {
                usual(panic);
            }
        }));
    });
    WATCHED.set(true);
    let result = catch_unwind(AssertUnwindSafe(action));
    WATCHED.set(false);
    result.map_err(|_| REASON.take())
}
