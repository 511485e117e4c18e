//! `--codec`: how pages are compressed.

use std::ffi::OsStr;
use std::fmt;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command, Error};
use vswap_engine::CodecNameError;
use vswap_pager::config::Codec as PageCodec;

/// Names that shells complete. A level behind `zstd:` is the user's.
const NAMES: [&str; 4] = ["auto", "lz4", "zstd", "none"];

/// What the user has chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Codec {
    /// What costs less time, again and again.
    #[default]
    Auto,
    /// All pages alike.
    Always(PageCodec),
}

impl Codec {
    /// Reads `--codec`. Give this to clap, which lists the names in help and completions.
    pub fn parser() -> impl TypedValueParser<Value = Codec> {
        CodecParser
    }

    /// Are cold pages packed again?
    pub fn repacks(self) -> bool {
        self == Codec::Auto
    }
}

/// As the user writes it.
impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Codec::Auto => f.write_str("auto"),
            Codec::Always(codec) => codec.fmt(f),
        }
    }
}

impl From<Codec> for PageCodec {
    fn from(codec: Codec) -> Self {
        match codec {
            Codec::Auto => Self::Lz4,
            Codec::Always(codec) => codec,
        }
    }
}

#[derive(Debug, Clone)]
struct CodecParser;

impl TypedValueParser for CodecParser {
    type Value = Codec;

    fn parse_ref(&self, cmd: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Codec, Error> {
        TypedValueParser::parse_ref(&parse, cmd, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(NAMES.into_iter().map(PossibleValue::new)))
    }
}

fn parse(name: &str) -> Result<Codec, String> {
    if name == "auto" {
        return Ok(Codec::Auto);
    }
    match name.parse() {
        Ok(codec) => Ok(Codec::Always(codec)),
        Err(error @ CodecNameError::Level(_)) => Err(error.to_string()),
        Err(CodecNameError::Unknown(_)) => Err(
            "expected auto, lz4, zstd, none, or zstd with a level from -7 to 19; for example: zstd:3"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_codec_is_shown_as_it_was_named_and_only_auto_repacks() {
        for name in ["auto", "lz4", "zstd", "zstd:-1", "zstd:19", "none"] {
            let codec = parse(name).expect(name);
            assert_eq!(codec.to_string(), name);
            assert_eq!(codec.repacks(), name == "auto");
        }
        assert_eq!(PageCodec::from(Codec::Auto), PageCodec::Lz4);
        assert_eq!(parse("zstd:1"), parse("zstd"), "the usual level");
        for name in NAMES {
            assert!(parse(name).is_ok(), "{name} is completed and refused");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_what_was_expected() {
        for (name, expected) in [
            ("rar", "expected auto, lz4, zstd, none"),
            ("auto:3", "for example: zstd:3"),
            ("zstd:0", "from -7 to -1 or from 1 to 19"),
            ("zstd:22", "'22' is no level of zstd"),
            ("zstd:", "'' is no level of zstd"),
        ] {
            let error = parse(name).expect_err(name);
            assert!(error.contains(expected), "{name}: {error}");
        }
    }
}
