//! Requests of one client that came together: those that are plainly new are admitted and become commands in one call.
//! `latewood.replica.writing` says what becomes of all others.

use std::ops::Range;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::answers::AnswerTable;
use crate::backlogs::BacklogTable;
use crate::checked::{self, Checked, Made};
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

/// What was admitted of a group.
#[derive(Default)]
struct Admitted {
    /// The commands.
    joined: Vec<u8>,
    /// The first index of each.
    firsts: Vec<u64>,
    /// Of each its partition, and what its client had begun there before.
    begun: Vec<(u64, u64)>,
    /// Where the records of the next request begin.
    start: usize,
}

impl Admitted {
    fn made<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut firsts = checked::room_for(self.firsts.len())?;
        firsts.extend_from_slice(&self.firsts);
        (checked::bytes(py, &self.joined)?, firsts, self.start).made(py)
    }

    /// Give back all that the tables hold of it.
    fn withdraw(&self, client_id: &[u8], answers: &mut AnswerTable, backlogs: &mut BacklogTable) {
        for (first, (partition, begun)) in self.firsts.iter().zip(&self.begun).rev() {
            backlogs.withdraw(*partition, *first);
            answers.withdraw(*partition, client_id, *begun);
        }
    }
}

/// Admit requests from `place` on, whose records begin at `start`, as long as they are plain and fit one entry.
///
/// One is plain if it follows all that its client has begun, if nothing speaks against it, and if it is neither in
/// `pending` nor for a partition in `ending`.  Returns their commands, the first index of each, and where the records of
/// the next request begin.  An error leaves the tables as they were: nobody would propose what they hold.
#[pyfunction(name = "_admit_plain")]
#[allow(clippy::too_many_arguments, reason = "what a request has to do with is spread over as many books")]
#[allow(clippy::needless_pass_by_value, reason = "columns are taken out of the group for this call")]
pub fn admit_plain<'py>(
    py: Python<'py>,
    group: Columns<'py>,
    place: usize,
    start: usize,
    now_ns: u64,
    version: u8,
    bounds: Bounds,
    answers: &mut AnswerTable,
    backlogs: &mut BacklogTable,
    pending: &Bound<'py, PyDict>,
    ending: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut admitted = Admitted { start, ..Admitted::default() };
    let is_under_way = |partition: u64, number: u64| {
        Ok((!ending.is_empty() && ending.contains(Checked(partition))?)
            || (!pending.is_empty() && pending.contains(Checked((partition, group.client_id.clone(), number)))?))
    };
    let all = admit(&mut admitted, &group, place, now_ns, version, bounds, answers, backlogs, is_under_way);
    all.and_then(|()| admitted.made(py)).inspect_err(|_| {
        admitted.withdraw(group.client_id.as_bytes(), answers, backlogs);
    })
}

#[allow(clippy::too_many_arguments, reason = "as above")]
fn admit(
    admitted: &mut Admitted,
    group: &Columns<'_>,
    mut place: usize,
    now_ns: u64,
    version: u8,
    bounds: Bounds,
    answers: &mut AnswerTable,
    backlogs: &mut BacklogTable,
    is_under_way: impl Fn(u64, u64) -> PyResult<bool>,
) -> PyResult<()> {
    let client_id = group.client_id.as_bytes();
    let Admitted { joined, firsts, begun, start } = admitted;
    while firsts.len() < bounds.commands && place < group.partitions.len() {
        let Some((partition, number, records)) = group.request(place, *start) else { break };
        let Some(payloads) = group.records(records)? else { break };
        let size: usize = payloads.iter().map(|payload| payload.as_bytes().len()).sum();
        let is_odd = payloads.is_empty() || payloads.len() > bounds.records || size > bounds.payload_bytes;
        let is_full = joined.len() + bounds.head_bytes + 4 * payloads.len() + size > bounds.bytes;
        if is_odd || (is_full && !firsts.is_empty()) || partition > bounds.partition || number == 0 {
            break;
        }
        if is_under_way(partition, number)? {
            break;
        }
        let (ops, bytes) = (payloads.len() as u64, size as u64);
        let Some(first) = backlogs.room(partition, ops, bytes, now_ns) else { break };
        checked::reserve(firsts, 1)?;
        checked::reserve(begun, 1)?;
        checked::reserve(joined, bounds.head_bytes + 4 * payloads.len() + size)?;
        let Some(before) = answers.begin(partition, client_id, number) else { break };
        backlogs.add(partition, ops, bytes, now_ns);
        firsts.push(first);
        begun.push((partition, before));
        let request = Request { partition, first, timestamp_ns: now_ns, client_id, number };
        request.encode(joined, &payloads, version)?;
        (place, *start) = (place + 1, *start + payloads.len());
    }
    Ok(())
}
