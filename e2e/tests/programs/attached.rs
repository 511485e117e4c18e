//! Programs that no loader brings the agent to, so that it is attached from outside: static ones, those of another C
//! library, those with an empty environment, and those that have given up rights on the way.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use vswap_e2e::compile::{Compiler, GCC, MUSL, compile};
use vswap_e2e::failure::During;
use vswap_e2e::schema::parsed;
use vswap_e2e::{
    Context, Ended, Failure, Job, MIB, Outcome, ensure, require_program, require_root,
};

const LIMIT_BYTES: u64 = 64 * MIB;
/// Three times the limit.
const PROGRAM_MIB: &str = "192";
/// Exit status of vswap when it ends a run that it cannot manage.
const OWN_ERROR: i32 = 125;
const RUNTIME: &str = include_str!("../../inputs/runtime.c");
const FILL: &str = include_str!("../../inputs/fill.c");

fn attached(
    context: &Context,
    compiler: Compiler,
    name: &str,
    options: &[&str],
) -> Outcome<PathBuf> {
    let text = include_str!("../../inputs/attached.c");
    let all = [&["-O2", "-pthread"], options].concat();
    compile(context, compiler, text, name, &all)
}

fn must_build(command: &mut Command) -> Outcome {
    let output = command.output().during(|| format!("run {command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {errors}");
    Ok(())
}

pub fn static_program(context: &Context) -> Outcome<PathBuf> {
    attached(context, GCC, "static", &["-static"])
}

fn dynamic_program(context: &Context) -> Outcome<PathBuf> {
    attached(context, GCC, "dynamic", &[])
}

/// Runs a job to its end, which must be right.
fn run(context: &Context, job: &Job) -> Outcome<Ended> {
    let area = format!("{}:2G", context.place().display());
    let job = job.clone().vswap_options(["--swap", &area]);
    let ended = context.limited(LIMIT_BYTES)?.start(&job)?.wait()?;
    ended.must_succeed()?;
    ended.must_leave_nothing()?;
    let said = fs::read_to_string(&ended.stdout).during(|| "read its output".to_owned())?;
    ensure!(said.lines().all(|line| line == "right"), "it says {said:?}");
    let (none, unmanaged) = (Value::Array(Vec::new()), unmanaged(&ended)?);
    ensure!(unmanaged == none, "not managed were {unmanaged}");
    Ok(ended)
}

/// The same for one that swaps.
fn swaps(context: &Context, job: &Job) -> Outcome<Ended> {
    let ended = run(context, job)?;
    let out = ended.figure("pages_out")?;
    ensure!(out > 0, "nothing of it was swapped");
    Ok(ended)
}

/// The same for one that keeps to the limit from its beginning on.
fn keeps_within(context: &Context, job: &Job) -> Outcome {
    swaps(context, job)?.must_hold_limit()
}

/// What the summary says of processes that are not managed.
fn unmanaged(ended: &Ended) -> Outcome<Value> {
    let listed = ended
        .summary
        .as_ref()
        .and_then(|summary| summary.get("unmanaged"));
    listed
        .cloned()
        .ok_or_else(|| Failure::wrong("the summary does not say what is not managed"))
}

fn fill(program: impl AsRef<Path>, children: &str) -> Job {
    Job::new(program).args(["fill", PROGRAM_MIB, children])
}

pub fn static_c(context: &Context) -> Outcome {
    for options in [&["-static"][..], &["-static-pie"][..]] {
        let program = attached(context, GCC, "static", options)?;
        keeps_within(context, &fill(&program, "0"))?;
    }
    Ok(())
}

pub fn static_c_with_children(context: &Context) -> Outcome {
    let program = static_program(context)?;
    keeps_within(context, &fill(&program, "2"))
}

/// Nothing is registered yet when they are forked, so each gets an agent like a program.
pub fn early_children(context: &Context) -> Outcome {
    let program = static_program(context)?;
    keeps_within(context, &Job::new(&program).args(["early", "64", "3"]))
}

/// Each fork is seen before it happens, and each child has an agent before it runs.
pub fn forks(context: &Context) -> Outcome {
    for program in [static_program(context)?, dynamic_program(context)?] {
        let forks = Job::new("/usr/bin/env")
            .arg("-i")
            .append(&Job::new(&program).args(["forks", "96", "4"]));
        // Seven copies of what does not fit once.
        swaps(context, &forks)?;
    }
    Ok(())
}

/// Nobody may trace these forks, so the children have no agent. They are let go of when they need one.
pub fn untraced_forks(context: &Context) -> Outcome {
    for program in [static_program(context)?, dynamic_program(context)?] {
        let job = Job::new("/usr/bin/env")
            .arg("-i")
            .append(&Job::new(&program).args(["untraced", "48"]));
        let ended = context
            .limited(LIMIT_BYTES * 4)?
            .start(&job.vswap_options(["--debug-evict-every", "5ms"]))?
            .wait()?;
        ended.must_succeed()?;
        ended.must_leave_nothing()?;
        ensure!(ended.figure("pages_out")? > 0, "nothing of it was swapped");
    }
    Ok(())
}

pub fn static_c_spawns(context: &Context) -> Outcome {
    let program = static_program(context)?;
    // No look at the limit: a child of vfork shares its parent's memory, and the sampler counts that twice.
    swaps(
        context,
        &Job::new(&program).args(["spawn", PROGRAM_MIB, "150"]),
    )?;
    Ok(())
}

pub fn other_c_library(context: &Context) -> Outcome {
    for options in [&[][..], &["-static"][..]] {
        let program = attached(context, MUSL, "musl", options)?;
        swaps(context, &fill(&program, "2"))?;
    }
    Ok(())
}

pub fn static_go(context: &Context) -> Outcome {
    let program = compile_go(context)?;
    swaps(context, &Job::new(&program).args(["first", PROGRAM_MIB]))?;
    Ok(())
}

fn compile_go(context: &Context) -> Outcome<PathBuf> {
    // Where Go's own packages put it.
    let own = PathBuf::from("/usr/local/go/bin/go");
    let go = if own.is_file() {
        own
    } else {
        require_program("go", "apt package golang-go")?
    };
    let [source, program] = ["attached.go", "go"].map(|name| context.place().join(name));
    fs::write(&source, include_str!("../../inputs/attached.go"))
        .during(|| format!("write {}", source.display()))?;
    let mut command = Command::new(go);
    command.args(["build", "-o"]).args([&program, &source]);
    must_build(command.current_dir(context.place()).envs([
        ("CGO_ENABLED", "0"),
        ("GOTOOLCHAIN", "local"),
        ("GOPROXY", "off"),
    ]))?;
    Ok(program)
}

/// The loader finds no LD_PRELOAD then.
pub fn empty_environment(context: &Context) -> Outcome {
    for program in [dynamic_program(context)?, static_program(context)?] {
        let job = Job::new("/usr/bin/env")
            .arg("-i")
            .append(&fill(program, "1"));
        swaps(context, &job)?;
    }
    let script =
        "seq 1 300000 | sort -rn | /usr/bin/env -i sort -n | tail -n 1 | sed s/300000/right/";
    let job = Job::new("/usr/bin/env").args(["-i", "/bin/sh", "-c", script]);
    run(context, &job.vswap_options(["--debug-evict-every", "5ms"]))?;
    Ok(())
}

/// The loader is slow to bring the agent: it starts another library before, which takes longer than vswap waits. So one
/// is attached from outside, and then the other one comes. The first stays, and the second must leave all as it is.
pub fn slow_loader(context: &Context) -> Outcome {
    let text =
        "#include <unistd.h>\n__attribute__((constructor)) static void wait(void) { sleep(4); }\n";
    let library = compile(context, GCC, text, "slow.so", &["-shared", "-fPIC"])?;
    let program = dynamic_program(context)?;
    keeps_within(context, &fill(program, "1").env("LD_PRELOAD", library))
}

/// They may then not make a userfaultfd, and have no fork events of their own.
pub fn given_up_root(context: &Context) -> Outcome {
    require_root("to give it up")?;
    let setpriv = require_program("setpriv", "apt package util-linux")?;
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    for program in [dynamic_program(context)?, static_program(context)?] {
        for bound in [&[][..], &["--no-new-privs"][..]] {
            let job = Job::new(&setpriv)
                .args(nobody)
                .args(bound.iter().copied())
                .append(&fill(&program, "1"));
            swaps(context, &job)?;
        }
    }
    Ok(())
}

/// Neither the agent's file nor the pager's socket is to be seen in there. The network is shared: through that the
/// agent finds the pager.
pub fn own_file_systems(context: &Context) -> Outcome {
    let bwrap = require_program("bwrap", "apt package bubblewrap")?;
    for program in [dynamic_program(context)?, static_program(context)?] {
        let mut sandbox = Job::new(&bwrap);
        for path in ["/usr", "/bin", "/lib", "/lib64"] {
            sandbox = sandbox.args(["--ro-bind-try", path, path]);
        }
        let place = context.place().as_os_str();
        let job = sandbox
            .args(["--ro-bind".as_ref(), place, place])
            .args([
                "--proc",
                "/proc",
                "--unshare-user",
                "--unshare-pid",
                "--unshare-ipc",
                "--",
            ])
            .append(&fill(&program, "1"));
        swaps(context, &job)?;
    }
    Ok(())
}

/// The agent is attached while they sleep.
pub fn sleepers(context: &Context) -> Outcome {
    const WAYS: &str = "nanosleep poll select sigtimedwait epoll semaphore socket";
    let program = static_program(context)?;
    // The shell ends with the number of sleepers that were disturbed.
    let script = format!(
        "for how in {WAYS}; do {} sleep $how & all=\"$all $!\"; done; \
         wrong=0; for one in $all; do wait $one || wrong=$((wrong + 1)); done; exit $wrong",
        program.display()
    );
    run(context, &Job::shell(script))?;
    Ok(())
}

/// A debugger has the process and vswap may not trace it. A dynamic program has its agent from the loader.
pub fn traced(context: &Context) -> Outcome {
    let strace = require_program("strace", "apt package strace")?;
    let log = context.place().join("trace");
    let strace = Job::new(strace).args(["-f".as_ref(), "-o".as_ref(), log.as_os_str()]);
    let program = dynamic_program(context)?;
    keeps_within(context, &strace.clone().append(&fill(program, "1")))?;
    let small = Job::new(static_program(context)?).args(["fill", "16", "1"]);
    run(context, &strace.append(&small))?;
    Ok(())
}

/// Its filter might kill it for what the agent does. So it stays as it is, and is named.
pub fn with_a_filter(context: &Context) -> Outcome {
    let program = static_program(context)?;
    let job = Job::new(&program)
        .arg("confine")
        .append(&Job::new(&program).args(["sleep", "nanosleep"]));
    let ended = context.limited(LIMIT_BYTES)?.start(&job)?.wait()?;
    ended.must_succeed()?;
    let listed = unmanaged(&ended)?;
    let names_it = |one: &Value| {
        one["name"] == "static"
            && one["why"]
                .as_str()
                .is_some_and(|why| why.contains("filter"))
    };
    let is_named = listed
        .as_array()
        .is_some_and(|all| all.len() == 1 && names_it(&all[0]));
    ensure!(is_named, "not managed are {listed}");
    let said = fs::read_to_string(&ended.stderr).during(|| "read its errors".to_owned())?;
    ensure!(said.contains("(static) is not managed"), "it says {said}");

    let strict = job.vswap_options(["--require-managed"]);
    let ended = context.limited(LIMIT_BYTES)?.start(&strict)?.wait()?;
    ended.must_exit_with(OWN_ERROR)?;
    ended.must_leave_nothing()?;
    let said = fs::read_to_string(&ended.stdout).during(|| "read its output".to_owned())?;
    ensure!(said.is_empty(), "it was let run on to its end");
    Ok(())
}

/// In a container whose runtime refuses unknown calls, programs that get their agent while they compute keep all that
/// is in their registers.
pub fn in_a_container(context: &Context) -> Outcome {
    let runtime = compile(context, GCC, RUNTIME, "runtime", &[])?;
    let program = compile(context, MUSL, FILL, "fill", &["-O2", "-static"])?;
    // The last one lives long enough to be swapped.
    let script = format!(
        "for n in 1 2 3 4 5 6 7; do {0} || exit 1; done; (sleep 1; echo) | {0} waits",
        program.display()
    );
    let summary = context.place().join("summary.json");
    let mut run = Command::new(runtime);
    run.arg(context.require_vswap()?)
        .args(["run", "--no-daemon", "--ram", "64M", "--swap", "none"])
        .arg("--summary")
        .arg(&summary)
        .args(["--", "sh", "-c", &script]);
    let ran = run.output().during(|| format!("run {run:?}"))?;
    let out = String::from_utf8_lossy(&ran.stdout);
    ensure!(
        ran.status.success() && out.matches("all right").count() == 8,
        "{}: {out}{}",
        ran.status,
        String::from_utf8_lossy(&ran.stderr)
    );
    let summary = fs::read(summary).during(|| "read the summary".to_owned())?;
    let pages = parsed(&summary)?["pages_out"].as_u64();
    ensure!(pages > Some(0), "nothing was swapped: {pages:?}");
    Ok(())
}

/// A program with musl is watched as soon as any other, though its threads have no robust lists.
pub fn musl_fills_at_once(context: &Context) -> Outcome {
    for (options, name) in [(&["-O2", "-static"][..], "static"), (&["-O2"], "dynamic")] {
        let program = compile(context, MUSL, FILL, name, options)?;
        let ended = context.limited(LIMIT_BYTES)?.run(&Job::new(program))?;
        ended.must_succeed()?;
        ended.must_hold_limit()?;
        ensure!(ended.figure("pages_out")? > 0, "nothing was swapped");
    }
    Ok(())
}
