//! The library that `terral run` preloads: calls of libc that name a path under the virtual
//! prefix, or a descriptor of one, are served in user space; all others go to the kernel as they
//! came.
//!
//! Invariants: kernel paths use raw system calls (functions without one: `dlsym`), errno is set as
//! libc sets it, every static is const-initialised (hooks run before this library's own start-up),
//! and no hook prints, panics, or keeps a lock that a signal handler or a fork could meet.
//! Not here: what the calls mean for data (`terral-client`), MPI, and programs that make their own
//! system calls: those fail loudly, since the prefix has no kernel counterpart.

mod real;

mod settings;

mod streams;

mod signals;

mod memory;

mod actions;
mod masks;

mod heap;

mod joining;

mod connect;

mod standing;
mod state;

mod sharing;

mod cwd;

mod path;

mod entrance;

mod hook;

mod itself;

mod ids;

mod locks;

mod close;

mod attributes;

mod fifos;

mod open;

mod metadata;

mod control;

mod limits;

mod data;

mod aio;
mod allocate;
mod backtrace;
mod transfer;
mod vectors;

mod flagged;

mod links;
mod names;
mod nodes;
mod peers;
mod polls;
mod refused;
mod sockets;
mod space;
mod temporary;
mod times;
mod xattrs;

mod resolve;

mod directory;

mod scan;

mod remap;

mod mapping;

mod unserved;

mod exec;

mod launch;

mod spawn;

mod trees;
mod walk;

mod numbers;

#[cfg(target_arch = "x86_64")]
mod objects;

#[cfg(target_arch = "x86_64")]
mod caught;

#[cfg(target_arch = "x86_64")]
mod threads;

mod libraries;

mod stdio;

mod start;
