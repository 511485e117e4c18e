//! What holds of an area while nobody else is at it, as checks.

use super::Area;
use crate::cluster::{ClusterGuard, Place};
use crate::words::order::Order;

impl Area {
    /// Each cluster is valid and where it belongs, each that belongs on a list is on it, and none else. Goes through
    /// all clusters. Others may be at the area only if they change nothing.
    pub(crate) fn is_valid(&self) -> Result<(), String> {
        let mut belong_on_lists = 0;
        for (id, record) in self.clusters() {
            let Some(cluster) = record.lock() else {
                continue;
            };
            let valid = cluster
                .is_valid()
                .and_then(|()| self.is_placed(id, &cluster));
            valid.map_err(|what| format!("{:?}, cluster {id}: {what}", self.id))?;
            let is_listed = matches!(
                cluster.place(),
                Place::Free | Place::Nonfull | Place::Frag | Place::Discard
            );
            belong_on_lists += usize::from(is_listed && (id as usize) < self.end());
        }
        let listed = self.lists.lock().is_valid(&self.directory);
        let listed = listed.map_err(|what| format!("{:?}: {what}", self.id))?;
        if listed != belong_on_lists {
            return Err(format!(
                "{:?}: {belong_on_lists} clusters belong on lists, {listed} are on some",
                self.id
            ));
        }
        Ok(())
    }

    /// Is the cluster some CPU's that says so, and else where its slots put it?
    fn is_placed(&self, id: u32, cluster: &ClusterGuard<'_>) -> Result<(), String> {
        let is_some_cpus = |of: Order| self.currents_of(of).any(|current| current == id);
        let place = cluster.place();
        let is_right = match place {
            Place::Current => {
                let order = cluster.order();
                is_some_cpus(order) && cluster.record().serves(order)
            }
            Place::Stolen => is_some_cpus(Order::SLOT) && cluster.free_slots() > 0,
            // An emptied one waits for its discard or not, and is free after it.
            Place::Free | Place::Discard | Place::Discarding => cluster.state.used == 0,
            _ => place == self.place_for(cluster),
        };
        if is_right {
            Ok(())
        } else {
            let free = cluster.free_slots();
            Err(format!("it is {place:?} with {free} free slots"))
        }
    }
}
