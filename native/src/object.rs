//! The Record that Python sees: an immutable tuple of four, made by hand.
//!
//! A PyO3 class is always tracked by the garbage collector, which doubles the price of reading a million records.
//! A record holds three numbers and a bytes object, so it can be part of no cycle and needs no collector.  This is the
//! crate's other unsafe file: every slot casts `me`, which the interpreter guarantees to be a Record, and then
//! leaves the work to the tuple of its fields.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};
use std::mem::offset_of;
use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyTuple, PyType};

use crate::checked::{Checked, Made};

#[repr(C)]
struct Object {
    head: ffi::PyObject,
    sequence: u64,
    timestamp_ns: u64,
    ext_id: u64,
    payload: *mut ffi::PyObject,
}

/// The type of records, ready to make some.
pub struct RecordType<'py>(Bound<'py, PyType>);

impl<'py> RecordType<'py> {
    /// The one type, made on first use.
    pub fn get(py: Python<'py>) -> PyResult<Self> {
        static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        TYPE.get_or_try_init(py, || make_type(py)).map(|kind| Self(kind.bind(py).clone()))
    }

    /// As a Python object.
    pub fn into_inner(self) -> Bound<'py, PyType> {
        self.0
    }

    /// One record.
    #[inline]
    pub fn record(&self, sequence: u64, words: [u64; 2], payload: Bound<'py, PyBytes>) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: the type's basic size is that of `Object`, and every field but the head is set before anybody looks.
        unsafe {
            let object: *mut Object = ffi::PyObject_New(self.0.as_type_ptr());
            let record = Bound::from_owned_ptr_or_err(self.0.py(), object.cast())?;
            (*object).sequence = sequence;
            (*object).timestamp_ns = words[0];
            (*object).ext_id = words[1];
            (*object).payload = payload.into_ptr();
            Ok(record)
        }
    }
}

#[allow(clippy::cast_possible_wrap, reason = "an offset in a small struct")]
const fn member(name: &'static CStr, type_code: c_int, offset: usize, doc: &'static CStr) -> ffi::PyMemberDef {
    let (name, doc) = (name.as_ptr(), doc.as_ptr());
    ffi::PyMemberDef { name, type_code, offset: offset as ffi::Py_ssize_t, flags: ffi::Py_READONLY, doc }
}

fn members() -> [ffi::PyMemberDef; 5] {
    let number = ffi::Py_T_ULONGLONG;
    [
        member(c"sequence", number, offset_of!(Object, sequence), c"Its number in the log."),
        member(c"timestamp_ns", number, offset_of!(Object, timestamp_ns), c"Append time, nanoseconds since 1970."),
        member(c"ext_id", number, offset_of!(Object, ext_id), c"Caller's id; 0: none."),
        member(c"payload", ffi::Py_T_OBJECT_EX, offset_of!(Object, payload), c"The bytes that were appended."),
        ffi::PyMemberDef::default(),
    ]
}

fn methods() -> [ffi::PyMethodDef; 2] {
    let reduce = ffi::PyMethodDef {
        ml_name: c"__reduce__".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunction: reduce },
        ml_flags: ffi::METH_NOARGS,
        ml_doc: ptr::null(),
    };
    [reduce, ffi::PyMethodDef::zeroed()]
}

