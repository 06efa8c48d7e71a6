//! What partitions have in hand: the table behind `latewood.replica.dispatch`, which says what it is for and judges
//! whatever speaks against a request.  Here is only the keeping of it, and what nothing speaks against.

use std::collections::{HashMap, VecDeque};

use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::checked::{self, Checked, Made};

/// Neighbours that were admitted together: first and last index, bytes, since when.
type Stretch = (u64, u64, u64, u64);
/// Operations, bytes, since when the oldest waits, committed and not applied; next index, and that of the next life.
type Figures = (u64, u64, Option<u64>, u64, u64, Option<u64>);
/// Partition, first and last index, entry.
type Placed = (u64, u64, u64, u64);

/// Stretches that a partition without any keeps room for.
const IDLE_CAPACITY_MAX: usize = 16;

const fn count((first, last, ..): Stretch) -> u64 {
    last - first + 1
}

/// Some of a stretch, with that share of its bytes.
fn part(whole: Stretch, first: u64, last: u64) -> Stretch {
    let share = u128::from(whole.2) * u128::from(last - first + 1) / u128::from(count(whole));
    (first, last, u64::try_from(share).expect("no more than the whole"), whole.3)
}

/// One partition.
struct Backlog {
    /// Neighbours, the oldest first.
    stretches: VecDeque<Stretch>,
    ops: u64,
    bytes: u64,
    next_index: u64,
    /// The next index once the partition was torn down, if that is under way.
    next_life: Option<u64>,
    committed: u64,
    applied: u64,
    is_throttled: bool,
    is_frozen: bool,
}

impl Default for Backlog {
    fn default() -> Self {
        Self {
            stretches: VecDeque::new(),
            ops: 0,
            bytes: 0,
            next_index: 1,
            next_life: None,
            committed: 0,
            applied: 0,
            is_throttled: false,
            is_frozen: false,
        }
    }
}

/// The sums over all partitions.
#[derive(Default)]
struct Whole {
    ops: u64,
    bytes: u64,
}

impl Whole {
    fn add(&mut self, backlog: &mut Backlog, stretch: Stretch) {
        let ops = count(stretch);
        (backlog.ops, backlog.bytes) = (backlog.ops + ops, backlog.bytes + stretch.2);
        (self.ops, self.bytes) = (self.ops + ops, self.bytes + stretch.2);
    }

    fn drop(&mut self, backlog: &mut Backlog, stretch: Stretch) {
        let ops = count(stretch);
        (backlog.ops, backlog.bytes) = (backlog.ops - ops, backlog.bytes - stretch.2);
        (self.ops, self.bytes) = (self.ops - ops, self.bytes - stretch.2);
    }

    fn push(&mut self, backlog: &mut Backlog, stretch: Stretch) {
        backlog.stretches.push_back(stretch);
        backlog.next_index = backlog.next_index.max(stretch.1 + 1);
        self.add(backlog, stretch);
    }
}

/// Within these nothing has to be asked.
#[derive(FromPyObject)]
struct Bounds {
    ops: u64,
    bytes: u64,
    age_ns: u64,
    whole_ops: u64,
    whole_bytes: u64,
    lag: Option<u64>,
}

/// The backlogs of all partitions.
#[pyclass(module = "latewood._native", name = "_BacklogTable")]
pub struct BacklogTable {
    bounds: Bounds,
    partitions: HashMap<u64, Backlog>,
    whole: Whole,
}

impl BacklogTable {
    /// The first index that so much would get, if nothing speaks against it.
    pub fn room(&self, partition: u64, ops: u64, size: u64, now_ns: u64) -> Option<u64> {
        let (bounds, backlog) = (&self.bounds, self.partitions.get(&partition)?);
        let is_flagged = backlog.is_throttled || backlog.is_frozen || backlog.next_life.is_some();
        let whole_fits = self.whole.ops + ops <= bounds.whole_ops && self.whole.bytes + size <= bounds.whole_bytes;
        let fits = backlog.stretches.front().is_none_or(|oldest| {
            backlog.ops + ops <= bounds.ops
                && backlog.bytes + size <= bounds.bytes
                && now_ns.saturating_sub(oldest.3) <= bounds.age_ns
        });
        (ops > 0 && whole_fits && fits && !is_flagged).then_some(backlog.next_index)
    }

    /// Reserve the next indices of a partition, whatever it has in hand: the first.
    pub fn add(&mut self, partition: u64, ops: u64, size: u64, now_ns: u64) -> u64 {
        let backlog = self.partitions.entry(partition).or_default();
        let first = backlog.next_index;
        if ops > 0 {
            self.whole.push(backlog, (first, first + ops - 1, size, now_ns));
        }
        first
    }
}

#[pymethods]
impl BacklogTable {
    /// Nobody has anything in hand.
    #[new]
    fn new(bounds: Bounds) -> Self {
        Self { bounds, partitions: HashMap::new(), whole: Whole::default() }
    }

