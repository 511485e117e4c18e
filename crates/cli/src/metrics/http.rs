//! One connection: one request, one answer, and the end. What a client may cost is bounded: bytes of the request, time
//! to send it, time to take the answer.
//!
//! `httparse` reads the head of the request. A server library would bring a pool of threads or a runtime, and those
//! that are small have no limit on how long a client may take.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::metrics::listener::Stream;
use crate::metrics::text::Format;

/// Most bytes of a request's head. Prometheus sends a few hundred.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Most headers of a request.
const HEADERS_MAX: usize = 64;
/// How long a client may take to send its request.
const REQUEST_PATIENCE: Duration = Duration::from_secs(2);
/// How long it may take to read the answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked whether the run ends meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Most bytes that are read and dropped after a refusal, so that the client gets to read it.
const DROPPED_BYTES_MAX: usize = 64 << 10;

/// What a client asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The figures.
    Figures(Format),
    /// Nothing that there is.
    Nothing(Answer),
}

/// What it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    status: &'static str,
    content_type: &'static str,
    /// Further lines of the head.
    headers: &'static str,
    body: Body,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Body {
    Words(&'static str),
    Figures(Arc<str>),
}

const PLAIN: &str = "text/plain; charset=utf-8";

impl Answer {
    /// Nobody has figures just now.
    pub const UNAVAILABLE: Answer =
        Answer::refusal("503 Service Unavailable", "the daemon does not answer\n");
    const BAD: Answer = Answer::refusal("400 Bad Request", "this is no HTTP request\n");
    const NOT_FOUND: Answer = Answer::refusal("404 Not Found", "figures are at /metrics\n");
    const TOO_LARGE: Answer = Answer::refusal(
        "431 Request Header Fields Too Large",
        "the request is too long\n",
    );
    const METHOD: Answer = Answer {
        status: "405 Method Not Allowed",
        content_type: PLAIN,
        headers: "Allow: GET, HEAD\r\n",
        body: Body::Words("figures can only be read\n"),
    };

    const fn refusal(status: &'static str, words: &'static str) -> Answer {
        Answer {
            status,
            content_type: PLAIN,
            headers: "",
            body: Body::Words(words),
        }
    }

    /// The figures in this format.
    pub fn figures(format: Format, text: Arc<str>) -> Answer {
        Answer {
            status: "200 OK",
            content_type: format.content_type(),
            headers: "",
            body: Body::Figures(text),
        }
    }

    fn bytes(&self, with_body: bool) -> Vec<u8> {
        let body: &str = match &self.body {
            Body::Words(words) => words,
            Body::Figures(text) => text,
        };
        let mut all = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nVary: Accept\r\n\
             Cache-Control: no-store\r\n{}Connection: close\r\n\r\n",
            self.status,
            self.content_type,
            body.len(),
            self.headers
        );
        if with_body {
            all += body;
        }
        all.into_bytes()
    }
}

/// Answers one connection.
///
/// # Errors
/// The client has gone, or is too slow, or the run ends.
pub fn serve(
    mut stream: Stream,
    stopping: &AtomicBool,
    answer: impl FnOnce(Wanted) -> Answer,
) -> io::Result<()> {
    stream.set_timeout(LOOK_EVERY)?;
    let bound = |patience| Bound {
        stopping,
        until: Instant::now() + patience,
    };
    let request = read_head(&mut stream, &bound(REQUEST_PATIENCE))?;
    let (wanted, with_body) = match request {
        Some(head) => wanted(&head),
        None => (Wanted::Nothing(Answer::TOO_LARGE), true),
    };
    let bytes = answer(wanted).bytes(with_body);
    let bound = bound(ANSWER_PATIENCE);
    write_all(&mut stream, &bytes, &bound)?;
    stream.end_writing();
    drop_rest(&mut stream, &bound);
    Ok(())
}

/// Until when something may take, and whether it may go on at all.
struct Bound<'a> {
    stopping: &'a AtomicBool,
    until: Instant,
}

impl Bound<'_> {
    fn check(&self) -> io::Result<()> {
        // Acquire pairs with the release in `metrics.rs`.
        if self.stopping.load(Ordering::Acquire) || Instant::now() >= self.until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }
}

