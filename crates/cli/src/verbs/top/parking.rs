//! Parks and wakes a run. Parking may take long, and is given up when the connection closes: it is kept until the run
//! has answered, and how much is left to move is said meanwhile.

use std::io;
use std::time::Duration;

use crate::control::{self, Connection, ParkOrder, Request};
use crate::output::figures::bytes;
use crate::run_dir::Living;
use crate::verbs::run::parking::ParkReport;

/// How often it is said how far parking is.
const PACE: Duration = Duration::from_millis(500);
/// How long a run may take to go on. It waits for whoever is parking it to give up.
const WAKE_PATIENCE: Duration = Duration::from_secs(15);

/// Parks it, and says what has come of it.
pub fn park(run: &Living, say: &dyn Fn(String)) -> Result<String, String> {
    let pid = run.pid;
    let order = ParkOrder {
        until_used: false,
        needs_area: true,
    };
    say(format!("run {pid} is being parked"));
    let report = asked(run, order, say).map_err(|error| format!("run {pid} goes on: {error}"))?;
    Ok(outcome(pid, &report))
}

fn asked(run: &Living, order: ParkOrder, say: &dyn Fn(String)) -> io::Result<ParkReport> {
    let mut answers = Connection::open(&run.path)?.listen(&Request::Park(order))?;
    loop {
        if let Some(answer) = answers.next(PACE)? {
            return Ok(serde_json::from_value(answer)?);
        }
        let status = control::ask(&run.path, &Request::Status).unwrap_or_default();
        if let Some(left) = status["resident_bytes"].as_u64() {
            say(format!(
                "run {} is being parked: {} still in memory; w has it go on",
                run.pid,
                bytes(left)
            ));
        }
    }
}

/// In one line of a narrow screen. The rest is on the screen: areas, and processes that are not stopped.
fn outcome(pid: u32, report: &ParkReport) -> String {
    if report.was_parked {
        return format!("run {pid} is parked already: w lets it go on");
    }
    format!(
        "run {pid} is parked: {} left of {}, after {:.1} s",
        bytes(report.left_bytes),
        bytes(report.before_bytes),
        report.seconds
    )
}

/// Has it go on, and says whether it was parked.
pub fn wake(run: &Living) -> Result<String, String> {
    let pid = run.pid;
    let answer = Connection::open(&run.path)
        .and_then(|mut run| run.ask(&Request::Wake, Some(WAKE_PATIENCE)))
        .map_err(|error| format!("run {pid} was not woken: {error}"))?;
    if answer == true {
        Ok(format!("run {pid} goes on"))
    } else {
        Err(format!("run {pid} is not parked: there is nothing to wake"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outcome_fits_a_line() {
        let report = ParkReport {
            seconds: 123.45,
            before_bytes: 1023 << 30,
            left_bytes: 123 << 20,
            ..ParkReport::default()
        };
        let line = outcome(4_194_304, &report);
        assert!(line.contains("123 MiB left of 1023 GiB") || line.contains("left of 1 TiB"));
        assert!(line.len() <= 80, "{line}");
        let again = ParkReport {
            was_parked: true,
            ..report
        };
        assert!(outcome(7, &again).contains("parked already"));
    }
}
