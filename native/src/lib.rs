//! `latewood._native`: the native twin of `latewood.kernel.pure`, name for name.

mod answers;
mod appender;
mod backlogs;
mod batch;
mod block;
mod checked;
mod columns;
mod commands;
mod deal;
mod disk;
mod door;
mod futex;
mod group;
mod keyed;
mod memory;
mod object;
mod placed;
mod raft;
mod record;
mod scan;
mod sums;

use pyo3::prelude::*;

/// CRC-32C of `data`, extended from `seed`.
#[pyfunction]
#[pyo3(signature = (data, seed=0))]
fn crc32c(data: &Bound<'_, PyAny>, seed: u32) -> PyResult<checked::Checked<u32>> {
    let region = memory::Region::readable(data)?;
    Ok(checked::Checked(::crc32c::crc32c_append(seed, region.slice(0, region.len()))))
}

/// Hot loops over the bytes of segments, in Rust.
#[pymodule(gil_used = true)]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::answers::AnswerTable;
    #[pymodule_export]
    use super::appender::Appender;
    #[pymodule_export]
    use super::backlogs::BacklogTable;
    #[pymodule_export]
    use super::columns::columns;
    #[pymodule_export]
    use super::commands::{place_commands, split_commands};
    #[pymodule_export]
    use super::crc32c;
    #[pymodule_export]
    use super::deal::deal;
    #[pymodule_export]
    use super::disk::{pwrite_all, sync_and_note};
    #[pymodule_export]
    use super::door::{Door, largest};
    #[pymodule_export]
    use super::futex::{arm, wait, wake_all};
    #[pymodule_export]
    use super::group::admit_plain;
    #[pymodule_export]
    use super::placed::fold_placed;
    #[pymodule_export]
    use super::raft::RaftCore;
    #[pymodule_export]
    use super::scan::{find_record, find_timestamp, index_records, nonzero_end, scan, skip, verify};

    #[pymodule_export]
    const NAME: &str = "native";
    #[pymodule_export]
    const MORE: u8 = super::scan::MORE;
    #[pymodule_export]
    const EMPTY: u8 = super::scan::EMPTY;
    #[pymodule_export]
    const SEALED: u8 = super::scan::SEALED;
    #[pymodule_export]
    const BAD: u8 = super::scan::BAD;
    #[pymodule_export]
    const END: u8 = super::scan::END;
    #[pymodule_export]
    const UNFIT: u8 = super::scan::UNFIT;
    #[pymodule_export]
    const TIMESTAMPS: u8 = super::columns::TIMESTAMPS;
    #[pymodule_export]
    const EXT_IDS: u8 = super::columns::EXT_IDS;
    #[pymodule_export]
    const LENGTHS: u8 = super::columns::LENGTHS;
    #[pymodule_export]
    const PAYLOADS: u8 = super::columns::PAYLOADS;
    #[pymodule_export]
    const KEYS: u8 = super::columns::KEYS;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::checked::spare_backtraces();
        module.add("Record", super::object::RecordType::get(module.py())?.into_inner())
    }
}
