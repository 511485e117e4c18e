//! The protocol of network block devices, as far as it is needed: the fixed newstyle handshake with `NBD_OPT_GO`, and
//! requests with simple replies. Bytes only; whoever calls brings the stream.
//!
//! It is written here because no library fits. Of those for Rust `nbd` has one request under way at a time, neither
//! `NBD_OPT_GO`, block sizes nor TRIM, and calls itself a first sketch; `tokio-nbd` and `nbdkit` are for servers;
//! libnbd is a C library, which each machine would have to have. The protocol is described in `doc/proto.md` of the
//! project that made it.
//!
//! A server is not trusted: every length is checked before memory is taken for it.

use std::io::{self, Read, Write};

/// Bytes before a request's payload.
pub(crate) const REQUEST_BYTES: usize = 28;
/// Bytes before a reply's payload.
pub(crate) const REPLY_BYTES: usize = 16;

const GREETING: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const OPTION: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;

/// Flags of the greeting, and of the answer to it.
const FIXED_NEWSTYLE: u16 = 1 << 0;
const NO_ZEROES: u16 = 1 << 1;
const GO: u32 = 7;
const ABORT: u32 = 2;
/// Answers to an option.
const DONE: u32 = 1;
const INFO: u32 = 3;
const ERROR: u32 = 1 << 31;
const UNSUPPORTED: u32 = ERROR + 1;
const FORBIDDEN: u32 = ERROR + 2;
const TLS_REQUIRED: u32 = ERROR + 5;
const UNKNOWN: u32 = ERROR + 6;
const SHUTDOWN: u32 = ERROR + 7;
const BLOCK_SIZE_REQUIRED: u32 = ERROR + 8;
/// Kinds of information.
const OF_EXPORT: u16 = 0;
const OF_BLOCKS: u16 = 3;

/// Flags of an export.
const READ_ONLY: u16 = 1 << 1;
const CAN_TRIM: u16 = 1 << 5;
const CAN_MULTI_CONN: u16 = 1 << 8;

/// A server that says more before it gets to the point is not served.
const ANSWERS_MAX: usize = 64;
/// Bytes of one answer to an option. The longest are texts of 4096 bytes.
const ANSWER_BYTES_MAX: u32 = 64 * 1024;
/// The largest payload of a server that does not say what it takes.
const PAYLOAD_BYTES_USUAL: u32 = 32 << 20;

/// Errors of requests, of those that are told apart.
pub(crate) const NO_SPACE: u32 = 28;
pub(crate) const NO_MEMORY: u32 = 12;
pub(crate) const GOES_DOWN: u32 = 108;

/// What a server says of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Export {
    /// How long it is.
    pub bytes: u64,
    /// Whether nothing may be written.
    pub read_only: bool,
    /// Whether it can be told what is not needed any more.
    pub can_trim: bool,
    /// Whether several connections see the same content.
    pub can_multi_conn: bool,
    /// What requests must be a multiple of.
    pub block_bytes: u32,
    /// The longest payload that it takes.
    pub payload_bytes_max: u32,
}

/// Why a handshake did not succeed.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The connection broke, or the server goes down: it may be otherwise the next time.
    Broken(String),
    /// What the server is or says. It stands behind its name.
    Unfit(String),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        Refusal::Broken(broken(&error))
    }
}

/// What an error of a socket means, for people.
pub(crate) fn broken(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no answer in time".into(),
        io::ErrorKind::UnexpectedEof => "it closed the connection".into(),
        _ => error.to_string(),
    }
}

fn unfit<T>(what: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Unfit(what.into()))
}

fn read<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_u16(stream: &mut impl Read) -> io::Result<u16> {
    read(stream).map(u16::from_be_bytes)
}

fn read_u32(stream: &mut impl Read) -> io::Result<u32> {
    read(stream).map(u32::from_be_bytes)
}

fn read_u64(stream: &mut impl Read) -> io::Result<u64> {
    read(stream).map(u64::from_be_bytes)
}

