//! The engine's types as plain values, both ways.  `latewood.replica.engine` has their names.

use ::raft::eraftpb::{ConfState, Entry, EntryType, HardState, Message, Snapshot};
use ::raft::{Config, ProgressState, RawNode, ReadOnlyOption, ReadState, Ready};
use bytes::Bytes;
use protobuf::Message as _;
use pyo3::Borrowed;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::UsageError;
use super::window::Window;
use crate::checked::{self, Checked, Made};

/// Index, term, kind, data.
pub type EntryValue<'py> = (u64, u64, i32, Bound<'py, PyBytes>);
/// Index, term, members, data.
pub type SnapshotValue = (u64, u64, ConfValue, Vec<u8>);
/// Node, term, vote, commit, applied, persisted, last, first, role, leader, members; first and bytes in memory.
pub type StatusValue = ((u64, u64, u64, u64, u64, u64), (u64, u64, u8, u64, ConfValue), (u64, usize));
/// Node, matching index, next index, state, whether it was heard of lately.
pub type ProgressValue = (u64, u64, u64, &'static str, bool);
/// Number, role, leader, hard state, must sync.
type Head = (u64, u8, u64, Option<(u64, u64, u64)>, bool);
/// The head; entries, snapshot; messages, those to hold back; committed, reads.
pub type ReadyValue<'py> = (
    Head,
    (Bound<'py, PyList>, Option<(u64, u64, ConfValue, Bound<'py, PyBytes>)>),
    (Bound<'py, PyList>, Bound<'py, PyList>),
    (Bound<'py, PyList>, Bound<'py, PyList>),
);

/// Voters, learners, outgoing voters, learners to be, whether a joint configuration is left by itself.
pub struct ConfValue(Vec<u64>, Vec<u64>, Vec<u64>, Vec<u64>, bool);

/// As derived, but an error is the one that was raised: for one that says more there may be no memory.
impl FromPyObject<'_, '_> for ConfValue {
    type Error = PyErr;

    fn extract(conf: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        conf.extract().map(|(voters, learners, outgoing, coming, auto_leave)| {
            Self(voters, learners, outgoing, coming, auto_leave)
        })
    }
}

impl<'py> Made<'py> for ConfValue {
    fn made(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        (self.0, self.1, self.2, self.3, self.4).made(py)
    }
}

impl From<&ConfState> for ConfValue {
    fn from(conf: &ConfState) -> Self {
        let sorted = |nodes: &[u64]| {
            let mut nodes = nodes.to_vec();
            nodes.sort_unstable();
            nodes
        };
        Self(
            sorted(&conf.voters),
            sorted(&conf.learners),
            sorted(&conf.voters_outgoing),
            sorted(&conf.learners_next),
            conf.auto_leave,
        )
    }
}

impl From<ConfValue> for ConfState {
    fn from(value: ConfValue) -> Self {
        let ConfValue(voters, learners, voters_outgoing, learners_next, auto_leave) = value;
        Self { voters, learners, voters_outgoing, learners_next, auto_leave, ..Self::default() }
    }
}

/// Entries in one message, beyond its first: a frame must be able to carry it.
const APPEND_BYTES_MAX: usize = 4 << 20;

/// How the engine is to behave; `latewood.replica.raft_rs.RaftOptions` says what each means.
#[derive(FromPyObject)]
pub struct Options {
    election_ticks: usize,
    heartbeat_ticks: usize,
    election_ticks_min: usize,
    election_ticks_max: usize,
    message_bytes_max: u64,
    messages_in_flight_max: usize,
    uncommitted_bytes_max: u64,
    committed_bytes_max: u64,
    pub window_bytes_max: usize,
    priority: i64,
}

