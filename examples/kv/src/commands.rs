//! The commands, with the replies and errors that redis has for them.

use std::fmt::Write as _;
use std::io::{Read, Write};

use crate::store::{Refused, Store};
use crate::wire::Wire;

/// A word of an unknown command is quoted up to so many bytes.
const QUOTED_BYTES: usize = 128;

/// What happens with the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The next request.
    GoOn,
    /// It ends.
    End,
}

type Done = std::io::Result<()>;

/// One command being carried out. `words` has its name first.
struct Call<'a, S> {
    store: &'a Store,
    wire: &'a mut Wire<S>,
    words: &'a [Vec<u8>],
}

/// How many words a command has, its name included.
enum Count {
    Exactly(usize),
    AtLeast(usize),
}
use Count::{AtLeast, Exactly};

/// What carries a command out.
type CarryOut<S> = fn(&mut Call<'_, S>) -> Done;

/// Carries a command out.
///
/// # Errors
/// The client has gone.
pub fn run<S: Read + Write>(
    store: &Store,
    wire: &mut Wire<S>,
    words: &[Vec<u8>],
) -> std::io::Result<Next> {
    let Some(name) = words.first() else {
        return Ok(Next::GoOn);
    };
    let name = name.to_ascii_lowercase();
    let mut call = Call { store, wire, words };
    let (count, carry_out): (Count, CarryOut<S>) = match &name[..] {
        b"ping" => (AtLeast(1), |call| call.ping()),
        b"echo" => (Exactly(2), |call| call.echo()),
        b"set" => (AtLeast(3), |call| call.set()),
        b"get" => (Exactly(2), |call| call.get_from(1)),
        b"mget" => (AtLeast(2), |call| call.mget()),
        b"del" | b"unlink" => (AtLeast(2), |call| {
            call.count(|store, key| store.remove(key))
        }),
        b"exists" => (AtLeast(2), |call| {
            call.count(|store, key| store.length(key).is_some())
        }),
        b"strlen" => (Exactly(2), |call| call.strlen()),
        b"append" => (Exactly(3), |call| call.append()),
        b"dbsize" => (Exactly(1), |call| call.dbsize()),
        b"flushall" | b"flushdb" => (AtLeast(1), |call| call.flush()),
        b"info" => (AtLeast(1), |call| call.info()),
        b"config" => (AtLeast(2), |call| call.config()),
        b"command" => (AtLeast(1), |call| call.command()),
        b"client" => (AtLeast(2), |call| call.client()),
        b"select" => (Exactly(2), |call| call.select()),
        b"quit" => (AtLeast(1), |call| call.ok()),
        _ => {
            call.unknown();
            return Ok(Next::GoOn);
        }
    };
    let is_right = match count {
        Exactly(count) => words.len() == count,
        AtLeast(count) => words.len() >= count,
    };
    if !is_right {
        call.wrong_count(&name);
        return Ok(Next::GoOn);
    }
    carry_out(&mut call)?;
    let is_last = name == b"quit";
    Ok(if is_last { Next::End } else { Next::GoOn })
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.len().min(QUOTED_BYTES);
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

impl<S: Read + Write> Call<'_, S> {
    fn unknown(&mut self) {
        let mut what = format!(
            "ERR unknown command '{}', with args beginning with: ",
            text(&self.words[0])
        );
        for word in &self.words[1..] {
            if what.len() >= QUOTED_BYTES {
                break;
            }
            let _ = write!(what, "'{}' ", text(word));
        }
        self.wire.error(&what);
    }

    fn wrong_count(&mut self, name: &[u8]) {
        let name = text(name);
        self.wire.error(&format!(
            "ERR wrong number of arguments for '{name}' command"
        ));
    }

    fn unknown_part(&mut self) -> Done {
        let (name, part) = (text(&self.words[0]).to_uppercase(), text(&self.words[1]));
        self.wire.error(&format!(
            "ERR unknown subcommand '{part}'. Try {name} HELP."
        ));
        Ok(())
    }

    fn is_word(&self, at: usize, expected: &str) -> bool {
        self.words[at].eq_ignore_ascii_case(expected.as_bytes())
    }

    fn ok(&mut self) -> Done {
        self.wire.status("OK");
        Ok(())
    }

    fn syntax_error(&mut self) -> Done {
        self.wire.error("ERR syntax error");
        Ok(())
    }

    fn ping(&mut self) -> Done {
        match self.words {
            [_] => self.wire.status("PONG"),
            [_, message] => self.wire.bulk(message),
            _ => self.wrong_count(b"ping"),
        }
        Ok(())
    }

    fn echo(&mut self) -> Done {
        self.wire.bulk(&self.words[1]);
        Ok(())
    }

    fn set(&mut self) -> Done {
        let [_, key, value] = self.words else {
            // Options: times to live, conditions. There are none here.
            return self.syntax_error();
        };
        match self.store.set(key, value) {
            Ok(()) => self.wire.status("OK"),
            Err(refused) => self.refuse(refused),
        }
        Ok(())
    }

    fn refuse(&mut self, refused: Refused) {
        self.wire.error(&refused.to_string());
    }

    /// The value of the key that is this word.
    fn get_from(&mut self, at: usize) -> Done {
        let wire = &mut *self.wire;
        let found = self.store.read(&self.words[at], |value| wire.bulk(value));
        if found.is_none() {
            self.wire.none();
        }
        self.wire.send_if_many()
    }

    fn mget(&mut self) -> Done {
        self.wire.list(self.words.len() - 1);
        (1..self.words.len()).try_for_each(|at| self.get_from(at))
    }

    /// Counts the keys of which something is true.
    fn count(&mut self, is_so: impl Fn(&Store, &[u8]) -> bool) -> Done {
        let keys = self.words[1..].iter();
        let count = keys.filter(|key| is_so(self.store, key)).count();
        self.wire.integer(count);
        Ok(())
    }

    fn strlen(&mut self) -> Done {
        let length = self.store.length(&self.words[1]);
        self.wire.integer(length.unwrap_or(0));
        Ok(())
    }

    fn append(&mut self) -> Done {
        match self.store.append(&self.words[1], &self.words[2]) {
            Ok(length) => self.wire.integer(length),
            Err(refused) => self.refuse(refused),
        }
        Ok(())
    }

    fn dbsize(&mut self) -> Done {
        self.wire.integer(self.store.len());
        Ok(())
    }

    fn flush(&mut self) -> Done {
        let is_known = match self.words {
            [_] => true,
            [_, _] => self.is_word(1, "sync") || self.is_word(1, "async"),
            _ => false,
        };
        if !is_known {
            return self.syntax_error();
        }
        self.store.clear();
        self.ok()
    }

    fn info(&mut self) -> Done {
        let (stats, keys) = (self.store.stats(), self.store.len());
        let mut info = String::from(
            "# Server\r\nredis_mode:standalone\r\nserver_name:vswap-kv\r\n# Memory\r\n",
        );
        let mut line = |name: &str, number: u64| {
            let _ = write!(info, "{name}:{number}\r\n");
        };
        line("used_memory", stats.used_bytes);
        line("maxmemory", stats.ram_bytes);
        for (name, figure) in stats.figures() {
            line(&format!("arena_{name}"), figure);
        }
        let _ = write!(info, "# Keyspace\r\n");
        if keys > 0 {
            let _ = write!(info, "db0:keys={keys},expires=0,avg_ttl=0\r\n");
        }
        self.wire.bulk(info.as_bytes());
        Ok(())
    }

    /// redis-benchmark asks whether a server saves to disk. This one does not.
    fn config(&mut self) -> Done {
        if !self.is_word(1, "get") {
            return self.unknown_part();
        }
        let [_, _, names @ ..] = self.words else {
            return self.syntax_error();
        };
        if names.is_empty() {
            self.wrong_count(b"config|get");
            return Ok(());
        }
        let limits = self.store.limits();
        let settings = [
            ("save", String::new()),
            ("appendonly", "no".to_owned()),
            ("maxmemory", limits.ram_bytes.to_string()),
            ("maxmemory-policy", "noeviction".to_owned()),
            ("proto-max-bulk-len", limits.value_bytes.to_string()),
        ];
        let is_asked = |setting: &str| {
            names
                .iter()
                .any(|name| name.eq_ignore_ascii_case(setting.as_bytes()))
        };
        let found: Vec<_> = settings.iter().filter(|(name, _)| is_asked(name)).collect();
        self.wire.list(found.len() * 2);
        for (name, value) in found {
            self.wire.bulk(name.as_bytes());
            self.wire.bulk(value.as_bytes());
        }
        Ok(())
    }

    /// redis-cli asks for what it can complete.
    fn command(&mut self) -> Done {
        self.wire.list(0);
        Ok(())
    }

    /// Clients say who they are.
    fn client(&mut self) -> Done {
        if self.is_word(1, "setinfo") || self.is_word(1, "setname") {
            return self.ok();
        }
        self.unknown_part()
    }

    fn select(&mut self) -> Done {
        if self.words[1] == b"0" {
            return self.ok();
        }
        self.wire.error("ERR DB index is out of range");
        Ok(())
    }
}
