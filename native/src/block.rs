//! A few records at a time: where they are, found by their headers, then their checksums, taken side by side.
//!
//! One record after the other, each step waits for the one before: the next header is found by this length, and each
//! word of a checksum needs the last.  Records of one length are looked for four at a time, and their checksums run
//! together.

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;

use crate::checked;
use crate::memory::crc32c_four;
use crate::record::{self, HEADER, Header};
use crate::scan::{BAD, MORE, Window};

/// Records in a block: their bytes stay in the first cache while they are summed up and copied.
pub const BLOCK: usize = 32;
const LANES: usize = 4;
/// Arrow offsets are i32, so a batch ends before its payloads pass this.
const COLUMN_BYTES_MAX: u64 = i32::MAX as u64;

/// How many more records, and bytes of payload, may be read.
pub struct Budget {
    records: u64,
    bytes: u64,
    count: u64,
    taken: u64,
}

impl Budget {
    /// So many records, and so many bytes, beyond which the last record may reach.
    pub const fn new(records: u64, bytes: u64) -> Self {
        Self { records, bytes, count: 0, taken: 0 }
    }

    /// No end but that of the records.
    pub const NONE: Self = Self::new(u64::MAX, u64::MAX);

    const fn is_spent(&self) -> bool {
        self.count >= self.records || self.taken >= self.bytes
    }

    /// Whether so many records of one length do not spend it, and come to no more than `most` with all before.
    #[inline]
    const fn has(&self, records: u64, length: u32, most: u64) -> bool {
        let taken = self.taken + records * length as u64;
        self.records - self.count >= records && taken <= self.bytes && taken <= most
    }

    #[inline]
    const fn take(&mut self, records: u64, length: u32) {
        self.count += records;
        self.taken += records * length as u64;
    }
}

/// Records that follow each other: a run of one length, which needs no list of them, or a list.
pub struct Block {
    places: [usize; BLOCK],
    lengths: [u32; BLOCK],
    count: usize,
    /// Where the first record begins.
    start: usize,
    /// Whether all of them are as long as `last`, and none is in `places` and `lengths`.
    is_run: bool,
    /// The length of the last record that was read alone, and whether the one before it had the same.
    last: u32,
    repeats: bool,
    /// Where the record after the last one begins.
    pub end: usize,
    /// Why there are no more, unless the block is full.
    pub state: Option<u8>,
}

impl Block {
    /// Nothing yet; the first record is at `offset`.
    pub const fn at(offset: usize) -> Self {
        Self {
            places: [0; BLOCK],
            lengths: [0; BLOCK],
            count: 0,
            start: offset,
            is_run: false,
            last: 0,
            repeats: false,
            end: offset,
            state: None,
        }
    }

    #[inline]
    fn record(&self, index: usize) -> (usize, usize) {
        if self.is_run {
            (self.start + index * record::size(self.last as usize), self.last as usize)
        } else {
            (self.places[index], self.lengths[index] as usize)
        }
    }

    /// Offset and length of each.
    pub fn records(&self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.count).map(|index| self.record(index))
    }

    /// Bytes of their payloads together.
    pub fn payload_bytes(&self) -> usize {
        self.run().map_or_else(|| self.records().map(|(_, length)| length).sum(), |(_, length)| length * self.count)
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// If they are a run, where the first begins and the length of all.
    #[inline]
    pub fn run(&self) -> Option<(usize, usize)> {
        self.is_run.then_some((self.start, self.last as usize))
    }

    /// The records that follow, sound ones only: what is not ends the block.
    #[inline]
    pub fn read(&mut self, window: &Window, budget: &mut Budget) {
        self.read_up_to(window, budget, u64::MAX);
    }

    /// The same, as far as one column can hold their payloads.
    pub fn read_column(&mut self, window: &Window, budget: &mut Budget) -> PyResult<()> {
        self.read_up_to(window, budget, COLUMN_BYTES_MAX);
        if budget.count == 0 && self.state == Some(MORE) && !budget.is_spent() {
            return Err(checked::error::<PyOverflowError>("the payload is too large for a column"));
        }
        Ok(())
    }

    #[inline]
    fn read_up_to(&mut self, window: &Window, budget: &mut Budget, bytes_max: u64) {
        (self.start, self.count) = (self.end, 0);
        while self.count < BLOCK && self.read_four(window, budget, bytes_max) {
            self.count += LANES;
        }
        self.is_run = self.count > 0;
        if !self.is_run {
            self.read_list(window, budget, bytes_max);
        }
    }

    /// Read records one by one: at least one, and then no further than to where a run may begin.
    #[inline]
    fn read_list(&mut self, window: &Window, budget: &mut Budget, bytes_max: u64) {
        loop {
            self.state = self.read_one(window, budget, bytes_max).err();
            if self.state.is_some() || self.repeats || self.count == BLOCK {
                break;
            }
        }
    }

    /// Read one record, or say why not.
    #[inline]
    fn read_one(&mut self, window: &Window, budget: &mut Budget, bytes_max: u64) -> Result<(), u8> {
        if budget.is_spent() {
            return Err(MORE);
        }
        let header = window.peek(self.end)?;
        if !window.sound(self.end, header) {
            return Err(BAD); // Before its length is believed: a damaged one may be too large for anything.
        }
        if budget.taken + u64::from(header.length) > bytes_max {
            return Err(MORE);
        }
        self.repeats = self.last == header.length;
        self.last = header.length;
        budget.take(1, header.length);
        self.places[self.count] = self.end;
        self.lengths[self.count] = header.length;
        self.count += 1;
        self.end += record::size(header.length as usize);
        Ok(())
    }

    /// Read four records at once, if they are as long as the two before them: then none is needed to find the next.
    /// False if they are not, or not all of them are sound.
    #[inline]
    fn read_four(&mut self, window: &Window, budget: &mut Budget, bytes_max: u64) -> bool {
        if !self.repeats {
            return false;
        }
        let (length, size) = (self.last, record::size(self.last as usize));
        if window.left(self.end) / LANES < size || !budget.has(LANES as u64, length, bytes_max) {
            return false;
        }
        let headers = Header::load_four(&window.region, self.end, size);
        if headers.iter().any(|header| header.mark == 0 || header.length != length) {
            self.repeats = false;
            return false;
        }
        let sums = crc32c_four(&window.region, self.end + 8, size, HEADER - 8 + length as usize, length);
        if (0..LANES).any(|lane| record::mark(sums[lane]) != headers[lane].mark) {
            self.repeats = false;
            return false;
        }
        budget.take(LANES as u64, length);
        self.end += LANES * size;
        true
    }

    /// End the block before the record `index`, for a reason.
    pub fn cut(&mut self, index: usize, state: u8) {
        self.end = self.record(index).0;
        self.count = index;
        self.state = Some(state);
    }
}
