//! Python objects, and vectors, that are made with a look at whether there was memory.
//!
//! What PyO3 makes in passing (numbers, tuples, lists, bytes) panics if there was none, and what Rust makes aborts the
//! process.  Neither is an error that a caller of this module could catch, so whatever depends on what it was given is
//! made here, or as here.  An argument whose extraction takes memory, such as a vector, is extracted in the function:
//! for one that PyO3 extracts before the call, it adds a note to the error, and panics if there is no memory for that.  With `memory.rs` and `object.rs` this is the only unsafe code of this crate.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::hash::Hash;
use std::hint::black_box;
use std::io::{Write, stderr};
use std::panic::{set_hook, take_hook};

use pyo3::PyTypeInfo;
use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyList, PyTuple};

/// The error of whoever found no memory.  It has no message, which would need some.
#[cold]
pub fn no_memory() -> PyErr {
    PyMemoryError::new_err(())
}

/// An error with a text.  PyO3 makes the text when it raises the error, and panics if there is no memory for it.
#[cold]
pub fn error<E: PyTypeInfo>(text: &str) -> PyErr {
    Python::attach(|py| match text.made(py) {
        Ok(text) => PyErr::from_type(E::type_object(py), text.unbind()),
        Err(error) => error,
    })
}

/// What a backtrace may need, of the program and all of its libraries.
const BACKTRACE_BYTES: usize = 64 << 20;

/// Tell of panics without a backtrace when there is no memory for one: looking for more, its capture would never end.
pub fn spare_backtraces() {
    let usual = take_hook();
    set_hook(Box::new(move |panic| {
        let mut room = Vec::<u8>::new();
        let has_room = room.try_reserve_exact(BACKTRACE_BYTES).is_ok();
        drop(black_box(room)); // Else the compiler sees that nothing is done with it, and asks for nothing.
        if has_room {
            usual(panic);
        } else {
            drop(writeln!(stderr(), "{panic}"));
        }
    }));
}

/// Have room for `more` at the end of a vector.
#[inline]
pub fn reserve<T>(values: &mut Vec<T>, more: usize) -> PyResult<()> {
    values.try_reserve(more).map_err(|_| no_memory())
}

/// An empty vector with room for exactly so many.
pub fn room_for<T>(count: usize) -> PyResult<Vec<T>> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).map_err(|_| no_memory())?;
    Ok(values)
}

/// Have room for one more key.
pub fn reserve_key<K: Eq + Hash, V>(values: &mut HashMap<K, V>) -> PyResult<()> {
    values.try_reserve(1).map_err(|_| no_memory())
}

/// All that `values` yields, or the first error.
pub fn collect<T>(values: impl ExactSizeIterator<Item = PyResult<T>>) -> PyResult<Vec<T>> {
    let mut found = room_for(values.len())?;
    for value in values {
        found.push(value?);
    }
    Ok(found)
}

/// `object`, which a call of the interpreter returned: null is an error that it has set.
///
/// # Safety
/// It is null, or a reference that the caller owns.
#[inline]
unsafe fn owned(py: Python<'_>, object: *mut ffi::PyObject) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: the caller vouches for it.
    unsafe { Bound::from_owned_ptr_or_err(py, object) }
}

#[allow(clippy::cast_possible_wrap, reason = "no buffer is longer than an isize counts")]
const fn size(count: usize) -> ffi::Py_ssize_t {
    count as ffi::Py_ssize_t
}

/// A bytes object.
#[inline]
pub fn bytes<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    // SAFETY: a new reference, or null; the data are copied before the call returns.
    unsafe {
        owned(py, ffi::PyBytes_FromStringAndSize(data.as_ptr().cast(), size(data.len())))
            .map(|made| made.cast_into_unchecked())
    }
}

/// A bytearray.
pub fn byte_array<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyByteArray>> {
    // SAFETY: as for `bytes`.
    unsafe {
        owned(py, ffi::PyByteArray_FromStringAndSize(data.as_ptr().cast(), size(data.len())))
            .map(|made| made.cast_into_unchecked())
    }
}

