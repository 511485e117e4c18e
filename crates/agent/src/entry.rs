//! Where the agent begins in a process: as a constructor that the loader runs, or put in from outside.

mod init;
mod attached;
