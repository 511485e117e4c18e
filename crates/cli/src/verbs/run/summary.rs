//! What is written when a run is over: the summary lines for people, and the JSON summary.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use serde_json::Value;
use vswap_pager::Status;

use crate::args::ManageArgs;
use crate::failure::Failure;
use crate::output::summary::{Circumstances, summary_lines};
use crate::output::{notice, warning};

/// Where the JSON summary goes to, if the user wants one.
#[derive(Debug)]
pub struct Summary(Option<(PathBuf, File)>);

impl Summary {
    /// Makes the file before the run, so that a wrong path is not found out after hours.
    pub fn create(args: &ManageArgs) -> Result<Summary, Failure> {
        let create = |path: &PathBuf| Ok((path.clone(), create(path)?));
        args.summary.as_ref().map(create).transpose().map(Summary)
    }

    /// Writes both. The program has ended and its own status counts. So a file that can no longer be written is
    /// reported and changes nothing.
    pub fn report(self, args: &ManageArgs, status: &Status, of: Circumstances, report: &Value) {
        if !args.quiet {
            summary_lines(status, of)
                .iter()
                .for_each(|line| notice(line));
        }
        let Some((path, mut file)) = self.0 else {
            return;
        };
        if let Err(error) = writeln!(file, "{report:#}") {
            warning(&format!(
                "cannot write the summary to {}: {error}",
                path.display()
            ));
        }
    }
}

/// For standard output vswap keeps a descriptor of its own, which the program cannot close.
fn create(path: &Path) -> Result<File, Failure> {
    let made = if path == Path::new("-") {
        std::io::stdout()
            .as_fd()
            .try_clone_to_owned()
            .map(File::from)
    } else {
        File::create(path)
    };
    made.map_err(|error| {
        Failure::own(format!(
            "cannot write the summary to {}: {error}",
            path.display()
        ))
    })
}
