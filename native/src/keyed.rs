//! Keyed records: keys and values of a column of payloads, `u32 key length + 1, or 0 | key | value` each.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::memory::{Column, Region};

const PREFIX: usize = 4;

/// One payload's key, if it has one, and its value; None if it is too short for what it says.
fn split(payload: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (size, rest) = payload.split_first_chunk::<PREFIX>()?;
    match u32::from_le_bytes(*size) {
        0 => Some((None, rest)),
        size => rest.split_at_checked(size as usize - 1).map(|(key, value)| (Some(key), value)),
    }
}

type Split<'py> =
    (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// Split a column of payloads: `(validity of the keys, key offsets, keys, value offsets, values)`, ready for Arrow.
#[pyfunction]
pub fn split_keys<'py>(
    py: Python<'py>,
    offsets: &Bound<'py, PyAny>,
    payloads: &Bound<'py, PyAny>,
) -> PyResult<Split<'py>> {
    let (offsets, payloads) = (Region::readable(offsets)?, Region::readable(payloads)?);
    let count = (offsets.len() / 4).saturating_sub(1);
    let place = |index: usize| offsets.load32(index * 4) as usize;
    let found = (0..count).map(|index| {
        let (from, to) = (place(index), place(index + 1));
        if from > to || to > payloads.len() {
            return None;
        }
        split(payloads.slice(from, to - from))
    });
    let found: Vec<_> =
        found.collect::<Option<_>>().ok_or_else(|| PyValueError::new_err("a payload is too short for its key"))?;
    let key_bytes = found.iter().map(|(key, _)| key.map_or(0, <[u8]>::len)).sum();
    let value_bytes = found.iter().map(|(_, value)| value.len()).sum();
    let mut validity = vec![0_u8; count.div_ceil(8)];
    let mut key_ends = Column::new(py, (count + 1) * 4)?;
    let mut value_ends = Column::new(py, (count + 1) * 4)?;
    let (mut keys, mut values) = (Column::new(py, key_bytes)?, Column::new(py, value_bytes)?);
    let (mut key_end, mut value_end) = (0_i32, 0_i32);
    key_ends.push(&key_end.to_le_bytes());
    value_ends.push(&value_end.to_le_bytes());
    for (index, (key, value)) in found.iter().enumerate() {
        if let Some(key) = key {
            validity[index / 8] |= 1 << (index % 8);
            keys.push(key);
            key_end += i32::try_from(key.len())?;
        }
        values.push(value);
        value_end += i32::try_from(value.len())?;
        key_ends.push(&key_end.to_le_bytes());
        value_ends.push(&value_end.to_le_bytes());
    }
    Ok((PyBytes::new(py, &validity), key_ends.finish(py), keys.finish(py), value_ends.finish(py), values.finish(py)))
}
