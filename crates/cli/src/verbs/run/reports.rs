//! What is written when a run is over: the line for people, `--summary`, and the page of `--report`, for which the run
//! is recorded while it goes on.

use std::ffi::OsString;
use std::thread::Scope;
use std::time::Instant;

use serde_json::Value;
use vswap_pager::Status;

use crate::args::ManageArgs;
use crate::failure::Failure;
use crate::host::Host;
use crate::output::summary::Circumstances;
use crate::output::time;
use crate::output::warning;
use crate::page::file::PageFile;
use crate::page::{Heading, Page};
use crate::record::{Record, Recording};
use crate::verbs::run::report::{Ending, Identity};
use crate::verbs::run::summary::Summary;

/// What the user wants.
#[derive(Debug)]
pub struct Reports {
    summary: Summary,
    page: Option<Wanted>,
}

#[derive(Debug)]
struct Wanted {
    file: PageFile,
    heading: Heading,
    began: String,
}

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    words: String,
    ending: Option<Ending>,
    /// It was ended because everything was full.
    pub was_full: bool,
}

impl Ended {
    /// `ending` is how the program ended, if that is known.
    pub fn new(words: String, ending: Option<Ending>, was_full: bool) -> Ended {
        Ended {
            words,
            ending,
            was_full,
        }
    }

    fn known_of(&self, identity: &Identity<'_>) -> Circumstances {
        Circumstances {
            was_full: self.was_full,
            attached_bytes: identity.attached_bytes(),
        }
    }
}

impl Reports {
    /// Makes the files, before the program starts.
    ///
    /// # Errors
    /// One of them cannot be written.
    pub fn create(args: &ManageArgs, command: &[OsString]) -> Result<Reports, Failure> {
        let summary = Summary::create(args)?;
        let Some(path) = &args.report else {
            return Ok(Reports {
                summary,
                page: None,
            });
        };
        let words = command.iter().map(|word| word.to_string_lossy());
        let command: Vec<String> = words.map(String::from).collect();
        let heading = Heading::new("run", &command);
        let page = Wanted {
            file: PageFile::create(path, heading.clone())?,
            heading,
            began: time::now(),
        };
        Ok(Reports {
            summary,
            page: Some(page),
        })
    }

    /// Begins to record if there is to be a page, in a thread of its own.
    pub fn record<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        started: Instant,
        host: &'scope Host,
    ) -> Option<Recording<'scope>> {
        self.page.as_ref()?;
        let map = |query| host.memory_map(query);
        Recording::begin(scope, started, || host.status(), map)
    }

    /// Writes all of it. The program has ended and its own status counts, so what cannot be written is said and changes
    /// nothing.
    ///
    /// # Errors
    /// There are no last figures. The page is written all the same.
    pub fn write(
        self,
        args: &ManageArgs,
        identity: &Identity<'_>,
        record: Option<Record>,
        status: Result<Status, Failure>,
        ended: &Ended,
    ) -> Result<(), Failure> {
        let report = |status| identity.report(status, ended.ending, ended.was_full);
        let report = status.as_ref().map_or(Value::Null, report);
        if let Some(page) = self.page {
            page.write(identity, record, status.as_ref().ok(), ended, &report);
        }
        self.summary
            .report(args, &status?, ended.known_of(identity), &report);
        Ok(())
    }
}

impl Wanted {
    fn write(
        self,
        identity: &Identity<'_>,
        mut record: Option<Record>,
        status: Option<&Status>,
        ended: &Ended,
        report: &Value,
    ) {
        // What happened after the last look.
        if let (Some(record), Some(status)) = (&mut record, status) {
            record.note(status, identity.seconds());
        }
        let page = Page {
            heading: &self.heading,
            began: &self.began,
            ending: &ended.words,
            of: ended.known_of(identity),
            status,
            report,
            record: record.as_ref(),
        };
        if let Err(error) = self.file.write(&page.html()) {
            warning(&error);
        }
    }
}
