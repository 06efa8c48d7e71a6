//! The log as the engine sees it: the term of every entry, and the newest entries themselves.
//!
//! The log is on disk, and Python owns the disk.  What the engine needs at once it finds here: terms, kept as the
//! places where they change, and the entries above the applied index.  What a lagging node needs beyond that is asked
//! for, fetched by Python, and lent to the engine for the length of one call.
//!
//! Invariant: every entry above the applied index is in `entries`, and `entries` ends at `last`.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ::raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use ::raft::{Error, GetEntriesContext, RaftState, Result, Storage, StorageError};

/// What an entry takes in a message beside its data, about.
const ENTRY_OVERHEAD: usize = 24;

/// More callers than this for the same entries try again by themselves, at the next heartbeat.
const WAITERS_MAX: usize = 16;

/// Entries that somebody has to read from the disk.
pub struct Fetch {
    pub token: u64,
    pub low: u64,
    pub high: u64,
    pub bytes_max: u64,
    pub waiters: Vec<GetEntriesContext>,
    taken: bool,
}

/// What the engine asked for while it could only look.
#[derive(Default)]
struct Asked {
    fetches: Vec<Fetch>,
    tokens: u64,
    snapshot: u64,
}

/// The log of one node.
pub struct Window {
    state: RaftState,
    /// The compacted index with its term, then the first index of each further term.
    terms: Vec<(u64, u64)>,
    last: u64,
    entries: VecDeque<Entry>,
    bytes: usize,
    snapshot: Option<Snapshot>,
    lent: Vec<Entry>,
    asked: Mutex<Asked>,
}

impl Window {
    /// A log as it was recovered; an error says what is wrong with it.
    pub fn new(
        hard_state: HardState,
        conf_state: ConfState,
        terms: Vec<(u64, u64)>,
        last: u64,
        entries: Vec<Entry>,
    ) -> std::result::Result<Self, &'static str> {
        let Some(&(compacted, _)) = terms.first() else { return Err("the compacted index has no term") };
        if compacted > last || terms.windows(2).any(|pair| pair[0].0 >= pair[1].0 || pair[0].1 > pair[1].1) {
            return Err("terms fall, or the log ends before it begins");
        }
        let mut window = Self {
            state: RaftState::new(hard_state, conf_state),
            terms,
            last,
            entries: VecDeque::new(),
            bytes: 0,
            snapshot: None,
            lent: Vec::new(),
            asked: Mutex::default(),
        };
        if let Some(first) = entries.first() {
            let end = first.index + entries.len() as u64;
            let in_order = (first.index..).zip(&entries).all(|(index, entry)| entry.index == index);
            if first.index <= compacted || end != last + 1 || !in_order {
                return Err("the entries are not the end of the log");
            }
            if entries.iter().any(|entry| window.term_at(entry.index) != entry.term) {
                return Err("an entry has another term than the log says");
            }
        }
        for entry in entries {
            window.push(entry);
        }
        Ok(window)
    }

    /// The index and term in front of the first entry.
    pub fn compacted(&self) -> (u64, u64) {
        self.terms[0]
    }

    /// The first entry that is in memory, or the next to come.
    pub fn window_first(&self) -> u64 {
        self.last + 1 - self.entries.len() as u64
    }

    /// The size of what is in memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Put entries at the end, in place of whatever is at their indices and behind.
    pub fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        assert!(first.index <= self.last + 1, "a gap before entry {}", first.index);
        assert!(first.index >= self.window_first(), "entry {} is applied and cannot change", first.index);
        while self.last >= first.index {
            let gone = self.entries.pop_back().expect("the window ends at the last entry");
            self.bytes -= size(&gone);
            self.last -= 1;
        }
        while self.terms.last().is_some_and(|run| run.0 > self.last) && self.terms.len() > 1 {
            self.terms.pop();
        }
        for entry in entries {
            self.last += 1;
            if self.terms.last().is_some_and(|run| run.1 != entry.term) {
                self.terms.push((self.last, entry.term));
            }
            self.push(entry.clone());
        }
    }

    /// Begin anew behind a snapshot.
    pub fn install(&mut self, snapshot: &Snapshot) {
        let about = snapshot.get_metadata();
        self.entries.clear();
        self.bytes = 0;
        self.last = about.index;
        self.terms = vec![(about.index, about.term)];
        self.snapshot = Some(snapshot.clone());
    }

    /// Let go of entries up to `applied` until `bytes_max` is kept.
    pub fn trim(&mut self, applied: u64, bytes_max: usize) {
        while self.bytes > bytes_max && self.entries.front().is_some_and(|entry| entry.index <= applied) {
            self.pop_front();
        }
    }

    /// Forget everything up to `index`.
    pub fn compact(&mut self, index: u64) {
        if index <= self.compacted().0 {
            return;
        }
        let term = self.term_at(index);
        let behind = self.terms.partition_point(|run| run.0 <= index);
        self.terms.splice(..behind, [(index, term)]);
        while self.entries.front().is_some_and(|entry| entry.index <= index) {
            self.pop_front();
        }
    }

    /// What to send to nodes that need more than the log has.
    pub fn set_snapshot(&mut self, snapshot: Snapshot) {
        self.asked().snapshot = 0;
        self.snapshot = Some(snapshot);
    }

    /// The least index of a snapshot that was asked for in vain; 0: none.
    pub fn wants_snapshot(&self) -> u64 {
        self.asked().snapshot
    }

    /// Requests that nobody has taken yet: token, range and bytes.
    pub fn take_fetches(&self) -> Vec<(u64, u64, u64, u64)> {
        let mut asked = self.asked();
        let news = asked.fetches.iter_mut().filter(|fetch| !fetch.taken);
        news.map(|fetch| {
            fetch.taken = true;
            (fetch.token, fetch.low, fetch.high, fetch.bytes_max)
        })
        .collect()
    }

    /// End a request: those who wait for it, if there is any use in calling them.
    pub fn answer(&mut self, token: u64, entries: Vec<Entry>) -> Vec<GetEntriesContext> {
        let found = {
            let mut asked = self.asked();
            let place = asked.fetches.iter().position(|fetch| fetch.token == token);
            place.map(|place| asked.fetches.swap_remove(place))
        };
        let Some(fetch) = found else { return Vec::new() };
        let gone = fetch.low <= self.compacted().0;
        let sound = (fetch.low..fetch.high).zip(&entries).all(|(index, entry)| {
            entry.index == index
                && index > self.compacted().0
                && index <= self.last
                && self.term_at(index) == entry.term
        });
        if !gone && (entries.is_empty() || !sound) {
            return Vec::new(); // The engine asks again at the next heartbeat.
        }
        self.lent = if gone { Vec::new() } else { entries };
        fetch.waiters
    }

    /// Take back what was lent.
    pub fn end_loan(&mut self) {
        self.lent = Vec::new();
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&mut self, entry: Entry) {
        self.bytes += size(&entry);
        self.entries.push_back(entry);
    }

    fn pop_front(&mut self) {
        if let Some(gone) = self.entries.pop_front() {
            self.bytes -= size(&gone);
        }
    }

    fn term_at(&self, index: u64) -> u64 {
        let behind = self.terms.partition_point(|run| run.0 <= index);
        self.terms[behind - 1].1
    }

    fn ask(&self, low: u64, high: u64, bytes_max: u64, waiter: GetEntriesContext) {
        let mut asked = self.asked();
        if let Some(fetch) = asked.fetches.iter_mut().find(|fetch| fetch.low == low) {
            if fetch.waiters.len() < WAITERS_MAX {
                fetch.waiters.push(waiter);
            }
            return;
        }
        asked.tokens += 1;
        let token = asked.tokens;
        asked.fetches.push(Fetch { token, low, high, bytes_max, waiters: vec![waiter], taken: false });
    }
}

