//! Records as columns, ready for Arrow: only those that are asked for are made.
//!
//! Every checksum is looked at whatever is asked for.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

use crate::block::{BLOCK, Block, Budget};
use crate::checked::{self, Checked};
use crate::keyed;
use crate::memory::{Column, Region};
use crate::record::{HEADER, size};
use crate::scan::{Place, UNFIT, Window};

/// The timestamps are wanted.
pub const TIMESTAMPS: u8 = 1;
/// The ext_ids are wanted.
pub const EXT_IDS: u8 = 2;
/// Where payloads end is wanted, so their lengths.
pub const LENGTHS: u8 = 4;
/// The payloads are wanted, and where they end.
pub const PAYLOADS: u8 = 8;
/// The keys of a keyed log are wanted.
pub const KEYS: u8 = 16;
/// Everything there is.
pub const ALL: u8 = 31;

/// How many rows, and bytes of them, a batch may have.
#[derive(Clone, Copy)]
struct Most {
    rows: usize,
    bytes: usize,
}

impl Most {
    /// What `bytes` of the first `rows` come to, if the others are like them, and a little more.
    fn thought(self, bytes: usize, rows: usize) -> usize {
        let all = bytes as u128 * self.rows as u128 / rows.max(1) as u128;
        let all = usize::try_from(all).unwrap_or(usize::MAX).min(self.bytes);
        all.saturating_add(all / 16)
    }
}

/// Bytes of some length each, one after the other, and where they end.
struct Values<'py> {
    ends: Column<'py>,
    data: Option<Column<'py>>,
    end: i32,
}

#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "no column is longer than i32::MAX")]
impl<'py> Values<'py> {
    fn new(py: Python<'py>, has_data: bool) -> PyResult<Self> {
        let mut ends = Column::new(py)?;
        ends.reserve(4, |needed| needed)?;
        ends.push(&0_i32.to_le_bytes());
        Ok(Self { ends, data: has_data.then(|| Column::new(py)).transpose()?, end: 0 })
    }

    fn reserve(&mut self, most: Most, before: usize, rows: usize, bytes: usize) -> PyResult<()> {
        self.ends.reserve(rows * 4, |_| (most.rows + 1) * 4)?;
        match &mut self.data {
            Some(data) => data.reserve(bytes, |needed| most.thought(needed, before + rows)),
            None => Ok(()),
        }
    }

    #[inline]
    fn push(&mut self, value: &[u8]) {
        self.end += value.len() as i32;
        self.ends.push(&self.end.to_le_bytes());
        if let Some(data) = &mut self.data {
            data.push(value);
        }
    }

    /// Add `count` values of one length, the first of which is at `offset`.
    fn push_all(&mut self, region: &Region, offset: usize, length: usize, count: usize) {
        self.ends.push_steps(self.end, length as i32, count);
        self.end += (length * count) as i32;
        if let Some(data) = &mut self.data {
            data.push_all(region, offset, size(length), length, count);
        }
    }
}

/// Keys and values of a block, each taken apart once: whoever could still change a payload changes no length.
type Pairs<'a> = [(Option<&'a [u8]>, &'a [u8]); BLOCK];

/// What is wanted of the records of one batch.
struct Columns<'py> {
    timestamps: Option<Column<'py>>,
    ext_ids: Option<Column<'py>>,
    values: Option<Values<'py>>,
    keys: Option<Values<'py>>,
    validity: Vec<u8>,
    is_keyed: bool,
    count: usize,
    most: Most,
}

impl<'py> Columns<'py> {
    fn new(py: Python<'py>, wanted: u8, is_keyed: bool, most: Most) -> PyResult<Self> {
        let wants = |flags| wanted & flags != 0;
        let values = |has, has_data| if has { Values::new(py, has_data).map(Some) } else { Ok(None) };
        Ok(Self {
            most,
            timestamps: wants(TIMESTAMPS).then(|| Column::new(py)).transpose()?,
            ext_ids: wants(EXT_IDS).then(|| Column::new(py)).transpose()?,
            values: values(wants(LENGTHS | PAYLOADS), wants(PAYLOADS))?,
            keys: values(is_keyed && wants(KEYS), true)?,
            validity: Vec::new(),
            is_keyed,
            count: 0,
        })
    }

