//! What a program says of how its pages are to be compressed.

use std::str::FromStr;

use vswap_engine::{Codec, CodecNameError};

/// How pages are compressed. As text: `auto`, or the name of a codec (`lz4`, `zstd`, `zstd:3`, `none`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Packing {
    /// With lz4, and with zstd what would not fit otherwise: where there is no swap area, and the pool is nearly full
    /// or nothing could leave.
    #[default]
    Auto,
    /// All of them with this codec.
    With(Codec),
}

/// A text that does not say how pages are to be compressed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PackingNameError {
    /// There is no such codec.
    #[error("'{0}' is no codec: auto, lz4, zstd and none are, and zstd with a level, like zstd:3")]
    Unknown(String),
    /// There is one, but not with this level.
    #[error(transparent)]
    Level(CodecNameError),
}

impl From<Codec> for Packing {
    fn from(codec: Codec) -> Packing {
        Packing::With(codec)
    }
}

impl FromStr for Packing {
    type Err = PackingNameError;

    fn from_str(name: &str) -> Result<Packing, PackingNameError> {
        if name == "auto" {
            return Ok(Packing::Auto);
        }
        match name.parse() {
            Ok(codec) => Ok(Packing::With(codec)),
            Err(CodecNameError::Unknown(name)) => Err(PackingNameError::Unknown(name)),
            Err(level) => Err(PackingNameError::Level(level)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_how_and_others_say_what_is_known() {
        assert_eq!("auto".parse(), Ok(Packing::Auto));
        assert_eq!("zstd".parse(), Ok(Packing::With(Codec::Zstd)));
        let said = |name: &str| name.parse::<Packing>().unwrap_err().to_string();
        assert!(said("zip").contains("auto, lz4, zstd and none"));
        assert!(said("zstd:0").contains("no level of zstd"));
    }
}
