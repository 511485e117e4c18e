//! Shared and file mappings beside private memory that is being swapped.
//!
//! None of these may be taken for private anonymous memory. What one process or mapping writes the other must see, and
//! a private page of a file has the file's content until it is written.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;

use crate::content::{self, PAGE_BYTES, PAGE_WORDS, Random};
use crate::pages::{Mapping, Pages};
use crate::run::{Child, Options};
use crate::scratch;
use crate::wrong::{Checked, Wrong, call};

/// Pages of each kind of mapping in each thread.
const PAGES: usize = 64;

/// A mapping of a file, with the version of each page.
struct Mapped {
    start: *mut u64,
    versions: Vec<u32>,
    tag: u64,
}

impl Mapped {
    fn new(file: &File, flags: i32, tag: u64) -> Checked<Self> {
        // SAFETY: a mapping at an address that the kernel chooses aliases only the file.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGES * PAGE_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(Wrong::last("mmap of a file"));
        }
        Ok(Self {
            start: start.cast(),
            versions: vec![1; PAGES],
            tag,
        })
    }

    fn page(&self, index: usize) -> *mut u64 {
        assert!(index < PAGES);
        self.start.wrapping_add(index * PAGE_WORDS)
    }

    fn rewrite(&mut self, index: usize) {
        self.versions[index] += 1;
        let version = self.versions[index];
        // SAFETY: the page is mapped, and only its own thread writes it.
        unsafe { content::fill(self.page(index), self.tag ^ index as u64, version) };
    }

    fn check_as(&self, what: &'static str, index: usize, version: u32) -> Checked {
        // SAFETY: the page is mapped, and only its own thread writes it.
        unsafe { content::check(what, self.page(index), self.tag ^ index as u64, version) }
    }

    fn check(&self, what: &'static str, index: usize) -> Checked {
        self.check_as(what, index, self.versions[index])
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value.
        unsafe { libc::munmap(self.start.cast(), PAGES * PAGE_BYTES) };
    }
}

pub(crate) fn run(options: &Options) -> Checked {
    let clock = options.clock();
    options.parallel(|thread| {
        let mut random = options.random(thread, 15);
        let mut beside = Pages::filled(options.pages_per_thread() * 3 / 4, options.tag(thread))?;
        let tag = options.tag(thread) ^ 0xf11e;
        let file = filled(scratch::file()?, tag)?;
        let memory = filled(memfd()?, tag)?;
        let mut private = Mapped::new(&file, libc::MAP_PRIVATE, tag)?;
        let mut shared = Mapped::new(&file_of(tag)?, libc::MAP_SHARED, tag)?;
        let mut left = Mapped::new(&memory, libc::MAP_SHARED, tag)?;
        let mut right = Mapped::new(&memory, libc::MAP_SHARED, tag)?;
        loop {
            for _ in 0..32 {
                private_page(&mut private, &mut random)?;
                aliases(&mut left, &mut right, random.index(PAGES))?;
                let index = random.index(PAGES);
                shared.check("page of a shared file mapping", index)?;
                shared.rewrite(index);
                beside.stir("private page beside", &mut random, 16)?;
            }
            seen_by_parent(&beside, &mut random)?;
            beside.check_all("private page beside")?;
            if !clock.running() {
                return Ok(());
            }
        }
    })
}

/// A file with version 1 of every page.
fn filled(file: File, tag: u64) -> Checked<File> {
    for index in 0..PAGES {
        let bytes: Vec<u8> = (0..PAGE_WORDS)
            .flat_map(|word| content::word(tag ^ index as u64, 1, word).to_le_bytes())
            .collect();
        file.write_all_at(&bytes, (index * PAGE_BYTES) as u64)
            .map_err(|error| Wrong::Call {
                what: "pwrite",
                error,
            })?;
    }
    Ok(file)
}

fn file_of(tag: u64) -> Checked<File> {
    filled(scratch::file()?, tag)
}

fn memfd() -> Checked<File> {
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"victim".as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: the descriptor is new, and nobody else owns it.
    call("memfd_create", fd).map(|fd| unsafe { File::from_raw_fd(fd) })
}

/// A private page of a file: it has its own content once written, and the file's after it was given back.
fn private_page(private: &mut Mapped, random: &mut Random) -> Checked {
    let index = random.index(PAGES);
    private.check("private page of a file", index)?;
    private.rewrite(index);
    private.check("private page of a file after a write", index)?;
    if random.index(4) == 0 {
        // SAFETY: the page is mapped, and belongs to this thread.
        let result =
            unsafe { libc::madvise(private.page(index).cast(), PAGE_BYTES, libc::MADV_DONTNEED) };
        call("madvise(DONTNEED)", result)?;
        private.check_as("private page of a file that was given back", index, 1)?;
        private.rewrite(index);
    }
    Ok(())
}

/// Two mappings of the same pages.
fn aliases(left: &mut Mapped, right: &mut Mapped, index: usize) -> Checked {
    left.rewrite(index);
    right.versions[index] = left.versions[index];
    right.check("page written through another mapping", index)?;
    right.rewrite(index);
    left.versions[index] = right.versions[index];
    left.check("page written through another mapping", index)
}

/// A parent sees what its child writes to shared memory, and does not see what the child writes to private memory.
fn seen_by_parent(beside: &Pages, random: &mut Random) -> Checked {
    let shared = Mapping::with(PAGES, libc::MAP_SHARED)?;
    let tag = random.next();
    let child = Child::fork(|| {
        for index in 0..PAGES {
            let private = beside.mapping.page(index % beside.len());
            // SAFETY: the pages are mapped, and the private one is this child's own copy.
            unsafe {
                content::fill(shared.page(index), tag ^ index as u64, 1);
                content::fill(private, tag, 1);
            }
        }
        Ok(())
    })?;
    child.wait()?;
    for index in 0..PAGES {
        let tag = tag ^ index as u64;
        // SAFETY: the page is mapped, and the child has ended.
        unsafe { content::check("shared page written by a child", shared.page(index), tag, 1)? };
    }
    Ok(())
}
