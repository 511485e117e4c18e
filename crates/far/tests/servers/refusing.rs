//! Stores that are not fit are refused, with what mends them; what somebody has meddled with is refused too.

use vswap_engine::{Storage, StorageError};
use vswap_far::{Demand, FarError, Patience, probe};

use crate::support::{Server, check, open, options, refused, spec, write};

#[test]
fn a_store_that_throws_content_away_is_refused_until_it_is_mended() {
    let Some(server) =
        Server::start(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"])
    else {
        return;
    };
    let error = refused(&server.url(), options(512)).to_string();
    let mend = "CONFIG SET maxmemory-policy noeviction";
    assert!(
        error.contains("allkeys-lru") && error.ends_with(mend),
        "{error}"
    );
    let words: Vec<&str> = mend.split(' ').collect();
    let mut command = redis::cmd(words[0]);
    let _: () = command
        .arg(&words[1..])
        .query(&mut server.client())
        .unwrap();
    let storage = open(&server.url(), options(1 << 20));
    let warnings = storage.probe().warnings.join("\n");
    assert!(
        warnings.contains("MiB free for an area of 4096 MiB"),
        "{warnings}"
    );
    assert_eq!(storage.probe().nodes[0].memory_max, Some(100 << 20));
}

#[test]
fn the_documented_user_may_do_what_is_needed_and_no_less() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let mut admin = server.client();
    let set = |line: &str, admin: &mut redis::Connection| {
        let words: Vec<&str> = line.split(' ').collect();
        let mut command = redis::cmd(words[0]);
        let _: () = command.arg(&words[1..]).query(admin).expect(line);
    };
    set(
        "ACL SETUSER far on >secret ~* -@all +info +hset",
        &mut admin,
    );
    let url = format!("valkey://far:secret@{}", server.at());
    let error = refused(&url, options(512));
    let FarError::NotPermitted { commands, mend, .. } = &error else {
        panic!("{error}");
    };
    assert!(
        commands.contains("multi") && commands.contains("unlink"),
        "{commands}"
    );
    assert!(
        mend.starts_with("ACL SETUSER far reset on >PASSWORD ~vswap:* "),
        "{mend}"
    );
    set(&mend.replace("PASSWORD", "secret"), &mut admin);
    let storage = open(&url, options(512));
    write(&storage, 0, &[1, 2, 3]).unwrap();
    write(&storage, 1, &[4]).unwrap();
    check(&storage, 0, &[1, 4, 3]).unwrap();
    storage.discard(0..1).unwrap();
    storage.discard(0..512).unwrap();
    assert!(vswap_far::gc(&spec(&url), true, &Patience::default()).is_ok());
    drop(storage);
    assert!(server.keys().is_empty());
    for command in mend.split(' ').filter_map(|word| word.strip_prefix('+')) {
        set(&format!("ACL SETUSER far -{command}"), &mut admin);
        let error = refused(&url, options(512)).to_string();
        assert!(
            error.contains(&format!("not permit {command};")),
            "{command}: {error}"
        );
        set(&format!("ACL SETUSER far +{command}"), &mut admin);
    }
    set("ACL SETUSER far resetkeys ~other:*", &mut admin);
    assert!(matches!(
        refused(&url, options(512)),
        FarError::NotPermitted { .. }
    ));
}

#[test]
fn a_wrong_login_is_told() {
    let Some(server) = Server::start(&["--requirepass", "secret"]) else {
        return;
    };
    for url in [server.url(), format!("valkey://:wrong@{}", server.at())] {
        let error = refused(&url, options(512));
        assert!(matches!(error, FarError::LoginRefused { .. }), "{error}");
        assert!(error.to_string().contains("password-file"), "{error}");
    }
    let storage = open(&format!("valkey://:secret@{}/3", server.at()), options(512));
    write(&storage, 0, &[1]).unwrap();
    check(&storage, 0, &[1]).unwrap();
}

#[test]
fn a_replica_one_node_for_two_copies_and_nobody_are_refused() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let Some(replica) = Server::start(&["--replicaof", "127.0.0.1", &server.port.to_string()])
    else {
        return;
    };
    let error = refused(&replica.url(), options(512)).to_string();
    assert!(
        error.contains("is a replica") && error.contains(&server.at()),
        "{error}"
    );
    let mut two = options(512);
    two.copies = 2;
    let error = refused(&server.url(), two).to_string();
    assert!(error.contains("cannot keep 2 copies"), "{error}");
    let url = server.url();
    drop(server);
    let demand = Demand {
        slots: 1,
        copies: 1,
    };
    let error = probe(&spec(&url), demand, &Patience::default());
    assert!(matches!(error, Err(FarError::NoAnswer { .. })), "{error:?}");
}

