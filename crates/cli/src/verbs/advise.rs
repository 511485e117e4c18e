//! `vswap advise`: runs a program once with sampling, or joins a run that is under way (`joined`), and says how much
//! RAM it needs.

mod joined;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use vswap_sys::process::spawn::InheritedDescriptors;

use crate::advice::paged::Paged;
use crate::advice::{Advice, Measured, advise as reckon};
use crate::args::RunArgs;
use crate::args::advise::AdviseArgs;
use crate::failure::Failure;
use crate::output::{SCHEMA, notice, warning};
use crate::page::{self, Heading, file::PageFile};
use crate::verbs::run::sampled::SAMPLE_EVERY;
use crate::verbs::run::{Environment, Finished, carry_out};

/// What `--json` writes.
#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    version: &'static str,
    command: Vec<String>,
    #[serde(flatten)]
    advice: &'a Advice,
}

/// Runs the program, says how much RAM it needs, and exits as the program did.
pub fn advise(
    args: &AdviseArgs,
    descriptors: InheritedDescriptors,
    environment: Environment,
) -> Result<ExitCode, Failure> {
    if args.quiet && args.json.is_none() && args.report.is_none() {
        return Err(Failure::own(
            "with --quiet nobody would see the advice: name a file for it with --json or --report"
                .to_owned(),
        ));
    }
    if let Some(pid) = args.run {
        return joined::advise(pid, args);
    }
    let command = words(&args.command);
    let files = Files::create(args, Heading::new("advise", &command))?;
    let run = RunArgs {
        manage: args.manage(),
        require_managed: false,
        no_daemon: true,
        command: args.command.clone(),
    };
    let finished = carry_out(&run, Some(SAMPLE_EVERY), descriptors, environment)?;
    let nothing = "nothing of the program's memory could be watched: it has less than 4 MiB, ended at once, or cannot \
                   be managed; there is no advice";
    let advice = advice_of(&finished, args);
    files.tell(args, &command, advice.as_ref().ok_or(nothing));
    Ok(finished.exit())
}

fn advice_of(finished: &Finished, args: &AdviseArgs) -> Option<Advice> {
    reckon(&Measured {
        sampled: finished.sampled.as_ref()?,
        paged: Paged::of(finished.status.as_ref()?),
        wall_seconds: finished.seconds,
        joined: None,
        latencies_us: &latencies_us(args),
    })
}

fn latencies_us(args: &AdviseArgs) -> Vec<f64> {
    let areas = args.area.iter();
    areas.map(|area| area.as_secs_f64() * 1e6).collect()
}

fn words(command: &[OsString]) -> Vec<String> {
    let words = command.iter().map(|word| word.to_string_lossy());
    words.map(|word| word.into_owned()).collect()
}

/// What `--json` and `--report` name. Both are made before the run, so that a wrong path is not found out after hours.
struct Files {
    json: Option<Box<dyn Write>>,
    page: Option<PageFile>,
    heading: Heading,
}

impl Files {
    fn create(args: &AdviseArgs, heading: Heading) -> Result<Files, Failure> {
        let page = args.report.as_deref();
        Ok(Files {
            json: args.json.as_deref().map(create).transpose()?,
            page: page
                .map(|path| PageFile::create(path, heading.clone()))
                .transpose()?,
            heading,
        })
    }

    /// Tells the advice, or why there is none. The program has ended and its own status counts, so what cannot be
    /// written is said and changes nothing.
    fn tell(self, args: &AdviseArgs, command: &[String], advice: Result<&Advice, &str>) {
        match advice {
            Ok(advice) if !args.quiet => {
                notice(&format!("what less memory would cost\n{}", advice.text()));
            }
            Ok(_) => {}
            Err(why) => warning(why),
        }
        if let Some(file) = self.page {
            let page = match advice {
                Ok(advice) => page::advice::html(&self.heading, advice),
                Err(why) => page::placeholder(&self.heading, why),
            };
            if let Err(error) = file.write(&page) {
                warning(&error);
            }
        }
        if let (Some(json), Ok(advice)) = (self.json, advice) {
            write_json(json, command, advice);
        }
    }
}

fn write_json(mut json: Box<dyn Write>, command: &[String], advice: &Advice) {
    let report = Report {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        command: command.to_vec(),
        advice,
    };
    // Only strings and numbers: JSON has a form for everything in it.
    let report = serde_json::to_value(&report).unwrap_or_default();
    if let Err(error) = writeln!(json, "{report:#}") {
        warning(&format!("cannot write the advice as JSON: {error}"));
    }
}

fn create(path: &Path) -> Result<Box<dyn Write>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdout()));
    }
    let made = File::create(path).map_err(|error| {
        Failure::own(format!(
            "cannot write the advice to {}: {error}",
            path.display()
        ))
    });
    Ok(Box::new(made?))
}
