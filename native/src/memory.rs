//! Memory shared with Python and with other processes.  With `object.rs`, which builds records, and `checked.rs`, which
//! builds other objects, this is the only unsafe code of this crate.
//!
//! A `Region` is a contiguous buffer that Python exported and that stays exported while the region lives, so it
//! cannot be unmapped, moved or resized.  Every access is checked against its bounds.  Other processes may store
//! into it at any time, so words are loaded once, atomically, and a record's body is read only after its mark.

#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};
use std::fs::File;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::FromRawFd;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::marker::Ungil;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyList, PyTuple};

use crate::checked;

/// A file that somebody else closes.
pub type Borrowed = ManuallyDrop<File>;

const WORD: usize = 8;
const HEAD: usize = 24;

/// What keeps the bytes of a region where they are.
enum Hold {
    Buffer(PyUntypedBuffer),
    Copy(#[allow(dead_code, reason = "it is held, and read through the base")] Vec<u64>),
}

/// Readable bytes, aligned to 8.
pub struct Region {
    base: *mut u8,
    bytes: usize,
    hold: Hold,
}

// SAFETY: the pointer is owned through `hold`, which is itself Send and Sync; shared words are accessed atomically.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// The bytes of any C-contiguous buffer; TypeError otherwise.  An unaligned one is copied.
    pub fn readable(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let region = Self::export(object)?;
        if region.base.addr() % WORD == 0 {
            return Ok(region);
        }
        let mut words = checked::room_for(region.bytes.div_ceil(WORD))?;
        words.resize(region.bytes.div_ceil(WORD), 0_u64);
        let base = words.as_mut_ptr().cast::<u8>();
        // SAFETY: the vector holds at least `bytes` bytes, and is new, so it does not overlap.
        unsafe { ptr::copy_nonoverlapping(region.base, base, region.bytes) };
        Ok(Self { base, bytes: region.bytes, hold: Hold::Copy(words) })
    }

    fn export(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(object)?;
        if !buffer.is_c_contiguous() {
            return Err(checked::error::<PyTypeError>("a contiguous bytes-like object is required"));
        }
        let bytes = buffer.len_bytes();
        let base = if bytes == 0 { ptr::without_provenance_mut(WORD) } else { buffer.buf_ptr().cast() };
        Ok(Self { base, bytes, hold: Hold::Buffer(buffer) })
    }

    /// How many bytes there are.
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// The size of one item and its format, as Python declared them.
    pub fn item(&self) -> (usize, &[u8]) {
        match &self.hold {
            Hold::Buffer(buffer) => (buffer.item_size(), buffer.format().to_bytes()),
            Hold::Copy(_) => (1, b"B"),
        }
    }

    #[inline]
    fn at(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(offset <= self.bytes && bytes <= self.bytes - offset, "outside the buffer");
        // SAFETY: just checked to lie inside the exported buffer.
        unsafe { self.base.add(offset) }
    }

    #[inline]
    fn word32(&self, offset: usize) -> &AtomicU32 {
        let place = self.at(offset, 4).cast::<u32>();
        assert!(place.is_aligned(), "unaligned word");
        // SAFETY: inside the buffer, aligned, and only accessed atomically while shared.
        unsafe { AtomicU32::from_ptr(place) }
    }

    #[inline]
    fn word64(&self, offset: usize) -> &AtomicU64 {
        let place = self.at(offset, 8).cast::<u64>();
        assert!(place.is_aligned(), "unaligned word");
        // SAFETY: inside the buffer, aligned, and only accessed atomically while shared.
        unsafe { AtomicU64::from_ptr(place) }
    }

    /// One double word, ordered before every later load.
    #[inline]
    pub fn acquire64(&self, offset: usize) -> u64 {
        self.word64(offset).load(Ordering::Acquire)
    }