    /// Add the records of a block; one whose key does not fit it ends that.
    fn push<'a>(&mut self, window: &'a Window, block: &mut Block, pairs: &mut Pairs<'a>) -> PyResult<()> {
        if self.is_keyed {
            self.push_keyed(window, block, pairs)?;
        } else if let Some(values) = &mut self.values {
            values.reserve(self.most, self.count, block.len(), block.payload_bytes())?;
            if let Some((offset, length)) = block.run() {
                values.push_all(&window.region, offset + HEADER, length, block.len());
            } else {
                for (offset, length) in block.records() {
                    values.push(window.payload(offset, length));
                }
            }
        }
        for (column, place) in [(&mut self.timestamps, 8), (&mut self.ext_ids, 16)] {
            if let Some(column) = column {
                column.reserve(block.len() * 8, |_| self.most.rows * 8)?;
                if let Some((offset, length)) = block.run() {
                    column.push_words(&window.region, offset + place, size(length), block.len());
                } else {
                    for (offset, _) in block.records() {
                        column.push(window.region.slice(offset + place, 8));
                    }
                }
            }
        }
        self.count += block.len();
        Ok(())
    }

    fn push_keyed<'a>(&mut self, window: &'a Window, block: &mut Block, pairs: &mut Pairs<'a>) -> PyResult<()> {
        let split = |(offset, length)| keyed::split(window.payload(offset, length));
        let unfit = block.records().zip(&mut *pairs).position(|(record, pair)| match split(record) {
            Some(found) => {
                *pair = found;
                false
            }
            None => true,
        });
        if let Some(index) = unfit {
            block.cut(index, UNFIT);
        }
        let pairs = &pairs[..block.len()];
        if let Some(values) = &mut self.values {
            values.reserve(self.most, self.count, block.len(), block.payload_bytes())?;
            for (_, value) in pairs {
                values.push(value);
            }
        }
        if let Some(keys) = &mut self.keys {
            let bytes = pairs.iter().map(|(key, _)| key.map_or(0, <[u8]>::len)).sum();
            keys.reserve(self.most, self.count, block.len(), bytes)?;
            checked::reserve(&mut self.validity, block.len().div_ceil(8))?;
            self.validity.resize((self.count + block.len()).div_ceil(8), 0);
            for (index, (key, _)) in (self.count..).zip(pairs) {
                self.validity[index / 8] |= u8::from(key.is_some()) << (index % 8);
                keys.push(key.unwrap_or_default());
            }
        }
        Ok(())
    }
}

type Made<'py> = Option<Bound<'py, PyByteArray>>;
type Parts<'py> = (usize, usize, u8, Made<'py>, Made<'py>, Made<'py>, Made<'py>, Made<'py>, Made<'py>, Made<'py>);

/// Read records as columns, each verified:
/// `(count, next_offset, state, timestamps, ext_ids, offsets, payloads, key_validity, key_offsets, keys)`.
///
/// What is not `wanted` is None.  With `keyed`, keys and payloads are taken apart, and a payload that is too short for
/// its key ends it.
#[pyfunction]
#[pyo3(signature = (buffer, offset, limit, sequence, max_records, max_bytes, wanted=31, keyed=false))]
#[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools, reason = "Python calls it")]
pub fn columns<'py>(
    py: Python<'py>,
    buffer: &Bound<'py, PyAny>,
    offset: Place,
    limit: Place,
    sequence: u64,
    max_records: u64,
    max_bytes: u64,
    wanted: u64,
    keyed: bool,
) -> PyResult<Checked<Parts<'py>>> {
    let _ = sequence;
    let wanted = u8::try_from(wanted).ok().filter(|wanted| wanted & !ALL == 0);
    let wanted = wanted.ok_or_else(|| checked::error::<PyValueError>("there is no such column"))?;
    let window = Window::aligned(buffer, offset, limit)?;
    let left = window.left(offset.0);
    let rows = usize::try_from(max_records).unwrap_or(usize::MAX).min(left / 24);
    let bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX).min(left);
    let mut columns = Columns::new(py, wanted, keyed, Most { rows, bytes })?;
    let (mut block, mut budget) = (Block::at(offset.0), Budget::new(max_records, max_bytes));
    let mut pairs: Pairs<'_> = [(None, &[]); BLOCK];
    let state = loop {
        block.read_column(&window, &mut budget)?;
        columns.push(&window, &mut block, &mut pairs)?;
        if let Some(state) = block.state {
            break state;
        }
    };
    let Columns { timestamps, ext_ids, values, keys, validity, count, .. } = columns;
    let words = |column: Option<Column<'py>>| column.map(Column::finish).transpose();
    let parts = |values: Option<Values<'py>>| match values {
        None => Ok((None, None)),
        Some(Values { ends, data, .. }) => Ok::<_, PyErr>((Some(ends.finish()?), words(data)?)),
    };
    let validity = keys.as_ref().map(|_| checked::byte_array(py, &validity)).transpose()?;
    let ((ends, data), (key_ends, key_data)) = (parts(values)?, parts(keys)?);
    let words = (words(timestamps)?, words(ext_ids)?);
    Ok(Checked((count, block.end, state, words.0, words.1, ends, data, validity, key_ends, key_data)))
}