    /// Reserve the next indices of a partition where nothing speaks against it: the first; else 0.
    fn reserve<'py>(
        &mut self,
        py: Python<'py>,
        partition: u64,
        ops: u64,
        size: u64,
        now_ns: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let first = self.room(partition, ops, size, now_ns);
        let made = first.unwrap_or(0).made(py)?; // What is reserved must be told, and telling takes memory.
        if first.is_some() {
            self.add(partition, ops, size, now_ns);
        }
        Ok(made)
    }

    /// Reserve the next indices of a partition, whatever it has in hand: the first.
    #[pyo3(name = "add")]
    fn add_and_tell<'py>(
        &mut self,
        py: Python<'py>,
        partition: u64,
        ops: u64,
        size: u64,
        now_ns: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let made = self.partitions.entry(partition).or_default().next_index.made(py)?; // As in `reserve`.
        self.add(partition, ops, size, now_ns);
        Ok(made)
    }

    /// Give indices from `index` on back.
    pub fn withdraw(&mut self, partition: u64, index: u64) {
        let Some(backlog) = self.partitions.get_mut(&partition) else { return };
        while let Some(last) = backlog.stretches.back().copied().filter(|last| last.1 >= index) {
            backlog.stretches.pop_back();
            self.whole.drop(backlog, last);
            if last.0 < index {
                self.whole.push(backlog, part(last, last.0, index - 1));
            }
        }
        backlog.next_index = backlog.next_index.min(index.max(backlog.committed + 1));
    }

    /// Entries were committed, whoever admitted them.
    fn record_committed(&mut self, partition: u64, first: u64, last: u64, size: u64, now_ns: u64) {
        let backlog = self.partitions.entry(partition).or_default();
        let known = backlog.stretches.back().map_or(backlog.applied.max(backlog.next_index - 1), |newest| newest.1);
        if last > known {
            self.whole.push(backlog, (first.max(known + 1), last, size, now_ns));
        }
        backlog.committed = backlog.committed.max(last);
        judge(backlog, self.bounds.lag);
    }

    /// A partition has applied everything up to `index`: only this shrinks a backlog.
    fn record_applied(&mut self, partition: u64, index: u64) {
        let backlog = self.partitions.entry(partition).or_default();
        while let Some(oldest) = backlog.stretches.front().copied().filter(|oldest| oldest.0 <= index) {
            backlog.stretches.pop_front();
            self.whole.drop(backlog, oldest);
            if oldest.1 > index {
                let rest = part(oldest, index + 1, oldest.1);
                backlog.stretches.push_front(rest);
                self.whole.add(backlog, rest);
            }
        }
        if backlog.stretches.is_empty() && backlog.stretches.capacity() > IDLE_CAPACITY_MAX {
            backlog.stretches = VecDeque::new(); // There are many partitions, and each may have been busy once.
        }
        backlog.applied = backlog.applied.max(index);
        backlog.committed = backlog.committed.max(index);
        backlog.next_index = backlog.next_index.max(index + 1);
        judge(backlog, self.bounds.lag);
    }

    /// What partitions got whose log is their state, in order: it is applied.
    fn record_logged(&mut self, placed: &Bound<'_, PyList>) -> PyResult<()> {
        for run in placed {
            let (partition, _, last, _): Placed = run.extract()?;
            self.record_applied(partition, last);
        }
        Ok(())
    }

    /// What a partition has in hand; None: it is not known.
    fn figures(&self, partition: u64) -> Checked<Option<Figures>> {
        Checked(self.partitions.get(&partition).map(|backlog| {
            let lag = backlog.committed.saturating_sub(backlog.applied);
            let oldest_ns = backlog.stretches.front().map(|oldest| oldest.3);
            (backlog.ops, backlog.bytes, oldest_ns, lag, backlog.next_index, backlog.next_life)
        }))
    }

    /// Whether a partition lags too much, and whether it takes nothing at all.
    fn flags(&self, partition: u64) -> Checked<(bool, bool)> {
        Checked(
            self.partitions.get(&partition).map_or((false, false), |backlog| (backlog.is_throttled, backlog.is_frozen)),
        )
    }

    /// All partitions together: operations, bytes.
    fn whole(&self) -> Checked<(u64, u64)> {
        Checked((self.whole.ops, self.whole.bytes))
    }

    /// Since when the oldest of all waits.
    fn oldest_ns(&self) -> Checked<Option<u64>> {
        let oldest = self.partitions.values().filter_map(|backlog| backlog.stretches.front());
        Checked(oldest.map(|oldest| oldest.3).min())
    }

    /// The partitions that are known, in order, and up to where each is committed.
    fn committed(&self) -> PyResult<Checked<Vec<(u64, u64)>>> {
        let mut known = checked::room_for(self.partitions.len())?;
        known.extend(self.partitions.iter().map(|(partition, one)| (*partition, one.committed)));
        known.sort_unstable();
        Ok(Checked(known))
    }

    /// Go on with an index.
    fn set_next_index(&mut self, partition: u64, index: u64) {
        self.partitions.entry(partition).or_default().next_index = index;
    }

    /// Know the index that a partition's next life begins with, or that none is to come.
    fn set_next_life(&mut self, partition: u64, index: Option<u64>) {
        self.partitions.entry(partition).or_default().next_life = index;
    }

    /// Have a partition take nothing, or go on.
    fn set_frozen(&mut self, partition: u64, frozen: bool) {
        self.partitions.entry(partition).or_default().is_frozen = frozen;
    }

    /// Forget a partition; one that has a next life begins it.
    fn forget(&mut self, partition: u64) {
        let Some(gone) = self.partitions.remove(&partition) else { return };
        (self.whole.ops, self.whole.bytes) = (self.whole.ops - gone.ops, self.whole.bytes - gone.bytes);
        if let Some(next_index) = gone.next_life {
            self.partitions.insert(partition, Backlog { next_index, ..Backlog::default() });
        }
    }
}

/// Throttle a partition that lags too much, until it is at half of that.
fn judge(backlog: &mut Backlog, lag_max: Option<u64>) {
    if let Some(lag_max) = lag_max {
        let bound = if backlog.is_throttled { lag_max / 2 } else { lag_max };
        backlog.is_throttled = backlog.committed.saturating_sub(backlog.applied) > bound;
    }
}
