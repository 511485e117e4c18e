//! A way to ask an area on other machines how it is.
//!
//! The engine knows such an area as a storage like any other, and nobody looks at what it tells: status passes it on.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

/// A way to ask such an area. It answers at once, without asking the servers; with None once the area is gone.
#[derive(Clone)]
pub struct AskFar(Arc<dyn Fn() -> Option<Value> + Send + Sync>);

impl AskFar {
    /// A way to ask.
    #[must_use]
    pub fn new(ask: impl Fn() -> Option<Value> + Send + Sync + 'static) -> AskFar {
        AskFar(Arc::new(ask))
    }

    /// Asks. The caller holds no innermost lock, since the area has locks of its own.
    #[must_use]
    pub fn ask(&self) -> Option<Value> {
        (self.0)()
    }
}

impl fmt::Debug for AskFar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AskFar")
    }
}