    /// Four double words, `stride` apart, as `acquire64`.
    #[inline]
    pub fn acquire_four(&self, offset: usize, stride: usize) -> [u64; 4] {
        let place = self.at(offset, 3 * stride + 8);
        assert!(place.cast::<u64>().is_aligned() && stride % WORD == 0, "unaligned word");
        // SAFETY: the last of them is inside the buffer, all are aligned, and only accessed atomically while shared.
        std::array::from_fn(|lane| unsafe {
            AtomicU64::from_ptr(place.add(lane * stride).cast()).load(Ordering::Acquire)
        })
    }

    /// One word.
    #[inline]
    pub fn load32(&self, offset: usize) -> u32 {
        self.word32(offset).load(Ordering::Relaxed)
    }

    /// One double word.
    #[inline]
    pub fn load64(&self, offset: usize) -> u64 {
        self.word64(offset).load(Ordering::Relaxed)
    }

    /// Some bytes.  Committed records never change, so nobody stores into the ones that are asked for.
    #[inline]
    pub fn slice(&self, offset: usize, bytes: usize) -> &[u8] {
        // SAFETY: inside the buffer, which lives as long as `self`; the GIL or the commit mark excludes writers.
        unsafe { std::slice::from_raw_parts(self.at(offset, bytes), bytes) }
    }
}

/// Writable bytes, aligned to 8.
pub struct Writable(Region);

impl Writable {
    /// The bytes of a writable C-contiguous buffer; TypeError if it is not one, ValueError if it is not aligned.
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let region = Region::export(object)?;
        if matches!(&region.hold, Hold::Buffer(buffer) if buffer.readonly()) {
            return Err(checked::error::<PyTypeError>("a writable bytes-like object is required"));
        }
        if region.base.addr() % WORD != 0 {
            return Err(checked::error::<PyValueError>("the buffer's memory is not aligned to 8 bytes"));
        }
        Ok(Self(region))
    }

    /// The same bytes, to read.
    #[inline]
    pub const fn region(&self) -> &Region {
        &self.0
    }

    /// A word to change atomically.
    #[inline]
    pub fn atomic32(&self, offset: usize) -> &AtomicU32 {
        self.0.word32(offset)
    }

    /// Store `length | (untouched) | words | tail | zeros up to a multiple of 8`, and return the stored tail.
    /// The given one may even be a part of this buffer.
    #[inline]
    pub fn store(&self, offset: usize, length: u32, words: [u64; 2], tail: &[u8]) -> &[u8] {
        let whole = HEAD + tail.len().next_multiple_of(WORD);
        let place = self.0.at(offset, whole);
        assert!(place.cast::<u64>().is_aligned(), "unaligned record");
        // SAFETY: all of `whole` was checked to be inside the buffer, which is writable; `copy` allows overlap.  The last
        // word is zeroed before the tail covers its part of it; without a tail it is a word that is stored after.
        unsafe {
            place.add(whole - WORD).cast::<u64>().write(0);
            ptr::copy(tail.as_ptr(), place.add(HEAD), tail.len());
            place.cast::<u32>().write(length);
            place.add(8).cast::<u64>().write(words[0]);
            place.add(16).cast::<u64>().write(words[1]);
            std::slice::from_raw_parts(place.add(HEAD), tail.len())
        }
    }
}

/// So many objects are asked for before the first is looked at: they lie anywhere in memory, and fetching one takes long.
const AHEAD: usize = 16;

/// Have the first bytes of an object fetched, if there is a way to ask for that.
#[inline]
fn prefetch(object: *const ffi::PyObject) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which reads nothing and is harmless for any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(object.cast());
        _mm_prefetch::<_MM_HINT_T0>(object.cast::<i8>().wrapping_add(64));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = object;
}

