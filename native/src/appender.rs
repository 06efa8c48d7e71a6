//! The Appender: packs records into one mapped segment.
//!
//! Thread-safe because the GIL is held through every call, and because no Python code runs between reading the
//! state and publishing.  Anything that may run Python code (looking at payloads) happens before that.

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::batch::{Batch, Ends, Room, check_timestamp, gather};
use crate::checked::{self, Checked};
use crate::commands::Command;
use crate::futex::Wake;
use crate::memory::{GilCell, Region, Writable, now_ns, with_bytes};
use crate::record::{self, Payload, SEAL};
use crate::scan::Place;

const SEQUENCE_MAX: u64 = i64::MAX as u64;

/// Where the next record goes, and what the records so far amount to.
#[derive(Clone, Copy)]
struct State {
    offset: usize,
    sequence: u64,
    count: u64,
    first_timestamp_ns: u64,
    last_timestamp_ns: u64,
    max_timestamp_ns: u64,
    min_ext_id: u64,
    max_ext_id: u64,
}

impl State {
    #[inline]
    fn add(&mut self, bytes: usize, [timestamp_ns, ext_id]: [u64; 2]) {
        if self.count == 0 {
            self.first_timestamp_ns = timestamp_ns;
        }
        self.offset += bytes;
        self.sequence += 1;
        self.count += 1;
        self.last_timestamp_ns = timestamp_ns;
        self.max_timestamp_ns = self.max_timestamp_ns.max(timestamp_ns);
        self.min_ext_id = self.min_ext_id.min(ext_id);
        self.max_ext_id = self.max_ext_id.max(ext_id);
    }
}

/// What `allow` granted; nothing at first, and nothing once closed.
#[derive(Clone, Copy, Default)]
struct Grant {
    limit: usize,
    hard: usize,
    records: u64,
}

/// An index entry: offset, and the greatest timestamp so far.
const ENTRY: usize = 16;

/// The state, and the index entries of what led to it.
struct Progress {
    state: State,
    until_entry: u64,
    index: Vec<u8>,
}

impl Progress {
    /// Have room for the index entries of so many more records: none may fail to be noted once it is written.
    #[inline]
    fn reserve(&mut self, records: usize, interval: u64) -> PyResult<()> {
        let records = records as u64;
        if records <= self.until_entry {
            return Ok(());
        }
        let entries = (records - self.until_entry).div_ceil(interval);
        checked::reserve(&mut self.index, usize::try_from(entries)?.saturating_mul(ENTRY))
    }

    /// Write one record at the end, `base` bytes before which `target` begins; return its offset and its mark.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: a call for each record takes 3 ns of 25")]
    fn pack(
        &mut self,
        (target, base): (&Writable, usize),
        interval: u64,
        (payload, size): (Payload<'_>, usize),
        words: [u64; 2],
    ) -> (usize, u32) {
        let offset = self.state.offset;
        let mark = record::write(target, offset - base, words, payload);
        self.state.add(size, words);
        if self.until_entry == 0 {
            self.until_entry = interval;
            self.index.extend_from_slice(&(offset as u64).to_le_bytes());
            self.index.extend_from_slice(&self.state.max_timestamp_ns.to_le_bytes());
        }
        self.until_entry -= 1;
        (offset, mark)
    }
}

/// Everything behind the GIL.
struct Core {
    segment: Option<Writable>,
    wake: Option<Wake>,
    progress: Progress,
    grant: Grant,
    closed: bool,
    interval: u64,
    /// What a batch leads to that lies in a scratch buffer and is still to be written.
    staged: Option<Progress>,
}

impl Core {
    fn close(&mut self) {
        self.closed = true;
        self.grant = Grant::default();
        self.staged = None;
    }

    fn room(&self, scratch: Option<&Writable>) -> Room {
        let bytes = self.grant.hard.saturating_sub(self.progress.state.offset);
        let records = self.grant.records.saturating_sub(self.progress.state.count);
        Room::new(scratch.map_or(bytes, |scratch| bytes.min(scratch.region().len())), records)
    }

    #[inline]
    fn publish(&self, (offset, mark): (usize, u32)) {
        if let Some(segment) = &self.segment {
            record::publish_first(segment, offset, mark);
        }
        if let Some(wake) = &self.wake {
            wake.ring_published();
        }
    }