/// Has a read or a write just not come to anything within `LOOK_EVERY`?
fn is_pause(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// The request up to the empty line that ends its head. None if it is too long.
fn read_head(stream: &mut impl Read, bound: &Bound<'_>) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    loop {
        bound.check()?;
        match stream.read(&mut part) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => {
                head.extend_from_slice(&part[..bytes]);
                if ends_head(&head) {
                    return Ok(Some(head));
                }
                if head.len() > HEAD_BYTES_MAX {
                    return Ok(None);
                }
            }
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

fn ends_head(head: &[u8]) -> bool {
    let has = |end: &[u8]| head.windows(end.len()).any(|part| part == end);
    has(b"\r\n\r\n") || has(b"\n\n")
}

/// What a request is for, and whether the answer shall have a body.
fn wanted(head: &[u8]) -> (Wanted, bool) {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => return (Wanted::Nothing(Answer::TOO_LARGE), true),
        _ => return (Wanted::Nothing(Answer::BAD), true),
    }
    let method = request.method.unwrap_or_default();
    if !["GET", "HEAD"].contains(&method) {
        return (Wanted::Nothing(Answer::METHOD), true);
    }
    let with_body = method == "GET";
    let path = request.path.unwrap_or_default();
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    if path != "/metrics" {
        return (Wanted::Nothing(Answer::NOT_FOUND), with_body);
    }
    let accepted = request
        .headers
        .iter()
        .filter(|header| header.name.eq_ignore_ascii_case("accept"))
        .filter_map(|header| std::str::from_utf8(header.value).ok());
    let accepted = accepted.collect::<Vec<_>>().join(",");
    (Wanted::Figures(Format::accepted(&accepted)), with_body)
}

fn write_all(stream: &mut impl Write, mut bytes: &[u8], bound: &Bound<'_>) -> io::Result<()> {
    while !bytes.is_empty() {
        bound.check()?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Unread bytes at the close would show as a reset, which may take the answer away from the client.
fn drop_rest(stream: &mut impl Read, bound: &Bound<'_>) {
    let mut part = [0; 1024];
    let mut dropped = 0;
    while dropped < DROPPED_BYTES_MAX && bound.check().is_ok() {
        match stream.read(&mut part) {
            Ok(bytes) if bytes > 0 => dropped += bytes,
            Err(error) if is_pause(&error) => {}
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(head: &str) -> (Wanted, bool) {
        wanted(head.as_bytes())
    }

    #[test]
    fn figures_can_be_read_and_nothing_else() {
        let figures = |format| (Wanted::Figures(format), true);
        let refused = |answer| (Wanted::Nothing(answer), true);
        let get = "GET /metrics HTTP/1.1\r\nHost: x\r\n";
        assert_eq!(asked(&format!("{get}\r\n")), figures(Format::OpenMetrics));
        let plain = format!("{get}ACCEPT: text/plain;version=0.0.4\r\n\r\n");
        assert_eq!(asked(&plain), figures(Format::Prometheus));
        assert_eq!(
            asked("GET /metrics?x=/y HTTP/1.0\n\n"),
            figures(Format::OpenMetrics)
        );
        assert_eq!(
            asked("HEAD /metrics HTTP/1.1\r\n\r\n"),
            (Wanted::Figures(Format::OpenMetrics), false)
        );
        assert_eq!(
            asked("POST /metrics HTTP/1.1\r\n\r\n"),
            refused(Answer::METHOD)
        );
        for path in ["/", "/metrics/", "//metrics", "/../metrics", "/etc/passwd"] {
            let head = format!("GET {path} HTTP/1.1\r\n\r\n");
            assert_eq!(asked(&head), refused(Answer::NOT_FOUND), "{path}");
        }
        for nonsense in [
            "nonsense\n\n",
            "\n\n",
            "\u{7f}\u{0}\r\n\r\n",
            "GET /metrics\n\n",
        ] {
            assert_eq!(asked(nonsense), refused(Answer::BAD), "{nonsense:?}");
        }
        let many = "A: b\r\n".repeat(HEADERS_MAX + 1);
        assert_eq!(
            asked(&format!("{get}{many}\r\n")),
            refused(Answer::TOO_LARGE)
        );
    }

    #[test]
    fn whatever_comes_is_answered() {
        let valid = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: text/plain\r\n\r\n";
        let mut random = 0x9E37_79B9_7F4A_7C15_u64;
        let mut next = |below: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            usize::try_from(random % below as u64).unwrap_or_default()
        };
        for _ in 0..20_000 {
            let mut head = valid.to_vec();
            for _ in 0..=next(8) {
                let at = next(head.len());
                head[at] = u8::try_from(next(256)).unwrap_or_default();
            }
            head.truncate(next(head.len()) + 1);
            let (wanted, with_body) = wanted(&head);
            if let Wanted::Nothing(answer) = wanted {
                assert!(answer.bytes(with_body).starts_with(b"HTTP/1.1 4"));
            }
        }
    }

    /// Gives its parts one at a time.
    struct InParts(Vec<&'static [u8]>);

    impl Read for InParts {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let Some(part) = self.0.pop() else {
                return Err(io::ErrorKind::WouldBlock.into());
            };
            buffer[..part.len()].copy_from_slice(part);
            Ok(part.len())
        }
    }

    #[test]
    fn a_request_may_come_in_parts_but_not_for_ever() {
        let stopping = AtomicBool::new(false);
        let bound = |ms| Bound {
            stopping: &stopping,
            until: Instant::now() + Duration::from_millis(ms),
        };
        let mut parts = InParts(vec![b"\n", b"HTTP/1.1\r\n\r", b"GET / "]);
        let head = read_head(&mut parts, &bound(60_000)).expect("in time");
        assert_eq!(head.as_deref(), Some(&b"GET / HTTP/1.1\r\n\r\n"[..]));
        let mut slow = InParts(vec![b"GET / "]);
        let error = read_head(&mut slow, &bound(20)).expect_err("too slow");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let mut long = InParts(vec![&[b'a'; 1024]; 100]);
        let head = read_head(&mut long, &bound(60_000)).expect("in time");
        assert_eq!((head, long.0.len()), (None, 91), "no more is read");
        stopping.store(true, Ordering::Release);
        assert!(read_head(&mut InParts(vec![b"x"]), &bound(60_000)).is_err());
    }
}
