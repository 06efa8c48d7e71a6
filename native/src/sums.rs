//! Checksums of long stretches of one buffer, without reading them again.
//!
//! Looking for a record at every 8th byte meets many lengths that only look like one, and to sum all those stretches
//! would take time in the square of the buffer.  Instead the CRC of the buffer up to every 4 KiB is kept, from which that
//! of any stretch follows: crc(head + rest) = shift(crc(head), len(rest)) ^ crc(rest), where `shift` takes logarithmic
//! time.

use std::cell::OnceCell;

use crc32c::{crc32c_append, crc32c_combine};

const STEP: usize = 4096;
const SHORT: usize = 4 * STEP;

/// CRC-32C of any stretch of some bytes.
pub struct Sums<'a> {
    bytes: &'a [u8],
    prefixes: OnceCell<Vec<u32>>,
}

impl<'a> Sums<'a> {
    /// Nothing is summed up before it is needed.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, prefixes: OnceCell::new() }
    }

    /// The CRC of `bytes[start..stop]`, extended from `seed`.
    pub fn crc(&self, seed: u32, start: usize, stop: usize) -> u32 {
        if stop - start < SHORT {
            return crc32c_append(seed, &self.bytes[start..stop]);
        }
        let prefixes = self.prefixes.get_or_init(|| self.sum_up());
        let (first, last) = (start.div_ceil(STEP), stop / STEP);
        let seed = crc32c_append(seed, &self.bytes[start..first * STEP]);
        // Two shifts of the same length are one: of what comes before, and of the prefix to be taken away.
        let seed = crc32c_combine(seed ^ prefixes[first], prefixes[last], (last - first) * STEP);
        crc32c_append(seed, &self.bytes[last * STEP..stop])
    }

    fn sum_up(&self) -> Vec<u32> {
        let sums = self.bytes.chunks_exact(STEP).scan(0, |sum, chunk| {
            *sum = crc32c_append(*sum, chunk);
            Some(*sum)
        });
        std::iter::once(0).chain(sums).collect()
    }
}
