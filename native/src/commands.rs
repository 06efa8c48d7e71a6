//! The commands in an entry of a cluster's parent log.  `latewood.format.entry` has their layout, and the errors.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

const HEAD: usize = 40;
const ACTION_MAX: u8 = 2;

/// Partition, first index, records, time, name of the request, action.
type Command<'py> = (u64, u64, Bound<'py, PyList>, u64, Bound<'py, PyBytes>, u8);

fn u32_at(data: &[u8], at: usize) -> usize {
    u32::from_le_bytes(data[at..at + 4].try_into().expect("four bytes")) as usize
}

fn u64_at(data: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(data[at..at + 8].try_into().expect("eight bytes"))
}

/// The command that `data` begins with, and its size; none if it is cut short, or not of the version that we know.
fn first_command<'py>(py: Python<'py>, data: &[u8], version: u8) -> PyResult<Option<(Command<'py>, usize)>> {
    if data.len() < HEAD || data[0] != version || !(1..=ACTION_MAX).contains(&data[1]) {
        return Ok(None);
    }
    let Ok(size) = usize::try_from(u64_at(data, 32)) else { return Ok(None) };
    let lengths = HEAD + usize::from(u16::from_le_bytes([data[2], data[3]]));
    let records = lengths + 4 * u32_at(data, 4);
    if size > data.len() || records > size {
        return Ok(None);
    }
    let payloads = PyList::empty(py);
    let mut start = records;
    for at in (lengths..records).step_by(4) {
        let Some(stop) = start.checked_add(u32_at(data, at)).filter(|stop| *stop <= size) else { return Ok(None) };
        payloads.append(PyBytes::new(py, &data[start..stop]))?;
        start = stop;
    }
    if start != size {
        return Ok(None);
    }
    let request = PyBytes::new(py, &data[HEAD..lengths]);
    let command = (u64_at(data, 8), u64_at(data, 16), payloads, u64_at(data, 24), request, data[1]);
    Ok(Some((command, size)))
}

/// The commands in `data`, and where they end: before its end, if what is there is none.
#[pyfunction]
pub fn split_commands<'py>(data: &Bound<'py, PyBytes>, version: u8) -> PyResult<(Bound<'py, PyList>, usize)> {
    let (py, bytes) = (data.py(), data.as_bytes());
    let commands = PyList::empty(py);
    let mut start = 0;
    while start < bytes.len() {
        let Some((command, size)) = first_command(py, &bytes[start..], version)? else { break };
        commands.append(command)?;
        start += size;
    }
    Ok((commands, start))
}