    #[inline]
    fn ring(&self) {
        if let Some(wake) = &self.wake {
            wake.ring();
        }
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: handing the payload over in memory takes 4 ns of 80")]
    fn append(&mut self, payload: Payload<'_>, ext_id: u64, timestamp_ns: u64) -> PyResult<i64> {
        let length = payload.bytes().len();
        let state = &self.progress.state;
        if length >= SEAL as usize || state.count >= self.grant.records {
            return Ok(-1);
        }
        let size = record::size(length);
        if size > self.grant.limit.saturating_sub(state.offset) {
            return Ok(-1);
        }
        #[allow(clippy::cast_possible_wrap, reason = "it is at most SEQUENCE_MAX")]
        let sequence = state.sequence as i64;
        self.staged = None; // Whoever staged it was interrupted before it wrote a byte.
        self.progress.reserve(1, self.interval)?;
        let segment = self.segment.as_ref().expect("nothing is allowed after release");
        let packed = self.progress.pack((segment, 0), self.interval, (payload, size), [timestamp_ns, ext_id]);
        self.publish(packed);
        Ok(sequence)
    }

    /// Whether a command's records follow exactly, and single appends have room for all of them.
    fn takes(&self, command: &Command<'_>) -> bool {
        let state = &self.progress.state;
        let room = self.grant.limit.saturating_sub(state.offset);
        let bytes = command.sizes().map(record::size).fold(0usize, usize::saturating_add);
        state.sequence + 1 == command.first_index()
            && bytes <= room
            && state.count + command.count() as u64 <= self.grant.records
    }

    /// Pack what fits of a list or a tuple of exact bytes, without a reference to each; None if it is anything else.
    fn append_bytes(
        &mut self,
        payloads: &Bound<'_, PyAny>,
        batch: &mut Batch,
        scratch: Option<&Writable>,
    ) -> PyResult<Option<usize>> {
        let (start, mut room) = (batch.start, self.room(scratch));
        let keep = move |length| room.admit(length).is_some();
        let packed = with_bytes(payloads, start..batch.stop, keep, |found| {
            batch.stop = start + found.len();
            self.append_batch(batch, scratch, |index| Payload::Fixed(found[index - start]))
        })?;
        packed.transpose()
    }

    /// Pack what fits of `batch`: into a scratch buffer whole, into the segment with the first mark last.
    #[inline]
    fn append_batch<'a>(
        &mut self,
        batch: &Batch,
        scratch: Option<&Writable>,
        payload: impl Fn(usize) -> Payload<'a>,
    ) -> PyResult<usize> {
        batch.check_timestamps()?;
        let mut room = self.room(scratch);
        self.staged = None;
        let Some(segment) = &self.segment else { return Ok(0) };
        let state = self.progress.state;
        let mut fresh = Progress { state, until_entry: self.progress.until_entry, index: Vec::new() };
        fresh.reserve(batch.stop - batch.start, self.interval)?;
        self.progress.reserve(batch.stop - batch.start, self.interval)?; // For `count_staged`.
        let target = scratch.map_or((segment, 0), |scratch| (scratch, state.offset));
        let mut first = None;
        let mut index = batch.start;
        while index < batch.stop {
            let payload = payload(index);
            let Some(size) = room.admit(payload.bytes().len()) else { break };
            let packed = fresh.pack(target, self.interval, (payload, size), batch.words(index));
            let mark = if first.is_none() && scratch.is_none() { 0 } else { packed.1 };
            record::publish(target.0, packed.0 - target.1, mark);
            first.get_or_insert(packed);
            index += 1;
        }
        if let Some(first) = first {
            self.staged = Some(fresh);
            if scratch.is_none() {
                record::publish(segment, first.0, first.1);
                self.count_staged();
            }
        }
        Ok(index - batch.start)
    }

    /// Count a staged batch, which by now stands in the segment, and tell the readers.
    fn count_staged(&mut self) {
        if let Some(fresh) = self.staged.take() {
            self.progress.state = fresh.state;
            self.progress.until_entry = fresh.until_entry;
            self.progress.index.extend_from_slice(&fresh.index);
            self.ring();
        }
    }
}

/// Packs records into one mapped segment; safe to share between threads.
#[pyclass(frozen, module = "latewood._native")]
pub struct Appender {
    core: GilCell<Core>,
}

impl Appender {
    fn read(&self, py: Python<'_>) -> State {
        self.core.with(py, |core| core.progress.state)
    }

