//! Metrics of a store: pool, areas and groups, of a run by itself or of all runs of the daemon together.

use std::fmt;

use prometheus_client::registry::Unit;
use vswap_pager::{AreaStatus, GroupStatus, GroupTier, StoreStatus, TierStatus};

use crate::metrics::families::writer::{Family, Kind, Labels, Number, Writer};
use crate::metrics::figures::StoreFigures;
use crate::output::figures::PAGE_BYTES;

/// Most groups that are told of, the root first: whoever collects keeps each for weeks.
const GROUPS_MAX: usize = 256;

type OfStore = (Family, fn(&StoreStatus) -> u64);
type OfArea = (Family, fn(&AreaStatus) -> Number);
type OfTier = (Family, fn(&TierStatus) -> Option<Number>);
type OfGroupTier = (Family, fn(&GroupTier) -> Option<u64>);
type OfGroup = (Family, fn(&GroupStatus) -> Option<u64>);

/// A gauge in bytes.
const fn bytes(name: &'static str, help: &'static str) -> Family {
    Family {
        name,
        unit: Some(Unit::Bytes),
        kind: Kind::Gauge,
        help,
    }
}

static STORE: [OfStore; 8] = [
    (
        bytes("vswap_store_pool", "Memory of the compressed pool."),
        |store| store.pool_bytes,
    ),
    (
        bytes(
            "vswap_store_payload",
            "What the compressed pages take in the pool, without its waste.",
        ),
        |store| store.payload_bytes,
    ),
    (
        bytes("vswap_store_tables", "Memory of the swap tables."),
        |store| store.metadata_bytes,
    ),
    (
        bytes(
            "vswap_store_swapped",
            "Memory of programs that is in swap, as large as it is to them.",
        ),
        |store| store.swapped_pages * PAGE_BYTES,
    ),
    (
        bytes(
            "vswap_store_zero",
            "Of the memory in swap, pages that are all zeros and take no room.",
        ),
        |store| store.zero_pages * PAGE_BYTES,
    ),
    (
        bytes(
            "vswap_store_compressed",
            "Of the memory in swap, what is compressed in the pool, as large as it is to the programs.",
        ),
        |store| store.compressed_pages * PAGE_BYTES,
    ),
    (
        bytes(
            "vswap_store_raw",
            "Of the memory in swap, what is in the pool as it is because it does not compress.",
        ),
        |store| store.raw_pages * PAGE_BYTES,
    ),
    (
        bytes(
            "vswap_store_disk",
            "Of the memory in swap, what is in swap areas.",
        ),
        |store| store.physical_pages * PAGE_BYTES,
    ),
];

static AREAS: [OfArea; 7] = [
    (
        bytes("vswap_area_size", "What the swap area can hold."),
        |area| area.size_bytes.into(),
    ),
    (
        bytes("vswap_area_used", "What is in the swap area."),
        |area| area.used_bytes.into(),
    ),
    (
        Family {
            name: "vswap_area_read",
            unit: Some(Unit::Bytes),
            kind: Kind::Counter,
            help: "Read from the swap area.",
        },
        |area| area.read_bytes.into(),
    ),
    (
        Family {
            name: "vswap_area_written",
            unit: Some(Unit::Bytes),
            kind: Kind::Counter,
            help: "Written to the swap area.",
        },
        |area| area.written_bytes.into(),
    ),
    (
        Family {
            name: "vswap_area_errors",
            unit: None,
            kind: Kind::Counter,
            help: "Requests to the swap area that failed.",
        },
        |area| area.errors.into(),
    ),
    (
        Family {
            name: "vswap_area_failing",
            unit: None,
            kind: Kind::Gauge,
            help: "1 if the swap area could not take a page last time.",
        },
        |area| area.failing.into(),
    ),
    (
        Family {
            name: "vswap_area_priority",
            unit: None,
            kind: Kind::Gauge,
            help: "Priority of the swap area: the highest is used first.",
        },
        |area| f64::from(area.priority).into(),
    ),
];

