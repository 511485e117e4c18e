//! Compression of single pages.
//!
//! A [`Codec`] says how a new page is compressed. The *payload* that comes of it says by itself how it is packed,
//! wherever it goes: in the pool, in far memory, in a backup of that. So payloads of several codecs lie side by side,
//! and [`Scratch::decompress`] needs to be told nothing.
//!
//! | a payload of | is |
//! |---|---|
//! | exactly [`PAGE_BYTES`] | the page itself |
//! | up to [`PACKED_BYTES_MAX`] | a byte that names the codec, and behind it what the codec made of the page |
//!
//! Nothing lies in between. A longer result would take a whole page in the pool; the raw page fits there as well, and
//! needs no decompression. The name is in the payload, not in a table beside it, so that checksums and encryption cover
//! it, and whoever passes payloads on needs not know of it. The kernel's zram keeps such a name in its table, because
//! one of its table entries has bits to spare for it.
//!
//! It does not say with which level zstd packed it, because zstd unpacks every level alike.
//!
//! A [`Scratch`] holds contexts and an output buffer for one thread, so that no page needs an allocation.

mod name;
mod second;

use std::fmt;
use std::sync::Arc;

use crate::base::buffer::PageBuffer;
use crate::base::pages::{HeapPages, PAGE_BYTES, Page, PageSource};
use crate::zpool::PACKED_BYTES_MAX;

pub use name::{CodecNameError, ZstdLevel};
pub use second::Pack;
pub(crate) use second::SecondCodec;

/// How pages are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// Fast, for pages that come back soon.
    Lz4,
    /// Dense, for pages that stay away. With [`ZstdLevel::USUAL`].
    Zstd,
    /// The same with another level.
    ZstdAt(ZstdLevel),
    /// Pages are kept as they are.
    None,
}

/// The first byte of what lz4 packed. Not 0, so that wiped memory names no codec.
const LZ4: u8 = 1;
/// The first byte of what zstd packed.
const ZSTD: u8 = 2;

/// The page does not compress below [`PACKED_BYTES_MAX`]. Keep it raw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the page does not compress below {PACKED_BYTES_MAX} bytes: store it raw")]
pub struct Incompressible;

/// A payload did not decompress to exactly one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a payload of {payload_bytes} bytes did not decompress to {PAGE_BYTES} bytes: its memory was overwritten"
)]
pub struct Corrupt {
    /// Length of the payload in bytes.
    pub payload_bytes: usize,
}

/// Compression contexts and buffers for one thread. Made once, by [`Codec::scratch`] or [`Scratch::new`].
pub struct Scratch {
    /// One page, of which [`PACKED_BYTES_MAX`] are used.
    out: PageBuffer,
    contexts: backend::Contexts,
    /// Pages that are moved together. None before the thread first moves pages.
    unpacked: PageBuffer,
}

impl Scratch {
    /// A scratch for every codec. The contexts of a codec are made when it is first used.
    #[must_use]
    pub fn new() -> Self {
        let heap: Arc<dyn PageSource> = Arc::new(HeapPages::new());
        Scratch::within(&heap)
    }

    /// The same with its buffers in the memory of this source.
    fn within(pages: &Arc<dyn PageSource>) -> Self {
        Scratch {
            out: PageBuffer::new(pages, 1),
            contexts: backend::Contexts::new(),
            unpacked: PageBuffer::empty(pages),
        }
    }

    /// Takes the pages that are moved together, to be given back by `give_pages`.
    pub(crate) fn take_pages(&mut self) -> PageBuffer {
        let none = PageBuffer::empty(self.unpacked.source());
        std::mem::replace(&mut self.unpacked, none)
    }

    pub(crate) fn give_pages(&mut self, pages: PageBuffer) {
        self.unpacked = pages;
    }