/// The bytes of an object, if it is one of exactly this type.
///
/// # Safety
/// It is null or an object that outlives the answer.
#[inline]
unsafe fn exact_bytes<'a>(object: *mut ffi::PyObject) -> Option<&'a [u8]> {
    // SAFETY: the caller vouches for the object; bytes never change.
    unsafe {
        if object.is_null() || ffi::PyBytes_CheckExact(object) == 0 {
            return None;
        }
        let start = ffi::PyBytes_AsString(object).cast::<u8>();
        #[allow(clippy::cast_sign_loss, reason = "a size is never negative")]
        let size = ffi::Py_SIZE(object) as usize;
        Some(std::slice::from_raw_parts(start, size))
    }
}

/// Hand `action` the exact bytes objects of `items[range]`, a list or a tuple, for as long as `keep` accepts their lengths,
/// without a reference to each.  None if something else comes up first.
///
/// Neither closure can hold a GIL token, so neither runs Python code that could change a list meanwhile.
pub fn with_bytes<R>(
    items: &Bound<'_, PyAny>,
    range: Range<usize>,
    mut keep: impl FnMut(usize) -> bool + Ungil,
    action: impl FnOnce(&[&[u8]]) -> R + Ungil,
) -> PyResult<Option<R>> {
    let get = match (items.is_instance_of::<PyList>(), items.is_instance_of::<PyTuple>()) {
        (true, _) => ffi::PyList_GetItem,
        (_, true) => ffi::PyTuple_GetItem,
        _ => return Ok(None),
    };
    let mut found: Vec<&[u8]> = checked::room_for(range.len().min(1 << 15))?;
    let mut ahead = [ptr::null_mut(); AHEAD];
    'all: for start in range.clone().step_by(AHEAD) {
        let ahead = &mut ahead[..AHEAD.min(range.end - start)];
        #[allow(clippy::cast_possible_wrap, reason = "no container has more items than an isize counts")]
        for (index, item) in (start as ffi::Py_ssize_t..).zip(ahead.iter_mut()) {
            // SAFETY: a checked call; the reference is borrowed from `items`, which nobody changes before the return.
            *item = unsafe { get(items.as_ptr(), index) };
            prefetch(*item);
        }
        for &item in &*ahead {
            // SAFETY: as above, so it is an object if it is not null, and its container keeps it alive.
            let Some(bytes) = (unsafe { exact_bytes(item) }) else {
                drop(PyErr::take(items.py()));
                return Ok(None);
            };
            if !keep(bytes.len()) {
                break 'all;
            }
            if found.len() == found.capacity() {
                checked::reserve(&mut found, 1)?;
            }
            found.push(bytes);
        }
    }
    Ok(Some(action(&found)))
}

/// Copy bytes that do not overlap; a call would take as long as copying as few as records mostly have.
///
/// # Safety
/// `bytes` may be read at `from`, and written at `to`.
#[inline(always)]
#[allow(clippy::inline_always, reason = "that is what it is for")]
unsafe fn copy_short(from: *const u8, to: *mut u8, bytes: usize) {
    const PIECE: usize = 32;
    // SAFETY: whole pieces that lie inside, and then the last one, which may cover a part of the one before again.
    unsafe {
        if (PIECE..=8 * PIECE).contains(&bytes) {
            for at in (0..bytes - PIECE).step_by(PIECE) {
                to.add(at).cast::<[u8; PIECE]>().write(from.add(at).cast::<[u8; PIECE]>().read());
            }
            let last = bytes - PIECE;
            to.add(last).cast::<[u8; PIECE]>().write(from.add(last).cast::<[u8; PIECE]>().read());
        } else {
            ptr::copy_nonoverlapping(from, to, bytes);
        }
    }
}

/// A bytearray that is filled from the front.
pub struct Column<'py> {
    object: Bound<'py, PyByteArray>,
    base: *mut u8,
    filled: usize,
    capacity: usize,
}

impl<'py> Column<'py> {
    /// An empty column.
    pub fn new(py: Python<'py>) -> PyResult<Self> {
        Ok(Self { object: checked::byte_array(py, &[])?, base: ptr::null_mut(), filled: 0, capacity: 0 })
    }

