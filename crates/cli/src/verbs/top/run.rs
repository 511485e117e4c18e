//! A run as it is shown: its report as plain figures, with rates.

use serde_json::Value;

use crate::output::figures::PAGE_BYTES;
use crate::output::tables::printable;
use crate::watching::rates::{AreaRates, Rates};

/// A run, or the daemon.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Run {
    pub pid: u32,
    /// The process of its program. 0 for the daemon.
    pub program_pid: u32,
    /// Its command in one line, with nothing that a terminal would act on.
    pub command: String,
    /// `running` and so on, or a dash.
    pub state: String,
    pub is_daemon: bool,
    /// Its program was there before.
    pub is_attached: bool,
    /// Why it has no figures.
    pub error: Option<String>,
    pub limit_bytes: u64,
    /// Less than the limit while a lower one is approached.
    pub wanted_bytes: u64,
    pub used_bytes: u64,
    pub resident_bytes: u64,
    pub pool_bytes: u64,
    pub own_bytes: u64,
    /// What is in swap, as large as it is to the program, and where it is.
    pub swapped_bytes: u64,
    pub compressed_bytes: u64,
    pub disk_bytes: u64,
    /// None where nobody divides it by run.
    pub zero_bytes: Option<u64>,
    /// What the compressed pages take.
    pub payload_bytes: u64,
    pub fault_us: [f64; 2],
    pub rates: Option<Rates>,
    /// Areas and groups, each in a few words.
    pub areas: Vec<String>,
    pub groups: Vec<String>,
    /// The highest priority first.
    pub tiers: Vec<Tier>,
    pub processes: Vec<Process>,
}

/// Areas under one name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tier {
    pub name: String,
    pub size_bytes: u64,
    pub used_bytes: u64,
    /// What reading a lone page takes in the slowest of its areas.
    pub latency_us: Option<f64>,
    /// Since the look before.
    pub rates: Option<AreaRates>,
}

/// A process of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Process {
    pub pid: u32,
    pub name: String,
    pub is_managed: bool,
    pub is_stopped: bool,
    pub resident_bytes: Option<u64>,
    pub swapped_bytes: Option<u64>,
    pub faults: u64,
    /// Faults by second since the look before.
    pub fault_rate: Option<f64>,
}

impl Run {
    /// What a report says.
    pub fn of(report: &Value, rates: Option<Rates>) -> Run {
        let figure = |name: &str| report[name].as_u64().unwrap_or_default();
        let pages = |name: &str| figure(name).saturating_mul(PAGE_BYTES);
        let latency = |name: &str| report[name].as_f64().unwrap_or_default();
        let zero = report["zero_pages"].as_u64();
        let zero = zero.filter(|_| report["shared"] != true);
        let list = |name: &str| report[name].as_array().into_iter().flatten();
        Run {
            pid: number(&report["pid"]),
            program_pid: number(&report["program_pid"]),
            command: command(report),
            state: printable(report["state"].as_str().unwrap_or("-")),
            is_daemon: report["daemon"] == true,
            is_attached: report["attached"] == true,
            error: report["error"].as_str().map(printable),
            limit_bytes: figure("limit_bytes"),
            wanted_bytes: figure("wanted_limit_bytes"),
            used_bytes: figure("total_bytes"),
            resident_bytes: figure("resident_bytes"),
            pool_bytes: figure("pool_bytes"),
            own_bytes: figure("own_bytes"),
            swapped_bytes: pages("swapped_pages"),
            compressed_bytes: pages("compressed_pages"),
            disk_bytes: pages("physical_pages"),
            zero_bytes: zero.map(|pages| pages.saturating_mul(PAGE_BYTES)),
            payload_bytes: figure("payload_bytes"),
            fault_us: [latency("fault_us_p50"), latency("fault_us_p99")],
            rates,
            areas: list("areas").map(area).collect(),
            groups: list("groups").map(group).collect(),
            tiers: list("tiers").map(Tier::of).collect(),
            processes: list("processes").map(Process::of).collect(),
        }
    }

    pub fn is_parked(&self) -> bool {
        self.state == "parked"
    }

    /// How many times smaller the compressed pages are.
    pub fn ratio(&self) -> Option<f64> {
        (self.payload_bytes > 0).then(|| self.compressed_bytes as f64 / self.payload_bytes as f64)
    }
}

impl Tier {
    fn of(report: &Value) -> Tier {
        let figure = |name: &str| report[name].as_u64().unwrap_or_default();
        Tier {
            name: printable(report["name"].as_str().unwrap_or("-")),
            size_bytes: figure("size_bytes"),
            used_bytes: figure("used_bytes"),
            latency_us: report["latency_us"].as_f64(),
            rates: None,
        }
    }
}

impl Process {
    fn of(report: &Value) -> Process {
        let swapped = report["swapped_pages"].as_u64();
        Process {
            pid: number(&report["pid"]),
            name: printable(report["name"].as_str().unwrap_or("-")),
            is_managed: report["managed"] == true,
            is_stopped: report["stopped"] == true,
            resident_bytes: report["resident_bytes"].as_u64(),
            swapped_bytes: swapped.map(|pages| pages.saturating_mul(PAGE_BYTES)),
            faults: report["faults"].as_u64().unwrap_or_default(),
            fault_rate: None,
        }
    }

    /// In one word.
    pub fn state(&self) -> &'static str {
        if self.is_stopped {
            "stopped"
        } else if self.is_managed {
            "managed"
        } else {
            "unmanaged"
        }
    }
}

fn number(value: &Value) -> u32 {
    let number = value.as_u64().unwrap_or_default();
    u32::try_from(number).unwrap_or_default()
}

fn command(report: &Value) -> String {
    let words = report["command"].as_array().into_iter().flatten();
    let words: Vec<&str> = words.filter_map(Value::as_str).collect();
    if words.is_empty() {
        "-".to_owned()
    } else {
        printable(&words.join(" "))
    }
}

fn area(area: &Value) -> String {
    let size = |name: &str| crate::output::figures::bytes(area[name].as_u64().unwrap_or_default());
    let failing = if area["failing"] == true {
        ", failing"
    } else {
        ""
    };
    format!(
        "{} {} of {}{failing}",
        printable(area["name"].as_str().unwrap_or("-")),
        size("used_bytes"),
        size("size_bytes")
    )
}

fn group(group: &Value) -> String {
    let size = |name: &str| group[name].as_u64().map(crate::output::figures::bytes);
    let part = |what: &str, has: &str, most: &str| {
        let has = size(has).unwrap_or_else(|| "-".to_owned());
        let most = size(most).map_or_else(String::new, |most| format!(" of {most}"));
        format!("{what} {has}{most}")
    };
    format!(
        "{} {}, {}",
        printable(group["name"].as_str().unwrap_or("-")),
        part("areas", "swap_bytes", "swap_max_bytes"),
        part("pool", "pool_bytes", "pool_max_bytes")
    )
}
