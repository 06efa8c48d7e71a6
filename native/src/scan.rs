//! Reading: from one record to the next, in one segment.
//!
//! Nothing here writes, and nothing looks at or past the limit it is given.  Whoever hops (skip, find_timestamp,
//! index_records) trusts lengths that were verified before; whoever returns records or counts checks each CRC.

use std::collections::TryReserveError;

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::block::{Block, Budget};
use crate::checked::{self, Checked};
use crate::memory::Region;
use crate::object::RecordType;
use crate::record::{self, HEADER, Header, SEAL};
use crate::sums::Sums;

/// Stopped because enough was read.
pub const MORE: u8 = 0;
/// Nothing is committed at the offset.
pub const EMPTY: u8 = 1;
/// The segment was sealed at the offset.
pub const SEALED: u8 = 2;
/// There is a mark at the offset, but no whole record with that checksum.
pub const BAD: u8 = 3;
/// No header fits below the limit.
pub const END: u8 = 4;
/// The record at the offset is sound, but its payload is too short for its key.
pub const UNFIT: u8 = 5;

/// A place in a buffer: anything that could not be one is a ValueError.
#[derive(Clone, Copy)]
pub struct Place(pub usize);

impl<'py> FromPyObject<'_, 'py> for Place {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match object.extract::<usize>() {
            Ok(place) => Ok(Self(place)),
            Err(error) if error.is_instance_of::<PyOverflowError>(object.py()) => Err(outside()),
            Err(error) => Err(error),
        }
    }
}

fn outside() -> PyErr {
    checked::error::<PyValueError>("the offset or the limit is outside the buffer")
}

/// Records of one buffer below a limit.
pub struct Window {
    /// All of the buffer.
    pub region: Region,
    limit: usize,
}

impl Window {
    fn new(buffer: &Bound<'_, PyAny>, offset: Place, limit: Place) -> PyResult<Self> {
        let region = Region::readable(buffer)?;
        if offset.0 > region.len() || limit.0 > region.len() {
            return Err(outside());
        }
        Ok(Self { region, limit: limit.0 })
    }

    /// The records from a multiple of 8 on.
    pub fn aligned(buffer: &Bound<'_, PyAny>, offset: Place, limit: Place) -> PyResult<Self> {
        if offset.0 % 8 != 0 {
            return Err(checked::error::<PyValueError>("the offset is not a multiple of 8"));
        }
        Self::new(buffer, offset, limit)
    }

    /// The header of the record at `offset`, if one fits there, without a look at its CRC.
    #[inline]
    pub fn peek(&self, offset: usize) -> Result<Header, u8> {
        if offset + HEADER > self.limit {
            return Err(END);
        }
        let header = Header::load(&self.region, offset);
        if header.mark == 0 {
            Err(EMPTY)
        } else if header.length == SEAL {
            Err(SEALED)
        } else if record::size(header.length as usize) > self.limit - offset {
            Err(BAD)
        } else {
            Ok(header)
        }
    }

    /// Whether the record at `offset` matches its mark.
    #[inline]
    pub fn sound(&self, offset: usize, header: Header) -> bool {
        record::checksum(header.length, self.words(offset), self.payload(offset, header.length as usize)) == header.mark
    }

    /// How many bytes there are from `offset` to the limit.
    pub const fn left(&self, offset: usize) -> usize {
        self.limit.saturating_sub(offset)
    }

    /// The header of the record at `offset`, verified.
    #[inline]
    fn read(&self, offset: usize) -> Result<Header, u8> {
        let header = self.peek(offset)?;
        if self.sound(offset, header) { Ok(header) } else { Err(BAD) }
    }

    #[inline]
    fn words(&self, offset: usize) -> [u64; 2] {
        record::words(&self.region, offset)
    }

    /// The payload of the record at `offset`.
    #[inline]
    pub fn payload(&self, offset: usize, length: usize) -> &[u8] {
        self.region.slice(offset + HEADER, length)
    }