    /// Append the records of a command if they follow exactly and there is room for all; say whether it was done.
    pub fn place(&self, py: Python<'_>, command: &Command<'_>, ext_id: u64) -> PyResult<bool> {
        let timestamp_ns = command.timestamp_ns();
        self.core.with(py, |core| {
            if check_timestamp(timestamp_ns).is_err() || !core.takes(command) {
                return Ok(false);
            }
            core.progress.reserve(command.count(), core.interval)?; // For all of them: none may be left out.
            for payload in command.payloads() {
                if core.append(Payload::Fixed(payload), ext_id, timestamp_ns)? < 0 {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    /// Append one record and return its sequence, or -1 if it is not allowed.
    #[inline]
    pub fn append_one(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        ext_id: u64,
        timestamp_ns: Option<u64>,
    ) -> PyResult<i64> {
        let timestamp_ns = timestamp_ns.unwrap_or_else(now_ns);
        check_timestamp(timestamp_ns)?;
        if let Ok(bytes) = payload.cast_exact::<PyBytes>() {
            return self.core.with(py, |core| core.append(Payload::Fixed(bytes.as_bytes()), ext_id, timestamp_ns));
        }
        let region = Region::readable(payload)?;
        self.core.with(py, |core| core.append(Payload::Shared(region.slice(0, region.len())), ext_id, timestamp_ns))
    }

    fn take(&self, py: Python<'_>) -> (Option<Writable>, Option<Wake>) {
        self.core.with(py, |core| {
            core.close();
            (core.segment.take(), core.wake.take())
        })
    }
}

#[pymethods]
impl Appender {
    #[new]
    #[allow(clippy::too_many_arguments, reason = "they are the state of a segment")]
    fn new(
        buffer: &Bound<'_, PyAny>,
        wake: Option<&Bound<'_, PyAny>>,
        offset: Place,
        sequence: u64,
        count: u64,
        interval: u64,
        first_timestamp_ns: u64,
        last_timestamp_ns: u64,
        max_timestamp_ns: u64,
        min_ext_id: u64,
        max_ext_id: u64,
    ) -> PyResult<Self> {
        let segment = Writable::new(buffer)?;
        if offset.0 > segment.region().len() || offset.0 % 8 != 0 || interval == 0 {
            return Err(checked::error::<PyValueError>(
                "an offset outside the buffer or not a multiple of 8, or no interval",
            ));
        }
        if sequence > SEQUENCE_MAX {
            return Err(checked::error::<PyOverflowError>("the sequence is above 2**63 - 1"));
        }
        let state = State {
            offset: offset.0,
            sequence,
            count,
            first_timestamp_ns,
            last_timestamp_ns,
            max_timestamp_ns,
            min_ext_id,
            max_ext_id,
        };
        let until_entry = (interval - count % interval) % interval;
        let wake = wake.map(Wake::new).transpose()?;
        let segment = Some(segment);
        let core = Core {
            segment,
            wake,
            progress: Progress { state, until_entry, index: Vec::new() },
            grant: Grant::default(),
            closed: false,
            interval,
            staged: None,
        };
        Ok(Self { core: GilCell::new(core) })
    }

    /// Let single appends end at `limit`, batches at `hard`, and the segment hold `records`.  Nothing, once closed.
    fn allow(&self, py: Python<'_>, limit: Place, hard: Place, records: u64) -> PyResult<()> {
        self.core.with(py, |core| {
            if core.closed {
                return Ok(());
            }
            let bytes = core.segment.as_ref().map_or(0, |segment| segment.region().len());
            if limit.0 > bytes || hard.0 > bytes {
                return Err(checked::error::<PyValueError>("the limit is outside the buffer"));
            }
            core.grant = Grant { limit: limit.0, hard: hard.0, records };
            Ok(())
        })
    }

    /// Append one record and return its sequence, or -1 if it is not allowed.
    #[pyo3(signature = (payload, ext_id=0, timestamp_ns=None))]
    fn append(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        ext_id: u64,
        timestamp_ns: Option<u64>,
    ) -> PyResult<Checked<i64>> {
        self.append_one(py, payload, ext_id, timestamp_ns).map(Checked)
    }

    /// Append what fits of `payloads[start:]` as one, and return how many that was; with a scratch buffer, stage it.
    #[pyo3(signature = (payloads, start, ext_ids, timestamps_ns, scratch=None))]
    fn append_many(
        &self,
        py: Python<'_>,
        payloads: &Bound<'_, PyAny>,
        start: Place,
        ext_ids: &Bound<'_, PyAny>,
        timestamps_ns: &Bound<'_, PyAny>,
        scratch: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Checked<usize>> {
        let scratch = scratch.map(Writable::new).transpose()?;
        let scratch = scratch.as_ref();
        let stop = payloads.len()?;
        let start = start.0.min(stop);
        let mut batch = Batch::new(start, stop, ext_ids, timestamps_ns)?;
        if let Some(count) = self.core.with(py, |core| core.append_bytes(payloads, &mut batch, scratch))? {
            return Ok(Checked(count));
        }
        let room = self.core.with(py, |core| core.room(scratch));
        let held = gather(payloads, &batch, room)?;
        batch.stop = start + held.len();
        self.core
            .with(py, |core| core.append_batch(&batch, scratch, |index| held[index - start].payload()))
            .map(Checked)
    }

    /// The same for an Arrow binary array's payloads `start..stop`.
    #[allow(clippy::too_many_arguments, reason = "an Arrow array is several buffers")]
    #[pyo3(signature = (data, offsets, wide, start, stop, ext_ids, timestamps_ns, scratch=None))]
    fn append_columns(
        &self,
        py: Python<'_>,
        data: Option<&Bound<'_, PyAny>>,
        offsets: &Bound<'_, PyAny>,
        wide: bool,
        start: Place,
        stop: Place,
        ext_ids: &Bound<'_, PyAny>,
        timestamps_ns: &Bound<'_, PyAny>,
        scratch: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Checked<usize>> {
        let scratch = scratch.map(Writable::new).transpose()?;
        let scratch = scratch.as_ref();
        let data = data.map(Region::readable).transpose()?;
        let data = data.as_ref().map_or(&[][..], |region| region.slice(0, region.len()));
        let ends = Ends::new(offsets, wide, stop.0)?;
        let start = start.0.min(stop.0);
        let mut batch = Batch::new(start, stop.0, ext_ids, timestamps_ns)?;
        let room = self.core.with(py, |core| core.room(scratch));
        batch.stop = ends.check(room, start, stop.0, data.len())?;
        let payload = |i| Payload::Shared(&data[ends.get(i)..ends.get(i + 1)]);
        self.core.with(py, |core| core.append_batch(&batch, scratch, payload)).map(Checked)
    }

    /// How many bytes of the scratch buffer the staged batch takes; they belong at `offset`.
    #[getter]
    fn staged_bytes(&self, py: Python<'_>) -> Checked<usize> {
        let bytes =
            |core: &mut Core| core.staged.as_ref().map_or(0, |staged| staged.state.offset - core.progress.state.offset);
        Checked(self.core.with(py, bytes))
    }

    /// Count the staged batch, which must stand in the segment by now, and tell the readers.
    fn count_staged(&self, py: Python<'_>) {
        self.core.with(py, Core::count_staged);
    }

    /// Allow nothing from now on.
    fn close(&self, py: Python<'_>) {
        self.core.with(py, Core::close);
    }

    /// Close, and let go of the buffers.
    fn release(&self, py: Python<'_>) {
        drop(self.take(py)); // Outside the cell: letting go may run Python code.
    }

    /// One consistent look at all eight numbers.
    #[allow(clippy::type_complexity, reason = "it is the tuple that Python sees")]
    fn state(&self, py: Python<'_>) -> Checked<(usize, u64, u64, u64, u64, u64, u64, u64)> {
        let state = self.read(py);
        Checked((
            state.offset,
            state.sequence,
            state.count,
            state.first_timestamp_ns,
            state.last_timestamp_ns,
            state.max_timestamp_ns,
            state.min_ext_id,
            state.max_ext_id,
        ))
    }

    /// Entries (u64 offset, u64 running maximum of the timestamps) of the records appended here.
    fn index<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let entries = self.core.with(py, |core| {
            let mut entries = checked::room_for(core.progress.index.len())?;
            entries.extend_from_slice(&core.progress.index);
            Ok::<_, PyErr>(entries)
        })?;
        checked::bytes(py, &entries)
    }

    /// Where the next record goes.
    #[getter]
    fn offset(&self, py: Python<'_>) -> Checked<usize> {
        Checked(self.read(py).offset)
    }

    /// The next record's sequence.
    #[getter]
    fn sequence(&self, py: Python<'_>) -> Checked<u64> {
        Checked(self.read(py).sequence)
    }

    /// Records in the segment.
    #[getter]
    fn count(&self, py: Python<'_>) -> Checked<u64> {
        Checked(self.read(py).count)
    }

    /// Timestamp of the segment's first record.
    #[getter]
    fn first_timestamp_ns(&self, py: Python<'_>) -> Checked<u64> {
        Checked(self.read(py).first_timestamp_ns)
    }

    /// Timestamp of the segment's last record.
    #[getter]
    fn last_timestamp_ns(&self, py: Python<'_>) -> Checked<u64> {
        Checked(self.read(py).last_timestamp_ns)
    }

    /// The greatest timestamp.
    #[getter]
    fn max_timestamp_ns(&self, py: Python<'_>) -> Checked<u64> {
        Checked(self.read(py).max_timestamp_ns)
    }

    /// The least ext_id.
    #[getter]
    fn min_ext_id(&self, py: Python<'_>) -> Checked<u64> {
        Checked(self.read(py).min_ext_id)
    }

    /// The greatest ext_id.
    #[getter]
    fn max_ext_id(&self, py: Python<'_>) -> Checked<u64> {
        Checked(self.read(py).max_ext_id)
    }
}