    /// Have room for `bytes` more.  The first room is exact; the next is for all that is `thought` to come: a short column
    /// holds no more than it needs, and a long one is not moved as it grows.
    #[inline]
    pub fn reserve(&mut self, bytes: usize, thought: impl FnOnce(usize) -> usize) -> PyResult<()> {
        if bytes <= self.capacity - self.filled {
            return Ok(());
        }
        let needed = self.filled + bytes;
        self.resize(if self.filled == 0 { needed } else { needed.max(thought(needed)) })
    }

    #[cold]
    fn resize(&mut self, capacity: usize) -> PyResult<()> {
        // The bytes that come with it are not initialised; only `filled` are ever shown.
        self.object.resize(capacity)?;
        // SAFETY: `object` is a bytearray that nobody else has seen yet, so its bytes may be written.
        self.base = unsafe { ffi::PyByteArray_AsString(self.object.as_ptr()).cast::<u8>() };
        self.capacity = capacity;
        Ok(())
    }

    /// Add bytes at the end, for which room was made.
    #[inline]
    pub fn push(&mut self, source: &[u8]) {
        assert!(source.len() <= self.capacity - self.filled, "the column is full");
        // SAFETY: just checked that the room is there; a new object cannot overlap `source`.
        unsafe { ptr::copy_nonoverlapping(source.as_ptr(), self.base.add(self.filled), source.len()) };
        self.filled += source.len();
    }

    /// Add `count` stretches of `bytes` each, `stride` apart, for which room was made.
    #[inline]
    pub fn push_all(&mut self, region: &Region, offset: usize, stride: usize, bytes: usize, count: usize) {
        let Some(last) = count.checked_sub(1) else { return };
        let from = region.at(offset, last * stride + bytes).cast_const();
        assert!(count * bytes <= self.capacity - self.filled, "the column is full");
        for index in 0..count {
            // SAFETY: both ends of the last were just checked, of the source and of the room; a new object cannot overlap.
            unsafe { copy_short(from.add(index * stride), self.base.add(self.filled + index * bytes), bytes) };
        }
        self.filled += count * bytes;
    }

    /// Add `count` double words, `stride` apart, for which room was made.
    #[inline]
    pub fn push_words(&mut self, region: &Region, offset: usize, stride: usize, count: usize) {
        let Some(last) = count.checked_sub(1) else { return };
        let from = region.at(offset, last * stride + WORD).cast_const();
        assert!(count * WORD <= self.capacity - self.filled, "the column is full");
        for index in 0..count {
            // SAFETY: both ends of the last were just checked, of the source and of the room.
            unsafe {
                let word = from.add(index * stride).cast::<u64>().read_unaligned();
                self.base.add(self.filled).cast::<u64>().add(index).write_unaligned(word);
            }
        }
        self.filled += count * WORD;
    }

    /// Add `count` numbers, each by `step` larger than the one before, the first than `start`; room was made for them.
    #[inline]
    pub fn push_steps(&mut self, start: i32, step: i32, count: usize) {
        assert!(count * 4 <= self.capacity - self.filled, "the column is full");
        let mut number = start;
        for index in 0..count {
            number = number.wrapping_add(step);
            // SAFETY: just checked that the room is there.
            unsafe { self.base.add(self.filled).cast::<i32>().add(index).write_unaligned(number) };
        }
        self.filled += count * 4;
    }

    /// What was pushed.
    pub fn finish(self) -> PyResult<Bound<'py, PyByteArray>> {
        self.object.resize(self.filled)?;
        Ok(self.object)
    }
}

/// The file behind a descriptor that stays open for as long as its owner waits for the answer.
pub fn borrow_file(descriptor: i32) -> PyResult<Borrowed> {
    if descriptor < 0 {
        return Err(checked::error::<PyValueError>("the file is closed"));
    }
    // SAFETY: it is never closed through this.  A descriptor that was closed meanwhile makes the calls fail.
    Ok(ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) }))
}

