//! The label of a swap area: bytes that are mostly text.
//!
//! The bytes are kept as they are in the header, so a label in any character set comes back unchanged. `Display` shows
//! what a terminal can take.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Bytes of the label's field in a header.
pub(super) const FIELD_BYTES: usize = 16;
/// Longest label that is written. util-linux keeps a zero behind the label and cuts longer ones.
pub const LABEL_BYTES_MAX: usize = FIELD_BYTES - 1;

/// The label of a swap area, at least one byte and no zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Label {
    /// Padded with zeros.
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
    /// [`LabelError`] if it is empty, longer than 15 bytes, or contains a zero byte.
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

    /// The label in a header's field, which may fill the field to the last byte. `None` when there is none.
    pub(super) fn from_field(field: &[u8; FIELD_BYTES]) -> Option<Label> {
        let mut label = Label { field: *field };
        let bytes = label.as_bytes().len();
        // Bytes behind the zero are not part of the label.
        label.field[bytes..].fill(0);
        (bytes > 0).then_some(label)
    }

    /// The field as in the header.
    pub(super) fn field(&self) -> [u8; FIELD_BYTES] {
        self.field
    }

    /// The bytes of the label, not always UTF-8.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        let end = self.field.iter().position(|byte| *byte == 0);
        &self.field[..end.unwrap_or(FIELD_BYTES)]
    }

    /// The label as text, if it is UTF-8.
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

/// Escapes control characters, bytes that are not text, and backslashes. So two different labels never look the same.
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