static GROUPS: [OfGroup; 4] = [
    (
        bytes("vswap_group_swap", "What the group has in swap areas."),
        |group| Some(group.swap_bytes),
    ),
    (
        bytes(
            "vswap_group_swap_limit",
            "What the group may have in swap areas, if that is limited.",
        ),
        |group| group.swap_max_bytes,
    ),
    (
        bytes("vswap_group_pool", "What the group has in the pool."),
        |group| Some(group.pool_bytes),
    ),
    (
        bytes(
            "vswap_group_pool_limit",
            "What the group may have in the pool, if that is limited.",
        ),
        |group| group.pool_max_bytes,
    ),
];

static TIERS: [OfTier; 5] = [
    (
        bytes("vswap_tier_size", "What the areas of the tier can hold."),
        |tier| Some(tier.size_bytes.into()),
    ),
    (
        bytes("vswap_tier_used", "What is in the areas of the tier."),
        |tier| Some(tier.used_bytes.into()),
    ),
    (
        Family {
            name: "vswap_tier_read",
            unit: Some(Unit::Bytes),
            kind: Kind::Counter,
            help: "Read from the areas of the tier: pages on their way up.",
        },
        |tier| Some(tier.read_bytes.into()),
    ),
    (
        Family {
            name: "vswap_tier_written",
            unit: Some(Unit::Bytes),
            kind: Kind::Counter,
            help: "Written to the areas of the tier: pages on their way down.",
        },
        |tier| Some(tier.written_bytes.into()),
    ),
    (
        Family {
            name: "vswap_tier_latency",
            unit: Some(Unit::Seconds),
            kind: Kind::Gauge,
            help: "What reading a lone page takes on average, in the slowest area of the tier.",
        },
        |tier| Some((tier.latency_us? / 1e6).into()),
    ),
];

static GROUP_TIERS: [OfGroupTier; 2] = [
    (
        bytes(
            "vswap_group_tier",
            "What the group has in the areas of the tier.",
        ),
        |tier| Some(tier.bytes),
    ),
    (
        bytes(
            "vswap_group_tier_limit",
            "What the group may have in the areas of the tier, if that is limited.",
        ),
        |tier| tier.max_bytes,
    ),
];

static GROUP_EVENTS: Family = Family {
    name: "vswap_group_refused_pages",
    unit: None,
    kind: Kind::Counter,
    help: "Pages that a limit of the group has kept from going out, by limit. A page that waits counts at each try.",
};

/// Writes them.
pub fn write(store: &StoreFigures, writer: &mut Writer<'_>) -> fmt::Result {
    let codec = vec![("codec", store.codec.clone())];
    writer.info(
        "vswap_store",
        "How pages are compressed: auto, lz4, zstd, zstd:LEVEL or none.",
        [codec],
    )?;
    for (family, value) in &STORE {
        writer.family(family, [(Labels::new(), value(&store.status).into())])?;
    }
    for (family, value) in &AREAS {
        let samples = store.status.areas.iter().map(|area| {
            let labels = vec![("area", area.name.clone())];
            (labels, value(area))
        });
        writer.family(family, samples)?;
    }
    for (family, value) in &TIERS {
        let samples = store.status.tiers.iter().filter_map(|tier| {
            let labels = vec![("tier", tier.name.to_string())];
            Some((labels, value(tier)?))
        });
        writer.family(family, samples)?;
    }
    let groups = || store.status.groups.iter().take(GROUPS_MAX);
    for (family, value) in &GROUPS {
        let samples = groups().filter_map(|group| {
            let labels = vec![("group", group.name.clone())];
            Some((labels, value(group)?.into()))
        });
        writer.family(family, samples)?;
    }
    for (family, value) in &GROUP_TIERS {
        let samples = groups().flat_map(|group| {
            group.tiers.iter().filter_map(|tier| {
                let group = ("group", group.name.clone());
                let labels = vec![group, ("tier", tier.name.to_string())];
                Some((labels, value(tier)?.into()))
            })
        });
        writer.family(family, samples)?;
    }
    writer.family(&GROUP_EVENTS, groups().flat_map(refusals))
}

fn refusals(group: &GroupStatus) -> [(Labels, Number); 4] {
    let events = group.events;
    [
        ("swap_max", events.swap_max),
        ("swap_fail", events.swap_fail),
        ("pool_max", events.pool_max),
        ("writeback", events.writeback_refused),
    ]
    .map(|(limit, pages)| {
        let labels = vec![("group", group.name.clone()), ("limit", limit.to_owned())];
        (labels, pages.into())
    })
}
