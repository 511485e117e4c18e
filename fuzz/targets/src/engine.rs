//! Sequences of operations on a whole engine, compared with the model that the engine's own tests use.

use vswap_engine::Codec;

use crate::bytes::Bytes;
use crate::model::operation::limits;
use crate::model::{Content, Mappings, Operation, follow};

/// Most operations of one input: enough to fill pool and areas several times, few enough for a hundred inputs a second.
const OPERATIONS_MAX: usize = 400;
/// CPU numbers that are used. The model's engine has fewer CPUs.
const CPUS: u8 = 5;
/// Most references that are taken or given back at once: more than a word can count itself.
const TIMES_MAX: u8 = 20;
/// Limits of the pool, in pages: none, too few, enough.
const LIMIT_PAGES: u8 = 24;

/// Storage breaks after at most this many requests.
const REQUESTS: u8 = 16;
/// Most pages that are written or read together, and most clusters that are discarded.
const PAGES_AT_ONCE: u8 = 9;
/// Windows for reading around a page are powers of two with an order below this one.
const WINDOW_ORDERS: u8 = 5;
/// Groups that pages may name: the root, others, and some that never existed.
const GROUPS: u8 = 6;
/// Pages that a group may have in areas. 0 means no limit.
const GROUP_PAGES: u8 = 6;
/// Slots of a new area.
const SLOTS: u8 = 20;

/// The first byte chooses the codec and which slots page tables name. The rest are operations.
pub fn engine(data: &[u8]) {
    let mut bytes = Bytes(data);
    let choice = bytes.below(9);
    let codec = match choice % 3 {
        0 => Codec::Lz4,
        _ => Codec::Zstd,
    };
    let mappings = match choice / 3 {
        0 => Mappings::Virtual,
        1 => Mappings::Direct,
        _ => Mappings::Both,
    };
    let mut operations = Vec::new();
    while !bytes.is_empty() && operations.len() < OPERATIONS_MAX {
        operations.push(operation(&mut bytes));
    }
    follow(&operations, codec, mappings);
}

fn operation(bytes: &mut Bytes<'_>) -> Operation {
    // Operations that fill and empty are as frequent as in the engine's own tests.
    match bytes.below(48) {
        0..8 => Operation::SwapOut {
            content: content(bytes),
            cpu: bytes.below(CPUS).into(),
            group: bytes.below(GROUPS).into(),
        },
        8..16 => Operation::WriteOut(bytes.u8().into()),
        16..20 => Operation::SwapIn(bytes.u8().into()),
        20..23 => Operation::Dup {
            at: bytes.u8().into(),
            times: 1 + bytes.below(TIMES_MAX),
        },
        23..29 => Operation::Put {
            at: bytes.u8().into(),
            times: 1 + bytes.below(TIMES_MAX),
        },
        29 => Operation::Compact,
        30 => Operation::Limit {
            pages: bytes.below(LIMIT_PAGES).into(),
        },
        31 => Operation::Break {
            after: bytes.below(REQUESTS).into(),
        },
        32 => Operation::Mend,
        33 => Operation::WriteOutAll {
            at: bytes.u8().into(),
            pages: bytes.below(PAGES_AT_ONCE).into(),
        },
        34..36 => Operation::SwapInAll {
            at: bytes.u8().into(),
            count: bytes.below(PAGES_AT_ONCE).into(),
        },
        36 => Operation::Discard {
            budget: bytes.below(PAGES_AT_ONCE).into(),
        },
        37 => Operation::SwapOn {
            slots: 1 + u64::from(bytes.below(SLOTS)),
            priority: i16::from(bytes.below(4)) - 1,
        },
        38 => Operation::LimitGroup {
            at: bytes.u8().into(),
            limits: limits(
                bytes.below(GROUP_PAGES).into(),
                bytes.u16().into(),
                bytes.below(4) > 0,
                std::array::from_fn(|_| bytes.below(GROUP_PAGES).into()),
            ),
        },
        39 => Operation::RemoveGroup {
            at: bytes.u8().into(),
        },
        40 => Operation::SwapInAround {
            at: bytes.u8().into(),
            window: 1 << bytes.below(WINDOW_ORDERS),
        },
        41..43 => Operation::WriteBack {
            pages: bytes.below(PAGES_AT_ONCE).into(),
        },
        43 => Operation::BeginGeneration,
        44 => Operation::Demote {
            pages: bytes.below(PAGES_AT_ONCE).into(),
        },
        45 => Operation::SwapOff {
            at: bytes.u8().into(),
        },
        _ => Operation::Repack {
            pages: bytes.below(PAGES_AT_ONCE).into(),
        },
    }
}

fn content(bytes: &mut Bytes<'_>) -> Content {
    match bytes.below(8) {
        0..2 => Content::Zero,
        2..6 => Content::Dense(bytes.u8().max(1)),
        6 => Content::Random(bytes.u16().into()),
        _ => Content::Narrow(bytes.u16().into()),
    }
}
