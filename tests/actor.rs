//! A process of this very test program that is given orders line by line and answers each, and can
//! be killed at any moment. Not here: what the orders are.
#![allow(dead_code)] // Each test file uses its part.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::process::{self, Process};

/// The actor's side: says something. In one write, so that threads do not mix; the mark tells it
/// from what the test harness says.
pub fn answer(text: &str) {
    std::io::stderr().write_all(format!("= {text}\n").as_bytes()).expect("the test reads");
}

/// A process that does what it is told.
pub struct Actor {
    /// It; killed when dropped.
    pub process: Process,
    orders: ChildStdin,
    answers: Receiver<String>,
}

impl Actor {
    /// Starts this program again as `role`, which says "ready" first.
    pub fn start(role: &str, instance: &Path) -> Self {
        let mut command = process::command(role, instance);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("starts");
        let (orders, said) = (child.stdin.take().expect("piped"), child.stderr.take());
        let (tell, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(said.expect("piped")).lines().map_while(Result::ok) {
                let told = line.strip_prefix("= ").map(str::to_owned);
                if told.is_some_and(|told| tell.send(told).is_err()) {
                    return;
                }
            }
        });
        let actor = Actor { process: Process(child), orders, answers };
        assert_eq!(actor.answer(), "ready");
        actor
    }

    /// Gives an order.
    pub fn tell(&mut self, order: &str) {
        writeln!(self.orders, "{order}").expect("it lives");
    }

    /// What it says next.
    pub fn answer(&self) -> String {
        self.answers.recv_timeout(Duration::from_secs(60)).expect("an answer within a minute")
    }

    /// Asserts that it says nothing for a while.
    pub fn waits(&self) {
        let early = self.answers.recv_timeout(Duration::from_millis(300));
        assert!(early.is_err(), "does not wait: {early:?}");
    }

    /// Gives an order, and what it says to that.
    pub fn ask(&mut self, order: &str) -> String {
        self.tell(order);
        self.answer()
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.process.0.id()
    }
}
