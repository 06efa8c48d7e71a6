//! Keyed records: `u32 key length + 1, or 0 | key | value`.

const PREFIX: usize = 4;

/// One payload's key, if it has one, and its value; None if it is too short for what it says.
pub fn split(payload: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (size, rest) = payload.split_first_chunk::<PREFIX>()?;
    match u32::from_le_bytes(*size) {
        0 => Some((None, rest)),
        size => rest.split_at_checked(size as usize - 1).map(|(key, value)| (Some(key), value)),
    }
}