/// A value that the GIL protects: no lock, no atomic.  The module declares `gil_used`, so there always is a GIL.
pub struct GilCell<T> {
    busy: Cell<bool>,
    value: UnsafeCell<T>,
}

// SAFETY: both cells are only touched in `with`, which needs the GIL.
unsafe impl<T: Send> Sync for GilCell<T> {}

impl<T> GilCell<T> {
    /// A cell around `value`.
    pub const fn new(value: T) -> Self {
        Self { busy: Cell::new(false), value: UnsafeCell::new(value) }
    }

    /// Use the value.  Panics if `action` itself, or one that panicked, already does.
    #[inline]
    pub fn with<R>(&self, _py: Python<'_>, action: impl FnOnce(&mut T) -> R) -> R {
        assert!(!self.busy.replace(true), "in use, or broken by an earlier panic");
        // SAFETY: the GIL is held and `busy` was false, so this is the only reference.
        let result = action(unsafe { &mut *self.value.get() });
        self.busy.set(false);
        result
    }
}

/// Whole chunks of `N` bytes, and what is left: `slice::as_chunks`, which Rust has from 1.88 on.
#[inline]
pub fn chunks<const N: usize>(bytes: &[u8]) -> (&[[u8; N]], &[u8]) {
    let count = bytes.len() / N;
    let (whole, rest) = bytes.split_at(count * N);
    // SAFETY: `whole` is `count * N` bytes, an array has no padding and no alignment, and the answer borrows `bytes`.
    (unsafe { std::slice::from_raw_parts(whole.as_ptr().cast(), count) }, rest)
}

/// CRC-32C of two words and a tail, extended from `seed`.
#[inline(always)]
#[allow(clippy::inline_always, reason = "measured: what is left of it is a test and a call")]
pub fn crc32c(seed: u32, words: [u64; 2], tail: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if tail.len() < SHORT && is_x86_feature_detected!("sse4.2") {
        // SAFETY: the feature was just detected.
        return unsafe { crc32c_short(seed, words, tail) };
    }
    let seed = words.iter().fold(seed, |seed, word| crc32c::crc32c_append(seed, &word.to_le_bytes()));
    crc32c::crc32c_append(seed, tail)
}

/// Below this, one chain of instructions beats the crate's three and the joining of them.
#[cfg(target_arch = "x86_64")]
const SHORT: usize = 768;

/// `crc32c` of a short tail.  Plain loops, here and below: a closure is not compiled with the feature, and would be called
/// for each word.
///
/// # Safety
/// The processor has SSE 4.2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
unsafe fn crc32c_short(seed: u32, words: [u64; 2], tail: &[u8]) -> u32 {
    use std::arch::x86_64::_mm_crc32_u64;
    let (more, tail) = chunks::<WORD>(tail);
    // SAFETY: the caller vouches for the feature.
    unsafe {
        let mut sum = _mm_crc32_u64(_mm_crc32_u64(u64::from(!seed), words[0]), words[1]);
        for word in more {
            sum = _mm_crc32_u64(sum, u64::from_le_bytes(*word));
        }
        crc32c_rest(sum, tail)
    }
}

/// CRC-32C of four stretches of `bytes` each, `stride` apart, all extended from one seed.  Side by side they take as
/// long as one, if they are short.
#[inline]
pub fn crc32c_four(region: &Region, offset: usize, stride: usize, bytes: usize, seed: u32) -> [u32; 4] {
    let all = region.slice(offset, 3 * stride + bytes);
    #[cfg(target_arch = "x86_64")]
    if bytes < SHORT && is_x86_feature_detected!("sse4.2") {
        // SAFETY: the feature was just detected.
        return unsafe { crc32c_four_short(all, stride, bytes, seed) };
    }
    std::array::from_fn(|lane| crc32c::crc32c_append(seed, &all[lane * stride..][..bytes]))
}

