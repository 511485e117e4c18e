//! The programs, and what they fill their heaps with: made-up records alone.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use vswap_bench::command::kill_group;
use vswap_bench::resp::Connection;

/// How long a program may take to listen.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a compiler gets to fill its heap.
const COMPILING: Duration = Duration::from_secs(4);
const REDIS_KEYS: usize = 40_000;
const C_FUNCTIONS: usize = 6000;

const PYTHON: &str = "
import sys
records = [{'id': n, 'name': f'user-{n * 7919 % 100003}', 'tags': [n % 7, n % 11], 'score': n * 0.37,
            'mail': f'user{n}@example.org'} for n in range(40000)]
index = {record['name']: record for record in records}
print('ready', flush=True)
sys.stdin.read()
";
const NODE: &str = "
const records = [];
for (let n = 0; n < 40000; n++)
  records.push({id: n, name: `user-${n * 7919 % 100003}`, tags: [n % 7, n % 11], score: n * 0.37});
const index = new Map(records.map(record => [record.name, record]));
console.log('ready', index.size);
process.stdin.on('data', () => process.exit());
";
const JAVA: &str = "
import java.util.*;
public class Heap {
    record User(int id, String name, double score, List<Integer> tags) {}
    public static void main(String[] words) throws Exception {
        Map<String, User> users = new HashMap<>();
        for (int n = 0; n < 100000; n++) {
            String name = \"user-\" + n * 7919L % 1000003;
            users.put(name, new User(n, name, n * 0.37, List.of(n % 7, n % 11)));
        }
        System.out.println(\"ready \" + users.size());
        System.in.read();
    }
}
";
const SQLITE: &str = "
pragma temp_store = memory;
create table users (id integer primary key, name text, mail text, score real);
create index names on users (name);
with recursive n(x) as (select 0 union all select x + 1 from n where x < 40000)
insert into users select x, 'user-' || (x * 7919 % 100003), 'user' || x || '@example.org', x * 0.37 from n;
select 'ready';
";

/// When a heap is filled.
enum Filled {
    /// The program says so, with a first line of output. Until then it reads this.
    Said(String),
    /// Once these keys are set.
    Keys,
    /// After this time.
    After(Duration),
}

/// A program.
pub struct Program {
    pub name: &'static str,
    words: Vec<String>,
    filled: Filled,
    place: std::path::PathBuf,
}

/// One that runs, and is stopped. Dropping it ends it.
pub struct Running(Child);

impl Running {
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// All of them, with their files in `place`.
pub fn all(place: &Path) -> Result<Vec<Program>, String> {
    let program = |name, words: &[&str], filled| Program {
        name,
        words: words.iter().map(|word| (*word).to_owned()).collect(),
        filled,
        place: place.to_owned(),
    };
    let said = || Filled::Said(String::new());
    let redis = [
        "redis-server",
        "--port",
        "0",
        "--unixsocket",
        "socket",
        "--save",
        "",
    ];
    let java = [
        "java",
        "-XX:+UseSerialGC",
        "-Xmx96m",
        "-XX:-UsePerfData",
        "Heap",
    ];
    write(place, "big.c", &c_source())?;
    write(place, "Heap.java", JAVA)?;
    output(place, &["javac", "Heap.java"])?;
    let compiler = output(place, &["/usr/bin/gcc", "-print-prog-name=cc1"])?;
    let gcc = [compiler.trim(), "-quiet", "-O2", "big.c", "-o", "big.s"];
    Ok(vec![
        program("redis", &redis, Filled::Keys),
        program(
            "python",
            &["/usr/bin/python3", "-I", "-S", "-c", PYTHON],
            said(),
        ),
        program("java", &java, said()),
        program("node", &["node", "-e", NODE], said()),
        program(
            "sqlite",
            &["sqlite3", ":memory:"],
            Filled::Said(SQLITE.to_owned()),
        ),
        program("gcc", &gcc, Filled::After(COMPILING)),
    ])
}

impl Program {
    /// Starts it, and stops it when its heap is filled.
    pub fn start(&self) -> Result<Running, String> {
        let mut command = bare(&self.place, &self.words)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn().map_err(|error| error.to_string())?;
        let mut running = Running(child);
        match &self.filled {
            Filled::Said(text) => said(&mut running.0, text)?,
            Filled::Keys => set_keys(&self.place.join("socket"))?,
            Filled::After(time) => std::thread::sleep(*time),
        }
        if let Ok(Some(status)) = running.0.try_wait() {
            return Err(format!("it has ended: {status}"));
        }
        // It leads a group of its own.
        kill_group(running.pid().cast_signed(), libc::SIGSTOP);
        Ok(running)
    }
}

/// A command that gets nothing of this program's environment.
fn bare(place: &Path, words: &[impl AsRef<str>]) -> Result<Command, String> {
    use std::os::unix::process::CommandExt;
    let (name, arguments) = words.split_first().ok_or("no command")?;
    let mut command = Command::new(name.as_ref());
    command.args(arguments.iter().map(AsRef::as_ref));
    command.env_clear().current_dir(place).process_group(0);
    command.stderr(Stdio::null());
    Ok(command)
}

fn output(place: &Path, words: &[&str]) -> Result<String, String> {
    let ended = bare(place, words)?.output();
    let ended = ended.map_err(|error| format!("{}: {error}", words[0]))?;
    if !ended.status.success() {
        return Err(format!("{}: {}", words.join(" "), ended.status));
    }
    String::from_utf8(ended.stdout).map_err(|error| error.to_string())
}

fn write(place: &Path, name: &str, text: &str) -> Result<(), String> {
    std::fs::write(place.join(name), text).map_err(|error| format!("{name}: {error}"))
}

/// Gives the program its text, and waits for a line.
fn said(child: &mut Child, text: &str) -> Result<(), String> {
    let input = child.stdin.as_mut().ok_or("it has no input")?;
    let written = input
        .write_all(text.as_bytes())
        .and_then(|()| input.flush());
    written.map_err(|error| format!("its input: {error}"))?;
    let output = child.stdout.as_mut().ok_or("it has no output")?;
    let mut line = String::new();
    let read = BufReader::new(output).read_line(&mut line);
    read.map_err(|error| format!("its output: {error}"))?;
    if !line.starts_with("ready") {
        return Err(format!("it says {line:?}, expected ready"));
    }
    Ok(())
}

/// Hashes, as a shop keeps its customers.
fn set_keys(socket: &Path) -> Result<(), String> {
    let mut redis = Connection::open(socket, PATIENCE)?;
    for n in 0..REDIS_KEYS {
        let (key, mail) = (format!("user:{n}"), format!("user{n}@example.org"));
        let name = format!("user-{}", n * 7919 % 100_003);
        let words: [&[u8]; 6] = [
            b"HSET",
            key.as_bytes(),
            b"name",
            name.as_bytes(),
            b"mail",
            mail.as_bytes(),
        ];
        redis.ask(&words)?;
    }
    Ok(())
}

/// Functions that take a compiler longer than it gets.
fn c_source() -> String {
    let function = |n: usize| {
        format!(
            "struct s{n} {{ int a, b[{}]; double c; struct s{n} *next; }};\n\
             int f{n}(struct s{n} *s, int n) {{\n\
             \x20 int sum = {n};\n\
             \x20 for (int i = 0; i < n; i++) {{ sum += s->b[i % {}] * {}; if (sum & {}) s = s->next; }}\n\
             \x20 return s->c > {n}.5 ? sum : sum ^ s->a;\n}}\n",
            n % 17 + 1,
            n % 17 + 1,
            n % 13 + 3,
            n % 64
        )
    };
    (0..C_FUNCTIONS).map(function).collect()
}