    /// Decompresses `payload` into `dst`, as the payload says. One of [`PAGE_BYTES`] is the page itself and is copied.
    /// Locks: none. Allocates only if the payload is of zstd and this scratch has no context for that yet.
    ///
    /// # Errors
    /// [`Corrupt`] unless exactly one page comes out. `dst` then holds anything.
    pub fn decompress(&mut self, payload: &[u8], dst: &mut Page) -> Result<(), Corrupt> {
        if payload.len() == PAGE_BYTES {
            dst.0.copy_from_slice(payload);
            return Ok(());
        }
        let bytes = match payload.split_first() {
            Some((&LZ4, packed)) => self.contexts.lz4_decompress(packed, dst),
            Some((&ZSTD, packed)) => self.contexts.zstd_decompress(packed, dst),
            _ => None,
        };
        match bytes {
            Some(PAGE_BYTES) => Ok(()),
            _ => Err(Corrupt {
                payload_bytes: payload.len(),
            }),
        }
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scratch").finish_non_exhaustive()
    }
}

impl Codec {
    /// A scratch whose contexts for this codec already exist, so that no page waits for them. So do those for
    /// decompressing zstd, because any page may have been packed again ([`Engine::repack`](crate::Engine::repack)), and
    /// a page must not be lost for want of memory.
    #[must_use]
    pub fn scratch(self) -> Scratch {
        let mut scratch = Scratch::new();
        scratch.contexts.prepare(self);
        scratch
    }

    /// The same with its buffers in the memory of this source.
    pub(crate) fn scratch_in(self, pages: &Arc<dyn PageSource>) -> Scratch {
        let mut scratch = Scratch::within(pages);
        scratch.contexts.prepare(self);
        scratch
    }

    /// Compresses `page` into the scratch's buffer, and returns the result there.
    ///
    /// # Errors
    /// [`Incompressible`] when the result would exceed [`PACKED_BYTES_MAX`], and always for [`Codec::None`].
    pub fn compress<'s>(
        self,
        page: &Page,
        scratch: &'s mut Scratch,
    ) -> Result<&'s [u8], Incompressible> {
        let Scratch { out, contexts, .. } = scratch;
        let out = &mut out[0].0[..PACKED_BYTES_MAX];
        let (name, packed) = out.split_first_mut().ok_or(Incompressible)?;
        let bytes = match self {
            Codec::Lz4 => {
                *name = LZ4;
                contexts.lz4_compress(page, packed)
            }
            Codec::Zstd => {
                *name = ZSTD;
                contexts.zstd_compress(page, packed, ZstdLevel::USUAL)
            }
            Codec::ZstdAt(level) => {
                *name = ZSTD;
                contexts.zstd_compress(page, packed, level)
            }
            Codec::None => None,
        };
        bytes
            .and_then(|bytes| out.get(..=bytes))
            .ok_or(Incompressible)
    }

    /// How a payload says that it is packed: [`Codec::None`] for a page itself, and [`Codec::Zstd`] for zstd with any
    /// level. `None` if it names no codec: no payload begins like that.
    #[must_use]
    pub fn of(payload: &[u8]) -> Option<Codec> {
        match payload {
            [..] if payload.len() == PAGE_BYTES => Some(Codec::None),
            [LZ4, ..] => Some(Codec::Lz4),
            [ZSTD, ..] => Some(Codec::Zstd),
            _ => None,
        }
    }
}

#[cfg(not(any(miri, tsan, loom, shuttle)))]
mod backend {
    //! The C codecs, with contexts that are made once and reused.
    //!
    //! Unsafe is needed here because lz4 is called through its C interface: zstd-safe wraps zstd, but lz4-sys wraps
    //! nothing.

    use std::ffi::{c_char, c_int, c_void};

    use zstd_safe::{CCtx, CParameter, DCtx};

    use super::{Codec, ZstdLevel};
    use crate::base::pages::{PAGE_BYTES, Page};

    /// lz4's speed knob; 1 is its default. On pages of an interpreter's heap 4 is 3 % faster for 1 % more bytes, on
    /// text 5 % faster for 7 % more bytes: not worth it.
    const LZ4_ACCELERATION: c_int = 1;

    /// Bytes of lz4's state with its default hash table of 16 KiB. Checked against the library when the state is made.
    const LZ4_STATE_BYTES: usize = 16 * 1024 + 64;

    const PAGE_BYTES_C: c_int = 4096;
    const _: () = assert!(PAGE_BYTES_C as usize == PAGE_BYTES);

    // These are part of lz4's public interface. lz4-sys links them but does not declare them.
    unsafe extern "C" {
        fn LZ4_sizeofState() -> c_int;
        fn LZ4_compress_fast_extState(
            state: *mut c_void,
            src: *const c_char,
            dst: *mut c_char,
            src_bytes: c_int,
            dst_capacity: c_int,
            acceleration: c_int,
        ) -> c_int;
    }

