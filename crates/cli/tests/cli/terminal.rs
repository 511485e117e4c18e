//! Job control: an interactive shell on its own terminal, and vswap under it.

use crate::pty::{INTERRUPT, SUSPEND, Terminal};

#[test]
fn the_program_is_on_the_terminal() {
    let mut terminal = Terminal::new();
    terminal.type_line("$V bash -c 'test -t 0 && test -t 1 && test -t 2 && echo on a ter''minal; read x; echo got $x'");
    terminal.expect("on a terminal");
    terminal.type_line("words");
    terminal.expect("got words");
    terminal.expect("vswap: peak");
}

#[test]
fn interrupt_ends_program_and_vswap() {
    let mut terminal = Terminal::new();
    terminal.type_line("$V bash -c 'echo star''ted; exec sleep 1000'; echo sta''tus $?");
    terminal.expect("started");
    terminal.type_keys(INTERRUPT);
    // For the shell, the death by SIGINT ends the whole line: it shows no status of its own.
    terminal.expect("vswap: peak");
    terminal.type_line("echo af''ter $?");
    terminal.expect("after 130");
}

#[test]
fn interrupt_reaches_a_handler_once() {
    let mut terminal = Terminal::new();
    terminal.type_line(
        "$V bash -c 'n=0; trap \"n=\\$((n+1))\" INT; echo star''ted; \
         for i in 1 2 3 4 5; do sleep 0.2; done; echo in''terrupts $n; exit 7'; echo sta''tus $?",
    );
    terminal.expect("started");
    terminal.type_keys(INTERRUPT);
    terminal.expect("interrupts 1");
    terminal.expect("status 7");
}

#[test]
fn suspend_and_continue() {
    let mut terminal = Terminal::new();
    terminal.type_line("$V bash -c 'echo star''ted; read x; echo re''ad $x; exit 4'");
    terminal.expect("started");
    for _ in 0..3 {
        terminal.type_keys(SUSPEND);
        terminal.expect("Stopped");
        // The shell has the terminal and works.
        terminal.type_line("echo in be''tween");
        terminal.expect("in between");
        terminal.type_line("fg");
        terminal.expect("$V bash");
    }
    terminal.type_line("words");
    terminal.expect("read words");
    terminal.expect("vswap: peak");
    terminal.type_line("echo sta''tus $?");
    terminal.expect("status 4");
}

#[test]
fn a_suspended_run_continues_in_the_background() {
    let mut terminal = Terminal::new();
    terminal.type_line("$V bash -c 'echo star''ted; sleep 1; echo fi''nished' &");
    terminal.expect("started");
    terminal.type_line("kill -TSTP %1; until jobs | grep -q Stop[p]ed; do sleep 0.1; done; jobs");
    terminal.expect("Stopped");
    terminal.type_line("bg");
    terminal.expect("finished");
    terminal.type_line("wait; jobs; echo all do''ne");
    terminal.expect("all done");
}

#[test]
fn reading_in_the_background_stops_the_job() {
    let mut terminal = Terminal::new();
    terminal.type_line("$V bash -c 'read x; echo re''ad $x' &");
    terminal.type_line("until jobs | grep -q Stop[p]ed; do sleep 0.1; done; jobs");
    terminal.expect("Stopped");
    terminal.type_line("fg");
    terminal.expect("$V bash");
    terminal.type_line("words");
    terminal.expect("read words");
}

#[test]
fn suspending_an_inner_shell_gives_the_terminal_back() {
    let mut terminal = Terminal::new();
    terminal.type_line("$V bash -c 'echo star''ted; kill -STOP $$; echo go''ing on'");
    terminal.expect("started");
    terminal.expect("Stopped");
    terminal.type_line("fg");
    terminal.expect("going on");
    terminal.expect("vswap: peak");
}

#[test]
fn an_interactive_shell_under_vswap_has_job_control() {
    let mut terminal = Terminal::new();
    terminal.type_line("PS1='inn''er> ' $V bash --norc --noprofile -i");
    terminal.expect("inner> ");
    terminal.type_line("sh -c 'echo star''ted; exec sleep 1000'");
    terminal.expect("started");
    terminal.type_keys(SUSPEND);
    terminal.expect("Stopped");
    // bash may hear of it late, and neither waits for a job nor exits that it takes for stopped.
    let end_job = "kill %1; while jobs -s | grep -q .; do sleep 0.1; done; wait";
    terminal.type_line(&format!("{end_job}; echo inner al''ive"));
    terminal.expect("inner alive");
    terminal.type_line("exit 3");
    terminal.expect("vswap: peak");
    terminal.type_line("echo sta''tus $?");
    terminal.expect("status 3");
}

#[test]
fn hangup_ends_the_run() {
    let mut terminal = Terminal::new();
    terminal.type_line("$V bash -c 'echo pid $$ star''ted; exec sleep 1000'");
    terminal.expect("started");
    let screen = terminal.shown();
    let words: Vec<&str> = screen.split_whitespace().collect();
    let at = words
        .iter()
        .rposition(|word| *word == "started")
        .expect("shown");
    let program: u32 = words[at - 1].parse().expect("pid");
    // When the session's leader ends, the terminal hangs up.
    let bash = session_leader(program);
    crate::kill("KILL", bash);
    crate::eventually("the program is gone", || {
        crate::state(program).is_none().then_some(())
    });
    let scratch = &terminal.scratch;
    crate::eventually("the directory is gone", || {
        scratch.names().is_empty().then_some(())
    });
}

/// The session of `pid`, which has the pid of its leader.
pub fn session_leader(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("stat");
    let (_, fields) = stat.rsplit_once(") ").expect("fields");
    fields
        .split_whitespace()
        .nth(3)
        .expect("session")
        .parse()
        .expect("a pid")
}
