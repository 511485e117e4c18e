//! The figures of a run or of the daemon, for Prometheus and whoever else reads OpenMetrics (`--metrics`).
//!
//! One thread takes connections, and each connection has a thread of its own for as long as it is served, which is
//! bounded in time (`http.rs`). They take no lock of the pager that `vswap status` does not take, and all of them
//! together look at the figures a few times a second at most. Whoever reads may be anybody: nothing that comes in is
//! believed, and nothing of it changes anything.

mod families;
pub mod figures;
mod http;
mod listener;
mod text;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Builder, Scope};
use std::time::Duration;

use crate::args::metrics_address::MetricsAddress;
use crate::failure::Failure;
use crate::metrics::figures::Figures;
use crate::metrics::http::{Answer, Wanted};
use crate::metrics::listener::{Listener, Stream};
use crate::metrics::text::Texts;
use crate::output::{notice, warning};

/// Most connections served at once; any further one is closed. One Prometheus needs one of them.
const CONNECTIONS_MAX: usize = 8;
/// Stack of each thread, as the pager's threads have it.
const STACK_BYTES: usize = 256 << 10;
/// Pause after a failed accept. It fails when descriptors or memory are short. That passes or it stays, and spinning
/// helps in neither case.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The endpoint of a run or of the daemon, if the user wants one.
#[derive(Debug)]
pub struct Metrics(Option<Endpoint>);

#[derive(Debug)]
struct Endpoint {
    listener: Listener,
    stopping: AtomicBool,
    connections: AtomicUsize,
    texts: Texts,
}

impl Metrics {
    /// Listens where the user wants it, if anywhere. Says where, unless `quiet`.
    ///
    /// # Errors
    /// The address cannot be had.
    pub fn open(address: Option<&MetricsAddress>, quiet: bool) -> Result<Metrics, Failure> {
        let endpoint = address.map(|address| Endpoint::bind(address, quiet));
        endpoint.transpose().map(Metrics)
    }

    /// Answers in threads of their own until `stop` is called. Without a thread nobody is answered, which is said: the
    /// program matters more.
    pub fn serve_in<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        figures: impl Fn() -> Option<Figures> + Send + Sync + 'scope,
    ) {
        if let Some(endpoint) = &self.0 {
            endpoint.serve_in(scope, figures);
        }
    }

    /// Ends the threads of `serve_in`.
    pub fn stop(&self) {
        self.0.iter().for_each(Endpoint::stop);
    }
}

impl Endpoint {
    fn bind(address: &MetricsAddress, quiet: bool) -> Result<Endpoint, Failure> {
        let listener = Listener::bind(address)?;
        if !quiet {
            let who = if address.is_local() {
                ""
            } else {
                "; everybody who can reach this machine there can read them"
            };
            notice(&format!("figures are at {}{who}", listener.address()));
        }
        Ok(Endpoint {
            listener,
            stopping: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            texts: Texts::default(),
        })
    }

    fn serve_in<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        figures: impl Fn() -> Option<Figures> + Send + Sync + 'scope,
    ) {
        let serve = move || self.serve(&figures);
        let spawned = Builder::new()
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, serve);
        if let Err(error) = spawned {
            warning(&format!(
                "no figures can be had at {}, because there is no thread for it: {error}",
                self.listener.address()
            ));
        }
    }

    fn serve(&self, figures: &(impl Fn() -> Option<Figures> + Sync)) {
        std::thread::scope(|scope| {
            loop {
                let connection = self.listener.accept();
                if self.is_stopping() {
                    return;
                }
                let Ok(stream) = connection else {
                    std::thread::sleep(ACCEPT_RETRY);
                    continue;
                };
                if self.connections.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
                    self.connections.fetch_sub(1, Ordering::AcqRel);
                    continue;
                }
                let answer = move || {
                    self.answer(stream, figures);
                    self.connections.fetch_sub(1, Ordering::AcqRel);
                };
                let spawned = Builder::new()
                    .stack_size(STACK_BYTES)
                    .spawn_scoped(scope, answer);
                // Without a thread the connection closes.
                if spawned.is_err() {
                    self.connections.fetch_sub(1, Ordering::AcqRel);
                }
            }
        });
    }

    fn answer(&self, stream: Stream, figures: &impl Fn() -> Option<Figures>) {
        // It does not matter here if a client went away, was too slow or sent something else.
        let _ = http::serve(stream, &self.stopping, |wanted| match wanted {
            Wanted::Figures(format) => match self.texts.fresh(format, figures) {
                Some(text) => Answer::figures(format, text),
                None => Answer::UNAVAILABLE,
            },
            Wanted::Nothing(refusal) => refusal,
        });
    }

    fn is_stopping(&self) -> bool {
        // Acquire pairs with the release in `stop`.
        self.stopping.load(Ordering::Acquire)
    }

    fn stop(&self) {
        // Release pairs with the acquire in `is_stopping` and in `http.rs`. The shutdown only wakes `serve`.
        self.stopping.store(true, Ordering::Release);
        self.listener.wake();
    }
}