impl Storage for Window {
    fn initial_state(&self) -> Result<RaftState> {
        Ok(self.state.clone())
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        context: GetEntriesContext,
    ) -> Result<Vec<Entry>> {
        if low <= self.compacted().0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        assert!(high <= self.last + 1, "entries up to {high} of a log that ends at {}", self.last);
        let bytes_max = max_size.into().unwrap_or(u64::MAX);
        let count = usize::try_from(high.saturating_sub(low)).unwrap_or(usize::MAX);
        let place = |first: u64| usize::try_from(low - first).unwrap_or(usize::MAX);
        if low >= self.window_first() {
            return Ok(limited(self.entries.range(place(self.window_first())..).take(count), bytes_max));
        }
        let lent = |first: &u64| (*first..*first + self.lent.len() as u64).contains(&low);
        if let Some(first) = self.lent.first().map(|entry| entry.index).filter(lent) {
            return Ok(limited(self.lent[place(first)..].iter().take(count), bytes_max));
        }
        if !context.can_async() {
            return Err(Error::Store(StorageError::Unavailable));
        }
        self.ask(low, high, bytes_max, context);
        Err(Error::Store(StorageError::LogTemporarilyUnavailable))
    }

    fn term(&self, index: u64) -> Result<u64> {
        if index < self.compacted().0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        if index > self.last {
            return Err(Error::Store(StorageError::Unavailable));
        }
        Ok(self.term_at(index))
    }

    fn first_index(&self) -> Result<u64> {
        Ok(self.compacted().0 + 1)
    }

    fn last_index(&self) -> Result<u64> {
        Ok(self.last)
    }

    fn snapshot(&self, request_index: u64, to: u64) -> Result<Snapshot> {
        let mut least = request_index.max(self.compacted().0).max(1);
        if let Some(snapshot) = &self.snapshot {
            let about = snapshot.get_metadata();
            if !is_member(about.get_conf_state(), to) {
                least = least.max(about.index + 1); // A node ignores a snapshot from before it became a member.
            }
            if about.index >= least {
                return Ok(snapshot.clone());
            }
        }
        self.asked().snapshot = least;
        Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}

fn is_member(conf: &ConfState, node: u64) -> bool {
    [&conf.voters, &conf.learners, &conf.voters_outgoing].iter().any(|nodes| nodes.contains(&node))
}

fn size(entry: &Entry) -> usize {
    entry.data.len() + ENTRY_OVERHEAD
}

/// As many of some entries as `bytes_max` allows, but at least one.
fn limited<'a>(entries: impl Iterator<Item = &'a Entry>, bytes_max: u64) -> Vec<Entry> {
    let mut total = 0;
    let mut found = Vec::new();
    for entry in entries {
        total += size(entry) as u64;
        if total > bytes_max && !found.is_empty() {
            break;
        }
        found.push(entry.clone());
    }
    found
}