#[test]
fn a_full_store_says_so_and_goes_on_when_there_is_room() {
    let Some(server) = Server::start(&["--maxmemory", "8mb"]) else {
        return;
    };
    let storage = open(&server.url(), options(65536));
    let mut full = None;
    for slot in (0..65536).step_by(64) {
        let seeds: Vec<u64> = (slot..slot + 64).collect();
        if let Err(error) = write(&storage, slot, &seeds) {
            full = Some((slot, error));
            break;
        }
    }
    let (end, error) = full.expect("a store that is full");
    assert_eq!(error, StorageError::Full);
    for slot in (0..end).step_by(64) {
        check(&storage, slot, &(slot..slot + 64).collect::<Vec<_>>()).unwrap();
    }
    assert_eq!(check(&storage, end, &[end]), Err(StorageError::Lost));
    // A rewrite that does not fit leaves nothing behind that nobody needs.
    let bad = write(&storage, 0, &(0..64).collect::<Vec<_>>());
    assert!(bad.is_ok() || bad == Err(StorageError::Full));
    storage.discard(0..512.min(end)).unwrap();
    write(&storage, end, &[7]).unwrap();
    check(&storage, end, &[7]).unwrap();
}

#[test]
fn what_somebody_deletes_is_lost_and_what_somebody_alters_is_refused() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let storage = open(&server.url(), options(2048));
    for slot in [0, 512, 1024, 1536] {
        write(&storage, slot, &[slot, slot + 1]).unwrap();
    }
    let mut client = server.client();
    let key = |storage_slot: u64| {
        let cluster = format!(":{:x}.0", storage_slot / 512);
        let mut keys = server.keys().into_iter();
        keys.find(|key| key.ends_with(cluster.as_bytes())).unwrap()
    };
    let field =
        |at: u16, version: u32| [&at.to_be_bytes()[..], &version.to_be_bytes()[..]].concat();
    let get = |client: &mut redis::Connection, slot: u64, field: &[u8]| -> Vec<u8> {
        redis::cmd("HGET")
            .arg(key(slot))
            .arg(field)
            .query(client)
            .unwrap()
    };
    let set = |client: &mut redis::Connection, slot: u64, field: &[u8], value: &[u8]| {
        let mut set = redis::cmd("HSET");
        let _: () = set
            .arg(key(slot))
            .arg(field)
            .arg(value)
            .query(client)
            .unwrap();
    };
    // One bit.
    let mut value = get(&mut client, 0, &field(0, 1));
    let first = value.clone();
    value[5] ^= 1;
    set(&mut client, 0, &field(0, 1), &value);
    assert_eq!(check(&storage, 0, &[0]), Err(StorageError::Altered));
    check(&storage, 1, &[1]).unwrap();
    // Another slot's, of the same cluster and of another.
    set(&mut client, 0, &field(1, 1), &first);
    assert_eq!(check(&storage, 1, &[1]), Err(StorageError::Altered));
    set(&mut client, 512, &field(0, 1), &first);
    assert_eq!(check(&storage, 512, &[512]), Err(StorageError::Altered));
    // An older one of the same slot.
    let old = get(&mut client, 512, &field(1, 1));
    write(&storage, 513, &[99]).unwrap();
    set(&mut client, 512, &field(1, 2), &old);
    assert_eq!(check(&storage, 513, &[99]), Err(StorageError::Altered));
    // Gone.
    let _: () = redis::cmd("DEL").arg(key(1024)).query(&mut client).unwrap();
    assert_eq!(check(&storage, 1024, &[1024]), Err(StorageError::Lost));
    // Of another type.
    let of_key = key(1536);
    let _: () = redis::cmd("SET")
        .arg(of_key)
        .arg("x")
        .query(&mut client)
        .unwrap();
    assert_eq!(check(&storage, 1536, &[1536]), Err(StorageError::Altered));
    let figures = storage.figures();
    assert_eq!((figures.lost_pages, figures.altered_pages), (1, 5));
    // What is written anew is good again.
    write(&storage, 0, &[5]).unwrap();
    check(&storage, 0, &[5]).unwrap();
}
