//! Checksums of long stretches of one buffer, without reading them again.
//!
//! Looking for a record at every 8th byte meets many lengths that only look like one, and to sum all those stretches
//! would take time in the square of the buffer.  Instead the CRC of the buffer up to every 4 KiB is kept, from which that
//! of any stretch follows: crc(head + rest) = shift(crc(head), len(rest)) ^ crc(rest), where `shift` takes logarithmic
//! time.

use std::cell::OnceCell;
use std::collections::TryReserveError;

use crc32c::crc32c_append;

const POLYNOMIAL: u32 = 0x82F6_3B78;
const STEP: usize = 4096;
const SHORT: usize = 4 * STEP;

/// What some zeros after it do to a CRC: one row for each of its bits.
type Matrix = [u32; 32];

fn times(matrix: &Matrix, vector: u32) -> u32 {
    (0..32).filter(|bit| vector >> bit & 1 != 0).fold(0, |product, bit| product ^ matrix[bit])
}

fn squared(matrix: &Matrix) -> Matrix {
    std::array::from_fn(|bit| times(matrix, matrix[bit]))
}

/// What one step of zero bytes does.
fn step() -> Matrix {
    let bit = std::array::from_fn(|bit| if bit == 0 { POLYNOMIAL } else { 1 << (bit - 1) });
    (0..STEP.ilog2() + 3).fold(bit, |matrix, _| squared(&matrix))
}

/// What must be known before long stretches are summed.
struct Table {
    /// The CRC of everything before each step.
    prefixes: Vec<u32>,
    /// What 1, 2, 4, 8... steps of zeros do.
    steps: Vec<Matrix>,
}

impl Table {
    fn new(bytes: &[u8]) -> Result<Self, TryReserveError> {
        let sums = bytes.chunks_exact(STEP).scan(0, |sum, chunk| {
            *sum = crc32c_append(*sum, chunk);
            Some(*sum)
        });
        let mut prefixes: Vec<u32> = Vec::new();
        prefixes.try_reserve_exact(bytes.len() / STEP + 1)?;
        prefixes.extend(std::iter::once(0).chain(sums));
        let powers = prefixes.len().ilog2() as usize + 1;
        let steps = std::iter::successors(Some(step()), |matrix| Some(squared(matrix))).take(powers).collect();
        Ok(Self { prefixes, steps })
    }

    /// `crc` as so many steps after it move it.
    fn shift(&self, crc: u32, steps: usize) -> u32 {
        let powers = self.steps.iter().enumerate().filter(|(power, _)| steps >> power & 1 != 0);
        powers.fold(crc, |crc, (_, matrix)| times(matrix, crc))
    }
}

/// CRC-32C of any stretch of some bytes.
pub struct Sums<'a> {
    bytes: &'a [u8],
    table: OnceCell<Table>,
}

impl<'a> Sums<'a> {
    /// Nothing is summed up before it is needed.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, table: OnceCell::new() }
    }

    /// The CRC of `bytes[start..stop]`, extended from `seed`.
    pub fn crc(&self, seed: u32, start: usize, stop: usize) -> Result<u32, TryReserveError> {
        if stop - start < SHORT {
            return Ok(crc32c_append(seed, &self.bytes[start..stop]));
        }
        let table = if let Some(table) = self.table.get() {
            table
        } else {
            let table = Table::new(self.bytes)?;
            self.table.get_or_init(|| table)
        };
        let (first, last) = (start.div_ceil(STEP), stop / STEP);
        let seed = crc32c_append(seed, &self.bytes[start..first * STEP]);
        // Two shifts of the same length are one: of what comes before, and of the prefix to be taken away.
        let seed = table.shift(seed ^ table.prefixes[first], last - first) ^ table.prefixes[last];
        Ok(crc32c_append(seed, &self.bytes[last * STEP..stop]))
    }
}
