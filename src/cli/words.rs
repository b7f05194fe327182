//! What the launcher of a run over several machines and `terral host` on each of them say to each
//! other: lines of JSON, and the invitation. What else a remote shell writes is passed over. Where
//! `terral` is missing, a shell says the same words (`entrance`).

use std::io::{BufRead, Read, Write};

use anyhow::Result;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use terral_client::Status;

/// Longest line.
const LINE_MAX: u64 = 1 << 20;

/// What the launcher says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Bring all to the permanent directory, and say how far that is.
    Finish,
    /// The run is over.
    End,
    /// It is over, and what is owed stays in memory.
    Keep,
    /// Leave the others in order, who go on; say how far that is.
    Leave,
    /// Have `terral` and its library at the place to which they are sent where they are missing.
    Ahead,
}

/// What a machine says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Report {
    /// `terral` is not there: this is to be sent.
    Wants(Part),
    /// It was reached; true if its `terral` and library are at the place to which they are sent.
    Begins(bool),
    /// Its server runs.
    Serves,
    /// It has them there, after [`Order::Ahead`].
    Ahead,
    /// How far it is, after [`Order::Finish`].
    Far(Box<Status>),
    /// Its server is there and does not answer, after [`Order::Finish`].
    Silent,
    /// It has ended.
    Ended(End),
    /// It cannot go on.
    Failed(String),
    /// What was there of the server that it was to go on with is gone.
    Gone,
}

/// Longest reason that a user's process gives, letters.
const REASON_MAX: usize = 500;

impl Report {
    /// What may be taken of it if a user says it, who may say anything: for a terminal that is
    /// root's, and no more than a few words. `None`: nothing.
    pub fn of_user(self) -> Option<Report> {
        match self {
            Report::Wants(_) => None,
            Report::Failed(why) => {
                let why = why.chars().filter(|letter| !letter.is_control());
                Some(Report::Failed(why.take(REASON_MAX).collect()))
            }
            Report::Far(mut status) => {
                status.warnings.clear();
                status.drain.failures.clear();
                status.drain.conflicts.clear();
                status.partition = None;
                Some(Report::Far(status))
            }
            report => Some(report),
        }
    }
}

/// What is sent ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// `terral`.
    Program,
    /// What is preloaded.
    Library,
}

/// What who comes to a run that spreads says first (`join`).
#[derive(Debug, Serialize, Deserialize)]
pub struct Knock {
    /// The name of its machine.
    pub host: String,
    /// Which build it is.
    pub build: String,
}

/// What the launcher answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Admission {
    /// Run `terral` with these words, and carry what both say from now on.
    Serve(Vec<Vec<u8>>),
    /// It is not let in.
    Refused(String),
}

/// How it has ended.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct End {
    /// Whether its memory has what the permanent directory lacks.
    pub owes: bool,
    /// How often its server had to be started again.
    pub restarts: u32,
    /// Files that programs wrote past Terral, and where they were saved.
    pub strays: Vec<String>,
}

/// Says one thing.
///
/// # Errors
/// If nobody is there to hear it.
pub fn speak(to: &mut impl Write, said: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(said)?;
    line.push(b'\n');
    to.write_all(&line)?;
    Ok(to.flush()?)
}

/// Says something to the launcher, who may be gone.
pub fn report(said: &Report) {
    let _ = speak(&mut std::io::stdout().lock(), said);
}

/// The next thing that was said; nothing if nobody will say any more.
pub fn hear<W: DeserializeOwned>(from: &mut impl BufRead) -> Option<W> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if from.by_ref().take(LINE_MAX).read_until(b'\n', &mut line).ok()? == 0 {
            return None;
        }
        if let Ok(said) = serde_json::from_slice(&line) {
            return Some(said);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Order, Report, hear, speak};

    #[test]
    fn what_a_user_says_does_nothing_to_a_terminal() {
        let said = Report::Failed(format!("no\u{1b}[2J{}", "!".repeat(1000)));
        match said.of_user() {
            Some(Report::Failed(why)) => assert_eq!(why, format!("no[2J{}", "!".repeat(495))),
            other => panic!("{other:?}"),
        }
        assert!(Report::Wants(super::Part::Program).of_user().is_none());
    }

    #[test]
    fn what_a_remote_shell_says_beside_is_passed_over() {
        let mut said = b"Welcome to h1!\n\xff\xfe\n".to_vec();
        speak(&mut said, &Report::Begins(true)).expect("writes");
        said.extend(b"{\"no\":1}\n\n");
        speak(&mut said, &Report::Failed("x\ny".into())).expect("writes");
        said.extend(b"\"ser");
        let mut from = said.as_slice();
        assert!(matches!(hear(&mut from), Some(Report::Begins(true))));
        assert!(matches!(hear(&mut from), Some(Report::Failed(why)) if why == "x\ny"));
        assert!(hear::<Report>(&mut from).is_none());
    }

    #[test]
    fn orders_are_heard_as_they_were_given() {
        for order in [Order::Finish, Order::End, Order::Keep, Order::Ahead] {
            let mut said = Vec::new();
            speak(&mut said, &order).expect("writes");
            assert_eq!(hear(&mut said.as_slice()), Some(order));
        }
    }
}