    /// lz4 wants its state aligned for 8-byte words. Alignment to a cache line avoids split accesses.
    #[repr(C, align(64))]
    struct Lz4State([u8; LZ4_STATE_BYTES]);

    pub(super) struct Contexts {
        lz4: Option<Box<Lz4State>>,
        /// With the level that it is set to. Apart from the other, because most threads only decompress, and this one
        /// takes hundreds of KiB.
        zstd_in: Option<(CCtx<'static>, ZstdLevel)>,
        zstd_out: Option<DCtx<'static>>,
    }

    impl Contexts {
        pub(super) const fn new() -> Self {
            Contexts {
                lz4: None,
                zstd_in: None,
                zstd_out: None,
            }
        }

        /// Makes what this codec compresses with, and what any payload may need to be decompressed.
        pub(super) fn prepare(&mut self, codec: Codec) {
            match codec {
                Codec::Lz4 => drop(self.lz4()),
                Codec::Zstd => drop(self.zstd_in(ZstdLevel::USUAL)),
                Codec::ZstdAt(level) => drop(self.zstd_in(level)),
                Codec::None => {}
            }
            self.zstd_out();
        }

        fn lz4(&mut self) -> Option<&mut Lz4State> {
            if self.lz4.is_none() {
                // SAFETY: The function takes nothing and returns a constant of the library.
                let needed = unsafe { LZ4_sizeofState() };
                if usize::try_from(needed).is_ok_and(|bytes| bytes <= LZ4_STATE_BYTES) {
                    self.lz4 = Some(Box::new(Lz4State([0; LZ4_STATE_BYTES])));
                }
            }
            self.lz4.as_deref_mut()
        }

        /// Setting another level changes a few words: what the context has allocated stays.
        fn zstd_in(&mut self, level: ZstdLevel) -> Option<&mut CCtx<'static>> {
            if self.zstd_in.is_none() {
                let mut context = CCtx::try_create()?;
                // The pool keeps length and checksum. A copy in each zstd frame would only take room.
                for parameter in [
                    CParameter::CompressionLevel(level.get()),
                    CParameter::ContentSizeFlag(false),
                    CParameter::ChecksumFlag(false),
                    CParameter::DictIdFlag(false),
                ] {
                    context.set_parameter(parameter).ok()?;
                }
                self.zstd_in = Some((context, level));
            }
            let (context, set) = self.zstd_in.as_mut()?;
            if *set != level {
                let parameter = CParameter::CompressionLevel(level.get());
                context.set_parameter(parameter).ok()?;
                *set = level;
            }
            Some(context)
        }

        fn zstd_out(&mut self) -> Option<&mut DCtx<'static>> {
            if self.zstd_out.is_none() {
                self.zstd_out = DCtx::try_create();
            }
            self.zstd_out.as_mut()
        }

        /// Length of the result in `out`. `None` if it does not fit.
        pub(super) fn lz4_compress(&mut self, page: &Page, out: &mut [u8]) -> Option<usize> {
            let capacity = c_int::try_from(out.len()).ok()?;
            let state: *mut Lz4State = self.lz4()?;
            // SAFETY: `state` is exclusive, aligned and at least LZ4_sizeofState() bytes long. The library reads
            // exactly PAGE_BYTES of `page` and writes at most `capacity` bytes of `out`.
            let written = unsafe {
                LZ4_compress_fast_extState(
                    state.cast(),
                    page.0.as_ptr().cast(),
                    out.as_mut_ptr().cast(),
                    PAGE_BYTES_C,
                    capacity,
                    LZ4_ACCELERATION,
                )
            };
            // 0 means that the result did not fit.
            usize::try_from(written).ok().filter(|&bytes| bytes > 0)
        }

        /// Number of bytes decompressed. `None` for a malformed payload.
        #[expect(clippy::unused_self, reason = "the same face for every codec")]
        pub(super) fn lz4_decompress(&mut self, payload: &[u8], dst: &mut Page) -> Option<usize> {
            let payload_bytes = c_int::try_from(payload.len()).ok()?;
            // SAFETY: The library reads at most `payload_bytes` of `payload` and writes at most PAGE_BYTES of `dst`,
            // whatever the payload holds.
            let written = unsafe {
                lz4_sys::LZ4_decompress_safe(
                    payload.as_ptr().cast(),
                    dst.0.as_mut_ptr().cast(),
                    payload_bytes,
                    PAGE_BYTES_C,
                )
            };
            usize::try_from(written).ok()
        }

