//! The metrics of a run that are one figure each.

use prometheus_client::registry::Unit;
use vswap_pager::Status;

use crate::metrics::families::writer::{Family, Kind, Number};
use crate::output::figures::PAGE_BYTES;

type Value = fn(&Status) -> Number;

/// A family, and how a run comes by its value.
type Of = (Family, Value);

const fn of(name: &'static str, unit: Option<Unit>, kind: Kind, help: &'static str) -> Family {
    Family {
        name,
        unit,
        kind,
        help,
    }
}

const fn bytes(name: &'static str, help: &'static str, value: Value) -> Of {
    (of(name, Some(Unit::Bytes), Kind::Gauge, help), value)
}

const fn gauge(name: &'static str, help: &'static str, value: Value) -> Of {
    (of(name, None, Kind::Gauge, help), value)
}

const fn counter(name: &'static str, help: &'static str, value: Value) -> Of {
    (of(name, None, Kind::Counter, help), value)
}

const fn counter_of_bytes(name: &'static str, help: &'static str, value: Value) -> Of {
    (of(name, Some(Unit::Bytes), Kind::Counter, help), value)
}

const fn counter_of_seconds(name: &'static str, help: &'static str, value: Value) -> Of {
    (of(name, Some(Unit::Seconds), Kind::Counter, help), value)
}

