//! The server as a process: content that is larger than its RAM, and clients that do it wrong.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use redis::{Connection, RedisResult, Value};
use vswap_kv::client::{ClientError, Work, fill, verify};
use vswap_kv::content::{Random, key, noise, value};

const MIB: u64 = 1 << 20;
const RAM_BYTES: u64 = 16 * MIB;

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_vswap-kv"))
}

/// A server, which ends with this.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(options: &[&str]) -> Server {
        let mut process = program()
            .args(["serve", "--bind", "127.0.0.1:0", "--ram", "16M"])
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a server");
        let mut line = String::new();
        let output = process.stdout.as_mut().expect("its output");
        BufReader::new(output).read_line(&mut line).expect("a line");
        let address = line
            .trim()
            .rsplit(' ')
            .next()
            .expect("an address")
            .to_owned();
        Server { process, address }
    }

    fn client(&self) -> Connection {
        let client = redis::Client::open(format!("redis://{}/", self.address)).expect("an address");
        client.get_connection().expect("a connection")
    }

    fn socket(&self) -> TcpStream {
        let socket = TcpStream::connect(&self.address).expect("a connection");
        socket
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a timeout");
        socket
    }

    /// What the server answers to these bytes, until it closes the connection or the client has sent all.
    fn answer(&self, bytes: &[u8]) -> String {
        let mut socket = self.socket();
        socket.write_all(bytes).expect("sent");
        socket
            .shutdown(std::net::Shutdown::Write)
            .expect("shut down");
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).expect("an answer");
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn work(&self, keys: std::ops::Range<u64>, version: u64) -> Work {
        Work {
            server: self.address.clone(),
            keys,
            seed: 19,
            version,
            connections: 4,
            is_scattered: version == 2,
        }
    }

    /// A figure of `INFO`.
    fn figure(&self, name: &str) -> u64 {
        let info: String = ask(&mut self.client(), &[b"INFO"]).expect("INFO");
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|number| number.parse().ok())
            .expect("a figure")
    }

    /// The most memory that the process has had.
    fn peak_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()))
            .expect("a status");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .expect("a peak");
        let kib = line
            .trim()
            .trim_end_matches(" kB")
            .parse::<u64>()
            .expect("a number");
        kib << 10
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().expect("it lives");
        self.process.wait().expect("it has ended");
    }
}

fn ask<T: redis::FromRedisValue>(client: &mut Connection, words: &[&[u8]]) -> RedisResult<T> {
    let mut command = redis::Cmd::new();
    words.iter().for_each(|word| {
        command.arg(*word);
    });
    command.query(client)
}

/// What the server says why it does not do it.
fn refusal(client: &mut Connection, words: &[&[u8]]) -> String {
    let mut command = redis::Cmd::new();
    words.iter().for_each(|word| {
        command.arg(*word);
    });
    let error = command.query::<Value>(client).expect_err("a refusal");
    let code = error.code().unwrap_or_default();
    format!("{code} {}", error.detail().unwrap_or_default())
}

#[test]
fn three_times_the_ram_is_as_it_was_set_by_many_connections() {
    let server = Server::start(&[]);
    let keys = 3 * RAM_BYTES / 1536;
    let filled = fill(&server.work(0..keys, 1)).expect("filled");
    assert!(filled.bytes > RAM_BYTES * 29 / 10, "{filled}");
    let all = verify(&server.work(0..keys, 1), None).expect("verified");
    assert_eq!((all.keys, all.bytes, all.others), (keys, filled.bytes, 0));

    // A third is set again, and some of that is deleted.
    let (deleted, changed) = (keys / 10, keys / 3);
    fill(&server.work(0..changed, 2)).expect("filled again");
    let mut client = server.client();
    for first in (0..deleted).step_by(100) {
        let names: Vec<String> = (first..deleted.min(first + 100)).map(key).collect();
        let mut words: Vec<&[u8]> = vec![b"DEL"];
        words.extend(names.iter().map(|name| name.as_bytes()));
        let count: usize = ask(&mut client, &words).expect("DEL");
        assert_eq!(count, names.len());
    }
    verify(&server.work(deleted..changed, 2), None).expect("the new ones");
    verify(&server.work(changed..keys, 1), None).expect("the old ones");
    assert!(matches!(
        verify(&server.work(deleted - 1..deleted, 2), None),
        Err(ClientError::Missing { .. })
    ));
    assert_eq!(
        ask::<u64>(&mut client, &[b"DBSIZE"]).expect("DBSIZE"),
        keys - deleted
    );

    // It was really out, and the process never had it all.
    assert!(server.figure("arena_pool_faults") > keys / 10);
    assert!(server.figure("arena_evicted_pages") > keys / 10);
    assert_eq!(server.figure("arena_damaged_pages"), 0);
    let peak = server.peak_bytes();
    assert!(peak < RAM_BYTES * 9 / 4, "{} MiB", peak / MIB);

    assert_eq!(
        ask::<String>(&mut client, &[b"FLUSHALL"]).expect("FLUSHALL"),
        "OK"
    );
    assert_eq!(ask::<u64>(&mut client, &[b"DBSIZE"]).expect("DBSIZE"), 0);
    fill(&server.work(0..keys, 3)).expect("all of it has room again");
    verify(&server.work(0..keys, 3), None).expect("verified");
}

