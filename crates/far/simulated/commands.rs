//! Carrying out commands as a server does: those that the client may use, and no more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Value, parse_redis_value};

use crate::simulated::data::{Bytes, Change};
use crate::simulated::world::{At, State, World, hash_slot};

/// A command and its arguments.
pub type Words = Vec<Vec<u8>>;

/// What a server knows of a connection.
#[derive(Default)]
pub struct Session {
    /// The next command may be for a hash slot that is on its way here.
    asking: bool,
    /// Commands since MULTI.
    queued: Option<Vec<Words>>,
    /// One of them was refused.
    is_spoilt: bool,
}

pub fn refusal(text: &str) -> Value {
    parse_redis_value(format!("-{text}\r\n").as_bytes()).expect("an error that can be read")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl World {
    /// What the server answers.
    pub fn answer(&mut self, at: At, session: &mut Session, words: &Words) -> Value {
        self.counts.commands += 1;
        let name = text(&words[0]).to_uppercase();
        let value = match (name.as_str(), session.queued.is_some()) {
            ("MULTI", false) => {
                session.queued = Some(Vec::new());
                session.is_spoilt = false;
                return Value::Okay;
            }
            ("ASKING", false) => {
                session.asking = true;
                return Value::Okay;
            }
            ("EXEC", true) => self.exec(at, session),
            (_, true) => {
                // ASKING holds until EXEC.
                match self.refused(at, session.asking, words) {
                    None => {
                        session.queued.iter_mut().for_each(|queued| {
                            queued.push(words.clone());
                        });
                        return Value::SimpleString("QUEUED".into());
                    }
                    Some(refused) => {
                        session.is_spoilt = true;
                        return refused;
                    }
                }
            }
            ("EXEC", false) => refusal("ERR EXEC without MULTI"),
            ("CONFIG", _) => refusal("NOPERM this user has no permissions to run 'config|get'"),
            ("INFO", _) => self.info(at),
            ("CLUSTER", _) => self.cluster_slots(at),
            _ => match self.refused(at, session.asking, words) {
                Some(refused) => refused,
                None => self.carry_out(at, session.asking, words),
            },
        };
        session.asking = false;
        value
    }

    fn exec(&mut self, at: At, session: &mut Session) -> Value {
        let queued = session.queued.take().unwrap_or_default();
        if session.is_spoilt {
            return refusal("EXECABORT Transaction discarded because of previous errors.");
        }
        // A hash slot may have gone since they were queued.
        let refused = |words: &Words| self.refused(at, session.asking, words);
        if let Some(refused) = queued.iter().find_map(refused) {
            return refused;
        }
        let each = queued.iter();
        Value::Array(
            each.map(|words| self.carry_out(at, session.asking, words))
                .collect(),
        )
    }

    /// Why the server does not carry out a command.
    fn refused(&self, at: At, asking: bool, words: &Words) -> Option<Value> {
        let name = text(&words[0]).to_uppercase();
        if self.machine(at).state == State::Loading {
            return Some(refusal("LOADING Redis is loading the dataset in memory"));
        }
        if name == "HSET" && self.full == Some(at.shard) {
            let what = "OOM command not allowed when used memory > 'maxmemory'.";
            return Some(refusal(what));
        }
        let key = words.get(1).filter(|_| name != "SCAN")?;
        if !self.is_cluster {
            let master = self.machine(self.master(at.shard));
            let what = format!("READONLY You can't write against {}", master.address);
            return (!self.is_master(at)).then(|| refusal(&what));
        }
        if self.is_down {
            return Some(refusal("CLUSTERDOWN The cluster is down"));
        }
        let slot = hash_slot(key);
        let address = |shard| &self.machine(self.master(shard)).address;
        let is_mine = self.owner[slot] == at.shard && self.is_master(at);
        let goes_to = self.moving.get(&slot).copied();
        let comes_here = goes_to == Some(at.shard) && self.is_master(at);
        let is_served = is_mine || (comes_here && asking);
        if !is_served {
            return Some(refusal(&format!(
                "MOVED {slot} {}",
                address(self.owner[slot])
            )));
        }
        let has = |key| self.machine(at).data.get(key, Instant::now()).is_some();
        match goes_to {
            Some(to) if is_mine && !has(key) => {
                Some(refusal(&format!("ASK {slot} {}", address(to))))
            }
            _ => None,
        }
    }

    /// Counts what a server has refused.
    pub fn note_answer(&mut self, value: &Value) {
        let Value::ServerError(error) = value else {
            return;
        };
        let counts = &mut self.counts;
        match error.code() {
            "MOVED" => counts.moved += 1,
            "ASK" => counts.ask += 1,
            "TRYAGAIN" => counts.try_again += 1,
            "CLUSTERDOWN" => counts.cluster_down += 1,
            "LOADING" => counts.loading += 1,
            "OOM" => counts.full += 1,
            _ => {}
        }
    }

    fn carry_out(&mut self, at: At, asking: bool, words: &Words) -> Value {
        self.counts.asking_served += u64::from(asking);
        let key = words.get(1).cloned().unwrap_or_default();
        let rest = words.get(2..).unwrap_or_default();
        let name = text(&words[0]).to_uppercase();
        if self.moving.contains_key(&hash_slot(&key)) && self.random.once_in(self.weather.try_again)
        {
            return refusal("TRYAGAIN Multiple keys request during rehashing of slot");
        }
        let now = Instant::now();
        match name.as_str() {
            "HSET" => {
                let pairs = rest.as_chunks::<2>().0.iter();
                let fields: Vec<(Vec<u8>, Bytes)> = pairs
                    .map(|[field, value]| (field.clone(), Arc::from(value.as_slice())))
                    .collect();
                for (field, bytes) in fields.iter().filter(|_| !self.keeps_nothing) {
                    self.archive.note_written(&key, field, bytes);
                }
                count(self.change(at, Change::Set(key, fields)))
            }
            "HDEL" => {
                for field in rest {
                    self.archive.note_deleted(&key, field);
                }
                count(self.change(at, Change::Delete(key, rest.to_vec())))
            }
            "UNLINK" => {
                self.archive.note_unlinked(&key);
                count(self.change(at, Change::Unlink(key)))
            }
            "PEXPIRE" => {
                let time = rest.first().and_then(|time| text(time).parse().ok());
                let Some(time) = time else {
                    return refusal("ERR value is not an integer or out of range");
                };
                let end = now + Duration::from_millis(time);
                count(self.change(at, Change::Expire(key, end)))
            }
            _ => self.looked_up(at, &name, &key, rest),
        }
    }

    fn looked_up(&self, at: At, name: &str, key: &[u8], rest: &[Vec<u8>]) -> Value {
        let data = &self.machine(at).data;
        let now = Instant::now();
        let held = data.get(key, now);
        let bulk = |bytes: &[u8]| Value::BulkString(bytes.to_vec());
        match name {
            "HMGET" => {
                let value = |field| held.and_then(|key| key.fields.get(field));
                let each = rest.iter().map(value);
                Value::Array(
                    each.map(|value| value.map_or(Value::Nil, |value| bulk(value)))
                        .collect(),
                )
            }
            "HGETALL" => {
                let pairs = held.into_iter().flat_map(|key| &key.fields);
                let flat = pairs.flat_map(|(field, value)| [bulk(field), bulk(value)]);
                Value::Array(flat.collect())
            }
            "EXISTS" => count(usize::from(held.is_some())),
            // All in one step. The client looks through keys of a pattern alone, which this leaves to it.
            "SCAN" => {
                let keys = data.keys.keys().map(|key| bulk(key)).collect();
                Value::Array(vec![bulk(b"0"), Value::Array(keys)])
            }
            _ => refusal(&format!(
                "NOPERM this user has no permissions to run '{name}'"
            )),
        }
    }

    fn info(&self, at: At) -> Value {
        let role = if self.is_master(at) {
            "master"
        } else {
            "slave"
        };
        let cluster = u8::from(self.is_cluster);
        let lines = format!(
            "redis_version:7.0.15\r\nredis_mode:{}\r\nrole:{role}\r\ncluster_enabled:{cluster}\r\n\
             maxmemory:17179869184\r\nmaxmemory_policy:noeviction\r\nused_memory:1048576\r\naof_enabled:0\r\n",
            if self.is_cluster {
                "cluster"
            } else {
                "standalone"
            },
        );
        Value::BulkString(lines.into_bytes())
    }

    fn cluster_slots(&self, at: At) -> Value {
        let int = |number: usize| Value::Int(i64::try_from(number).expect("small"));
        let server = |at: At| {
            let address = &self.machine(at).address;
            let host = Value::BulkString(address.host.clone().into_bytes());
            Value::Array(vec![host, Value::Int(i64::from(address.port))])
        };
        let view = self.view(at);
        let range = |(first, last, of): &(usize, usize, At)| {
            let replica = At {
                shard: of.shard,
                machine: 1 - of.machine,
            };
            Value::Array(vec![int(*first), int(*last), server(*of), server(replica)])
        };
        Value::Array(view.iter().map(range).collect())
    }
}

fn count(number: usize) -> Value {
    Value::Int(i64::try_from(number).expect("small"))
}