/// In this order they are written.
pub static FIGURES: [Of; 43] = [
    bytes(
        "vswap_memory_limit",
        "What the run may use: RAM of its programs, the pool and vswap itself.",
        |status| status.limit_bytes.into(),
    ),
    bytes(
        "vswap_memory_wanted_limit",
        "What the run shall use at the most: less than its limit while a lower one is approached.",
        |status| status.wanted_limit_bytes.into(),
    ),
    bytes(
        "vswap_memory_used",
        "What the run uses of its limit.",
        |status| status.total_bytes.into(),
    ),
    bytes(
        "vswap_memory_used_peak",
        "The most that the run has used.",
        |status| status.peak_total_bytes.into(),
    ),
    bytes(
        "vswap_memory_needed_peak",
        "The most that the programs had in memory and in swap: what they would have needed.",
        |status| status.peak_needed_bytes.into(),
    ),
    bytes(
        "vswap_memory_resident",
        "Resident anonymous memory of the programs of the run.",
        |status| status.resident_bytes.into(),
    ),
    bytes(
        "vswap_memory_own",
        "Memory of vswap itself for the run: tables, frames and the rest, without the pool.",
        |status| status.own_bytes.saturating_sub(status.pool_bytes).into(),
    ),
    bytes(
        "vswap_memory_swapped",
        "Memory of the programs that is in swap, as large as it is to them.",
        |status| (status.swapped_pages * PAGE_BYTES).into(),
    ),
    bytes(
        "vswap_memory_compressed",
        "Of the memory in swap, what is in the pool, as large as it is to the programs.",
        |status| (status.compressed_pages * PAGE_BYTES).into(),
    ),
    bytes(
        "vswap_memory_disk",
        "Of the memory in swap, what is in swap areas.",
        |status| (status.physical_pages * PAGE_BYTES).into(),
    ),
    bytes(
        "vswap_pool",
        "Memory of the compressed pool that the run takes.",
        |status| status.pool_bytes.into(),
    ),
    bytes(
        "vswap_pool_limit",
        "What the run may take of the compressed pool.",
        |status| status.pool_limit_bytes.into(),
    ),
    bytes(
        "vswap_pool_payload",
        "What the compressed pages of the run take in the pool, without its waste.",
        |status| status.payload_bytes.into(),
    ),
    counter(
        "vswap_pages_out",
        "Pages moved out of the programs.",
        |status| status.pages_out.into(),
    ),
    counter(
        "vswap_pages_out_zero",
        "Of the pages moved out, those that were all zeros and take no room.",
        |status| status.pages_out_zero.into(),
    ),
    counter(
        "vswap_pages_out_clean",
        "Of the pages moved out, those that were stored already.",
        |status| status.pages_dropped_clean.into(),
    ),
    counter("vswap_pages_in", "Pages brought back.", |status| {
        status.pages_in.into()
    }),
    counter(
        "vswap_pages_in_disk",
        "Of the pages brought back, those that came from swap areas.",
        |status| status.pages_in_areas.into(),
    ),
    counter(
        "vswap_pages_in_early",
        "Of the pages brought back, those that had gone too early.",
        |status| status.pages_early.into(),
    ),
    counter(
        "vswap_pages_spared",
        "Pages left in memory because they had come back too early again and again.",
        |status| status.pages_spared.into(),
    ),
    counter(
        "vswap_pages_busy",
        "Pages that could not be moved out because they were shared or pinned.",
        |status| status.pages_busy.into(),
    ),
    counter(
        "vswap_pages_read_ahead",
        "Pages read from swap areas along with a wanted one.",
        |status| status.pages_read_ahead.into(),
    ),
    counter(
        "vswap_pages_read_ahead_used",
        "Of the pages read ahead, those that were wanted afterwards.",
        |status| status.read_ahead_hits.into(),
    ),
    counter(
        "vswap_pages_written_back",
        "Pages moved from the pool to swap areas because nobody had touched them for long.",
        |status| status.pages_written_back.into(),
    ),
    counter(
        "vswap_pages_repacked",
        "Pages of the pool packed again, more densely, because nobody had touched them for long.",
        |status| status.pages_repacked.into(),
    ),
    counter(
        "vswap_repack_saved_bytes",
        "Bytes that packing pages again has freed.",
        |status| status.repack_saved_bytes.into(),
    ),
    counter(
        "vswap_pages_demoted",
        "Pages moved from a swap area to one of lower priority.",
        |status| status.pages_demoted.into(),
    ),
    counter(
        "vswap_write_back_failures",
        "Pages that could not be moved on because an area could not be read or written.",
        |status| status.write_back_failures.into(),
    ),
    counter(
        "vswap_pages_lost",
        "Pages that could not be read back from their swap area.",
        |status| status.pages_lost.into(),
    ),
    counter(
        "vswap_pool_refused_pages",
        "Pages that the pool refused because it was at its limit.",
        |status| status.pool_limit_hits.into(),
    ),
    counter(
        "vswap_slots_refused",
        "How often there was no slot for a page.",
        |status| status.alloc_reject.into(),
    ),
    counter_of_bytes(
        "vswap_compression_input",
        "What went into the compressor.",
        |status| status.compressed_in_bytes.into(),
    ),
    counter_of_bytes(
        "vswap_compression_output",
        "What came out of the compressor.",
        |status| status.compressed_out_bytes.into(),
    ),
    counter(
        "vswap_faults",
        "Faults served on memory that vswap manages.",
        |status| status.faults.into(),
    ),
    counter(
        "vswap_faults_first_touch",
        "Of the faults, first touches of a page.",
        |status| status.faults_first_touch.into(),
    ),
    counter(
        "vswap_faults_deferred",
        "Of the faults, those that waited for memory.",
        |status| status.faults_deferred.into(),
    ),
    counter(
        "vswap_faults_unprotect",
        "Of the faults, first writes to pages that are stored as well.",
        |status| status.faults_unprotect.into(),
    ),
    counter(
        "vswap_fault_retries",
        "How often the kernel put an answer to a fault off.",
        |status| status.retries.into(),
    ),
    counter_of_seconds(
        "vswap_pressure_waiting",
        "Time in which at least one thread of the run waited for a page (some).",
        |status| status.pressure.some.total_seconds.into(),
    ),
    counter_of_seconds(
        "vswap_pressure_stalled",
        "Time in which a thread of the run waited for a page and none worked (full).",
        |status| status.pressure.full.total_seconds.into(),
    ),
    counter_of_seconds(
        "vswap_full_waiting",
        "Time in which faults waited because nothing more could be stored.",
        |status| status.stalled_seconds.into(),
    ),
    gauge(
        "vswap_processes_managed",
        "Processes of the run whose memory is managed.",
        |status| status.processes_managed.into(),
    ),
    gauge(
        "vswap_processes_unmanaged",
        "Processes of the run without an agent, which are only counted.",
        |status| status.processes_unmanaged.into(),
    ),
];