        /// Length of the result in `out`. `None` if it does not fit.
        pub(super) fn zstd_compress(
            &mut self,
            page: &Page,
            out: &mut [u8],
            level: ZstdLevel,
        ) -> Option<usize> {
            self.zstd_in(level)?.compress2(out, &page.0).ok()
        }

        /// Number of bytes decompressed. `None` for a malformed payload.
        pub(super) fn zstd_decompress(&mut self, payload: &[u8], dst: &mut Page) -> Option<usize> {
            self.zstd_out()?.decompress(&mut dst.0[..], payload).ok()
        }
    }
}

#[cfg(any(miri, tsan, loom, shuttle))]
mod backend {
    //! One codec in pure Rust replaces both, because Miri cannot run C. The other checkers could, but would have to
    //! build it once more, which takes longer than they run.

    use super::{Codec, ZstdLevel};
    use crate::base::pages::Page;

    /// What stands in for lz4 makes payloads longer by this, so that the other has something to gain here too.
    const LZ4_LONGER_BYTES: usize = 64;

    pub(super) struct Contexts;

    impl Contexts {
        pub(super) const fn new() -> Self {
            Contexts
        }

        pub(super) fn prepare(&mut self, _codec: Codec) {}

        pub(super) fn lz4_compress(&mut self, page: &Page, out: &mut [u8]) -> Option<usize> {
            let bytes = self.zstd_compress(page, out, ZstdLevel::USUAL)?;
            let longer = bytes + LZ4_LONGER_BYTES;
            out.get_mut(bytes..longer)?.fill(0);
            Some(longer)
        }

        pub(super) fn lz4_decompress(&mut self, payload: &[u8], dst: &mut Page) -> Option<usize> {
            let bytes = payload.len().checked_sub(LZ4_LONGER_BYTES)?;
            self.zstd_decompress(payload.get(..bytes)?, dst)
        }

        pub(super) fn zstd_compress(
            &mut self,
            page: &Page,
            out: &mut [u8],
            _level: ZstdLevel,
        ) -> Option<usize> {
            let packed = lz4_flex::block::compress(&page.0);
            out.get_mut(..packed.len())?.copy_from_slice(&packed);
            Some(packed.len())
        }