/// Asks for an export. On success requests can follow.
///
/// # Errors
/// [`Refusal`].
pub(crate) fn shake_hands(stream: &mut (impl Read + Write), name: &str) -> Result<Export, Refusal> {
    if read_u64(stream)? != GREETING {
        return unfit("is no server of block devices: it does not greet as one");
    }
    if read_u64(stream)? != OPTION {
        return unfit(
            "speaks the handshake of before 2011: expected is the fixed newstyle, which current ones have",
        );
    }
    let flags = read_u16(stream)?;
    if flags & FIXED_NEWSTYLE == 0 {
        return unfit("speaks no fixed newstyle handshake: expected is a server of 2012 or later");
    }
    let agreed = FIXED_NEWSTYLE | (flags & NO_ZEROES);
    stream.write_all(&u32::from(agreed).to_be_bytes())?;
    let length = u32::try_from(name.len()).unwrap_or(u32::MAX);
    let mut wish = Vec::with_capacity(name.len() + 8);
    wish.extend_from_slice(&length.to_be_bytes());
    wish.extend_from_slice(name.as_bytes());
    // One kind of information is asked for; that of the export comes by itself.
    wish.extend_from_slice(&1_u16.to_be_bytes());
    wish.extend_from_slice(&OF_BLOCKS.to_be_bytes());
    stream.write_all(&option(GO, &wish))?;
    let answered = answers(stream, name);
    if matches!(answered, Err(Refusal::Unfit(_))) {
        // A farewell for the server's log. Whether it arrives does not matter.
        let _ = stream.write_all(&option(ABORT, &[]));
    }
    answered
}

fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(data.len() + 16);
    bytes.extend_from_slice(&OPTION.to_be_bytes());
    bytes.extend_from_slice(&option.to_be_bytes());
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

/// Reads what comes in answer to [`GO`].
fn answers(stream: &mut impl Read, name: &str) -> Result<Export, Refusal> {
    let mut of_export = None;
    let mut of_blocks = (1, PAYLOAD_BYTES_USUAL);
    for _ in 0..ANSWERS_MAX {
        if read_u64(stream)? != OPTION_REPLY || read_u32(stream)? != GO {
            return unfit("does not answer as the protocol wants it");
        }
        let kind = read_u32(stream)?;
        let length = read_u32(stream)?;
        if length > ANSWER_BYTES_MAX {
            return unfit(format!(
                "answers with {length} bytes where a few are expected"
            ));
        }
        let mut data = vec![0; usize::try_from(length).unwrap_or_default()];
        stream.read_exact(&mut data)?;
        match kind {
            DONE => {
                let Some((bytes, flags)) = of_export else {
                    return unfit("does not say how large its export is");
                };
                return Ok(export(bytes, flags, of_blocks));
            }
            INFO => {
                let data = &mut data.as_slice();
                match read_u16(data).ok() {
                    Some(OF_EXPORT) => of_export = read_u64(data).ok().zip(read_u16(data).ok()),
                    Some(OF_BLOCKS) => {
                        let sizes = [(); 3].map(|()| read_u32(data).unwrap_or_default());
                        of_blocks = (sizes[0].max(1), sizes[2]);
                    }
                    _ => {}
                }
            }
            kind if kind & ERROR != 0 => return Err(refused(kind, &data, name)),
            _ => {}
        }
    }
    unfit("says more than is expected before it gives its export")
}

fn export(bytes: u64, flags: u16, (block_bytes, payload_bytes_max): (u32, u32)) -> Export {
    Export {
        bytes,
        read_only: flags & READ_ONLY != 0,
        can_trim: flags & CAN_TRIM != 0,
        can_multi_conn: flags & CAN_MULTI_CONN != 0,
        block_bytes,
        payload_bytes_max,
    }
}