    #[inline]
    fn record<'py>(
        &self,
        py: Python<'py>,
        kind: &RecordType<'py>,
        offset: usize,
        header: Header,
        sequence: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let payload = checked::bytes(py, self.payload(offset, header.length as usize))?;
        kind.record(sequence, self.words(offset), payload)
    }
}

#[inline]
const fn next(offset: usize, header: Header) -> usize {
    offset + record::size(header.length as usize)
}

type Scanned<'py> = Checked<(Bound<'py, PyList>, usize, u8)>;

/// Read records from `offset`, each verified: `(records, next_offset, state)`.
#[pyfunction]
pub fn scan<'py>(
    py: Python<'py>,
    buffer: &Bound<'py, PyAny>,
    offset: Place,
    limit: Place,
    sequence: u64,
    max_records: u64,
    max_bytes: u64,
) -> PyResult<Scanned<'py>> {
    let window = Window::aligned(buffer, offset, limit)?;
    let (mut offset, mut bytes) = (offset.0, 0_u64);
    let (kind, mut records) = (RecordType::get(py)?, Vec::new());
    let state = loop {
        if records.len() as u64 >= max_records || bytes >= max_bytes {
            break MORE;
        }
        match window.read(offset) {
            Err(state) => break state,
            Ok(header) => {
                checked::reserve(&mut records, 1)?;
                records.push(window.record(py, &kind, offset, header, sequence + records.len() as u64)?);
                bytes += u64::from(header.length);
                offset = next(offset, header);
            }
        }
    };
    Ok(Checked((checked::list(py, records)?, offset, state)))
}

/// Running totals of the records gone over.
struct Totals {
    count: u64,
    first: u64,
    last: u64,
    max: u64,
    min_ext_id: u64,
    max_ext_id: u64,
}

impl Totals {
    const NONE: Self = Self { count: 0, first: 0, last: 0, max: 0, min_ext_id: u64::MAX, max_ext_id: 0 };

    #[inline]
    fn add(&mut self, [timestamp_ns, ext_id]: [u64; 2]) {
        if self.count == 0 {
            self.first = timestamp_ns;
        }
        self.count += 1;
        self.last = timestamp_ns;
        self.max = self.max.max(timestamp_ns);
        self.min_ext_id = self.min_ext_id.min(ext_id);
        self.max_ext_id = self.max_ext_id.max(ext_id);
    }
}

fn verify_all(window: &Window, offset: usize) -> (Totals, usize, u8) {
    let (mut totals, mut budget, mut block) = (Totals::NONE, Budget::NONE, Block::at(offset));
    loop {
        block.read(window, &mut budget);
        for (place, _) in block.records() {
            totals.add(record::words(&window.region, place));
        }
        if let Some(state) = block.state {
            return (totals, block.end, state);
        }
    }
}

type Verified = Checked<(u64, usize, u8, u64, u64, u64, u64, u64)>;

/// Check every CRC from `offset` until there is no record:
/// `(count, next_offset, state, first_ts, last_ts, max_ts, min_ext, max_ext)`.
#[pyfunction]
pub fn verify(py: Python<'_>, buffer: &Bound<'_, PyAny>, offset: Place, limit: Place) -> PyResult<Verified> {
    let window = Window::aligned(buffer, offset, limit)?;
    let (totals, next_offset, state) = py.detach(|| verify_all(&window, offset.0));
    let Totals { count, first, last, max, min_ext_id, max_ext_id } = totals;
    Ok(Checked((count, next_offset, state, first, last, max, min_ext_id, max_ext_id)))
}

/// Hop over up to `count` records by their lengths: `(next_offset, hopped)`.
#[pyfunction]
pub fn skip(buffer: &Bound<'_, PyAny>, offset: Place, limit: Place, count: u64) -> PyResult<Checked<(usize, u64)>> {
    let window = Window::aligned(buffer, offset, limit)?;
    let (mut offset, mut hopped) = (offset.0, 0);
    while hopped < count {
        let Ok(header) = window.peek(offset) else { break };
        offset = next(offset, header);
        hopped += 1;
    }
    Ok(Checked((offset, hopped)))
}

