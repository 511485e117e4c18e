//! Checks of what holds for an area while nobody else uses it.

use super::Area;
use crate::cluster::{ClusterGuard, Place};
use crate::words::order::Order;

impl Area {
    /// Checks that each cluster is valid and at its place, and that exactly the clusters that belong on lists are on
    /// them. Goes through all clusters. Other threads may use the area only if they change nothing.
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

    /// Checks that a cluster marked as some CPU's really is, and that any other is at the place that its slots call
    /// for.
    fn is_placed(&self, id: u32, cluster: &ClusterGuard<'_>) -> Result<(), String> {
        let is_some_cpus = |of: Order| self.currents_of(of).any(|current| current == id);
        let place = cluster.place();
        let is_right = match place {
            Place::Current => {
                let order = cluster.order();
                is_some_cpus(order) && cluster.record().serves(order)
            }
            Place::Stolen => is_some_cpus(Order::SLOT) && cluster.free_slots() > 0,
            // An emptied cluster may wait for its discard, and is free afterwards.
            place if place.is_empty() => cluster.state.used == 0,
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
