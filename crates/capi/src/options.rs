//! What an arena is to be like: the struct of the header, and the same as a text.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::mem::{MaybeUninit, offset_of};
use std::os::unix::ffi::OsStrExt;

use vswap_arena::{Arena, Builder, Codec, CodecNameError, Packing, PackingNameError, ZstdLevel};

use crate::failure::Failure;

/// Asks for none at all, where 0 asks for the usual.
const NONE: u64 = u64::MAX;
/// A `size` above this was never set.
const SIZE_MOST_BYTES: usize = 4096;

/// `vswap_options` of the header. New fields come at the end, and 0 in them asks for the usual.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Options {
    /// Bytes of the struct, as the caller was compiled.
    size: usize,
    ram_bytes: u64,
    pool_bytes: u64,
    capacity_bytes: u64,
    swap_directory: *const c_char,
    swap_bytes: u64,
    codec: c_int,
    zstd_level: c_int,
    areas: *const c_char,
    far_backup: *const c_char,
    far_copies: c_int,
}

const _: () = assert!(size_of::<Options>() == 80);

impl Options {
    /// Copies what the caller has of it. The rest asks for the usual.
    ///
    /// # Safety
    /// `options` is null or has as many bytes as its first field says.
    pub unsafe fn read(options: *const Options) -> Result<Options, Failure> {
        if options.is_null() {
            return Err(Failure::argument("options is NULL: pass a vswap_options"));
        }
        // SAFETY: the caller's struct has its first field at least.
        let given = unsafe { (&raw const (*options).size).read() };
        let own = size_of::<Options>();
        if given < offset_of!(Options, pool_bytes) || given > SIZE_MOST_BYTES {
            return Err(Failure::argument(format!(
                "options.size is {given}, the library's vswap_options has {own} bytes: begin with VSWAP_OPTIONS_INIT"
            )));
        }
        let mut read = MaybeUninit::<Options>::zeroed();
        // SAFETY: the caller's struct has `given` bytes, the one here has `own`, and zeros are a valid value of it.
        let (read, rest) = unsafe {
            let bytes = options.cast::<u8>();
            bytes.copy_to_nonoverlapping(read.as_mut_ptr().cast(), given.min(own));
            let rest = (own..given).any(|at| bytes.add(at).read() != 0);
            (read.assume_init(), rest)
        };
        if rest {
            return Err(Failure::argument(
                "options asks for something that this library does not know: set what is reserved to 0, \
                 or link a library that is as new as the header",
            ));
        }
        Ok(read)
    }

    /// A builder for that.
    ///
    /// # Safety
    /// `swap_directory`, `areas` and `far_backup` are null or strings.
    pub unsafe fn builder(&self) -> Result<Builder, Failure> {
        // SAFETY: the caller passes a string.
        let areas = unsafe { text(self.areas) }.to_str();
        let areas = areas.map_err(|_| Failure::argument("options.areas is not UTF-8"))?;
        // SAFETY: the caller passes strings.
        let builder = unsafe { self.plain_builder() }?;
        let mut builder = areas
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .fold(builder, Builder::area);
        if !self.far_backup.is_null() {
            // SAFETY: the caller passes a string.
            let directory = unsafe { text(self.far_backup) };
            builder = builder.far_backup(OsStr::from_bytes(directory.to_bytes()));
        }
        match self.far_copies {
            0 => Ok(builder),
            copies => Ok(builder.far_copies(far_copies(&copies.to_string())?)),
        }
    }

    /// What there was before there were more areas.
    ///
    /// # Safety
    /// `swap_directory` is null or a string.
    unsafe fn plain_builder(&self) -> Result<Builder, Failure> {
        let mut builder = Arena::builder().ram(self.ram_bytes).codec(self.codec()?);
        match self.pool_bytes {
            0 => {}
            NONE => builder = builder.pool(0),
            bytes => builder = builder.pool(bytes),
        }
        if self.capacity_bytes > 0 {
            builder = builder.capacity(self.capacity_bytes);
        }
        match (self.swap_directory.is_null(), self.swap_bytes) {
            (true, 0) => Ok(builder),
            (true, _) => Err(Failure::argument(
                "options.swap_bytes is set and swap_directory is NULL: name a directory",
            )),
            (false, 0) => Err(Failure::argument(
                "options.swap_directory is set and swap_bytes is 0: say how large the swap area may grow",
            )),
            (false, bytes) => {
                // SAFETY: the caller passes a string.
                let directory = unsafe { CStr::from_ptr(self.swap_directory) };
                Ok(builder.swap(OsStr::from_bytes(directory.to_bytes()), bytes))
            }
        }
    }