impl From<Options> for Config {
    fn from(options: Options) -> Self {
        Self {
            election_tick: options.election_ticks,
            heartbeat_tick: options.heartbeat_ticks,
            min_election_tick: options.election_ticks_min,
            max_election_tick: options.election_ticks_max,
            max_size_per_msg: options.message_bytes_max,
            max_inflight_msgs: options.messages_in_flight_max,
            max_uncommitted_size: options.uncommitted_bytes_max,
            max_committed_size_per_ready: options.committed_bytes_max,
            priority: options.priority,
            check_quorum: true,
            pre_vote: true,
            batch_append: true,
            // Followers hear of a commit with what comes next: `tell_commit` is for when nothing does.
            skip_bcast_commit: true,
            read_only_option: ReadOnlyOption::Safe,
            ..Self::default()
        }
    }
}

/// What a log store found on disk.
pub struct Recovered<'py> {
    hard_state: (u64, u64, u64),
    conf: ConfValue,
    terms: Vec<(u64, u64)>,
    last_index: u64,
    entries: Vec<EntryValue<'py>>,
    pub applied: u64,
    snapshot: Option<SnapshotValue>,
}

/// As `ConfValue`.
impl<'py> FromPyObject<'_, 'py> for Recovered<'py> {
    type Error = PyErr;

    fn extract(found: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let py = found.py();
        Ok(Self {
            hard_state: found.getattr(intern!(py, "hard_state"))?.extract()?,
            conf: found.getattr(intern!(py, "conf"))?.extract()?,
            terms: found.getattr(intern!(py, "terms"))?.extract()?,
            last_index: found.getattr(intern!(py, "last_index"))?.extract()?,
            entries: found.getattr(intern!(py, "entries"))?.extract()?,
            applied: found.getattr(intern!(py, "applied"))?.extract()?,
            snapshot: found.getattr(intern!(py, "snapshot"))?.extract()?,
        })
    }
}

impl Recovered<'_> {
    /// The log that it makes.
    pub fn window(self) -> Result<Window, String> {
        let (term, vote, commit) = self.hard_state;
        let hard_state = HardState { term, vote, commit, ..HardState::default() };
        let entries =
            self.entries.into_iter().map(entry).collect::<PyResult<_>>().map_err(|error| error.to_string())?;
        let mut window = Window::new(hard_state, self.conf.into(), self.terms, self.last_index, entries)?;
        if let Some(found) = self.snapshot {
            window.set_snapshot(snapshot(found));
        }
        if self.applied < window.compacted().0 || self.applied + 1 < window.window_first() {
            return Err(format!("entries behind the applied index {} are missing", self.applied));
        }
        Ok(window)
    }
}

/// An entry out of its value.
pub fn entry((index, term, kind, data): EntryValue<'_>) -> PyResult<Entry> {
    let data = Bytes::copy_from_slice(data.as_bytes());
    let mut entry = Entry { index, term, data, ..Entry::default() };
    entry.set_entry_type(match kind {
        0 => EntryType::EntryNormal,
        1 => EntryType::EntryConfChange,
        2 => EntryType::EntryConfChangeV2,
        _ => return Err(checked::error::<UsageError>(&format!("entry {index} is of unknown kind {kind}"))),
    });
    Ok(entry)
}

/// A snapshot out of its value.
pub fn snapshot((index, term, conf, data): SnapshotValue) -> Snapshot {
    let mut snapshot = Snapshot { data: data.into(), ..Snapshot::default() };
    let about = snapshot.mut_metadata();
    (about.index, about.term) = (index, term);
    about.set_conf_state(conf.into());
    snapshot
}

/// A ready, taken out of the engine.
pub struct Taken {
    head: Head,
    pub entries: Vec<Entry>,
    pub snapshot: Option<Snapshot>,
    messages: Vec<Message>,
    persisted_messages: Vec<Message>,
    committed: Vec<Entry>,
    reads: Vec<ReadState>,
}

impl Taken {
    /// Take everything but what the engine itself needs to go on.
    pub fn new(ready: &mut Ready, role: u8, leader: u64) -> Self {
        let hard_state = ready.hs().map(|state| (state.term, state.vote, state.commit));
        Self {
            head: (ready.number(), role, leader, hard_state, ready.must_sync()),
            entries: ready.take_entries(),
            snapshot: (!ready.snapshot().is_empty()).then(|| ready.snapshot().clone()),
            messages: ready.take_messages(),
            persisted_messages: ready.take_persisted_messages(),
            committed: ready.take_committed_entries(),
            reads: ready.take_read_states(),
        }
    }

