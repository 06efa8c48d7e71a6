//! The commands in an entry of a cluster's parent log.  `latewood.format.entry` has their layout, and the errors.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::checked::{self, Checked};
use crate::door::Door;

const HEAD: usize = 40;
const WRITE: u8 = 1;
const ACTION_MAX: u8 = 2;

/// Partition, first index, records, time, name of the request, action.
type Value<'py> = (u64, u64, Bound<'py, PyList>, u64, Bound<'py, PyBytes>, u8);

fn u32_at(data: &[u8], at: usize) -> usize {
    u32::from_le_bytes(data[at..at + 4].try_into().expect("four bytes")) as usize
}

fn u64_at(data: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(data[at..at + 8].try_into().expect("eight bytes"))
}

/// One command, where it lies.
pub struct Command<'a> {
    /// All of it.
    data: &'a [u8],
    lengths: usize,
    records: usize,
}

impl<'a> Command<'a> {
    /// The command that `data` begins with; none if it is cut short, or not of the version that we know.
    pub fn first(data: &'a [u8], version: u8) -> Option<Self> {
        if data.len() < HEAD || data[0] != version || !(1..=ACTION_MAX).contains(&data[1]) {
            return None;
        }
        let lengths = HEAD + usize::from(u16::from_le_bytes([data[2], data[3]]));
        let records = lengths + 4 * u32_at(data, 4);
        let data = data.get(..usize::try_from(u64_at(data, 32)).ok()?)?;
        if records > data.len() {
            return None;
        }
        let command = Self { data, lengths, records };
        let mut end = records;
        for length in command.sizes() {
            end = end.checked_add(length)?;
        }
        (end == data.len()).then_some(command)
    }

    /// Whole bytes of it.
    pub const fn size(&self) -> usize {
        self.data.len()
    }

    /// Whether it writes records.
    pub const fn writes(&self) -> bool {
        self.data[1] == WRITE
    }

    /// Whom it is for.
    pub fn partition(&self) -> u64 {
        u64_at(self.data, 8)
    }

    /// The index of its first record.
    pub fn first_index(&self) -> u64 {
        u64_at(self.data, 16)
    }

    /// When its leader took it.
    pub fn timestamp_ns(&self) -> u64 {
        u64_at(self.data, 24)
    }

    /// What names the client's request.
    pub fn request(&self) -> &'a [u8] {
        &self.data[HEAD..self.lengths]
    }

    /// How many records it has.
    pub const fn count(&self) -> usize {
        (self.records - self.lengths) / 4
    }

    /// The lengths of its records.
    pub fn sizes(&self) -> impl Iterator<Item = usize> + use<'a> {
        let data = self.data;
        (self.lengths..self.records).step_by(4).map(move |at| u32_at(data, at))
    }

    /// Its records.
    pub fn payloads(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (data, mut start) = (self.data, self.records);
        self.sizes().map(move |length| {
            start += length;
            &data[start - length..start]
        })
    }

    fn value<'py>(&self, py: Python<'py>) -> PyResult<Checked<Value<'py>>> {
        let payloads = checked::empty_list(py)?;
        for payload in self.payloads() {
            payloads.append(checked::bytes(py, payload)?)?;
        }
        let request = checked::bytes(py, self.request())?;
        Ok(Checked((self.partition(), self.first_index(), payloads, self.timestamp_ns(), request, self.data[1])))
    }
}

/// The commands in `data`, and where they end: before its end, if what is there is none.
#[pyfunction]
pub fn split_commands<'py>(data: &Bound<'py, PyBytes>, version: u8) -> PyResult<Checked<(Bound<'py, PyList>, usize)>> {
    let (py, bytes) = (data.py(), data.as_bytes());
    let commands = checked::empty_list(py)?;
    let mut start = 0;
    while let Some(command) = Command::first(&bytes[start..], version) {
        commands.append(command.value(py)?)?;
        start += command.size();
    }
    Ok(Checked((commands, start)))
}

/// A request of a client, and what its command says besides its records.
pub struct Request<'a> {
    /// Whom it is for.
    pub partition: u64,
    /// The index of its first record.
    pub first: u64,
    /// When its leader took it.
    pub timestamp_ns: u64,
    /// Whose it is.
    pub client_id: &'a [u8],
    /// Its number.
    pub number: u64,
}

impl Request<'_> {
    /// Add the command that writes these records.
    pub fn encode(&self, joined: &mut Vec<u8>, payloads: &[Bound<'_, PyBytes>], version: u8) -> PyResult<()> {
        let start = joined.len();
        let bytes = payloads.iter().map(|payload| payload.as_bytes().len() + 4).sum::<usize>();
        checked::reserve(joined, HEAD + self.client_id.len() + 8 + bytes)?;
        joined.extend_from_slice(&[version, WRITE]);
        joined.extend_from_slice(&u16::try_from(self.client_id.len() + 8)?.to_le_bytes());
        joined.extend_from_slice(&u32::try_from(payloads.len())?.to_le_bytes());
        for number in [self.partition, self.first, self.timestamp_ns, 0] {
            joined.extend_from_slice(&number.to_le_bytes());
        }
        joined.extend_from_slice(self.client_id);
        joined.extend_from_slice(&self.number.to_le_bytes());
        for payload in payloads {
            joined.extend_from_slice(&u32::try_from(payload.as_bytes().len())?.to_le_bytes());
        }
        for payload in payloads {
            joined.extend_from_slice(payload.as_bytes());
        }
        let size = (joined.len() - start) as u64;
        joined[start + 32..start + HEAD].copy_from_slice(&size.to_le_bytes());
        Ok(())
    }
}

/// Write the records of the commands in `data` from `start` on, each command whole, and return how far that went.
///
/// `doors` holds, by partition, (the least `ext_id` that is for it, its door).  A command is for `route` to look at, and
/// the last here, if it does not write, if its partition has no door or is younger, if it does not follow exactly what
/// is there, or if there is no room for it.  Of the others (partition, first index, last index, ext_id) is added to
/// `placed`.
#[pyfunction(name = "_place_commands")]
pub fn place_commands<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyBytes>,
    start: usize,
    version: u8,
    ext_id: u64,
    doors: &Bound<'py, PyDict>,
    placed: &Bound<'py, PyList>,
) -> PyResult<Checked<usize>> {
    let bytes = data.as_bytes();
    let mut at = start.min(bytes.len());
    while let Some(command) = Command::first(&bytes[at..], version).filter(Command::writes) {
        let Some(known) = doors.get_item(Checked(command.partition()))? else { break };
        let known =
            known.cast::<PyTuple>().map_err(|_| checked::error::<PyTypeError>("a door with its least ext_id"))?;
        let is_of_this_life = ext_id >= known.get_item(0)?.extract()?;
        let door = known.get_item(1)?;
        let Ok(door) = door.cast::<Door>() else { break }; // One of the pure kernel.
        if !is_of_this_life || command.count() == 0 {
            break;
        }
        let last = command.first_index() + command.count() as u64 - 1;
        placed.append(Checked((command.partition(), command.first_index(), last, ext_id)))?;
        let was_done = door.get().place(py, &command, ext_id);
        if !matches!(was_done, Ok(true)) {
            placed.del_item(placed.len() - 1)?; // It was noted first: what is written must be, and noting takes memory.
            was_done?;
            break;
        }
        at += command.size();
    }
    Ok(Checked(at))
}
