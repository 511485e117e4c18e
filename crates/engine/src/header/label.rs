//! The label of a swap area: bytes that are mostly text.
//!
//! Kept as they lie in the header, so that a label in any character set comes back as it was. `Display` shows what
//! a terminal can take.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Bytes of the label's place in a header.
pub(super) const FIELD_BYTES: usize = 16;
/// Longest label that is written. util-linux keeps a zero behind it, and cuts what is longer.
pub const LABEL_BYTES_MAX: usize = FIELD_BYTES - 1;

/// The label of a swap area, at least one byte and no zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Label {
    /// Filled up with zeros.
    field: [u8; FIELD_BYTES],
}

/// Why a text cannot be a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum LabelError {
    /// Nothing to write.
    #[error("a label has at least one character; leave it out for none")]
    Empty,
    /// Does not fit.
    #[error(
        "a label of {bytes} bytes is too long: a swap area holds {LABEL_BYTES_MAX}. Choose a shorter one"
    )]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// A zero byte would end it.
    #[error("a label cannot hold a zero byte. Leave it out")]
    Zero,
}

impl Label {
    /// A label of these bytes.
    ///
    /// # Errors
    /// Empty, longer than 15 bytes, or with a zero byte in it.
    pub fn new(bytes: &[u8]) -> Result<Label, LabelError> {
        if bytes.is_empty() {
            return Err(LabelError::Empty);
        }
        if bytes.len() > LABEL_BYTES_MAX {
            let bytes = bytes.len();
            return Err(LabelError::TooLong { bytes });
        }
        if bytes.contains(&0) {
            return Err(LabelError::Zero);
        }
        let mut field = [0; FIELD_BYTES];
        field[..bytes.len()].copy_from_slice(bytes);
        Ok(Label { field })
    }

    /// The label in a header's field, which may fill it to the last byte; `None` when there is none.
    pub(super) fn from_field(field: &[u8; FIELD_BYTES]) -> Option<Label> {
        let mut label = Label { field: *field };
        let bytes = label.as_bytes().len();
        // What may lie behind the zero is not part of it.
        label.field[bytes..].fill(0);
        (bytes > 0).then_some(label)
    }

    /// What lies in the header.
    pub(super) fn field(&self) -> [u8; FIELD_BYTES] {
        self.field
    }

    /// The label itself; not always UTF-8.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        let end = self.field.iter().position(|byte| *byte == 0);
        &self.field[..end.unwrap_or(FIELD_BYTES)]
    }

    /// The label as text, where it is UTF-8.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        str::from_utf8(self.as_bytes()).ok()
    }
}

impl FromStr for Label {
    type Err = LabelError;

    fn from_str(text: &str) -> Result<Label, LabelError> {
        Label::new(text.as_bytes())
    }
}

/// Control characters and bytes that are no text are escaped, and so are backslashes: two labels never look the same.
impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.as_bytes().utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_control() || c == '\\' {
                    write!(f, "{}", c.escape_default())?;
                } else {
                    write!(f, "{c}")?;
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Label({self})")
    }
}
