//! `vswap far`: is a store fit to hold pages, and what have runs left in it that are gone?

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use vswap_areas::free_bytes;
use vswap_far::{
    Content, Demand, FarSpec, FoundArea, GcReport, NbdProbe, NbdSpec, Patience, ProbedNode, gc,
    probe, probe_export,
};

use crate::args::far::{AnyStore, FarCommand, GcArgs};
use crate::failure::Failure;
use crate::output::figures::{PAGE_BYTES, bytes};
use crate::output::{print, warning};

/// What a command that somebody waits for waits for.
const PATIENCE: Patience = Patience {
    answer: Duration::from_secs(5),
    bound: Duration::from_secs(10),
};

/// Does what is asked of a store.
pub fn far(command: &FarCommand) -> Result<ExitCode, Failure> {
    match command {
        FarCommand::Check(args) => match &args.store {
            AnyStore::Keys(store) => check(store),
            AnyStore::Blocks(export) => check_export(export),
        },
        FarCommand::Gc(args) => collect(args),
    }
}

fn refused(store: impl std::fmt::Display, why: impl std::fmt::Display) -> Failure {
    Failure::own(format!("{store}: {why}"))
}

fn check(store: &FarSpec) -> Result<ExitCode, Failure> {
    let demand = Demand {
        slots: 0,
        copies: 1,
    };
    let found = probe(store, demand, &PATIENCE).map_err(|error| refused(store, error))?;
    for remark in &found.warnings {
        warning(&format!("{store}: {remark}"));
    }
    let room = free_bytes(&found).map_or_else(
        || "with no limit of their own".to_owned(),
        |free| format!("with {} free", bytes(free)),
    );
    let (kind, nodes) = (found.kind, found.nodes.len());
    let verdict = format!("fit to hold pages: {kind}, nodes: {nodes}, {room}\n");
    let nodes: String = found.nodes.iter().map(described).collect();
    print(&(nodes + &verdict))
}

fn described(node: &ProbedNode) -> String {
    let used = bytes(node.memory_used);
    match node.memory_max {
        Some(max) => format!(
            "{}: {}, {used} of {} in use\n",
            node.name,
            node.version,
            bytes(max)
        ),
        None => format!(
            "{}: {}, {used} in use, no maxmemory\n",
            node.name, node.version
        ),
    }
}

fn check_export(spec: &NbdSpec) -> Result<ExitCode, Failure> {
    let found = probe_export(spec, &PATIENCE).map_err(|error| refused(spec, error))?;
    print(&described_export(spec, &found))
}

fn described_export(spec: &NbdSpec, found: &NbdProbe) -> String {
    let export = &found.export;
    let yes = |is: bool| if is { "yes" } else { "no" };
    let verdict = match &found.content {
        Content::Area(header) => {
            let usable = bytes(header.usable_pages * PAGE_BYTES);
            let used = match found.is_marked {
                true => ", which a run uses, or has left when it crashed",
                false => "",
            };
            format!("a swap area with room for {usable}{used}")
        }
        Content::Blank => "blank, it will be made a swap area".to_owned(),
        Content::Other(what) => format!("it {what}; it will be written over, as ?force says"),
    };
    format!(
        "{spec}: {}, requests up to {}, TRIM: {}, several connections: {}\nfit to hold pages: {verdict}\n",
        bytes(export.bytes),
        bytes(export.payload_bytes_max.into()),
        yes(export.can_trim),
        yes(export.can_multi_conn)
    )
}

fn collect(args: &GcArgs) -> Result<ExitCode, Failure> {
    let store = &args.store.store;
    let report = gc(store, args.remove, &PATIENCE).map_err(|error| refused(store, error))?;
    let areas: String = report.areas.iter().map(listed).collect();
    print(&(areas + &summary(&report, args)))
}

fn listed(area: &FoundArea) -> String {
    let keys = area.keys;
    match &area.alive {
        None => format!("run {}: {keys} keys, left over\n", area.id),
        Some(run) => {
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            let ago = now.as_secs().saturating_sub(run.seen_s);
            format!(
                "run {}: {keys} keys, in use by process {} of {}, seen {ago} s ago\n",
                area.id, run.pid, run.host
            )
        }
    }
}

fn summary(report: &GcReport, args: &GcArgs) -> String {
    match (report.left_over(), args.remove) {
        (0, _) => "nothing is left over\n".to_owned(),
        (_, true) => format!("{} keys removed\n", report.removed),
        (left, false) => format!("{left} keys are left over: --remove deletes them\n"),
    }
}
