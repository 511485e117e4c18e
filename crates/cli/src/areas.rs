//! The areas of a run or daemon: those that it begins with, and those that come later and are opened in the same way.

mod spill;

use std::sync::Arc;

use serde_json::Value;
use vswap_areas::SwapSpec;
use vswap_pager::Store;
use vswap_sys::confinement::Reach;
use vswap_sys::disk::Options;

use crate::args::far::FarArgs;
use crate::args::swaps::{SwapOption, Swaps};
use crate::control::{Asker, Request};
use crate::failure::Failure;

/// How a run or daemon opens its areas.
#[derive(Debug, Clone)]
pub struct Opening {
    how: vswap_areas::Opening,
    /// Whether stores on other machines can be reached.
    pub reach: Reach,
}

impl Opening {
    /// What the options say. `swap` are the areas to begin with.
    pub fn new(no_encrypt: bool, far: &FarArgs, swap: &[SwapOption]) -> Opening {
        let is_far = |option: &SwapOption| match option {
            SwapOption::None => false,
            SwapOption::Area(spec) => spec.is_remote(),
        };
        Opening {
            how: vswap_areas::Opening {
                disk: Options {
                    encrypt: !no_encrypt,
                    ..Options::default()
                },
                far_copies: far.far_copies.unwrap_or(1).into(),
                far_backup: far.far_backup.clone(),
            },
            reach: match far.allow_far || swap.iter().any(is_far) {
                true => Reach::Network,
                false => Reach::Machine,
            },
        }
    }
}

/// Does what `vswap swapon` and `vswap swapoff` ask of a run or of the daemon.
pub fn change(
    store: &Store,
    opening: &Opening,
    request: &Request,
    asker: &Asker<'_>,
) -> Result<Value, String> {
    match request {
        Request::SwapOn(spec) => {
            let spec = spec.parse::<SwapSpec>();
            let spec = spec.map_err(|error| error.to_string())?;
            let done = swap_on(store, opening, &spec);
            done.map_err(|failure| failure.to_string())?;
        }
        Request::SwapOff(name) => {
            let done = store.swap_off(name, &|| asker.has_gone());
            done.map_err(|error| format!("{name}: {error}"))?;
        }
        _ => return Err("this is no request for an area".to_owned()),
    }
    Ok(Value::Null)
}

/// Has the store use what `--swap` says. Where that was not given a file on disk comes when it is needed; that there
/// will be none, or one smaller than `expected_bytes`, is said at once.
pub fn begin(
    store: &Arc<Store>,
    opening: &Opening,
    options: &[SwapOption],
    expected_bytes: u64,
    quiet: bool,
) -> Result<(), Failure> {
    match Swaps::of(options).map_err(Failure::own)? {
        Swaps::Found => spill::stand_by(store, opening.how.disk, expected_bytes, quiet),
        Swaps::Named(specs) => specs
            .into_iter()
            .try_for_each(|spec| swap_on(store, opening, spec)),
    }
}

/// Opens an area and has the store use it.
fn swap_on(store: &Store, opening: &Opening, spec: &SwapSpec) -> Result<(), Failure> {
    let refused = |why: &str| Failure::own(format!("{}: {why}", spec.place));
    if spec.is_remote() && opening.reach == Reach::Machine {
        return Err(refused(
            "this process gave up the network at its start: start it with --allow-far, or with a store in --swap",
        ));
    }
    let area = vswap_areas::open(spec, &opening.how, store.codec()).map_err(Failure::of)?;
    store
        .swap_on(area)
        .map_err(|error| refused(&error.to_string()))
}
