//! The file of the page. It is made before the program starts, so that a wrong path is not found out after hours, and
//! until the page is there it says that there is none: whoever finds it knows that the run goes on or was killed.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::page::{Heading, placeholder};

const NOT_YET: &str = "There is no report yet: the run goes on. If it does not, it could not be started, or vswap \
                       itself was killed, and with it all figures of the run are gone.";
const NO_ROOM: &str = "There is no report: it could not be written at the end of the run. What was wrong stands on \
                       the standard error of vswap.";

/// The file, open.
#[derive(Debug)]
pub struct PageFile {
    path: PathBuf,
    heading: Heading,
    file: File,
    /// It can be written again from its beginning. Pipes and devices cannot.
    is_regular: bool,
}

impl PageFile {
    /// Makes the file, with the permissions that the umask leaves of rw-rw-rw-, or empties the one that is there. For
    /// `-` it is standard output, of which vswap keeps a descriptor of its own, which the program cannot close.
    ///
    /// # Errors
    /// The path cannot be written.
    pub fn create(path: &Path, heading: Heading) -> Result<PageFile, Failure> {
        PageFile::open(path, heading)
            .and_then(|mut file| {
                if file.is_regular {
                    file.replace(&placeholder(&file.heading, NOT_YET))?;
                }
                Ok(file)
            })
            .map_err(|error| {
                let hint = match error.kind() {
                    io::ErrorKind::IsADirectory => "; name a file in it",
                    io::ErrorKind::NotFound => "; make its directory first",
                    _ => "",
                };
                Failure::own(format!(
                    "cannot write the report to {}: {error}{hint}",
                    path.display()
                ))
            })
    }

    fn open(path: &Path, heading: Heading) -> io::Result<PageFile> {
        let file = if path == Path::new("-") {
            File::from(io::stdout().as_fd().try_clone_to_owned()?)
        } else {
            File::create(path)?
        };
        let is_regular = path != Path::new("-") && file.metadata()?.is_file();
        Ok(PageFile {
            path: path.to_owned(),
            heading,
            file,
            is_regular,
        })
    }

    /// Writes the page. If that fails, the file says so, as far as it can be written at all, and never has half a page.
    ///
    /// # Errors
    /// What is to be told.
    pub fn write(mut self, page: &str) -> Result<(), String> {
        let path = self.path.display().to_string();
        let written = if self.is_regular {
            self.replace(page)
        } else {
            self.file.write_all(page.as_bytes())
        };
        if let Err(error) = written {
            if self.is_regular {
                // The room of what has just been given back is enough for this as a rule.
                let _ = self.replace(&placeholder(&self.heading, NO_ROOM));
            }
            return Err(format!("cannot write the report to {path}: {error}"));
        }
        if self.is_regular && self.file.metadata().is_ok_and(|file| file.nlink() == 0) {
            return Err(format!(
                "the report is lost: somebody has removed {path} during the run"
            ));
        }
        Ok(())
    }

    fn replace(&mut self, page: &str) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(page.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn dir(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("vswap-page-{}-{name}", std::process::id()));
        std::fs::create_dir(&dir).expect("directory");
        dir
    }

    fn heading() -> Heading {
        Heading::new("run", &["<script>alert(1)</script>".to_owned()])
    }

    #[test]
    fn until_the_page_is_there_the_file_says_that_there_is_none() {
        let dir = dir("replaced");
        let path = dir.join("r.html");
        std::fs::write(&path, "x".repeat(1 << 20)).expect("an old page");
        let file = PageFile::create(&path, heading()).expect("made");
        let before = std::fs::read_to_string(&path).expect("read");
        assert!(
            before.contains("There is no report yet") && !before.contains("<script"),
            "{before}"
        );
        file.write("<p>page</p>").expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "<p>page</p>");
        std::fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn what_cannot_be_written_is_refused_at_once() {
        let dir = dir("refused");
        std::fs::write(dir.join("file"), "").expect("made");
        for (path, why) in [
            (dir.clone(), "name a file in it"),
            (dir.join("none/r.html"), "make its directory first"),
            (dir.join("file/r.html"), "Not a directory"),
            (PathBuf::new(), "make its directory first"),
        ] {
            let failure = PageFile::create(&path, heading()).expect_err("refused");
            assert_eq!(failure.exit_status, crate::failure::OWN_ERROR);
            assert!(failure.to_string().contains(why), "{failure}");
        }
        std::fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn a_full_device_is_told_at_the_end() {
        let file = PageFile::create(Path::new("/dev/full"), heading()).expect("opened");
        let error = file.write("page").expect_err("full");
        assert!(error.contains("/dev/full: No space left"), "{error}");
    }

    #[test]
    fn a_file_that_was_removed_is_told() {
        let dir = dir("removed");
        let path = dir.join("r.html");
        let file = PageFile::create(&path, heading()).expect("made");
        let mode = std::fs::metadata(&path)
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o111, 0, "no page is a program");
        std::fs::remove_dir_all(&dir).expect("removed");
        let error = file.write("page").expect_err("lost");
        assert!(error.contains("somebody has removed"), "{error}");
    }
}
