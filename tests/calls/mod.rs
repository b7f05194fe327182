//! Who calls whom in the server: functions, by path, by `use` and by method, from its sources.
//!
//! The compiler allows any circle inside a crate, and a list of imports does not show it, as a
//! method needs none. So bodies are read here, as far as types can be told without a compiler: of
//! `self`, fields, parameters, what functions return, and what the usual containers hold. A method
//! of which nothing is known what it is called on is taken for the one of its name, if there is one
//! in all the rooms that the server sees, and none in the standard library; the rest is counted.
//!
//! Not here: what may call what; that is `tests/circles.rs`.

pub mod kind;

pub mod items;

pub mod containers;

pub mod names;

pub mod known;

pub mod bodies;

pub mod graph;