        pub(super) fn zstd_decompress(&mut self, payload: &[u8], dst: &mut Page) -> Option<usize> {
            lz4_flex::block::decompress_into(payload, &mut dst.0).ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zpool::testing::{Content, page_bytes, seeded};

    const PAGES: u64 = if cfg!(miri) { 2 } else { 64 };

    fn at(level: i32) -> Codec {
        Codec::ZstdAt(ZstdLevel::new(level).expect("a level"))
    }

    #[test]
    fn every_page_comes_back_as_it_was() {
        for codec in [
            Codec::Lz4,
            Codec::Zstd,
            at(-7),
            at(-1),
            at(3),
            at(19),
            Codec::None,
        ] {
            let mut scratch = codec.scratch();
            for kind in [
                Content::Heap,
                Content::Text,
                Content::Random,
                Content::Sparse,
            ] {
                for seed in 0..PAGES {
                    let page = Page(*page_bytes(kind, seed));
                    let payload = match codec.compress(&page, &mut scratch) {
                        Ok(packed) => packed.to_vec(),
                        Err(Incompressible) => page.0.to_vec(),
                    };
                    if kind != Content::Random && codec != Codec::None {
                        assert!(
                            payload.len() <= PACKED_BYTES_MAX,
                            "{codec:?} {kind:?} {seed}"
                        );
                    }
                    let mut back = Page([0x5a; PAGE_BYTES]);
                    scratch.decompress(&payload, &mut back).expect("a payload");
                    assert!(back == page, "{codec:?} {kind:?} {seed}");
                }
            }
        }
    }

    #[test]
    fn a_payload_says_how_it_is_packed() {
        let mut packing = Scratch::new();
        let mut unpacking = Codec::None.scratch();
        let mut random = seeded(5);
        let (mut back, mut seen) = (Page([0x5a; PAGE_BYTES]), [0; 3]);
        for seed in 0..4 * PAGES {
            let which = usize::try_from(random() % 3).expect("small");
            let codec = [Codec::Lz4, Codec::Zstd, Codec::None][which];
            let kind = [Content::Heap, Content::Text, Content::Sparse][(seed % 3) as usize];
            let page = Page(*page_bytes(kind, seed));
            let packed = codec.compress(&page, &mut packing);
            let payload = packed.unwrap_or(&page.0);
            assert_eq!(Codec::of(payload), Some(codec));
            unpacking.decompress(payload, &mut back).expect("a payload");
            assert!(back == page, "{codec:?} {kind:?} {seed}");
            seen[which] += 1;
        }
        assert!(cfg!(miri) || seen.into_iter().all(|times| times > 50));
    }

    /// A scratch goes from level to level, and a scratch of any other codec unpacks what comes of it.
    #[test]
    fn a_level_is_how_dense_a_payload_is_and_not_how_it_is_read() {
        let mut packing = Scratch::new();
        let mut unpacking = Codec::Lz4.scratch();
        let levels = [at(-7), Codec::Zstd, at(19)];
        let (mut bytes, mut back) = ([0; 3], Page([0x5a; PAGE_BYTES]));
        for seed in 0..PAGES {
            let page = Page(*page_bytes(Content::Text, seed));
            for (codec, bytes) in levels.iter().zip(&mut bytes) {
                let payload = codec.compress(&page, &mut packing).expect("text");
                assert_eq!(Codec::of(payload), Some(Codec::Zstd), "{codec}");
                unpacking.decompress(payload, &mut back).expect("a payload");
                assert!(back == page, "{codec} {seed}");
                *bytes += payload.len();
            }
        }
        let [fast, usual, dense] = bytes;
        assert!(cfg!(miri) || fast > usual && usual > dense, "{bytes:?}");
    }

    #[test]
    fn what_names_no_codec_is_no_payload() {
        let mut scratch = Scratch::new();
        let mut dst = Page::zeroed();
        let page = Page(*page_bytes(Content::Text, 3));
        let packed = Codec::Lz4.compress(&page, &mut scratch);
        let good = packed.expect("text compresses").to_vec();
        for name in (0..=u8::MAX).filter(|name| *name != good[0]) {
            let mut bad = good.clone();
            bad[0] = name;
            let (of, payload_bytes) = (Codec::of(&bad), bad.len());
            assert_eq!(of, (name == ZSTD).then_some(Codec::Zstd));
            if !cfg!(miri) || of.is_none() {
                let error = scratch.decompress(&bad, &mut dst);
                assert_eq!(error, Err(Corrupt { payload_bytes }), "{name}");
            }
        }
        assert_eq!(Codec::of(&[]), None);
    }

    #[test]
    fn random_pages_are_incompressible() {
        for codec in [Codec::Lz4, Codec::Zstd, Codec::None] {
            let page = Page(*page_bytes(Content::Random, 7));
            assert_eq!(
                codec.compress(&page, &mut codec.scratch()),
                Err(Incompressible)
            );
        }
    }

    #[test]
    fn damaged_payloads_never_give_a_page_of_another_length() {
        for codec in [Codec::Lz4, Codec::Zstd] {
            let mut scratch = codec.scratch();
            let page = Page(*page_bytes(Content::Text, 3));
            let good = codec
                .compress(&page, &mut scratch)
                .expect("text compresses")
                .to_vec();
            let mut dst = Page::zeroed();
            for cut in [0, 1, good.len() / 2, good.len() - 1] {
                let error = scratch.decompress(&good[..cut], &mut dst).unwrap_err();
                assert_eq!(error, Corrupt { payload_bytes: cut });
            }
            let mut random = seeded(11);
            for _ in 0..PAGES {
                let mut bad = good.clone();
                let at = usize::try_from(random() % 1000).expect("small") % bad.len();
                bad[at] ^= 1 << (random() % 8);
                // Either an error or a whole page. The pool's checksum finds the latter.
                let _ = scratch.decompress(&bad, &mut dst);
            }
        }
    }
}