fn make_type(py: Python<'_>) -> PyResult<Py<PyType>> {
    let slot = |slot, pfunc| ffi::PyType_Slot { slot, pfunc };
    // The interpreter keeps pointers to these two, and there is one type: so they are never freed.
    let members = Box::leak(Box::new(members()));
    let methods = Box::leak(Box::new(methods()));
    let mut slots = [
        slot(ffi::Py_tp_doc, c"One record read back: an immutable tuple of four.".as_ptr().cast_mut().cast()),
        slot(ffi::Py_tp_members, members.as_mut_ptr().cast()),
        slot(ffi::Py_tp_methods, methods.as_mut_ptr().cast()),
        slot(ffi::Py_tp_new, new as *mut c_void),
        slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
        slot(ffi::Py_tp_repr, repr as *mut c_void),
        slot(ffi::Py_tp_hash, hash as *mut c_void),
        slot(ffi::Py_tp_richcompare, compare as *mut c_void),
        slot(ffi::Py_tp_iter, iterate as *mut c_void),
        slot(ffi::Py_sq_length, length as *mut c_void),
        slot(ffi::Py_mp_length, length as *mut c_void),
        slot(ffi::Py_sq_item, item as *mut c_void),
        slot(ffi::Py_mp_subscript, subscript as *mut c_void),
        slot(ffi::Py_sq_contains, contains as *mut c_void),
        slot(0, ptr::null_mut()),
    ];
    let mut spec = ffi::PyType_Spec {
        name: c"latewood._native.Record".as_ptr(),
        basicsize: size_of::<Object>().try_into()?,
        itemsize: 0,
        flags: ffi::Py_TPFLAGS_DEFAULT.try_into()?,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the spec is complete, and each slot has the signature that its number asks for.
    let made = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec))? };
    made.setattr("__match_args__", ("sequence", "timestamp_ns", "ext_id", "payload"))?;
    let sequence = py.import("collections.abc")?.getattr("Sequence")?;
    made.setattr("index", sequence.getattr("index")?)?;
    made.setattr("count", sequence.getattr("count")?)?;
    sequence.call_method1("register", (&made,))?;
    Ok(made.cast_into::<PyType>()?.unbind())
}

/// The fields of a record as a tuple.
///
/// # Safety
/// `me` is a Record.
unsafe fn fields(py: Python<'_>, me: *mut ffi::PyObject) -> PyResult<Bound<'_, PyTuple>> {
    // SAFETY: the caller vouches for `me`, whose payload is set for as long as it lives.
    let (record, payload) = unsafe {
        let record = &*me.cast::<Object>();
        (record, Borrowed::from_ptr(py, record.payload))
    };
    let made = (record.sequence, record.timestamp_ns, record.ext_id, payload.to_owned()).made(py)?;
    Ok(made.cast_into::<PyTuple>()?)
}

/// Run a slot's work on the fields of `me`, and turn an error into what the interpreter expects.
///
/// # Safety
/// `me` is a Record, and the interpreter called the slot.
unsafe fn with_fields<T>(
    me: *mut ffi::PyObject,
    failed: T,
    work: impl for<'py> FnOnce(Bound<'py, PyTuple>) -> PyResult<T>,
) -> T {
    // SAFETY: the interpreter called, so this thread is attached; the caller vouches for `me`.
    let (py, fields) = unsafe {
        let py = Python::assume_attached();
        (py, fields(py, me))
    };
    fields.and_then(work).unwrap_or_else(|error| {
        error.restore(py);
        failed
    })
}

/// The four arguments of the constructor, borrowed; the last one is bytes.
///
/// # Safety
/// They come from the interpreter.
unsafe fn arguments(args: *mut ffi::PyObject, named: *mut ffi::PyObject) -> Option<[*mut ffi::PyObject; 4]> {
    let keys = [c"sequence", c"timestamp_ns", c"ext_id", c"payload"].map(CStr::as_ptr);
    let mut keys = [keys[0], keys[1], keys[2], keys[3], ptr::null()];
    let (mut sequence, mut timestamp_ns, mut ext_id, mut payload) = [ptr::null_mut(); 4].into();
    // SAFETY: the format asks for as many objects as there are places for them and keys.
    let parsed = unsafe {
        ffi::PyArg_ParseTupleAndKeywords(
            args,
            named,
            c"OOOS:Record".as_ptr(),
            keys.as_mut_ptr().cast(),
            &raw mut sequence,
            &raw mut timestamp_ns,
            &raw mut ext_id,
            &raw mut payload,
        )
    };
    (parsed != 0).then_some([sequence, timestamp_ns, ext_id, payload])
}

