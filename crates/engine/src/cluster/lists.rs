//! An area's lists of clusters, linked through the clusters' own records.
//!
//! One lock guards the lists, and it comes after a cluster's lock. Only a thread that also holds a cluster's lock puts
//! the cluster on a list or takes it off. So a search that starts from a list tries the cluster's lock and skips busy
//! clusters.

use std::sync::Arc;

use super::directory::Directory;
use super::extent::Extent;
use super::place::Place;
use super::record::Cluster;
use crate::base::sync::Ordering;
use crate::words::geometry::NO_CLUSTER;
use crate::words::order::Order;

/// One list, first in, first out.
#[derive(Debug, Clone, Copy)]
struct Ends {
    head: u32,
    tail: u32,
}

/// The lists, the number of the next cluster that was never used, and the slots that the area has.
#[derive(Debug)]
pub(crate) struct Lists {
    pub(crate) extent: Arc<Extent>,
    free: Ends,
    /// One list for each order of clusters.
    nonfull: [Ends; Order::COUNT],
    frag: [Ends; Order::COUNT],
    discard: Ends,
    /// All clusters below this number have been used.
    pub(crate) end: u32,
    /// The area is closed: no cluster becomes a CPU's current one any more.
    pub(crate) is_closed: bool,
    /// How many clusters are being discarded.
    pub(crate) discarding: u32,
}

impl Lists {
    /// The lists of an area in which no cluster was ever used.
    pub(crate) fn new(extent: Extent) -> Lists {
        let empty = Ends {
            head: NO_CLUSTER,
            tail: NO_CLUSTER,
        };
        Lists {
            extent: Arc::new(extent),
            free: empty,
            nonfull: [empty; Order::COUNT],
            frag: [empty; Order::COUNT],
            discard: empty,
            end: 0,
            is_closed: false,
            discarding: 0,
        }
    }

    /// The list of a place. `None` for places that have no list. Free clusters have no order.
    fn ends(&mut self, place: Place, order: Order) -> Option<&mut Ends> {
        match place {
            Place::Free => Some(&mut self.free),
            Place::Nonfull => Some(&mut self.nonfull[order.index()]),
            Place::Frag => Some(&mut self.frag[order.index()]),
            Place::Discard => Some(&mut self.discard),
            Place::Current | Place::Stolen | Place::Full | Place::Discarding => None,
        }
    }

    /// The first cluster of a list.
    pub(crate) fn head(&mut self, place: Place, order: Order) -> u32 {
        self.ends(place, order).map_or(NO_CLUSTER, |ends| ends.head)
    }

    /// The cluster after `cluster` on its list.
    pub(crate) fn after(cluster: &Cluster) -> u32 {
        cluster.next.load(Ordering::Relaxed)
    }

    /// Appends a cluster, which is on no list, to the list of its place and order. Does nothing for places without a
    /// list.
    pub(crate) fn push(&mut self, directory: &Directory, place: Place, id: u32, cluster: &Cluster) {
        let Some(ends) = self.ends(place, cluster.order()) else {
            return;
        };
        cluster.prev.store(ends.tail, Ordering::Relaxed);
        cluster.next.store(NO_CLUSTER, Ordering::Relaxed);
        match directory.linked(ends.tail) {
            Some(tail) => tail.next.store(id, Ordering::Relaxed),
            None => ends.head = id,
        }
        ends.tail = id;
    }

    /// Takes a cluster off its list. Does nothing for places without a list.
    pub(crate) fn remove(&mut self, directory: &Directory, place: Place, cluster: &Cluster) {
        let Some(ends) = self.ends(place, cluster.order()) else {
            return;
        };
        let prev = cluster.prev.load(Ordering::Relaxed);
        let next = cluster.next.load(Ordering::Relaxed);
        match directory.linked(prev) {
            Some(prev) => prev.next.store(next, Ordering::Relaxed),
            None => ends.head = next,
        }
        match directory.linked(next) {
            Some(next) => next.prev.store(prev, Ordering::Relaxed),
            None => ends.tail = prev,
        }
        cluster.prev.store(NO_CLUSTER, Ordering::Relaxed);
        cluster.next.store(NO_CLUSTER, Ordering::Relaxed);
    }

    /// Checks that every list leads from its head to its tail and back, only over clusters of its place and order.
    /// Returns how many clusters are on lists.
    pub(crate) fn is_valid(&self, directory: &Directory) -> Result<usize, String> {
        let of_orders = |place: Place, lists: &[Ends; Order::COUNT]| {
            let lists: Vec<_> = Order::all().zip(*lists).collect();
            lists
                .into_iter()
                .map(move |(order, ends)| (place, Some(order), ends))
        };
        let of_none = [
            (Place::Free, None, self.free),
            (Place::Discard, None, self.discard),
        ];
        let all = of_none
            .into_iter()
            .chain(of_orders(Place::Nonfull, &self.nonfull))
            .chain(of_orders(Place::Frag, &self.frag));
        let mut listed = 0;
        for (place, order, ends) in all {
            let (mut before, mut id) = (NO_CLUSTER, ends.head);
            while id != NO_CLUSTER {
                let wrong =
                    |what: &str| Err(format!("cluster {id} on {place:?}, {order:?}: {what}"));
                let Some(cluster) = directory.linked(id) else {
                    return wrong("it never was");
                };
                if id >= self.end || cluster.place() != place {
                    return wrong("it is of another place");
                }
                if order.is_some_and(|order| cluster.order() != order) {
                    return wrong("it is of another order");
                }
                if cluster.prev.load(Ordering::Relaxed) != before {
                    return wrong("it does not lead back");
                }
                listed += 1;
                if listed > self.end as usize {
                    return wrong("the lists go in a circle");
                }
                (before, id) = (id, Lists::after(cluster));
            }
            if ends.tail != before {
                return Err(format!("the tail of {place:?}, {order:?} is {}", ends.tail));
            }
        }
        Ok(listed)
    }
}