    fn codec(&self) -> Result<Packing, Failure> {
        match (self.codec, self.zstd_level) {
            (0, 0) => Ok(Packing::Auto),
            (1, 0) => Ok(Codec::Lz4.into()),
            (2, 0) => Ok(Codec::Zstd.into()),
            (2, level) => match ZstdLevel::new(level) {
                Some(level) => Ok(Codec::ZstdAt(level).into()),
                None => {
                    let error = CodecNameError::Level(level.to_string());
                    Err(Failure::argument(format!("options.zstd_level: {error}")))
                }
            },
            (3, 0) => Ok(Codec::None.into()),
            (0 | 1 | 3, level) => Err(Failure::argument(format!(
                "options.zstd_level is {level} and options.codec is not VSWAP_ZSTD: leave the level 0"
            ))),
            (other, _) => Err(Failure::argument(format!(
                "options.codec is {other}: pass VSWAP_AUTO, VSWAP_LZ4, VSWAP_ZSTD or VSWAP_UNCOMPRESSED"
            ))),
        }
    }
}

/// The caller's text, or an empty one for null.
///
/// # Safety
/// `text` is null or a string.
pub unsafe fn text<'a>(text: *const c_char) -> &'a CStr {
    if text.is_null() {
        return c"";
    }
    // SAFETY: the caller passes a string.
    unsafe { CStr::from_ptr(text) }
}

fn far_copies(text: &str) -> Result<usize, Failure> {
    match text {
        "1" => Ok(1),
        "2" => Ok(2),
        _ => Err(Failure::argument(format!(
            "{text} is no number of copies in a store: pass 1 or 2"
        ))),
    }
}

/// Does this word belong to the area that was named before it? An area has options behind commas, and a store servers.
fn is_of_area(word: &str) -> bool {
    let key = word.split_once('=').map_or("", |(key, _)| key);
    matches!(key, "" | "prio" | "tier" | "discard" | "packed")
}

/// A builder for a text: `ram=512M,swap=/var/tmp:2G,codec=zstd`.
pub fn parse(text: &CStr) -> Result<Builder, Failure> {
    let text = text.to_str().map_err(|_| {
        Failure::argument("the options are not UTF-8: use vswap_create for such a directory")
    })?;
    let mut builder = Arena::builder();
    let mut words = text.split(',').map(str::trim).peekable();
    while let Some(word) = words.next() {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        builder = match key {
            "area" => {
                let mut area = value.to_owned();
                while let Some(more) = words.next_if(|word| is_of_area(word)) {
                    area = format!("{area},{more}");
                }
                builder.area(&area)
            }
            "far-copies" => builder.far_copies(far_copies(value)?),
            "far-backup" => builder.far_backup(value),
            "ram" => builder.ram(value),
            "pool" => builder.pool(value),
            "capacity" => builder.capacity(value),
            "codec" => builder.codec(codec(value)?),
            "swap" => {
                let (directory, size) = value.rsplit_once(':').ok_or_else(|| {
                    Failure::argument(format!(
                        "'{word}' has no size: write swap=DIRECTORY:SIZE, like swap=/var/tmp:2G"
                    ))
                })?;
                builder.swap(directory, size)
            }
            _ => {
                return Err(Failure::argument(format!(
                    "'{word}' is no option: write ram=SIZE, and as you like pool=SIZE, swap=DIRECTORY:SIZE, \
                     area=PATH[:SIZE][,prio=N][,tier=NAME], codec=auto|lz4|zstd|zstd:LEVEL|none, capacity=SIZE, \
                     far-copies=1|2, far-backup=DIRECTORY, with commas between"
                )));
            }
        };
    }
    Ok(builder)
}

fn codec(name: &str) -> Result<Packing, Failure> {
    name.parse()
        .map_err(|error: PackingNameError| Failure::argument(error.to_string()))
}
