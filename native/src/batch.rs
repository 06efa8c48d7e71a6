//! Batches: which of the payloads that Python hands over one call will pack.
//!
//! Everything here happens before anything is written, and some of it may run Python code.

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::checked::{self, Checked};
use crate::memory::{Region, now_ns};
use crate::record::{self, Payload, SEAL};

/// One call packs at most this much, so that it holds the GIL, and a reader waits, only so long.
const CALL_BYTES_MAX: usize = 4 << 20;

/// How many more records one batch may take.
#[derive(Clone, Copy)]
pub struct Room {
    bytes: usize,
    records: u64,
    packed: usize,
}

impl Room {
    /// Room for so many bytes and records.
    pub const fn new(bytes: usize, records: u64) -> Self {
        Self { bytes, records, packed: 0 }
    }

    /// Whether not even an empty payload fits.
    #[inline]
    fn is_full(&self) -> bool {
        self.records == 0 || self.bytes.min(CALL_BYTES_MAX) < self.packed + record::HEADER
    }

    /// The whole size of a record with this payload, if it may be packed too.
    #[inline]
    pub fn admit(&mut self, length: usize) -> Option<usize> {
        if length >= SEAL as usize || self.records == 0 {
            return None;
        }
        let size = record::size(length);
        let packed = self.packed + size;
        if packed > self.bytes || (packed > CALL_BYTES_MAX && self.packed > 0) {
            return None;
        }
        self.records -= 1;
        self.packed = packed;
        Some(size)
    }
}

/// One number for all records, or one each.
enum Numbers {
    One(u64),
    Many(Region),
}

impl Numbers {
    fn new(object: &Bound<'_, PyAny>, stop: usize) -> PyResult<Self> {
        match object.extract::<u64>() {
            Ok(number) => return Ok(Self::One(number)),
            Err(error) if error.is_instance_of::<PyOverflowError>(object.py()) => return Err(error),
            Err(_) => {}
        }
        let region = Region::readable(object)?;
        if !matches!(region.item(), (1, _) | (8, b"Q" | b"L" | b"@Q" | b"@L" | b"=Q" | b"<Q")) {
            return Err(checked::error::<PyTypeError>("a buffer of u64 is required"));
        }
        if region.len() / 8 < stop {
            return Err(checked::error::<PyValueError>("fewer numbers than payloads"));
        }
        Ok(Self::Many(region))
    }

    #[inline]
    fn get(&self, index: usize) -> u64 {
        match self {
            Self::One(number) => *number,
            Self::Many(region) => region.load64(index * 8),
        }
    }
}

/// Timestamps are signed wherever they leave the log, in footers and in Arrow.
#[inline]
pub fn check_timestamp(timestamp_ns: u64) -> PyResult<()> {
    if timestamp_ns > i64::MAX as u64 {
        return Err(checked::error::<PyOverflowError>("a timestamp is above 2**63 - 1"));
    }
    Ok(())
}

/// What a batch is besides its payloads: `start..stop` are payload indices.
pub struct Batch {
    /// The first payload.
    pub start: usize,
    /// After the last payload.
    pub stop: usize,
    ext_ids: Numbers,
    timestamps_ns: Numbers,
}

impl Batch {
    /// Numbers for the payloads `start..stop`; no timestamps means now, for all.
    pub fn new(
        start: usize,
        stop: usize,
        ext_ids: &Bound<'_, PyAny>,
        timestamps_ns: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let ext_ids = Numbers::new(ext_ids, stop)?;
        let timestamps_ns =
            if timestamps_ns.is_none() { Numbers::One(now_ns()) } else { Numbers::new(timestamps_ns, stop)? };
        Ok(Self { start, stop, ext_ids, timestamps_ns })
    }

    /// Look at every timestamp that will be packed.
    pub fn check_timestamps(&self) -> PyResult<()> {
        match self.timestamps_ns {
            Numbers::One(one) => check_timestamp(one),
            Numbers::Many(_) => {
                let newest = (self.start..self.stop).map(|index| self.timestamps_ns.get(index)).max();
                check_timestamp(newest.unwrap_or(0))
            }
        }
    }

    /// Timestamp and ext_id of the payload `index`.
    #[inline]
    pub fn words(&self, index: usize) -> [u64; 2] {
        [self.timestamps_ns.get(index), self.ext_ids.get(index)]
    }
}

/// A payload kept alive while it is copied.
pub enum Held<'py> {
    Bytes(Bound<'py, PyBytes>),
    Buffer(Region),
}

impl<'py> Held<'py> {
    /// Hold a bytes-like object; TypeError otherwise.
    #[inline]
    pub fn new(object: Bound<'py, PyAny>) -> PyResult<Self> {
        match object.cast_into_exact::<PyBytes>() {
            Ok(bytes) => Ok(Self::Bytes(bytes)),
            Err(error) => Ok(Self::Buffer(Region::readable(&error.into_inner())?)),
        }
    }

    /// Its bytes.
    #[inline]
    pub fn payload(&self) -> Payload<'_> {
        match self {
            Self::Bytes(bytes) => Payload::Fixed(bytes.as_bytes()),
            Self::Buffer(region) => Payload::Shared(region.slice(0, region.len())),
        }
    }
}

/// Hold the payloads of a list or a tuple that there is room for, having looked that each is bytes-like.
pub fn gather<'py>(payloads: &Bound<'py, PyAny>, batch: &Batch, mut room: Room) -> PyResult<Vec<Held<'py>>> {
    if !payloads.is_instance_of::<PyList>() && !payloads.is_instance_of::<PyTuple>() {
        return Err(checked::error::<PyTypeError>("a list or a tuple of payloads is required"));
    }
    let mut held = Vec::new();
    for index in batch.start..batch.stop {
        if room.is_full() {
            break;
        }
        let payload = Held::new(payloads.get_item(Checked(index))?)?;
        if room.admit(payload.payload().bytes().len()).is_none() {
            break;
        }
        checked::reserve(&mut held, 1)?;
        held.push(payload);
    }
    Ok(held)
}

/// The ends of the payloads of an Arrow binary array.
pub struct Ends {
    region: Region,
    wide: bool,
}

impl Ends {
    /// Ends of at least `stop` payloads, in i32 or, if wide, i64.
    pub fn new(object: &Bound<'_, PyAny>, wide: bool, stop: usize) -> PyResult<Self> {
        let region = Region::readable(object)?;
        if region.len() / (if wide { 8 } else { 4 }) <= stop {
            return Err(checked::error::<PyValueError>("fewer offsets than payloads"));
        }
        Ok(Self { region, wide })
    }

    /// Where payload `index` begins, or where the one before it ends.  Negative ones come out larger than any data.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "64-bit machines")]
    #[allow(clippy::cast_possible_wrap, clippy::cast_sign_loss, reason = "offsets of 32 bits are signed")]
    pub fn get(&self, index: usize) -> usize {
        if self.wide { self.region.load64(index * 8) as usize } else { self.region.load32(index * 4) as i32 as usize }
    }

    /// How far from `start` there is room, having looked that the payloads lie inside the data.
    pub fn check(&self, mut room: Room, start: usize, stop: usize, bytes: usize) -> PyResult<usize> {
        let mut from = self.get(start);
        for index in start..stop {
            if room.is_full() {
                return Ok(index);
            }
            let to = self.get(index + 1);
            if from > to || to > bytes {
                return Err(checked::error::<PyValueError>("the offsets do not lie inside the data, in order"));
            }
            if room.admit(to - from).is_none() {
                return Ok(index);
            }
            from = to;
        }
        Ok(stop)
    }
}