/// Index entries (u64 offset, u64 running maximum of the timestamps) for every `interval`-th of up to `count` records.
#[pyfunction]
pub fn index_records<'py>(
    py: Python<'py>,
    buffer: &Bound<'py, PyAny>,
    offset: Place,
    limit: Place,
    count: u64,
    interval: u64,
    max_timestamp_ns: u64,
) -> PyResult<Bound<'py, PyBytes>> {
    if interval == 0 {
        return Err(checked::error::<PyValueError>("the interval is at least 1"));
    }
    let window = Window::aligned(buffer, offset, limit)?;
    let (mut offset, mut max, mut entries) = (offset.0, max_timestamp_ns, Vec::new());
    for ordinal in 0..count {
        let Ok(header) = window.peek(offset) else { break };
        max = max.max(record::timestamp_ns(&window.region, offset));
        if ordinal % interval == 0 {
            checked::reserve(&mut entries, 16)?;
            entries.extend_from_slice(&(offset as u64).to_le_bytes());
            entries.extend_from_slice(&max.to_le_bytes());
        }
        offset = next(offset, header);
    }
    checked::bytes(py, &entries)
}

/// Hop to the first record whose timestamp is at least `timestamp_ns`: `(hopped, next_offset, state)`.
#[pyfunction]
pub fn find_timestamp(
    buffer: &Bound<'_, PyAny>,
    offset: Place,
    limit: Place,
    timestamp_ns: u64,
) -> PyResult<Checked<(u64, usize, u8)>> {
    let window = Window::aligned(buffer, offset, limit)?;
    let (mut offset, mut hopped) = (offset.0, 0);
    let state = loop {
        match window.peek(offset) {
            Err(state) => break state,
            Ok(_) if record::timestamp_ns(&window.region, offset) >= timestamp_ns => break MORE,
            Ok(header) => {
                offset = next(offset, header);
                hopped += 1;
            }
        }
    };
    Ok(Checked((hopped, offset, state)))
}

/// The first offset from `offset` on, in steps of 8, with a whole valid record, or -1.
#[pyfunction]
pub fn find_record(py: Python<'_>, buffer: &Bound<'_, PyAny>, offset: Place, limit: Place) -> PyResult<Checked<isize>> {
    let window = Window::new(buffer, offset, limit)?;
    let found = py.detach(|| search(&window, offset.0)).map_err(|_| checked::no_memory())?;
    Ok(Checked(found.map_or(Ok(-1), isize::try_from)?))
}

fn search(window: &Window, offset: usize) -> Result<Option<usize>, TryReserveError> {
    let sums = Sums::new(window.region.slice(0, window.limit));
    let mut place = offset.next_multiple_of(8);
    while place + HEADER <= window.limit {
        if let Ok(header) = window.peek(place) {
            let sum = sums.crc(header.length, place + 8, place + HEADER + header.length as usize)?;
            if record::mark(sum) == header.mark {
                return Ok(Some(place));
            }
        }
        place += 8;
    }
    Ok(None)
}

/// The offset just past the last byte of `[offset, limit)` that is not zero, or `offset`.
#[pyfunction]
pub fn nonzero_end(py: Python<'_>, buffer: &Bound<'_, PyAny>, offset: Place, limit: Place) -> PyResult<Checked<usize>> {
    let window = Window::new(buffer, offset, limit)?;
    let offset = offset.0;
    if offset >= window.limit {
        return Ok(Checked(offset));
    }
    Ok(Checked(py.detach(|| offset + used(window.region.slice(offset, window.limit - offset)))))
}

fn used(bytes: &[u8]) -> usize {
    const BLOCK: usize = 256;
    let mut end = bytes.len();
    while end >= BLOCK && bytes[end - BLOCK..end].iter().fold(0, |all, byte| all | byte) == 0 {
        end -= BLOCK;
    }
    bytes[..end].iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)
}