/// An empty list.
pub fn empty_list(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    // SAFETY: a new reference, or null.
    unsafe { owned(py, ffi::PyList_New(0)).map(|made| made.cast_into_unchecked()) }
}

/// A list of objects.
pub fn list<'py, T>(py: Python<'py>, items: Vec<Bound<'py, T>>) -> PyResult<Bound<'py, PyList>> {
    // SAFETY: a new list with so many places, each of which is set once, to a reference that it takes over.
    unsafe {
        let made = owned(py, ffi::PyList_New(size(items.len())))?;
        for (place, item) in (0..).zip(items) {
            ffi::PyList_SetItem(made.as_ptr(), place, item.into_ptr());
        }
        Ok(made.cast_into_unchecked())
    }
}

/// An empty dictionary.
pub fn empty_dict(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    // SAFETY: a new reference, or null.
    unsafe { owned(py, ffi::PyDict_New()).map(|made| made.cast_into_unchecked()) }
}

fn tuple<'py, const N: usize>(py: Python<'py>, items: [Bound<'py, PyAny>; N]) -> PyResult<Bound<'py, PyTuple>> {
    // SAFETY: a new tuple with so many places, each of which is set once, to a reference that it takes over.
    unsafe {
        let made = owned(py, ffi::PyTuple_New(size(N)))?;
        for (place, item) in (0..).zip(items) {
            ffi::PyTuple_SetItem(made.as_ptr(), place, item.into_ptr());
        }
        Ok(made.cast_into_unchecked())
    }
}

/// A value that can become a Python object, if there is memory.
pub trait Made<'py> {
    /// The object.
    fn made(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>>;
}

/// What a function returns: it becomes a Python object after the return, and if there is no memory that is a MemoryError.
pub struct Checked<T>(pub T);

impl<'py, T: Made<'py>> IntoPyObject<'py> for Checked<T> {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    #[inline]
    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.0.made(py)
    }
}

macro_rules! numbers {
    ($call:ident: $($kind:ty),*) => {$(
        impl<'py> Made<'py> for $kind {
            #[inline]
            fn made(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                // SAFETY: a new reference, or null.
                unsafe { owned(py, ffi::$call(self.into())) }
            }
        }
    )*};
}

numbers!(PyLong_FromUnsignedLongLong: u8, u32, u64);
numbers!(PyLong_FromLongLong: i32, i64);

impl<'py> Made<'py> for usize {
    #[inline]
    fn made(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        (self as u64).made(py)
    }
}

impl<'py> Made<'py> for isize {
    #[inline]
    fn made(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        (self as i64).made(py)
    }
}

impl<'py> Made<'py> for bool {
    #[inline]
    fn made(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.into_pyobject(py)?.to_owned().into_any()) // There are two, and they are there.
    }
}

impl<'py> Made<'py> for &str {
    fn made(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: a new reference, or null; the text is copied before the call returns.
        unsafe { owned(py, ffi::PyUnicode_FromStringAndSize(self.as_ptr().cast(), size(self.len()))) }
    }
}

impl<'py, T> Made<'py> for Bound<'py, T> {
    #[inline]
    fn made(self, _py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.into_any())
    }
}

impl<'py, T: Made<'py>> Made<'py> for Option<T> {
    #[inline]
    fn made(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.map_or_else(|| Ok(py.None().into_bound(py)), |value| value.made(py))
    }
}

impl<'py, T: Made<'py>> Made<'py> for Vec<T> {
    fn made(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let items = collect(self.into_iter().map(|value| value.made(py)))?;
        Ok(list(py, items)?.into_any())
    }
}

macro_rules! tuples {
    ($($name:ident)*) => {
        impl<'py, $($name: Made<'py>),*> Made<'py> for ($($name,)*) {
            #[inline]
            #[allow(non_snake_case, reason = "each value is called as its type")]
            fn made(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                let ($($name,)*) = self;
                Ok(tuple(py, [$($name.made(py)?),*])?.into_any())
            }
        }
    };
}

tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
tuples!(A B C D E F);
tuples!(A B C D E F G H);
tuples!(A B C D E F G H I J);
