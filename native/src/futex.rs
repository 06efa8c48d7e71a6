//! Waking readers in other processes: 8 bytes of shared memory, `u32 flag | u32 epoch`.
//!
//! A reader arms (reads the epoch, then raises the flag), looks once more for records, and only then waits while
//! the epoch is what it read.  A writer publishes, fences, and looks at the flag.  Whatever the interleaving,
//! either the reader sees the record or the writer sees the flag, so no wake is missed.  A mark that is swapped in is
//! both, a store and a fence.

use std::sync::atomic::{Ordering, fence};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::checked::{self, Checked};
use crate::memory::{Writable, futex_wait, futex_wake};

const FLAG: usize = 0;
const EPOCH: usize = 4;

/// The shared words on which readers sleep.
pub struct Wake(Writable);

impl Wake {
    /// The first 8 bytes of a writable buffer.
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let words = Writable::new(object)?;
        if words.region().len() < 8 {
            return Err(checked::error::<PyValueError>("a wake buffer has at least 8 bytes"));
        }
        Ok(Self(words))
    }

    /// Wake the readers, if one has armed.  To be called after publishing.
    #[inline]
    pub fn ring(&self) {
        fence(Ordering::SeqCst);
        self.ring_published();
    }

    /// The same after `record::publish_first`, which has fenced.
    #[inline]
    pub fn ring_published(&self) {
        if self.0.atomic32(FLAG).load(Ordering::SeqCst) != 0 {
            self.wake_all();
        }
    }

    #[cold]
    fn wake_all(&self) {
        self.0.atomic32(FLAG).store(0, Ordering::SeqCst);
        self.0.atomic32(EPOCH).fetch_add(1, Ordering::SeqCst);
        futex_wake(self.0.atomic32(EPOCH));
    }

    fn arm(&self) -> u32 {
        let epoch = self.0.atomic32(EPOCH).load(Ordering::SeqCst);
        self.0.atomic32(FLAG).store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        epoch
    }
}

/// Ask to be woken, and return the epoch to wait on.  Look for records once more before waiting.
#[pyfunction]
pub fn arm(wake: &Bound<'_, PyAny>) -> PyResult<Checked<u32>> {
    Ok(Checked(Wake::new(wake)?.arm()))
}

/// Sleep while the epoch is still `epoch`, at most `timeout_ns`.  Returns early for a signal.
#[pyfunction]
pub fn wait(py: Python<'_>, wake: &Bound<'_, PyAny>, epoch: u32, timeout_ns: u64) -> PyResult<()> {
    let wake = Wake::new(wake)?;
    py.detach(|| futex_wait(wake.0.atomic32(EPOCH), epoch, timeout_ns));
    Ok(())
}

/// Wake every reader that waits.
#[pyfunction]
pub fn wake_all(wake: &Bound<'_, PyAny>) -> PyResult<()> {
    Wake::new(wake)?.wake_all();
    Ok(())
}
