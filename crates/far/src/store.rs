//! Finding out what kind of store a spec names, and connecting to it.

use std::sync::Arc;
use std::time::Duration;

use redis::{Value, cmd};

use crate::event::{Listener, Teller};
use crate::exchange::Exchange;
use crate::info::Info;
use crate::node::Deadline;
use crate::spec::{FarSpec, PASSWORD_VARIABLE, SpecError};
use crate::topology::{Kind, Topology};
use crate::wire::{Network, Role, Sockets, WireError, said};

/// Why a store cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FarError {
    /// It is not named right, or a file that the name mentions cannot be read.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// Nobody answers.
    #[error("{node} does not answer: {reason}")]
    NoAnswer {
        /// Which server.
        node: String,
        /// What it or the system said.
        reason: String,
    },
    /// User or password are wrong or missing.
    #[error(
        "{node} refuses the login: {reason}; give ?user=NAME and ?password-file=PATH or set {PASSWORD_VARIABLE}"
    )]
    LoginRefused {
        /// Which server.
        node: String,
        /// What it said.
        reason: String,
    },
    /// The user may not do what is needed.
    #[error("{node} does not permit {commands}; to permit it: {mend}")]
    NotPermitted {
        /// Which server.
        node: String,
        /// The commands that were refused.
        commands: String,
        /// The command that permits them.
        mend: String,
    },
    /// It is not as it must be.
    #[error("{node} {what}")]
    Unfit {
        /// Which server.
        node: String,
        /// What is wrong, and what mends it.
        what: String,
    },
    /// The system gave no random bytes for a key.
    #[error("the system gives no random bytes, so there is no key to encrypt with")]
    NoKey,
    /// The system gave no thread.
    #[error("the system gives no thread")]
    NoThread,
}

impl FarError {
    pub(crate) fn of(node: &str, error: WireError) -> FarError {
        let node = node.to_owned();
        match error {
            WireError::LoginRefused(reason) => FarError::LoginRefused { node, reason },
            WireError::Broken(reason) => FarError::NoAnswer { node, reason },
        }
    }
}

/// How long things may take, and who is told.
#[derive(Clone)]
pub struct Patience {
    /// Connecting to a node, or one answer of it.
    pub answer: Duration,
    /// A request in all, with everything that is tried again.
    pub bound: Duration,
}

impl std::fmt::Debug for Patience {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} of {:?}", self.answer, self.bound)
    }
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            answer: Duration::from_secs(5),
            bound: Duration::from_secs(60),
        }
    }
}

/// Connects over the network.
///
/// # Errors
/// [`FarError`].
pub(crate) fn connect(
    spec: &FarSpec,
    patience: &Patience,
    lanes_max: usize,
    listener: Option<Listener>,
) -> Result<Exchange, FarError> {
    let network = Arc::new(Sockets::new(spec)?);
    connect_over(network, spec, patience, lanes_max, listener)
}

/// Connects over this network, which may be a simulated one.
///
/// # Errors
/// [`FarError`].
pub(crate) fn connect_over(
    network: Arc<dyn Network>,
    spec: &FarSpec,
    patience: &Patience,
    lanes_max: usize,
    listener: Option<Listener>,
) -> Result<Exchange, FarError> {
    let kind = kind(network.as_ref(), spec, patience.answer)?;
    let deadline = Deadline::after(patience.answer * 2);
    let topology = Topology::new(network, kind, &spec.nodes, lanes_max, deadline)
        .map_err(|error| FarError::of(&spec.to_string(), error))?;
    Ok(Exchange {
        topology,
        teller: Teller {
            bound: patience.bound,
            listener,
        },
        patience: patience.answer,
    })
}

fn kind(network: &dyn Network, spec: &FarSpec, patience: Duration) -> Result<Kind, FarError> {
    if let Some(master) = &spec.sentinel {
        return Ok(Kind::Sentinel(master.clone()));
    }
    match spec.cluster {
        Some(true) => return Ok(Kind::Cluster),
        Some(false) => return Ok(Kind::Stores),
        None => {}
    }
    let mut refused = None;
    for node in &spec.nodes {
        let answer = network
            .connect(node, Role::Store, patience)
            .and_then(|mut wire| {
                wire.send(&[&cmd("INFO")])?;
                wire.receive()
            });
        let unfit = |what: String| FarError::Unfit {
            node: node.to_string(),
            what,
        };
        match answer {
            Ok(Value::ServerError(error)) if error.code() == "NOAUTH" => {
                return Err(FarError::LoginRefused {
                    node: node.to_string(),
                    reason: said(&error),
                });
            }
            // Whatever else it refuses, the probe says it better.
            Ok(Value::ServerError(_)) => return Ok(Kind::Stores),
            Ok(answer) => {
                let info = Info::read(&answer)
                    .ok_or_else(|| unfit("does not answer INFO with text".into()))?;
                if info.text("redis_mode") == "sentinel" {
                    let what = "is a Sentinel: say ?sentinel=NAME with the master's name";
                    return Err(unfit(what.into()));
                }
                return Ok(match info.is_set("cluster_enabled") {
                    true => Kind::Cluster,
                    false => Kind::Stores,
                });
            }
            Err(error) => {
                refused.get_or_insert_with(|| FarError::of(&node.to_string(), error));
            }
        }
    }
    Err(refused.unwrap_or_else(|| FarError::NoAnswer {
        node: spec.to_string(),
        reason: "it names no server".into(),
    }))
}
