//! Compression of single pages.
//!
//! A [`Codec`] says how to compress. A [`Scratch`] holds contexts and an output buffer for one thread, so that no page
//! needs an allocation. Output never exceeds [`PACKED_BYTES_MAX`]. A larger result would take a whole page in the pool;
//! the raw page fits there as well, and needs no decompression. So a payload of exactly [`PAGE_BYTES`] is always the
//! page itself, whatever the codec.

use std::fmt;
use std::sync::Arc;

use crate::base::buffer::PageBuffer;
use crate::base::pages::{HeapPages, PAGE_BYTES, Page, PageSource};
use crate::zpool::PACKED_BYTES_MAX;

/// How pages are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// Fast, for pages that come back soon.
    Lz4,
    /// Dense, for pages that stay away.
    Zstd,
    /// Pages are kept as they are.
    None,
}

/// The page does not compress below [`PACKED_BYTES_MAX`]. Keep it raw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the page does not compress below {PACKED_BYTES_MAX} bytes: store it raw")]
pub struct Incompressible;

/// A payload did not decompress to exactly one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a payload of {payload_bytes} bytes did not decompress to {PAGE_BYTES} bytes: its memory was overwritten, \
     or it was made by another codec"
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
    /// A scratch whose contexts for this codec already exist, so that no page waits for them.
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
        let packed = match self {
            Codec::Lz4 => contexts.lz4_compress(page, out),
            Codec::Zstd => contexts.zstd_compress(page, out),
            Codec::None => None,
        };
        packed
            .and_then(|bytes| out.get(..bytes))
            .ok_or(Incompressible)
    }

    /// Decompresses `payload` into `dst`. A payload of [`PAGE_BYTES`] is the page itself and is copied.
    ///
    /// # Errors
    /// [`Corrupt`] unless exactly one page comes out. `dst` then holds anything.
    pub fn decompress(
        self,
        payload: &[u8],
        dst: &mut Page,
        scratch: &mut Scratch,
    ) -> Result<(), Corrupt> {
        if payload.len() == PAGE_BYTES {
            dst.0.copy_from_slice(payload);
            return Ok(());
        }
        let bytes = match self {
            Codec::Lz4 => scratch.contexts.lz4_decompress(payload, dst),
            Codec::Zstd => scratch.contexts.zstd_decompress(payload, dst),
            Codec::None => None,
        };
        match bytes {
            Some(PAGE_BYTES) => Ok(()),
            _ => Err(Corrupt {
                payload_bytes: payload.len(),
            }),
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

    use super::Codec;
    use crate::base::pages::{PAGE_BYTES, Page};

    /// lz4's speed knob; 1 is its default. On pages of an interpreter's heap 4 is 3 % faster for 1 % more bytes, on
    /// text 5 % faster for 7 % more bytes: not worth it.
    const LZ4_ACCELERATION: c_int = 1;

    /// zstd's level. On text -1 saves 11 % of the time for 25 % more bytes, and 3 costs 28 % more time for 1 % fewer
    /// bytes.
    const ZSTD_LEVEL: i32 = 1;

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

    struct ZstdContexts {
        compress: CCtx<'static>,
        decompress: DCtx<'static>,
    }

    pub(super) struct Contexts {
        lz4: Option<Box<Lz4State>>,
        zstd: Option<ZstdContexts>,
    }

    impl Contexts {
        pub(super) const fn new() -> Self {
            Contexts {
                lz4: None,
                zstd: None,
            }
        }

        pub(super) fn prepare(&mut self, codec: Codec) {
            match codec {
                Codec::Lz4 => drop(self.lz4()),
                Codec::Zstd => drop(self.zstd()),
                Codec::None => {}
            }
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

        fn zstd(&mut self) -> Option<&mut ZstdContexts> {
            if self.zstd.is_none() {
                let mut compress = CCtx::try_create()?;
                let decompress = DCtx::try_create()?;
                // The pool keeps length and checksum. A copy in each zstd frame would only take room.
                compress
                    .set_parameter(CParameter::CompressionLevel(ZSTD_LEVEL))
                    .ok()?;
                compress
                    .set_parameter(CParameter::ContentSizeFlag(false))
                    .ok()?;
                compress
                    .set_parameter(CParameter::ChecksumFlag(false))
                    .ok()?;
                compress.set_parameter(CParameter::DictIdFlag(false)).ok()?;
                self.zstd = Some(ZstdContexts {
                    compress,
                    decompress,
                });
            }
            self.zstd.as_mut()
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
        pub(super) fn zstd_compress(&mut self, page: &Page, out: &mut [u8]) -> Option<usize> {
            self.zstd()?.compress.compress2(out, &page.0).ok()
        }

        /// Number of bytes decompressed. `None` for a malformed payload.
        pub(super) fn zstd_decompress(&mut self, payload: &[u8], dst: &mut Page) -> Option<usize> {
            self.zstd()?
                .decompress
                .decompress(&mut dst.0[..], payload)
                .ok()
        }
    }
}

#[cfg(any(miri, tsan, loom, shuttle))]
mod backend {
    //! One codec in pure Rust replaces both, because Miri cannot run C. The other checkers could, but would have to
    //! build it once more, which takes longer than they run.

    use super::Codec;
    use crate::base::pages::Page;

    pub(super) struct Contexts;

    impl Contexts {
        pub(super) const fn new() -> Self {
            Contexts
        }

        pub(super) fn prepare(&mut self, _codec: Codec) {}

        pub(super) fn lz4_compress(&mut self, page: &Page, out: &mut [u8]) -> Option<usize> {
            let packed = lz4_flex::block::compress(&page.0);
            out.get_mut(..packed.len())?.copy_from_slice(&packed);
            Some(packed.len())
        }

        pub(super) fn lz4_decompress(&mut self, payload: &[u8], dst: &mut Page) -> Option<usize> {
            lz4_flex::block::decompress_into(payload, &mut dst.0).ok()
        }

        pub(super) fn zstd_compress(&mut self, page: &Page, out: &mut [u8]) -> Option<usize> {
            self.lz4_compress(page, out)
        }

        pub(super) fn zstd_decompress(&mut self, payload: &[u8], dst: &mut Page) -> Option<usize> {
            self.lz4_decompress(payload, dst)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zpool::testing::{Content, page_bytes, seeded};

    const PAGES: u64 = if cfg!(miri) { 2 } else { 64 };

    #[test]
    fn every_page_comes_back_as_it_was() {
        for codec in [Codec::Lz4, Codec::Zstd, Codec::None] {
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
                    codec
                        .decompress(&payload, &mut back, &mut scratch)
                        .expect("own payload");
                    assert!(back == page, "{codec:?} {kind:?} {seed}");
                }
            }
        }
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
                let error = codec
                    .decompress(&good[..cut], &mut dst, &mut scratch)
                    .unwrap_err();
                assert_eq!(error, Corrupt { payload_bytes: cut });
            }
            let mut random = seeded(11);
            for _ in 0..PAGES {
                let mut bad = good.clone();
                let at = usize::try_from(random() % 1000).expect("small") % bad.len();
                bad[at] ^= 1 << (random() % 8);
                // Either an error or a whole page. The pool's checksum finds the latter.
                let _ = codec.decompress(&bad, &mut dst, &mut scratch);
            }
        }
        let error = Codec::None.decompress(&[1, 2, 3], &mut Page::zeroed(), &mut Scratch::new());
        assert_eq!(error, Err(Corrupt { payload_bytes: 3 }));
    }
}
