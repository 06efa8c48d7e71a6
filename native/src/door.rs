//! The call that is made for every record: straight to the appender, and to Python only if that finds no room.
//!
//! It outlives the segments, so a caller may keep it: whoever opens a segment sets its appender here.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyOverflowError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::appender::Appender;
use crate::checked::{Checked, Made};
use crate::commands::Command;
use crate::memory::{GilCell, Region};

/// Appends to whichever segment is open.
#[pyclass(frozen, module = "latewood._native")]
pub struct Door {
    appender: GilCell<Option<Py<Appender>>>,
    /// Whether the appender may tell the time.
    has_time: AtomicBool,
    slow: Py<PyAny>,
}

impl Door {
    fn appender(&self, py: Python<'_>) -> Option<Py<Appender>> {
        self.appender.with(py, |held| held.as_ref().map(|appender| appender.clone_ref(py)))
    }

    /// Append the records of a command if they follow exactly and there is room for all; say whether it was done.
    pub fn place(&self, py: Python<'_>, command: &Command<'_>, ext_id: u64) -> PyResult<bool> {
        self.appender(py).map_or(Ok(false), |appender| appender.get().place(py, command, ext_id))
    }
}

#[pymethods]
impl Door {
    /// `slow(payload, ext_id, timestamp_ns, durable)` is called for what the appender cannot do.
    #[new]
    fn new(slow: Py<PyAny>) -> Self {
        Self { appender: GilCell::new(None), has_time: AtomicBool::new(true), slow }
    }

    /// `slow` is usually a method of whoever owns the door: without this, neither would ever be freed.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.slow)
    }

    /// Send appends to `appender`, or, without one, all of them to Python.  Without `has_time`, only those with a time.
    #[pyo3(signature = (appender, *, has_time=true))]
    fn set(&self, py: Python<'_>, appender: Option<Py<Appender>>, has_time: bool) {
        self.has_time.store(has_time, Ordering::Relaxed); // The GIL orders it.
        let old = self.appender.with(py, |held| std::mem::replace(held, appender));
        drop(old); // Outside the cell: letting go may run Python code.
    }

    /// Append one record and return its sequence.
    #[pyo3(
        signature = (payload, *, ext_id=None, timestamp_ns=None, durable=false),
        text_signature = "($self, payload, *, ext_id=0, timestamp_ns=None, durable=False)"
    )]
    fn append(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        ext_id: Option<&Bound<'_, PyAny>>,
        timestamp_ns: Option<&Bound<'_, PyAny>>,
        durable: bool,
    ) -> PyResult<Checked<i64>> {
        let numbers = if ext_id.is_none() && timestamp_ns.is_none() {
            Some((0, None)) // Mostly, and then there is nothing to look at.
        } else {
            number(ext_id)?.zip(number(timestamp_ns)?).map(|(ext_id, time)| (ext_id.unwrap_or(0), time))
        };
        let may_pass = |time: Option<u64>| !durable && (time.is_some() || self.has_time.load(Ordering::Relaxed));
        let numbers = numbers.filter(|(_, time)| may_pass(*time));
        if let Some(((ext_id, timestamp_ns), appender)) = numbers.and_then(|found| Some((found, self.appender(py)?))) {
            match appender.get().append_one(py, payload, ext_id, timestamp_ns) {
                Ok(sequence) if sequence >= 0 => return Ok(Checked(sequence)),
                Err(error) if !error.is_instance_of::<PyOverflowError>(py) => return Err(error),
                _ => {} // No room, or a number out of range: `slow` makes room, or says better what is wrong.
            }
        }
        let ext_id = ext_id.map_or_else(|| 0u64.made(py), |given| Ok(given.clone()))?;
        let arguments = (payload.clone(), ext_id, timestamp_ns.cloned(), durable).made(py)?;
        Ok(Checked(self.slow.call1(py, arguments.cast_into::<PyTuple>()?)?.extract(py)?))
    }
}

/// A number that may be missing; None if there is one, and it is out of range.
#[inline]
#[allow(clippy::option_option, reason = "missing is not out of range")]
fn number(object: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Option<u64>>> {
    match object.map(PyAnyMethods::extract::<u64>) {
        None => Ok(Some(None)),
        Some(Ok(number)) => Ok(Some(Some(number))),
        Some(Err(error)) if error.is_instance_of::<PyOverflowError>(object.expect("it is there").py()) => Ok(None),
        Some(Err(error)) => Err(error),
    }
}

/// The length of the largest of some bytes-likes.
#[pyfunction]
pub fn largest(payloads: &Bound<'_, PyAny>) -> PyResult<Checked<usize>> {
    let mut longest = 0;
    for payload in payloads.try_iter()? {
        let payload = payload?;
        let length = match payload.cast_exact::<PyBytes>() {
            Ok(bytes) => bytes.as_bytes().len(),
            Err(_) => Region::readable(&payload)?.len(),
        };
        longest = longest.max(length);
    }
    Ok(Checked(longest))
}
