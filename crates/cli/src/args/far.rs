//! Far memory: areas in a Valkey or Redis store, as options of whoever has areas, and the command `vswap far`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use vswap_far::{FarSpec, NbdSpec};

/// What holds for all areas in stores.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
pub struct FarArgs {
    /// Keep each page of an area in a store on so many of its nodes, 1 or 2. With 2 a node may be lost.
    #[arg(long, value_name = "1|2", value_parser = clap::value_parser!(u8).range(1..=2), hide_short_help = true)]
    pub far_copies: Option<u8>,
    /// Write what goes to a store also to a private file in DIR, in the background. It is read when the store has lost
    /// a page.
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub far_backup: Option<PathBuf>,
    /// Let `vswap swapon` name a store later. With a store in --swap that is so anyway.
    #[arg(long, hide_short_help = true)]
    pub allow_far: bool,
}

impl FarArgs {
    /// The first of these options that was given.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            ("--far-copies", self.far_copies.is_some()),
            ("--far-backup", self.far_backup.is_some()),
            ("--allow-far", self.allow_far),
        ];
        given
            .iter()
            .find(|(_, is_given)| *is_given)
            .map(|(name, _)| *name)
    }
}

/// What `vswap far` does.
#[derive(Debug, clap::Subcommand)]
pub enum FarCommand {
    /// Say whether a store is fit to hold pages, and what is missing.
    Check(CheckArgs),
    /// Show what runs that are gone have left in a store.
    Gc(GcArgs),
}

/// What can be checked.
#[derive(Debug, Clone)]
pub enum AnyStore {
    /// A Valkey or Redis.
    Keys(FarSpec),
    /// An export of a block store.
    Blocks(NbdSpec),
}

impl fmt::Display for AnyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnyStore::Keys(store) => store.fmt(f),
            AnyStore::Blocks(export) => export.fmt(f),
        }
    }
}

impl FromStr for AnyStore {
    type Err = String;

    fn from_str(text: &str) -> Result<AnyStore, String> {
        if NbdSpec::names_an_export(text) {
            let export = text.parse::<NbdSpec>().map(AnyStore::Blocks);
            return export.map_err(|error| error.to_string());
        }
        let store = text.parse::<FarSpec>().map(AnyStore::Keys);
        store.map_err(|error| error.to_string())
    }
}

/// A store of any kind.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// The store, as for --swap: also nbd://HOST:PORT/EXPORT.
    #[arg(value_name = "valkey://HOST:PORT")]
    pub store: AnyStore,
}

/// A store.
#[derive(Debug, clap::Args)]
pub struct StoreArgs {
    /// The store, as for --swap.
    #[arg(value_name = "valkey://HOST:PORT")]
    pub store: FarSpec,
}

/// What is done with what is left over.
#[derive(Debug, clap::Args)]
pub struct GcArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    /// Delete it.
    #[arg(long)]
    pub remove: bool,
}

pub const FAR_EXAMPLES: &str = "\
Examples:
  vswap far check valkey://10.0.0.5:6379     is it fit, and how fast?
  vswap far check nbd://10.0.0.5:10809/swap  is it an area, blank, or somebody's data?
  vswap far gc valkey://10.0.0.5:6379        what has a crashed machine left?
  vswap far gc valkey://10.0.0.5:6379 --remove

A password is best in the environment variable VSWAP_FAR_PASSWORD, or in a file: valkey://HOST:PORT?password-file=FILE";