/// `crc32c_four` of short stretches.
///
/// # Safety
/// The processor has SSE 4.2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
unsafe fn crc32c_four_short(all: &[u8], stride: usize, bytes: usize, seed: u32) -> [u32; 4] {
    use std::arch::x86_64::_mm_crc32_u64;
    let words = bytes / WORD;
    let (a, b) = (&all[..bytes], &all[stride..][..bytes]);
    let (c, d) = (&all[2 * stride..][..bytes], &all[3 * stride..][..bytes]);
    let (aw, bw) = (&chunks::<WORD>(a).0[..words], &chunks::<WORD>(b).0[..words]);
    let (cw, dw) = (&chunks::<WORD>(c).0[..words], &chunks::<WORD>(d).0[..words]);
    let mut sums = [u64::from(!seed); 4];
    let done = words * WORD;
    // SAFETY: the caller vouches for the feature.
    unsafe {
        for at in 0..words {
            sums[0] = _mm_crc32_u64(sums[0], u64::from_le_bytes(aw[at]));
            sums[1] = _mm_crc32_u64(sums[1], u64::from_le_bytes(bw[at]));
            sums[2] = _mm_crc32_u64(sums[2], u64::from_le_bytes(cw[at]));
            sums[3] = _mm_crc32_u64(sums[3], u64::from_le_bytes(dw[at]));
        }
        [
            crc32c_rest(sums[0], &a[done..]),
            crc32c_rest(sums[1], &b[done..]),
            crc32c_rest(sums[2], &c[done..]),
            crc32c_rest(sums[3], &d[done..]),
        ]
    }
}

/// Finish a sum with what is left of a word.
///
/// # Safety
/// The processor has SSE 4.2.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse4.2")]
#[allow(clippy::cast_possible_truncation, reason = "the instruction leaves the upper half zero")]
#[allow(unused_unsafe, reason = "from Rust 1.87 on these instructions are safe functions")]
unsafe fn crc32c_rest(sum: u64, rest: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32};
    let (halves, tail) = chunks::<4>(rest);
    let mut sum = sum as u32;
    // SAFETY: the caller vouches for the feature.
    unsafe {
        for half in halves {
            sum = _mm_crc32_u32(sum, u32::from_le_bytes(*half));
        }
        for byte in tail {
            sum = _mm_crc32_u8(sum, *byte);
        }
    }
    !sum
}

/// Nanoseconds since 1970, as the system's clock has them; 0 before that.
#[inline]
pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the answer is written into `now`, which lives until the call returns.  This clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
    #[allow(clippy::cast_sign_loss, reason = "from 0 to 999,999,999")]
    let nanoseconds = now.tv_nsec as u64;
    u64::try_from(now.tv_sec).map_or(0, |seconds| seconds * 1_000_000_000 + nanoseconds)
}

/// Sleep while `word` holds `expected`, at most `timeout_ns`.
#[cfg(target_os = "linux")]
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout_ns: u64) {
    let timeout = libc::timespec {
        tv_sec: (timeout_ns / 1_000_000_000).try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: (timeout_ns % 1_000_000_000).try_into().unwrap_or(0),
    };
    // SAFETY: the word and the timeout live until the call returns.  Shared, so without FUTEX_PRIVATE_FLAG.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, &raw const timeout) };
}

/// Wake everybody who sleeps on `word`.
#[cfg(target_os = "linux")]
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: the word lives until the call returns.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Without futexes: a short sleep, after which the caller looks again.
#[cfg(not(target_os = "linux"))]
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout_ns: u64) {
    if word.load(Ordering::SeqCst) == expected {
        std::thread::sleep(std::time::Duration::from_nanos(timeout_ns.min(1_000_000)));
    }
}

/// Without futexes: nothing, as sleepers look again by themselves.
#[cfg(not(target_os = "linux"))]
pub fn futex_wake(_word: &AtomicU32) {}