#[test]
fn an_area_takes_what_has_no_room_in_ram() {
    let directory = tempfile::tempdir().expect("a directory");
    let area = format!("{}:64M", directory.path().display());
    let server = Server::start(&["--codec", "none", "--swap", &area]);
    let keys = 3 * RAM_BYTES / 1536;
    fill(&server.work(0..keys, 1)).expect("filled");
    verify(&server.work(0..keys, 1), None).expect("verified");
    fill(&server.work(0..keys / 4, 2)).expect("filled again");
    verify(&server.work(0..keys / 4, 2), None).expect("the new ones");
    verify(&server.work(keys / 4..keys, 1), None).expect("the old ones");
    assert!(server.figure("arena_area_pages") > 0 && server.figure("arena_area_faults") > 0);
}

#[test]
fn a_wrong_byte_is_found() {
    let server = Server::start(&[]);
    fill(&server.work(0..100, 1)).expect("filled");
    let mut client = server.client();
    let mut changed = value(19, 7, 1);
    changed[900] ^= 1;
    let name = key(7);
    ask::<()>(&mut client, &[b"SET", name.as_bytes(), &changed]).expect("SET");
    match verify(&server.work(0..100, 1), None) {
        Err(ClientError::Wrong { key, at, .. }) => assert_eq!((key, at), (name.clone(), 900)),
        other => panic!("{other:?}"),
    }
    // One other value is permitted if it was said so, and no second one.
    let permitted = verify(&server.work(0..100, 1), Some(changed.len())).expect("verified");
    assert_eq!(permitted.others, 1);
    let name = key(8);
    ask::<()>(
        &mut client,
        &[b"SET", name.as_bytes(), &vec![1; changed.len()]],
    )
    .expect("SET");
    assert!(verify(&server.work(0..100, 1), Some(changed.len())).is_err());
}

#[test]
fn a_full_arena_refuses_values_and_keeps_those_it_has() {
    // Nothing compresses, so everything has to stay as it is.
    const BYTES: usize = 1500;
    let server = Server::start(&[]);
    let mut client = server.client();
    let mut set = |number: u64, version: u64| {
        let value = noise(version, number, BYTES);
        ask::<String>(&mut client, &[b"SET", key(number).as_bytes(), &value])
    };
    let (mut keys, mut refused) = (0, 0);
    // Where evicting is slow because others use the processors, there may be room again after a refusal.
    while refused < 3 {
        match set(keys, 1) {
            Ok(_) => (keys, refused) = (keys + 1, 0),
            Err(why) => {
                assert_eq!(why.code(), Some("OOM"), "{why}");
                refused += 1;
            }
        }
        assert!(keys * (BYTES as u64) < 2 * RAM_BYTES, "it is never full");
    }
    assert!(keys * (BYTES as u64) > RAM_BYTES / 2, "{keys} keys");
    // What is there cannot be replaced either, and is all there, in whatever order it is read.
    assert!(set(keys / 2, 2).is_err());
    let mut random = Random(5);
    let mut client = server.client();
    for _ in 0..keys / 20 {
        let numbers: Vec<u64> = (0..40).map(|_| random.below(keys) as u64).collect();
        let mut pipeline = redis::pipe();
        numbers.iter().for_each(|number| {
            pipeline.cmd("GET").arg(key(*number));
        });
        let found: Vec<Vec<u8>> = pipeline.query(&mut client).expect("GET");
        for (number, found) in numbers.iter().zip(found) {
            assert!(found == noise(1, *number, BYTES), "{number}");
        }
    }
    assert!(refusal(&mut client, &[b"APPEND", key(0).as_bytes(), b"more"]).starts_with("OOM"));
    // With room there are values again.
    for number in 0..keys / 2 {
        let count: u64 = ask(&mut client, &[b"DEL", key(number).as_bytes()]).expect("DEL");
        assert_eq!(count, 1);
    }
    let begun = Instant::now();
    let value = noise(3, 0, BYTES);
    while ask::<String>(&mut client, &[b"SET", key(0).as_bytes(), &value]).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it stays full");
        std::thread::sleep(Duration::from_millis(10));
    }
    let found: Vec<u8> = ask(&mut client, &[b"GET", key(0).as_bytes()]).expect("GET");
    assert_eq!(found, value);
}

