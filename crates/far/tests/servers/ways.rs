//! Other ways to a store: over TLS, and by what Sentinels say.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use vswap_far::FarError;

use crate::support::{Server, check, free_port, open, options, refused, write};

/// Makes `ca.pem`, `server.pem` and `server.key` there. False, and a word about it, without `openssl`.
fn make_certificates(dir: &Path) -> bool {
    let run = |arguments: &str| {
        let made = Command::new("openssl")
            .args(arguments.split(' '))
            .current_dir(dir)
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .status();
        made.is_ok_and(|status| status.success())
    };
    let names = "subjectAltName=IP:127.0.0.1,DNS:localhost\n";
    std::fs::write(dir.join("names"), names).expect("a file");
    let made = run(
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test-ca -keyout ca.key -out ca.pem",
    ) && run(
        "req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr",
    ) && run(
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.pem",
    );
    if !made {
        eprintln!("skipped: openssl makes no certificates here");
    }
    made
}

#[test]
fn a_store_is_reached_over_tls_and_a_stranger_s_certificate_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    if !make_certificates(dir.path()) {
        return;
    }
    let path = |name: &str| dir.path().join(name).display().to_string();
    let port = free_port();
    let (tls_port, server, key, ca) = (
        port.to_string(),
        path("server.pem"),
        path("server.key"),
        path("ca.pem"),
    );
    let more = [
        "--tls-port",
        &tls_port,
        "--tls-cert-file",
        &server,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
        "--tls-auth-clients",
        "no",
    ];
    let Some(_server) = Server::start(&more) else {
        return;
    };
    let url = format!("valkeys://127.0.0.1:{port}?ca={ca}");
    let storage = open(&url, options(512));
    let seeds: Vec<u64> = (0..64).collect();
    write(&storage, 0, &seeds).unwrap();
    check(&storage, 0, &seeds).unwrap();
    let error = refused(&format!("valkeys://127.0.0.1:{port}"), options(512));
    assert!(matches!(error, FarError::NoAnswer { .. }), "{error}");
    assert!(error.to_string().contains("ertificate"), "{error}");
}

/// A process that is ended with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_replica_that_sentinels_promote_is_found() {
    let Some(master) = Server::start(&[]) else {
        return;
    };
    let of_master = ["--replicaof", "127.0.0.1", &master.port.to_string()];
    let Some(_replica) = Server::start(&of_master) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let config = format!(
        "port {port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {} 1\n\
         sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 3000\n",
        master.port
    );
    let path = dir.path().join("sentinel.conf");
    std::fs::write(&path, config).unwrap();
    let _sentinel = Ended(
        Command::new("redis-server")
            .arg(&path)
            .args(["--sentinel"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap(),
    );
    wait_for_replica(port);
    let as_store = format!("valkey://127.0.0.1:{port}");
    let error = refused(&as_store, options(512)).to_string();
    assert!(error.contains("?sentinel=NAME"), "{error}");
    let storage = open(&format!("{as_store}?sentinel=main"), options(512));
    assert_eq!(storage.probe().kind, "sentinel");
    let seeds: Vec<u64> = (0..64).collect();
    write(&storage, 0, &seeds).unwrap();
    let mut wait = redis::cmd("WAIT");
    let copied: u32 = wait.arg(1).arg(5000).query(&mut master.client()).unwrap();
    assert_eq!(copied, 1);
    master.signal("KILL");
    check(&storage, 0, &seeds).unwrap();
    write(&storage, 3, &[99]).unwrap();
    check(&storage, 2, &[2, 99, 4]).unwrap();
    assert_eq!(storage.figures().lost_pages, 0);
}

/// Waits until the Sentinel there knows of the replica.
fn wait_for_replica(port: u16) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(20) {
        let told = redis::Client::open(format!("redis://127.0.0.1:{port}"))
            .and_then(|client| client.get_connection())
            .and_then(|mut sentinel| {
                let mut ask = redis::cmd("SENTINEL");
                ask.arg("replicas")
                    .arg("main")
                    .query::<redis::Value>(&mut sentinel)
            });
        if let Ok(redis::Value::Array(replicas)) = told
            && !replicas.is_empty()
        {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("the Sentinel knows of no replica");
}
