//! Threads of other processes.

/// The process that thread `tid` belongs to, None when it has gone.
pub fn process_of(tid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok())
}

/// The processor that thread `tid` runs on or ran on last, None when it has gone.
pub fn processor_of(tid: u32) -> Option<usize> {
    let stat = std::fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    // Field 39; the second, the name, may hold anything, so count behind its closing bracket.
    let behind_name = stat.rsplit_once(')')?.1;
    behind_name.split_ascii_whitespace().nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_belongs_to_its_process() {
        let waiting = std::thread::spawn(|| {
            let own = rustix::thread::gettid()
                .as_raw_nonzero()
                .get()
                .cast_unsigned();
            process_of(own)
        });
        assert_eq!(waiting.join().ok().flatten(), Some(std::process::id()));
        assert_eq!(process_of(u32::MAX / 2), None);
    }

    #[test]
    fn a_thread_that_may_run_on_one_processor_runs_there() {
        let Some(&cpu) = crate::cpu::permitted().last() else {
            return;
        };
        let pinned = std::thread::spawn(move || {
            crate::cpu::set_affinity(&[cpu]).unwrap();
            processor_of(
                rustix::thread::gettid()
                    .as_raw_nonzero()
                    .get()
                    .cast_unsigned(),
            )
        });
        assert_eq!(pinned.join().unwrap(), Some(cpu));
        assert_eq!(processor_of(u32::MAX / 2), None);
    }
}