/// What an error in answer to [`GO`] means.
fn refused(kind: u32, said: &[u8], name: &str) -> Refusal {
    // What the server says goes to a terminal.
    let said = String::from_utf8_lossy(said).replace(char::is_control, " ");
    let said = match said.trim() {
        "" => String::new(),
        said => format!(" (it says: {said})"),
    };
    Refusal::Unfit(match kind {
        UNSUPPORTED => {
            format!("does not know NBD_OPT_GO{said}: expected is a server of 2018 or later")
        }
        TLS_REQUIRED => format!(
            "takes connections with TLS alone{said}, which vswap does not speak with block stores: let it take \
             others too (what vswap writes is encrypted and authenticated), or put a tunnel in between"
        ),
        UNKNOWN => format!(
            "has no export {name:?}{said}: name one that it has behind the last / of nbd://HOST:PORT/EXPORT"
        ),
        FORBIDDEN => {
            format!("does not give the export {name:?} to this machine{said}: permit it there")
        }
        BLOCK_SIZE_REQUIRED => format!(
            "wants blocks of a size that vswap does not have{said}: expected is 4096 or less"
        ),
        SHUTDOWN => return Refusal::Broken(format!("it goes down{said}")),
        other => format!(
            "refuses the export {name:?} with error {:#x}{said}",
            other & !ERROR
        ),
    })
}

/// What can be asked of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Read,
    Write,
    /// Ends the connection. It has no reply.
    Disconnect,
    Trim,
}