#[test]
fn commands_answer_as_those_of_redis() {
    let server = Server::start(&["--max-value", "1000"]);
    let long = "a".repeat(1001);
    let set_long = format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1001\r\n{long}\r\n");
    for (words, expected) in [
        ("PING", "+PONG\r\n"),
        ("ping hello", "$5\r\nhello\r\n"),
        ("ECHO hello", "$5\r\nhello\r\n"),
        ("GET a", "$-1\r\n"),
        ("SET a one", "+OK\r\n"),
        ("SET b two", "+OK\r\n"),
        ("MGET a c b", "*3\r\n$3\r\none\r\n$-1\r\n$3\r\ntwo\r\n"),
        ("APPEND a -more", ":8\r\n"),
        ("STRLEN a", ":8\r\n"),
        ("STRLEN c", ":0\r\n"),
        ("EXISTS a a b c", ":3\r\n"),
        ("DBSIZE", ":2\r\n"),
        ("DEL a c", ":1\r\n"),
        ("SET a b EX 10", "-ERR syntax error\r\n"),
        (
            "GET",
            "-ERR wrong number of arguments for 'get' command\r\n",
        ),
        (
            "SET a",
            "-ERR wrong number of arguments for 'set' command\r\n",
        ),
        (
            "PING a b",
            "-ERR wrong number of arguments for 'ping' command\r\n",
        ),
        (
            "LPUSH a b",
            "-ERR unknown command 'LPUSH', with args beginning with: 'a' 'b' \r\n",
        ),
        ("CONFIG GET save", "*2\r\n$4\r\nsave\r\n$0\r\n\r\n"),
        ("CONFIG GET nothing", "*0\r\n"),
        (
            "CONFIG NO a",
            "-ERR unknown subcommand 'NO'. Try CONFIG HELP.\r\n",
        ),
        ("COMMAND DOCS", "*0\r\n"),
        ("SELECT 0", "+OK\r\n"),
        ("SELECT 1", "-ERR DB index is out of range\r\n"),
        ("FLUSHALL nothing", "-ERR syntax error\r\n"),
        ("FLUSHALL ASYNC", "+OK\r\n"),
        ("DBSIZE", ":0\r\n"),
        ("QUIT", "+OK\r\n"),
    ] {
        let mut request = format!("*{}\r\n", words.split(' ').count());
        for word in words.split(' ') {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        assert_eq!(server.answer(request.as_bytes()), expected, "{words}");
    }
    let refused = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n";
    assert_eq!(server.answer(set_long.as_bytes()), refused);
    assert_eq!(server.answer(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n"), "$-1\r\n");
}

#[test]
fn nonsense_ends_the_connection_and_nothing_else() {
    let server = Server::start(&[]);
    let mut other = server.client();
    let deep = b"*1\r\n".repeat(100_000);
    let endless = [
        b"*2\r\n$3\r\nGET\r\n$1000000000\r\n".to_vec(),
        vec![b'a'; 8 << 20],
    ]
    .concat();
    for nonsense in [
        &b"GET a\r\n"[..],
        b"*1\r\n:1\r\n",
        b"\xff\xff\xff\r\n",
        &deep,
        &endless,
    ] {
        let answer = server.answer(nonsense);
        let lines = answer.lines().count();
        assert!(
            answer.starts_with("-ERR Protocol error: ") && lines == 1,
            "{answer}"
        );
        assert_eq!(ask::<String>(&mut other, &[b"PING"]).expect("PING"), "PONG");
    }
    // What ends in the middle gets no answer, and what was announced takes no memory.
    for cut in [
        &b"*1\r\n$4\r\nPI"[..],
        b"*2000000000\r\n",
        b"*1\r\n$2000000000\r\n",
    ] {
        assert_eq!(server.answer(cut), "");
    }
    assert!(server.peak_bytes() < 256 * MIB);
}

#[test]
fn a_pipeline_is_answered_in_order() {
    const COUNT: u64 = 20_000;
    let server = Server::start(&[]);
    let socket = server.socket();
    let mut sender = socket.try_clone().expect("a socket");
    std::thread::scope(|scope| {
        // Somebody has to read meanwhile: answers and requests are more than the sockets hold.
        scope.spawn(move || {
            let mut requests = Vec::new();
            for number in 0..COUNT {
                let (name, value) = (key(number % 50), noise(1, number, 400));
                write!(
                    requests,
                    "*3\r\n$3\r\nSET\r\n${}\r\n{name}\r\n$400\r\n",
                    name.len()
                )
                .expect("memory");
                requests.extend_from_slice(&value);
                write!(
                    requests,
                    "\r\n*2\r\n$3\r\nget\r\n${}\r\n{name}\r\n",
                    name.len()
                )
                .expect("memory");
            }
            sender.write_all(&requests).expect("sent");
        });
        let mut answers = BufReader::new(socket);
        for number in 0..COUNT {
            let expected = [&b"+OK\r\n$400\r\n"[..], &noise(1, number, 400), b"\r\n"].concat();
            let mut answer = vec![0; expected.len()];
            answers.read_exact(&mut answer).expect("an answer");
            assert!(answer == expected, "answer {number}");
        }
    });
}

#[test]
fn one_client_more_than_permitted_is_told_so() {
    let server = Server::start(&["--clients", "2"]);
    let mut first = server.client();
    let second = server.client();
    assert_eq!(
        server.answer(b"*1\r\n$4\r\nPING\r\n"),
        "-ERR max number of clients reached\r\n"
    );
    assert_eq!(ask::<String>(&mut first, &[b"PING"]).expect("PING"), "PONG");
    drop(second);
    let begun = Instant::now();
    while server.answer(b"*1\r\n$4\r\nPING\r\n") != "+PONG\r\n" {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "the place stays taken"
        );
    }
}

/// Runs the program to its end, which must come soon.
fn run_for_a_minute(words: &[&str]) -> Output {
    let mut command = program();
    command
        .args(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut process = command.spawn().expect("it runs");
    let begun = Instant::now();
    while process.try_wait().expect("a status").is_none() {
        if begun.elapsed() > Duration::from_secs(60) {
            process.kill().expect("it lives");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    process.wait_with_output().expect("what it said")
}

#[test]
fn wrong_options_are_refused_with_what_would_be_right() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    for (words, status, expected) in [
        (&["serve"][..], 2, "--ram"),
        (&["serve", "--ram", "much"], 2, "'much' is no size"),
        (
            &["serve", "--ram", "1M", "--bind", "127.0.0.1:0"],
            1,
            "give more",
        ),
        (
            &["serve", "--ram", "16M", "--bind", &address],
            1,
            "cannot listen at",
        ),
        (
            &["serve", "--ram", "16M", "--bind", "nowhere"],
            1,
            "cannot listen at nowhere",
        ),
        (
            &["serve", "--ram", "16M", "--swap", "/tmp:8Q"],
            1,
            "no unit",
        ),
        (
            &[
                "serve",
                "--ram",
                "16M",
                "--swap",
                "/no/where:1G",
                "--bind",
                "127.0.0.1:0",
            ],
            1,
            "/no/where",
        ),
        (&["serve", "--ram", "16M", "--max-value", "0"], 2, "512M"),
        (&["serve", "--ram", "16M", "--clients", "0"], 2, "10000"),
        (&["fill", "--keys", "0"], 2, "--keys"),
        (
            &["fill", "--keys", "1", "--server", "127.0.0.1:1"],
            1,
            "127.0.0.1:1: ",
        ),
        (&["verify", "--keys", "1", "--server", "what"], 1, "what: "),
    ] {
        let output = run_for_a_minute(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {said}");
        assert!(
            said.contains(expected) && !said.contains("panicked"),
            "{words:?}: {said}"
        );
    }
}
