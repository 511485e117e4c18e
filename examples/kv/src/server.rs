//! The server: a thread for each connection.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::commands::{Next, run};
use crate::store::Store;
use crate::wire::{Request, Wire};

/// What a request may have beside the longest value. A value that is a little too long can be refused properly.
const REQUEST_REST_BYTES: usize = 1 << 20;
/// Pause after the system has refused a connection: it has no descriptors or memory left.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);

/// A place among the connections, which is free again when this is dropped.
struct Place(Arc<AtomicUsize>);

impl Place {
    /// Takes a place if there are less than `most`.
    fn take(used: &Arc<AtomicUsize>, most: usize) -> Option<Place> {
        let place = Place(Arc::clone(used));
        let before = used.fetch_add(1, Ordering::Relaxed);
        // If there is none, dropping gives back what was added.
        (before < most).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves for ever, at most so many connections at a time.
pub fn serve(listener: &TcpListener, store: &Arc<Store>, most: usize) -> ! {
    let used = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((socket, _)) = listener.accept() else {
            std::thread::sleep(REFUSED_PAUSE);
            continue;
        };
        let place = Place::take(&used, most);
        let store = Arc::clone(store);
        // Without a thread the connection is closed.
        let _ = std::thread::Builder::new()
            .name("connection".to_owned())
            .spawn(move || {
                // An error is a client that has gone.
                let _ = connection(&store, socket, place.is_some());
                drop(place);
            });
    }
}

fn connection(store: &Store, socket: TcpStream, has_place: bool) -> io::Result<()> {
    let request_bytes = store
        .limits()
        .value_bytes
        .saturating_add(REQUEST_REST_BYTES);
    let mut wire = Wire::on(socket, request_bytes)?;
    if !has_place {
        wire.error("ERR max number of clients reached");
        wire.send()?;
        wire.end();
        return Ok(());
    }
    loop {
        match wire.receive() {
            Request::Words(words) => {
                if run(store, &mut wire, &words)? == Next::End {
                    return wire.send();
                }
                wire.send_if_many()?;
            }
            Request::Nonsense(why) => {
                wire.error(&format!("ERR Protocol error: {why}"));
                wire.send()?;
                wire.end();
                return Ok(());
            }
            Request::End => return Ok(()),
        }
    }
}