    /// As Python objects.
    pub fn to_python<'py>(&self, py: Python<'py>) -> PyResult<ReadyValue<'py>> {
        let snapshot = self.snapshot.as_ref().map(|snapshot| {
            let (about, data) = (snapshot.get_metadata(), checked::bytes(py, &snapshot.data)?);
            Ok::<_, PyErr>((about.index, about.term, ConfValue::from(about.get_conf_state()), data))
        });
        let read = |read: &ReadState| (read.index, checked::bytes(py, &read.request_ctx)?).made(py);
        let reads = checked::collect(self.reads.iter().map(read))?;
        Ok((
            self.head,
            (entries(py, &self.entries)?, snapshot.transpose()?),
            (messages(py, &self.messages)?, messages(py, &self.persisted_messages)?),
            (entries(py, &self.committed)?, checked::list(py, reads)?),
        ))
    }
}

/// The engine in figures, and how far each node has come, if we lead.
pub fn status(node: &RawNode<Window>) -> (StatusValue, Vec<ProgressValue>) {
    let raft = &node.raft;
    let (log, window, conf) = (&raft.raft_log, node.store(), raft.prs().conf().to_conf_state());
    let leads = raft.state == ::raft::StateRole::Leader;
    let mut progress: Vec<_> = raft
        .prs()
        .iter()
        .filter(|_| leads)
        .map(|(id, one)| {
            let state = match one.state {
                ProgressState::Probe => "probe",
                ProgressState::Replicate => "replicate",
                ProgressState::Snapshot => "snapshot",
            };
            (*id, one.matched, one.next_idx, state, one.recent_active)
        })
        .collect();
    progress.sort_unstable();
    let status = (
        (raft.id, raft.term, raft.vote, log.committed, log.applied, log.persisted),
        (log.last_index(), log.first_index(), raft.state as u8, raft.leader_id, ConfValue::from(&conf)),
        (window.window_first(), window.bytes()),
    );
    (status, progress)
}

fn entries<'py>(py: Python<'py>, entries: &[Entry]) -> PyResult<Bound<'py, PyList>> {
    let value = |entry: &Entry| {
        (entry.index, entry.term, entry.get_entry_type() as i32, checked::bytes(py, &entry.data)?).made(py)
    };
    checked::list(py, checked::collect(entries.iter().map(value))?)
}

fn messages<'py>(py: Python<'py>, messages: &[Message]) -> PyResult<Bound<'py, PyList>> {
    let values = checked::empty_list(py)?;
    let add = |message: &Message| {
        let data = message.write_to_bytes().expect("messages are shorter than 2 GiB");
        values.append(Checked((message.to, message.get_msg_type() as i32, checked::bytes(py, &data)?)))
    };
    for message in messages {
        if message.entries.iter().map(|entry| entry.data.len()).sum::<usize>() <= APPEND_BYTES_MAX {
            add(message)?;
        } else {
            pieces(message).iter().try_for_each(add)?;
        }
    }
    Ok(values)
}

/// An append as several, each of which begins behind the one before it.
///
/// The engine joins all that is for one node in a turn, without a bound; these are as good as those that it joined.
fn pieces(whole: &Message) -> Vec<Message> {
    let mut head = whole.clone();
    let entries: Vec<Entry> = head.take_entries().into();
    let (mut found, mut size) = (Vec::<Message>::new(), 0);
    for entry in entries {
        size += entry.data.len();
        if found.is_empty() || size > APPEND_BYTES_MAX {
            size = entry.data.len();
            if let Some(last) = found.last().and_then(|piece| piece.entries.last()) {
                (head.index, head.log_term) = (last.index, last.term);
            }
            found.push(head.clone());
        }
        let piece = found.last_mut().expect("the first entry begins one");
        piece.mut_entries().push(entry);
    }
    found
}
