//! The verbs that print what packages install beside the program: completions for shells, and man pages.

use std::path::PathBuf;

use clap_complete::Shell;

pub const COMPLETIONS_EXAMPLES: &str = "\
Packages install these scripts. Without a package a user puts them where the shell looks for them.

Examples:
  vswap completions bash >~/.local/share/bash-completion/completions/vswap
  vswap completions fish >~/.config/fish/completions/vswap.fish
  vswap completions zsh >~/.zfunc/_vswap    # in .zshrc, before compinit: fpath+=~/.zfunc";

#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// Where the pages go to. The directory must exist; pages that are there are replaced.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}
