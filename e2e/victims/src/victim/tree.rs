//! Trees of processes as shells make them: pipelines of programs, loops of short commands.
//!
//! A pipeline takes content from this program's memory through several stages. Each stage keeps the content in its own
//! memory for a while. What comes out is compared word for word.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use crate::content::{PAGE_WORDS, mix};
use crate::pages::Pages;
use crate::run::Options;
use crate::wrong::{Checked, Wrong};

/// Stages of a pipeline.
const STAGES: usize = 3;
/// Pages that go through the pipeline.
const STREAM_PAGES: usize = 1024;
/// Bytes that a stage holds before it passes them on.
const HOLD_BYTES: usize = 1 << 20;
const SHELL_PIPELINE: &str = "seq 1 20000 | sort -rn | head -n 3 | tr '\\n' ' '; i=0; \
     while [ $i -lt 20 ]; do i=$((i+1)); true; (exit 3); done; echo $i $(echo nested $(echo deep))";
const SHELL_RESULT: &str = "20000 19999 19998 20 nested deep\n";

fn io(what: &'static str) -> impl Fn(std::io::Error) -> Wrong {
    move |error| Wrong::Call { what, error }
}

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    options.parallel(|thread| {
        let pages = options.pages_per_thread().max(STREAM_PAGES);
        let mut pages = Pages::filled(pages, options.tag(thread))?;
        let mut random = options.random(thread, 20);
        loop {
            pipeline(&pages)?;
            pages.stir("source of a pipeline", &mut random, 256)?;
            shell()?;
            pages.check_all("source of a pipeline")?;
            if !clock.running() {
                return Ok(());
            }
        }
    })
}

fn shell() -> Checked {
    let output = Command::new("sh")
        .args(["-c", SHELL_PIPELINE])
        .stderr(Stdio::inherit())
        .output()
        .map_err(io("sh"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if text == SHELL_RESULT && output.status.success() {
        return Ok(());
    }
    eprintln!("shell said {text:?} and ended with {}", output.status);
    Err(Wrong::Result {
        what: "result of a shell",
        expected: 1,
        found: 0,
    })
}

/// The key that a stage mixes into each word.
fn key(stage: usize) -> u64 {
    mix(stage as u64)
}

fn pipeline(pages: &Pages) -> Checked {
    let program = std::env::current_exe().map_err(io("/proc/self/exe"))?;
    let mut children = Vec::new();
    let mut input = Stdio::piped();
    for stage in 0..STAGES {
        let mut child = Command::new(&program)
            .arg("stage")
            .arg(stage.to_string())
            .stdin(input)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(io("spawn of a stage"))?;
        let output = child.stdout.take();
        children.push(child);
        input = output.map_or_else(Stdio::null, Stdio::from);
        if stage + 1 == STAGES {
            break;
        }
    }
    // The last stage's output goes to this process, through a copying process that only reads.
    let mut last = Command::new("cat")
        .stdin(input)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(io("spawn of cat"))?;
    let source = children[0].stdin.take();
    let result = std::thread::scope(|scope| {
        let feeder = scope.spawn(|| feed(pages, source));
        let result = drain(pages, last.stdout.take());
        feeder.join().unwrap_or(Ok(())).and(result)
    });
    children.push(last);
    for child in &mut children {
        let status = child.wait().map_err(io("wait for a stage"))?;
        if !status.success() {
            return result.and(Err(Wrong::Child {
                status: status.code().unwrap_or(-1),
            }));
        }
    }
    result
}

/// Writes pages directly from their memory.
fn feed(pages: &Pages, source: Option<impl Write>) -> Checked {
    let Some(mut source) = source else {
        return Ok(());
    };
    for index in 0..STREAM_PAGES {
        let page = pages.mapping.page(index).cast::<[u8; PAGE_WORDS * 8]>();
        // SAFETY: the page is mapped, and nobody writes it while the pipeline runs.
        let bytes = unsafe { &*page };
        source.write_all(bytes).map_err(io("write to a pipeline"))?;
    }
    Ok(())
}

fn drain(pages: &Pages, sink: Option<impl Read>) -> Checked {
    let Some(mut sink) = sink else { return Ok(()) };
    let keys = (0..STAGES).fold(0, |keys, stage| keys ^ key(stage));
    let mut bytes = [0u8; PAGE_WORDS * 8];
    for page in 0..STREAM_PAGES {
        sink.read_exact(&mut bytes)
            .map_err(io("read from a pipeline"))?;
        let (tag, version) = (pages.tag_of(page), pages.versions[page]);
        for (word, chunk) in bytes.as_chunks::<8>().0.iter().enumerate() {
            let expected = crate::content::word(tag, version, word) ^ keys;
            let found = u64::from_le_bytes(*chunk);
            if found != expected {
                let address = chunk.as_ptr().addr();
                let what = "word that came through a pipeline";
                return Err(Wrong::Content {
                    what,
                    address,
                    page,
                    word,
                    expected,
                    found,
                });
            }
        }
    }
    Ok(())
}

/// One stage: takes a megabyte into memory, mixes its key into it and passes it on.
pub(crate) fn run_stage(stage: usize) -> Checked {
    let mut held = vec![0u8; HOLD_BYTES];
    let mut input = std::io::stdin().lock();
    let mut output = std::io::stdout().lock();
    loop {
        let mut len = 0;
        while len < held.len() {
            match input
                .read(&mut held[len..])
                .map_err(io("read of a stage"))?
            {
                0 => break,
                more => len += more,
            }
        }
        if len == 0 {
            return output.flush().map_err(io("flush of a stage"));
        }
        for chunk in held[..len].as_chunks_mut::<8>().0 {
            *chunk = (u64::from_le_bytes(*chunk) ^ key(stage)).to_le_bytes();
        }
        output
            .write_all(&held[..len])
            .map_err(io("write of a stage"))?;
    }
}