extern "C" fn new(
    _kind: *mut ffi::PyTypeObject,
    args: *mut ffi::PyObject,
    named: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter called with its arguments, so this thread is attached; they live until the return.
    let (py, found) = unsafe { (Python::assume_attached(), arguments(args, named)) };
    let Some(found) = found else { return ptr::null_mut() };
    // SAFETY: as above.
    let found = found.map(|argument| unsafe { Borrowed::from_ptr(py, argument) });
    let make = || {
        let payload = found[3].to_owned().cast_into::<PyBytes>()?;
        RecordType::get(py)?.record(found[0].extract()?, [found[1].extract()?, found[2].extract()?], payload)
    };
    make().map_or_else(
        |error: PyErr| {
            error.restore(py);
            ptr::null_mut()
        },
        Bound::into_ptr,
    )
}

extern "C" fn dealloc(me: *mut ffi::PyObject) {
    // SAFETY: the last reference to a Record is gone; its type is referred to by each of its instances.
    unsafe {
        let kind = ffi::Py_TYPE(me);
        ffi::Py_XDECREF((*me.cast::<Object>()).payload);
        ffi::PyObject_Free(me.cast());
        ffi::Py_DECREF(kind.cast());
    }
}

extern "C" fn repr(me: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the slot of a Record.
    unsafe {
        let record = &*me.cast::<Object>();
        let text = c"Record(sequence=%llu, timestamp_ns=%llu, ext_id=%llu, payload=%R)";
        ffi::PyUnicode_FromFormat(text.as_ptr(), record.sequence, record.timestamp_ns, record.ext_id, record.payload)
    }
}

extern "C" fn hash(me: *mut ffi::PyObject) -> ffi::Py_hash_t {
    // SAFETY: the slot of a Record.
    unsafe { with_fields(me, -1, |fields| fields.hash()) }
}

extern "C" fn compare(me: *mut ffi::PyObject, other: *mut ffi::PyObject, operation: c_int) -> *mut ffi::PyObject {
    // SAFETY: the slot of a Record; `other` is an object, and a Record too if it has the same type.
    unsafe {
        with_fields(me, ptr::null_mut(), |mine| {
            let same = ffi::Py_TYPE(other) == ffi::Py_TYPE(me);
            let theirs = if same { Some(fields(mine.py(), other)?) } else { None };
            Ok(ffi::PyObject_RichCompare(mine.as_ptr(), theirs.as_ref().map_or(other, Bound::as_ptr), operation))
        })
    }
}

extern "C" fn iterate(me: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the slot of a Record.
    unsafe { with_fields(me, ptr::null_mut(), |fields| Ok(fields.as_any().try_iter()?.into_ptr())) }
}

extern "C" fn length(_me: *mut ffi::PyObject) -> ffi::Py_ssize_t {
    4
}

extern "C" fn item(me: *mut ffi::PyObject, index: ffi::Py_ssize_t) -> *mut ffi::PyObject {
    // SAFETY: the slot of a Record.
    unsafe { with_fields(me, ptr::null_mut(), |fields| Ok(fields.as_any().get_item(Checked(index))?.into_ptr())) }
}

extern "C" fn subscript(me: *mut ffi::PyObject, key: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the slot of a Record; `key` is an object.
    unsafe {
        with_fields(me, ptr::null_mut(), |fields| {
            Ok(fields.as_any().get_item(Borrowed::from_ptr(fields.py(), key))?.into_ptr())
        })
    }
}

extern "C" fn contains(me: *mut ffi::PyObject, value: *mut ffi::PyObject) -> c_int {
    // SAFETY: the slot of a Record; `value` is an object.
    unsafe {
        with_fields(me, -1, |fields| fields.as_any().contains(Borrowed::from_ptr(fields.py(), value)).map(c_int::from))
    }
}

extern "C" fn reduce(me: *mut ffi::PyObject, _none: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the method of a Record.
    unsafe {
        with_fields(me, ptr::null_mut(), |fields| {
            let py = fields.py();
            Ok((RecordType::get(py)?.into_inner(), fields).made(py)?.into_ptr())
        })
    }
}