/// What stands before the payload of a request.
pub(crate) fn request(
    command: Command,
    handle: u64,
    offset: u64,
    length: u32,
) -> [u8; REQUEST_BYTES] {
    let command: u16 = match command {
        Command::Read => 0,
        Command::Write => 1,
        Command::Disconnect => 2,
        Command::Trim => 4,
    };
    let mut bytes = [0; REQUEST_BYTES];
    bytes[..4].copy_from_slice(&REQUEST.to_be_bytes());
    bytes[6..8].copy_from_slice(&command.to_be_bytes());
    bytes[8..16].copy_from_slice(&handle.to_be_bytes());
    bytes[16..24].copy_from_slice(&offset.to_be_bytes());
    bytes[24..].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// The error and the handle of a reply. None if it is no simple reply.
pub(crate) fn reply(bytes: [u8; REPLY_BYTES]) -> Option<(u32, u64)> {
    let bytes = &mut bytes.as_slice();
    let is_reply = read_u32(bytes).ok()? == REPLY;
    let error = read_u32(bytes).ok()?;
    let handle = read_u64(bytes).ok()?;
    is_reply.then_some((error, handle))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that has said everything already.
    struct Scripted {
        says: io::Cursor<Vec<u8>>,
        heard: Vec<u8>,
    }

    impl Read for Scripted {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.says.read(into)
        }
    }

    impl Write for Scripted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.heard.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn greeting(flags: u16) -> Vec<u8> {
        let mut says = b"NBDMAGICIHAVEOPT".to_vec();
        says.extend_from_slice(&flags.to_be_bytes());
        says
    }

    fn answer(kind: u32, data: &[u8]) -> Vec<u8> {
        let mut says = OPTION_REPLY.to_be_bytes().to_vec();
        says.extend_from_slice(&GO.to_be_bytes());
        says.extend_from_slice(&kind.to_be_bytes());
        says.extend_from_slice(&u32::try_from(data.len()).unwrap().to_be_bytes());
        says.extend_from_slice(data);
        says
    }

    fn with(says: &[Vec<u8>]) -> (Result<Export, Refusal>, Vec<u8>) {
        let mut server = Scripted {
            says: io::Cursor::new(says.concat()),
            heard: Vec::new(),
        };
        (shake_hands(&mut server, "disk"), server.heard)
    }

    fn of_export(bytes: u64, flags: u16) -> Vec<u8> {
        let data = [&[0, 0][..], &bytes.to_be_bytes(), &flags.to_be_bytes()].concat();
        answer(INFO, &data)
    }

    #[test]
    fn an_export_is_asked_for_and_described() {
        let sizes = [512_u32, 4096, 1 << 20].map(u32::to_be_bytes).concat();
        let blocks = answer(INFO, &[&[0, 3][..], &sizes].concat());
        let other = answer(INFO, &[0, 1, b'n']);
        let says = [
            greeting(3),
            other,
            of_export(1 << 30, 0x121),
            blocks,
            answer(DONE, &[]),
        ];
        let (given, heard) = with(&says);
        assert_eq!(
            given.unwrap(),
            Export {
                bytes: 1 << 30,
                read_only: false,
                can_trim: true,
                can_multi_conn: true,
                block_bytes: 512,
                payload_bytes_max: 1 << 20,
            }
        );
        assert_eq!(heard[..4], [0, 0, 0, 3]);
        assert_eq!(heard[4..12], *b"IHAVEOPT");
        assert_eq!(
            heard[12..],
            *b"\0\0\0\x07\0\0\0\x0c\0\0\0\x04disk\0\x01\0\x03"
        );
        let (given, _) = with(&[greeting(1), of_export(4096, 3), answer(DONE, &[])]);
        let given = given.unwrap();
        assert!(given.read_only && !given.can_trim && !given.can_multi_conn);
        assert_eq!((given.block_bytes, given.payload_bytes_max), (1, 32 << 20));
    }

    #[test]
    fn what_a_server_is_not_is_said() {
        let error = |kind, text: &[u8]| vec![greeting(3), answer(kind, text)];
        let cases = [
            (
                vec![b"HTTP/1.1 400 Bad Request".to_vec()],
                "no server of block devices",
            ),
            (
                vec![b"NBDMAGIC\0\0\x42\x02\x81\x86\x12\x53".to_vec()],
                "before 2011",
            ),
            (vec![greeting(0)], "no fixed newstyle"),
            (error(UNSUPPORTED, b""), "does not know NBD_OPT_GO:"),
            (error(TLS_REQUIRED, b""), "TLS alone,"),
            (
                error(UNKNOWN, b"not\x1b[2J here"),
                "no export \"disk\" (it says: not [2J here)",
            ),
            (error(FORBIDDEN, b""), "to this machine:"),
            (error(BLOCK_SIZE_REQUIRED, b""), "4096 or less"),
            (error(ERROR + 99, b""), "error 0x63"),
            (vec![greeting(3), answer(DONE, &[])], "how large"),
            (vec![greeting(3), vec![0; 20]], "as the protocol wants"),
            (vec![greeting(3), answer(INFO, &[0; 70_000])], "70000 bytes"),
            (
                [vec![greeting(3)], vec![answer(INFO, &[0, 9]); 70]].concat(),
                "more than is expected",
            ),
        ];
        for (says, expected) in cases {
            match with(&says).0 {
                Err(Refusal::Unfit(what)) => assert!(what.contains(expected), "{what}"),
                other => panic!("{expected}: {other:?}"),
            }
        }
        for says in [vec![], vec![greeting(3)], error(SHUTDOWN, b"")] {
            assert!(matches!(with(&says).0, Err(Refusal::Broken(_))));
        }
    }

    #[test]
    fn requests_and_replies_are_as_the_protocol_has_them() {
        let bytes = request(Command::Trim, 0x0102_0304_0506_0708, 4096, 8192);
        assert_eq!(bytes[..8], [0x25, 0x60, 0x95, 0x13, 0, 0, 0, 4]);
        assert_eq!(bytes[8..16], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(bytes[16..], [0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 32, 0]);
        let mut answer = [0; REPLY_BYTES];
        answer[..4].copy_from_slice(&REPLY.to_be_bytes());
        (answer[7], answer[15]) = (28, 9);
        assert_eq!(reply(answer), Some((NO_SPACE, 9)));
        answer[0] ^= 1;
        assert_eq!(reply(answer), None);
    }
}
