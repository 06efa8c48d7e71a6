//! System calls on open files, several in one: a thread that gives the GIL up for each of them must get it back for each,
//! and on a busy interpreter that takes longer than the calls.  `latewood.fs` alone uses these.

use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileExt;

use pyo3::prelude::*;

use crate::checked::Checked;
use crate::memory::{Region, borrow_file};

/// Write all of `data` at `offset`, in pieces that end at multiples of `piece_bytes`, and its first `head_bytes` last.
/// Returns the number of the error, or 0.
#[pyfunction]
pub fn pwrite_all(
    py: Python<'_>,
    descriptor: i32,
    data: &Bound<'_, PyAny>,
    offset: u64,
    piece_bytes: u64,
    head_bytes: usize,
) -> PyResult<Checked<i32>> {
    let region = Region::readable(data)?;
    let file = borrow_file(descriptor)?;
    let (head, rest) = region.slice(0, region.len()).split_at(head_bytes.min(region.len()));
    let written = py.detach(|| {
        write_pieces(&file, rest, offset + head.len() as u64, piece_bytes.max(1))?;
        file.write_all_at(head, offset)
    });
    Ok(Checked(written.map_or_else(|error| number(&error), |()| 0)))
}

#[allow(clippy::cast_possible_truncation, reason = "64-bit machines")]
fn write_pieces(file: &File, mut data: &[u8], mut offset: u64, piece_bytes: u64) -> Result<(), Error> {
    while !data.is_empty() {
        let piece = data.len().min((piece_bytes - offset % piece_bytes) as usize);
        file.write_all_at(&data[..piece], offset)?;
        data = &data[piece..];
        offset += piece as u64;
    }
    Ok(())
}

/// Sync one file (`whole`: its length too), write `data` at the front of another, and, if asked, sync that one.
/// Returns which of the three steps failed, and why: `(0, 0)` if none did.
#[pyfunction]
pub fn sync_and_note(
    py: Python<'_>,
    descriptor: i32,
    whole: bool,
    note: i32,
    data: &[u8],
    durable: bool,
) -> PyResult<Checked<(u8, i32)>> {
    let (file, note) = (borrow_file(descriptor)?, borrow_file(note)?);
    let steps = || {
        again(|| if whole { file.sync_all() } else { file.sync_data() }).map_err(|error| (1, error))?;
        note.write_all_at(data, 0).map_err(|error| (2, error))?;
        if durable { again(|| note.sync_data()).map_err(|error| (3, error)) } else { Ok(()) }
    };
    match py.detach(steps) {
        Ok(()) => Ok(Checked((0, 0))),
        Err((step, error)) => Ok(Checked((step, number(&error)))),
    }
}

fn number(error: &Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// A signal is no failure: nothing was reported yet.
fn again(mut call: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
