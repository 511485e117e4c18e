//! Taking an area out of use, and back into it if that fails. What moves its pages away is in `verbs/swap_off.rs`.

use super::Areas;
use super::physical::Physical;
use crate::base::sync::Ordering;
use crate::words::entry::AreaId;

/// Why an area cannot be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloseError {
    /// There is no such area.
    NotInUse,
    /// Somebody else has closed it.
    UnderWay,
}

impl Areas {
    /// Gives out no slot of the area any longer. It keeps its place among the others, where it is passed over.
    pub(crate) fn close(&self, id: AreaId) -> Result<&Physical, CloseError> {
        let order = self.order.lock();
        let physical = self.get(id).ok_or(CloseError::NotInUse)?;
        if !physical.begin_closing() {
            return Err(CloseError::UnderWay);
        }
        drop(order);
        physical.area.close();
        Ok(physical)
    }

    /// Gives out slots of a closed area again.
    pub(crate) fn reopen(physical: &Physical) {
        // In this order: the next to close it must not be undone.
        physical.area.reopen();
        physical.end_closing();
    }

    /// Forgets a closed area without a page in it, and closes its storage.
    pub(crate) fn retire(&self, id: AreaId) {
        let mut order = self.order.lock();
        let Some(physical) = self.get(id) else {
            return;
        };
        let bytes = physical.area.stats().table_bytes;
        self.retired_bytes.fetch_add(bytes, Ordering::Relaxed);
        order.retain(|&other| other != id);
        let storage = physical.retire();
        drop(order);
        // Without a lock: a file is closed here.
        drop(storage);
    }

    /// Bytes of the tables of areas that were swapped off.
    pub(crate) fn retired_bytes(&self) -> u64 {
        self.retired_bytes.load(Ordering::Relaxed)
    }
}
