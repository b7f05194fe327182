//! The C library: Terral's files for programs that ask for them by name, as `terral.h` documents.
//!
//! Invariants: nothing here panics on what a caller passes, so nothing unwinds into C; null
//! pointers, negative offsets and lengths no program can have fail with EINVAL before anything is
//! touched; every failure sets `errno` and the thread's message. Not here: what files do (the
//! client).

mod error;

mod buffers;

mod connection;

mod names;

mod file;

mod containers;

mod servers;

mod objects;

mod submitted;

mod locks;

mod transactions;

mod checkpoints;
