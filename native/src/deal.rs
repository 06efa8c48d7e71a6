//! Dealing keyed records out to shards: every key hashed, and key and value packed, in one call for a batch.
//!
//! What a shard gets is a column of payloads, `u32 key length + 1, or 0 | key | value` each, as `Appender.append_columns`
//! takes it.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyTuple};
use xxhash_rust::xxh64::xxh64;

use crate::batch::Held;
use crate::checked::{self, Checked};
use crate::memory::Column;

const PREFIX: usize = 4;

/// What falls to one shard.
#[derive(Default)]
struct Share {
    records: usize,
    bytes: usize,
    largest: usize,
}

impl Share {
    fn add(&mut self, bytes: usize) {
        self.records += 1;
        self.bytes += bytes;
        self.largest = self.largest.max(bytes);
    }
}

/// The columns of one shard.
struct Hand<'py> {
    data: Column<'py>,
    ends: Column<'py>,
    rows: Column<'py>,
    end: i64,
}

impl<'py> Hand<'py> {
    fn new(py: Python<'py>, share: &Share) -> PyResult<Self> {
        let room = |bytes| {
            let mut column = Column::new(py)?;
            column.reserve(bytes, |needed| needed)?;
            Ok::<_, PyErr>(column)
        };
        let (data, mut ends) = (room(share.bytes)?, room((share.records + 1) * 8)?);
        ends.push(&0_i64.to_le_bytes());
        Ok(Self { data, ends, rows: room(share.records * 4)?, end: 0 })
    }

    fn push(&mut self, row: usize, key: Option<&[u8]>, value: &[u8]) -> PyResult<()> {
        let size = key.map_or(Ok(0), |key| u32::try_from(key.len() + 1))?;
        self.data.push(&size.to_le_bytes());
        self.data.push(key.unwrap_or_default());
        self.data.push(value);
        self.end += i64::try_from(PREFIX + key.map_or(0, <[u8]>::len) + value.len())?;
        self.ends.push(&self.end.to_le_bytes());
        self.rows.push(&u32::try_from(row)?.to_le_bytes());
        Ok(())
    }
}

/// What `take` makes of each object of a list or a tuple.
fn items<'py, T>(object: &Bound<'py, PyAny>, take: impl Fn(Bound<'py, PyAny>) -> PyResult<T>) -> PyResult<Vec<T>> {
    if let Ok(list) = object.cast::<PyList>() {
        return checked::collect(list.iter().map(take));
    }
    let tuple = object.cast::<PyTuple>().map_err(|_| checked::error::<PyTypeError>("a list or a tuple is required"))?;
    checked::collect(tuple.iter().map(take))
}

fn as_key(object: Bound<'_, PyAny>, bytes_max: usize) -> PyResult<Option<Bound<'_, PyBytes>>> {
    if object.is_none() {
        return Ok(None);
    }
    let key = object.cast_into::<PyBytes>().map_err(|_| checked::error::<PyTypeError>("a key must be bytes"))?;
    if key.as_bytes().len() > bytes_max {
        return Err(checked::error::<PyValueError>("a key is too long"));
    }
    Ok(Some(key))
}

/// Where a key belongs: its hash as a signed number, modulo the number of shards, never negative.
#[allow(clippy::cast_possible_wrap, reason = "the hash is taken as a signed number")]
fn shard_of(key: &[u8], shards: i64, seed: u64) -> i64 {
    if shards == 1 { 0 } else { (xxh64(key, seed) as i64).rem_euclid(shards) }
}

/// Who gets what: a place for each record, and the shard and its share at each place.
struct Plan {
    places: Vec<usize>,
    shares: Vec<(i64, Share)>,
}

impl Plan {
    /// Go through keys and the lengths of their values; records without a key go round the shards, from `turn` on.
    fn new<'a>(
        records: impl ExactSizeIterator<Item = (Option<&'a [u8]>, usize)>,
        count: u32,
        turn: u64,
        seed: u64,
    ) -> PyResult<Self> {
        let mut place_of = checked::room_for(count as usize)?;
        place_of.resize(count as usize, None);
        let shares = checked::room_for(records.len().min(count as usize))?;
        let mut plan = Self { places: checked::room_for(records.len())?, shares };
        #[allow(clippy::cast_possible_wrap, reason = "a shard is below a u32")]
        let (count, mut turn) = (i64::from(count), (turn % u64::from(count)) as i64);
        for (key, value_bytes) in records {
            let shard = key.map_or(turn, |key| shard_of(key, count, seed));
            if key.is_none() {
                turn = (turn + 1) % count;
            }
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a shard is below a u32")]
            let place = *place_of[shard as usize].get_or_insert_with(|| {
                plan.shares.push((shard, Share::default()));
                plan.shares.len() - 1
            });
            plan.shares[place].1.add(PREFIX + key.map_or(0, <[u8]>::len) + value_bytes);
            plan.places.push(place);
        }
        Ok(plan)
    }
}

type Dealt<'py> = (i64, Bound<'py, PyByteArray>, Bound<'py, PyByteArray>, usize, Bound<'py, PyByteArray>);

/// Deal records out to shards: `[(shard, data, ends, largest, rows)]`, in the order in which shards come up.
///
/// A key picks its shard; records without one go round, from `turn` on.  `ends` are i64, as many as there are records and
/// one more, and `rows` are the u32 indices of the records.
#[pyfunction]
pub fn deal<'py>(
    py: Python<'py>,
    payloads: &Bound<'py, PyAny>,
    keys: &Bound<'py, PyAny>,
    shards: u32,
    turn: u64,
    seed: u64,
    key_bytes_max: usize,
) -> PyResult<Checked<Vec<Dealt<'py>>>> {
    let values = items(payloads, Held::new)?;
    let keys = items(keys, |key| as_key(key, key_bytes_max))?;
    if values.len() != keys.len() {
        return Err(checked::error::<PyValueError>("there are not as many keys as payloads"));
    }
    if shards == 0 {
        return Err(checked::error::<PyValueError>("there is at least one shard"));
    }
    let pairs = || keys.iter().map(|key| key.as_ref().map(PyBytesMethods::as_bytes)).zip(&values);
    let plan = Plan::new(pairs().map(|(key, value)| (key, value.payload().bytes().len())), shards, turn, seed)?;
    let mut hands = checked::collect(plan.shares.iter().map(|(_, share)| Hand::new(py, share)))?;
    for (row, (&place, (key, value))) in plan.places.iter().zip(pairs()).enumerate() {
        hands[place].push(row, key, value.payload().bytes())?;
    }
    let finished = plan.shares.into_iter().zip(hands).map(|((shard, share), Hand { data, ends, rows, .. })| {
        Ok((shard, data.finish()?, ends.finish()?, share.largest, rows.finish()?))
    });
    Ok(Checked(checked::collect(finished)?))
}
