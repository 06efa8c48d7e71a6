//! Requests of one client that came together: those that are plainly new are admitted and become commands in one call.
//! `latewood.replica.writing` says what becomes of all others.

use std::ops::Range;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::answers::AnswerTable;
use crate::backlogs::BacklogTable;
use crate::checked::{self, Checked};
use crate::commands::Request;

/// What an entry, and a request that is plain, may hold.
#[derive(Clone, Copy, FromPyObject)]
pub struct Bounds {
    partition: u64,
    payload_bytes: usize,
    head_bytes: usize,
    records: usize,
    commands: usize,
    bytes: usize,
}

/// The columns of a group: a partition, a number and a count of records for each request, and the records of all.
/// Without counts each request has one record.
#[derive(FromPyObject)]
pub struct Columns<'py> {
    client_id: Bound<'py, PyBytes>,
    partitions: Bound<'py, PyList>,
    request_ids: Bound<'py, PyList>,
    counts: Bound<'py, PyList>,
    payloads: Bound<'py, PyList>,
}

impl<'py> Columns<'py> {
    /// Partition and number of the request at a place, and which records are its own; none if it is odd.
    fn request(&self, place: usize, start: usize) -> Option<(u64, u64, Range<usize>)> {
        let number_at = |list: &Bound<'py, PyList>| list.get_item(place).ok()?.extract::<u64>().ok();
        let count = if self.counts.is_empty() { 1 } else { usize::try_from(number_at(&self.counts)?).ok()? };
        let stop = start.checked_add(count).filter(|stop| *stop <= self.payloads.len())?;
        Some((number_at(&self.partitions)?, number_at(&self.request_ids)?, start..stop))
    }

    /// Some of the records; none if one of them is odd.
    fn records(&self, range: Range<usize>) -> PyResult<Option<Vec<Bound<'py, PyBytes>>>> {
        let mut found = checked::room_for(range.len())?;
        for at in range {
            let Ok(payload) = self.payloads.get_item(at)?.cast_into::<PyBytes>() else { return Ok(None) };
            found.push(payload);
        }
        Ok(Some(found))
    }
}

/// Commands, the first index of each, and where the records of the next request begin.
type Admitted<'py> = Checked<(Bound<'py, PyBytes>, Vec<u64>, usize)>;

/// Admit requests from `place` on, whose records begin at `start`, as long as they are plain and fit one entry.
///
/// One is plain if it follows all that its client has begun, if nothing speaks against it, and if it is neither in
/// `pending` nor for a partition in `ending`.  Returns their commands, the first index of each, and where the records of
/// the next request begin.
#[pyfunction(name = "_admit_plain")]
#[allow(clippy::too_many_arguments, reason = "what a request has to do with is spread over as many books")]
#[allow(clippy::needless_pass_by_value, reason = "columns are taken out of the group for this call")]
pub fn admit_plain<'py>(
    py: Python<'py>,
    group: Columns<'py>,
    mut place: usize,
    mut start: usize,
    now_ns: u64,
    version: u8,
    bounds: Bounds,
    answers: &mut AnswerTable,
    backlogs: &mut BacklogTable,
    pending: &Bound<'py, PyDict>,
    ending: &Bound<'py, PyDict>,
) -> PyResult<Admitted<'py>> {
    let client_id = group.client_id.as_bytes();
    let (mut joined, mut firsts) = (Vec::new(), Vec::new());
    while firsts.len() < bounds.commands && place < group.partitions.len() {
        let Some((partition, number, records)) = group.request(place, start) else { break };
        let Some(payloads) = group.records(records)? else { break };
        let size: usize = payloads.iter().map(|payload| payload.as_bytes().len()).sum();
        let is_odd = payloads.is_empty() || payloads.len() > bounds.records || size > bounds.payload_bytes;
        let is_full = joined.len() + bounds.head_bytes + 4 * payloads.len() + size > bounds.bytes;
        if is_odd || (is_full && !firsts.is_empty()) || partition > bounds.partition || number == 0 {
            break;
        }
        if (!ending.is_empty() && ending.contains(Checked(partition))?)
            || (!pending.is_empty() && pending.contains(Checked((partition, group.client_id.clone(), number)))?)
        {
            break;
        }
        let (ops, bytes) = (payloads.len() as u64, size as u64);
        let Some(first) = backlogs.room(partition, ops, bytes, now_ns) else { break };
        checked::reserve(&mut firsts, 1)?;
        checked::reserve(&mut joined, bounds.head_bytes + 4 * payloads.len() + size)?; // Before anybody counts on it.
        if !answers.begin(partition, client_id, number) {
            break;
        }
        backlogs.add(partition, ops, bytes, now_ns);
        let request = Request { partition, first, timestamp_ns: now_ns, client_id, number };
        request.encode(&mut joined, &payloads, version)?;
        firsts.push(first);
        (place, start) = (place + 1, start + payloads.len());
    }
    Ok(Checked((checked::bytes(py, &joined)?, firsts, start)))
}
