//! What one simulated server holds, and how it changes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// The content of a field. Copies of it are shared, so that a cluster of many servers fits.
pub type Bytes = Arc<[u8]>;

/// A hash with the end of its lease.
#[derive(Clone, Default)]
pub struct Key {
    pub fields: HashMap<Vec<u8>, Bytes>,
    pub expires: Option<Instant>,
}

/// A change, as a master passes it on to its replica.
#[derive(Clone)]
pub enum Change {
    Set(Vec<u8>, Vec<(Vec<u8>, Bytes)>),
    Delete(Vec<u8>, Vec<Vec<u8>>),
    Expire(Vec<u8>, Instant),
    Unlink(Vec<u8>),
    /// The whole of a key: one that moves between servers.
    Put(Vec<u8>, Key),
}

/// All keys of a server.
#[derive(Clone, Default)]
pub struct Data {
    pub keys: HashMap<Vec<u8>, Key>,
}

impl Data {
    /// None also if its lease is over.
    pub fn get(&self, key: &[u8], now: Instant) -> Option<&Key> {
        let key = self.keys.get(key)?;
        key.expires.is_none_or(|at| at > now).then_some(key)
    }

    /// Returns how many fields or keys were there, or are new.
    pub fn apply(&mut self, change: &Change) -> usize {
        match change {
            Change::Set(key, fields) => {
                let key = self.keys.entry(key.clone()).or_default();
                let each = fields.iter().cloned();
                each.filter(|(name, bytes)| {
                    let old = key.fields.insert(name.clone(), Arc::clone(bytes));
                    old.is_none()
                })
                .count()
            }
            Change::Delete(name, fields) => {
                let Some(key) = self.keys.get_mut(name) else {
                    return 0;
                };
                let is_gone = |field: &&Vec<u8>| key.fields.remove(*field).is_some();
                let gone = fields.iter().filter(is_gone).count();
                // A hash without fields is no key, and its lease goes with it.
                if key.fields.is_empty() {
                    self.keys.remove(name);
                }
                gone
            }
            Change::Expire(key, at) => match self.keys.get_mut(key) {
                Some(key) => {
                    key.expires = Some(*at);
                    1
                }
                None => 0,
            },
            Change::Unlink(key) => usize::from(self.keys.remove(key).is_some()),
            Change::Put(name, key) => {
                self.keys.insert(name.clone(), key.clone());
                1
            }
        }
    }

    /// Removes the keys whose lease is over.
    pub fn sweep(&mut self, now: Instant) -> Vec<(Vec<u8>, Key)> {
        let is_over = |_: &Vec<u8>, key: &mut Key| key.expires.is_some_and(|at| at <= now);
        self.keys.extract_if(is_over).collect()
    }
}
