//! What a fault was on aarch64: the processor's syndrome says so, which the kernel puts behind the registers.
//!
//! There it has records, each with its kind and its length first, and an empty one at the end.

use core::ffi::c_void;

/// Room for the records in a context (`sigcontext::__reserved`).
const RECORDS_BYTES: usize = 4096;
/// Kind of the record with the syndrome (`ESR_MAGIC`).
const SYNDROME: u32 = 0x4553_5201;
/// Kind and length.
const HEAD_BYTES: usize = 8;

/// Was the access a write? Perhaps, if the kernel does not say.
///
/// # Safety
/// `context` is what the kernel passed to a handler with SA_SIGINFO.
pub unsafe fn may_be_write(context: *mut c_void) -> bool {
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the caller passes a ucontext of the kernel's, whose last part are the records.
    let records = unsafe {
        let end = (&raw const (*context).uc_mcontext).add(1).cast::<u8>();
        core::slice::from_raw_parts(end.sub(RECORDS_BYTES), RECORDS_BYTES)
    };
    syndrome(records).is_none_or(is_write)
}

/// Is it the syndrome of a write? Of a data abort it has a bit for that.
fn is_write(syndrome: u64) -> bool {
    /// Bits of the class, and the class of data aborts of programs.
    const CLASS: u64 = 0x3F << 26;
    const DATA_ABORT: u64 = 0x24 << 26;
    const WRITE: u64 = 1 << 6;
    syndrome & CLASS == DATA_ABORT && syndrome & WRITE != 0
}

/// The syndrome among these records.
fn syndrome(mut records: &[u8]) -> Option<u64> {
    loop {
        let (head, rest) = records.split_at_checked(HEAD_BYTES)?;
        let [kind, bytes] = [&head[..4], &head[4..]].map(|word| word.try_into().ok());
        let [kind, bytes] = [kind?, bytes?].map(u32::from_ne_bytes);
        if kind == SYNDROME {
            let word = rest.get(..8)?.try_into().ok()?;
            return Some(u64::from_ne_bytes(word));
        }
        let bytes = usize::try_from(bytes).ok()?;
        if kind == 0 || bytes < HEAD_BYTES {
            return None;
        }
        records = records.get(bytes..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, bytes: u32, word: u64) -> Vec<u8> {
        let mut record = [kind, bytes].map(u32::to_ne_bytes).concat();
        record.extend(word.to_ne_bytes());
        record.resize(record.len().max(bytes.min(1024) as usize), 0);
        record
    }

    #[test]
    fn the_syndrome_is_found_among_other_records() {
        let vectors = record(0x4650_8001, 528, 0);
        let found = record(SYNDROME, 16, 0x9200_0047);
        let end = record(0, 0, 0);
        let all = [vectors.clone(), found, end.clone()].concat();
        assert_eq!(syndrome(&all), Some(0x9200_0047));
        assert_eq!(syndrome(&[vectors.clone(), end].concat()), None);
        assert_eq!(syndrome(&vectors), None);
        assert_eq!(syndrome(&record(7, 4, 0)), None, "it would never end");
        assert_eq!(syndrome(&record(7, u32::MAX, 0)), None);
        assert_eq!(syndrome(&record(SYNDROME, 16, 0)[..12]), None);
    }

    #[test]
    fn writes_are_told_from_reads_and_from_code() {
        assert!(is_write(0x9200_0047));
        assert!(!is_write(0x9200_0007));
        assert!(!is_write(0x8200_0047), "code that was not there");
    }
}
