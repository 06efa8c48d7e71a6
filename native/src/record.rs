//! One record: its bytes in a segment, and its checksum.
//!
//! | offset | size | field        | type | meaning                                                     |
//! | -----: | ---: | ------------ | ---- | ----------------------------------------------------------- |
//! |      0 |    4 | length       | u32  | payload bytes, this header and the padding not counted      |
//! |      4 |    4 | checksum     | u32  | CRC-32C of bytes 8..24+length, extended from the seed length |
//! |      8 |    8 | timestamp_ns | u64  | append time, nanoseconds since 1970                         |
//! |     16 |    8 | ext_id       | u64  | caller's id; 0: none                                        |
//!
//! Little-endian, then the payload, then zeros up to a multiple of 8.  The checksum is the commit mark and is stored
//! last: 0 means that nothing is committed here, so a sum of 0 is stored as 0xFFFFFFFF.  A length of 0xFFFFFFFF with
//! a mark means that the segment was sealed here.

use crate::memory::{Region, Writable, chunks, crc32c};

#[cfg(target_endian = "big")]
compile_error!("the format is little-endian, and so must be the machine");

/// Bytes in front of every payload.
pub const HEADER: usize = 24;
/// The length that says "sealed here", so no payload may have it.
pub const SEAL: u32 = u32::MAX;
const MARK: usize = 4;
const TIMESTAMP: usize = 8;

/// Whole bytes of a record with a payload of `length`.
#[inline]
pub const fn size(length: usize) -> usize {
    HEADER + ((length + 7) & !7)
}

/// The commit mark of a record: CRC-32C of `timestamp_ns | ext_id | payload`, extended from the length.
#[inline]
pub fn checksum(length: u32, words: [u64; 2], payload: &[u8]) -> u32 {
    mark(crc32c(length, words, payload))
}

/// A sum as a mark, which is never 0.
#[inline]
pub const fn mark(sum: u32) -> u32 {
    if sum == 0 { u32::MAX } else { sum }
}

/// The 24 bytes in front of a payload, as loaded.
#[derive(Clone, Copy)]
pub struct Header {
    /// The commit mark.
    pub mark: u32,
    /// Payload bytes, or `SEAL`.
    pub length: u32,
}

impl Header {
    /// Load mark and length at once: the writer stores the mark after the length.
    #[inline]
    pub fn load(region: &Region, offset: usize) -> Self {
        Self::of(region.acquire64(offset))
    }

    /// The headers of four records that are `size` bytes each.
    #[inline]
    pub fn load_four(region: &Region, offset: usize, size: usize) -> [Self; 4] {
        region.acquire_four(offset, size).map(Self::of)
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "the lower half")]
    const fn of(word: u64) -> Self {
        Self { mark: (word >> 32) as u32, length: word as u32 }
    }
}

/// Append time of the record at `offset`.
#[inline]
pub fn timestamp_ns(region: &Region, offset: usize) -> u64 {
    region.load64(offset + TIMESTAMP)
}

/// Append time and caller's id of a committed record.
#[inline]
pub fn words(region: &Region, offset: usize) -> [u64; 2] {
    let (words, _) = chunks::<8>(region.slice(offset + TIMESTAMP, 16));
    [u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])]
}

/// A payload to be written, and whether anybody could change it meanwhile.
#[derive(Clone, Copy)]
pub enum Payload<'a> {
    /// Of a bytes object.
    Fixed(&'a [u8]),
    /// Of any other buffer: the sum is taken of what was stored, so that the record is sound whatever happens.
    Shared(&'a [u8]),
}

impl<'a> Payload<'a> {
    /// Its bytes.
    #[inline]
    pub const fn bytes(self) -> &'a [u8] {
        match self {
            Self::Fixed(bytes) | Self::Shared(bytes) => bytes,
        }
    }
}

/// Write a record but for its mark, and return the mark.  `size(payload.len())` bytes are overwritten.
#[inline]
pub fn write(segment: &Writable, offset: usize, words: [u64; 2], payload: Payload<'_>) -> u32 {
    #[allow(clippy::cast_possible_truncation, reason = "every length is checked against SEAL before")]
    let length = payload.bytes().len() as u32;
    let stored = segment.store(offset, length, words, payload.bytes());
    match payload {
        Payload::Fixed(bytes) => checksum(length, words, bytes),
        Payload::Shared(_) => checksum(length, words, stored),
    }
}

/// Store a record's mark after everything before it.
#[inline]
pub fn publish(segment: &Writable, offset: usize, mark: u32) {
    segment.atomic32(offset + MARK).store(mark, std::sync::atomic::Ordering::Release);
}

/// The same, and before every later load too: as good as a fence behind it, and cheaper.
#[inline]
pub fn publish_first(segment: &Writable, offset: usize, mark: u32) {
    segment.atomic32(offset + MARK).swap(mark, std::sync::atomic::Ordering::SeqCst);
}
