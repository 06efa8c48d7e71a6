//! What was written to partitions, as books write it down until somebody asks.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::checked::{self, Checked};

/// Partition, first and last index, entry.
type Placed = (u64, u64, u64, u64);

/// Fold what came with entries up to `through`, in the order in which it was written: for each partition its first
/// and last index, and the entries of both.  Returns that by partition, in the order in which they appear (who replays
/// a story must see the same), and the rest as it is.
#[pyfunction(name = "_fold_placed")]
pub fn fold_placed<'py>(
    placed: &Bound<'py, PyList>,
    through: u64,
) -> PyResult<Checked<(Bound<'py, PyDict>, Bound<'py, PyList>)>> {
    let (py, rest) = (placed.py(), checked::empty_list(placed.py())?);
    let (mut folded, mut seats) = (Vec::<(u64, Placed)>::new(), HashMap::<u64, usize>::new());
    for run in placed {
        let (partition, first, last, entry): Placed = run.extract()?;
        if entry > through {
            rest.append(run)?;
            continue;
        }
        checked::reserve_key(&mut seats)?;
        checked::reserve(&mut folded, 1)?;
        let seat = *seats.entry(partition).or_insert(folded.len());
        if seat == folded.len() {
            folded.push((partition, (first, last, entry, entry)));
        }
        let whole = &mut folded[seat].1;
        (whole.1, whole.3) = (last, entry);
    }
    let found = checked::empty_dict(py)?;
    for (partition, whole) in folded {
        found.set_item(Checked(partition), Checked(whole))?;
    }
    Ok(Checked((found, rest)))
}
