//! Taking an area out of use, and back into use if that fails. `verbs/swap_off.rs` moves its pages away.

use super::Areas;
use super::physical::Physical;
use crate::words::entry::AreaId;

/// Why an area cannot be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloseError {
    /// There is no such area.
    NotInUse,
    /// Somebody else is closing it.
    UnderWay,
}

impl Areas {
    /// Stops giving out slots of the area. The area keeps its place among the others, which pass it over.
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
        // In this order, so that we do not undo what the next thread to close it does.
        physical.area.reopen();
        physical.end_closing();
    }

    /// Forgets a closed area that holds no page, and closes its storage. Its tables wait for the next area with this
    /// number.
    pub(crate) fn retire(&self, id: AreaId) {
        let Some(physical) = self.get(id) else {
            return;
        };
        // Without a lock, because a large area has many clusters. Nobody else has a use for a closed one.
        physical.area.clear();
        let mut order = self.order.lock();
        order.retain(|&other| other != id);
        let storage = physical.retire();
        drop(order);
        // Without a lock, because this closes a file.
        drop(storage);
    }
}
