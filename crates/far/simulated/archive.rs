//! What was ever written to each slot: by this a test knows whether a page still is somewhere, and servers can give
//! what was true yesterday.
//!
//! It reads the names of keys and fields: the first copy of a cluster of slots is `vswap:RUN:AREA:CLUSTER.BASE`, the
//! second one has more behind that, and a field is the slot within the cluster and the version.

use std::collections::HashMap;

use crate::simulated::data::{Bytes, Key};

/// Versions of a slot that are remembered.
const VERSIONS: usize = 3;

/// The name of a cluster of slots without what tells its keys apart, and the slot within the cluster.
type Slot = (Vec<u8>, u16);

/// What was written, the newest last.
#[derive(Default)]
pub struct Archive {
    slots: HashMap<Slot, Vec<(u32, Bytes)>>,
    /// The version of a slot that was deleted by whoever wrote it.
    deleted: HashMap<Slot, u32>,
}

/// None for keys that hold no pages.
pub fn family(key: &[u8]) -> Option<&[u8]> {
    let dot = key.iter().position(|byte| *byte == b'.')?;
    let family = &key[..dot];
    let is_of_pages = !family.starts_with(b"vswap:run:") && !family.ends_with(b":probe");
    is_of_pages.then_some(family)
}

fn parts(field: &[u8]) -> Option<(u16, u32)> {
    let (at, version) = field.split_first_chunk::<2>()?;
    let version = version.first_chunk::<4>()?;
    Some((u16::from_be_bytes(*at), u32::from_be_bytes(*version)))
}

impl Archive {
    pub fn note_written(&mut self, key: &[u8], field: &[u8], bytes: &Bytes) {
        let (Some(family), Some((at, version))) = (family(key), parts(field)) else {
            return;
        };
        let versions = self.slots.entry((family.to_vec(), at)).or_default();
        if versions.iter().any(|(known, _)| *known == version) {
            return;
        }
        versions.push((version, Bytes::clone(bytes)));
        versions.sort_by_key(|(version, _)| *version);
        let extra = versions.len().saturating_sub(VERSIONS);
        versions.drain(..extra);
    }

    pub fn note_deleted(&mut self, key: &[u8], field: &[u8]) {
        if let (Some(family), Some((at, version))) = (family(key), parts(field)) {
            let last = self.deleted.entry((family.to_vec(), at)).or_default();
            *last = version.max(*last);
        }
    }

    /// All that the key's cluster of slots has is deleted, whether it was still there or not.
    pub fn note_unlinked(&mut self, key: &[u8]) {
        let Some(family) = family(key) else { return };
        for ((of, at), versions) in &self.slots {
            if let (true, Some((newest, _))) = (*of == family, versions.last()) {
                self.deleted.insert((of.clone(), *at), *newest);
            }
        }
    }

    /// Whether this field of the key is the newest version of its slot, as it was written, and nobody has deleted it.
    pub fn is_current(&self, key: &[u8], field: &[u8], bytes: &[u8]) -> bool {
        let (Some(family), Some((at, version))) = (family(key), parts(field)) else {
            return false;
        };
        let slot = (family.to_vec(), at);
        let newest = self.slots.get(&slot).and_then(|versions| versions.last());
        newest.is_some_and(|(newest, written)| *newest == version && **written == *bytes)
            && self.deleted.get(&slot).is_none_or(|gone| *gone < version)
    }

    /// Whether the key has the newest version of this slot of its cluster, as it was written.
    pub fn has_current(&self, name: &[u8], key: &Key, at: u16) -> bool {
        let Some(family) = family(name) else {
            return false;
        };
        let versions = self.slots.get(&(family.to_vec(), at));
        let Some((version, written)) = versions.and_then(|versions| versions.last()) else {
            return false;
        };
        let field = [&at.to_be_bytes()[..], &version.to_be_bytes()[..]].concat();
        key.fields.get(&field).is_some_and(|held| held == written)
    }

    /// What the slot of this field held before.
    pub fn yesterday(&self, key: &[u8], field: &[u8]) -> Option<Bytes> {
        let (at, version) = parts(field)?;
        let versions = self.slots.get(&(family(key)?.to_vec(), at))?;
        let older = versions.iter().rev().find(|(known, _)| *known < version);
        older.map(|(_, bytes)| Bytes::clone(bytes))
    }
}
