//! What the process that starts users' servers keeps of them, so that the next one goes on with
//! each as the member that it is: by which invitation that is, and by which key one was asked for.
//!
//! Invariants: in root's instance, for root alone to read; what is said to the control, and to a
//! user's process, is written down before. It goes with the instance. Not here: what is done with
//! it (`starting`, `again`).

use std::sync::Arc;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use terral_server::Invitation;
use terral_server::records::{self, Secret};

use super::{Chair, House, Word, lock};
use crate::report::say;

/// What the names of such files begin with; the user's number follows.
const OF: &str = "user-";
/// And of those that are about to be.
const NEXT: &str = "user-next-";

/// Of one user.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// The invitation, and whether a process was given it.
    word: Option<Word>,
    secret: Option<Secret>,
    /// As if root's process died now.
    died: bool,
    owes: bool,
}

impl House {
    /// Writes down what there is of a user's.
    ///
    /// # Errors
    /// If there is no room.
    pub(super) fn keep(&self, chair: &mut Chair) -> Result<()> {
        self.keep_as(chair, false)
    }

    /// The same, before a process is `given` the invitation: it may have come by it, whatever is
    /// heard of that.
    ///
    /// # Errors
    /// As those of [`House::keep`].
    pub(super) fn keep_as(&self, chair: &mut Chair, given: bool) -> Result<()> {
        let Chair { user, word, secret, .. } = &*chair;
        let [path, next] = [OF, NEXT].map(|of| self.instance.join(format!("{of}{user}")));
        let runs = chair.machine.is_some() || given;
        // One that did not come may have been heard all the same.
        let word = word.clone().map(|(word, came)| (word, came || chair.started.is_some()));
        let (died, owes) = (chair.died || runs, chair.owes || runs);
        let kept = Kept { word, secret: *secret, died, owes };
        let text = serde_json::to_vec(&kept)?;
        // Where no memory is free one is started again that is to give some back.
        if chair.kept == text {
            return Ok(());
        }
        // Who reads it finds all of it, or what was there before.
        records::keep(&next, &text)?;
        std::fs::rename(&next, &path).with_context(|| path.display().to_string())?;
        chair.kept = text;
        Ok(())
    }

    /// Seats of those of whom the process before has left something. What had come has died, as far
    /// as is known here: who runs still is ended by the one that goes on.
    pub(super) fn sit_as_before(&self) {
        let entries = std::fs::read_dir(&self.instance);
        for entry in entries.into_iter().flatten().flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(OF));
            let Some(user) = number.and_then(|number| number.parse().ok()) else { continue };
            let text = std::fs::read(entry.path()).unwrap_or_default();
            self.sits(user, text);
        }
    }

    fn sits(&self, user: u32, text: Vec<u8>) {
        let chair = Chair { user, kept: text, ..Chair::default() };
        let chair = match serde_json::from_slice(&chair.kept) {
            Ok(Kept { word, secret, died, owes }) => Chair { word, secret, died, owes, ..chair },
            Err(error) => {
                say(format_args!(
                    "{OF}{user}: what was kept of it makes no sense ({error}): what it owes stays \
                     in its memory"
                ));
                Chair { owes: true, ..chair }
            }
        };
        let word = chair.word.as_ref().and_then(|(word, _)| Invitation::of(word).ok());
        if let Some(invitation) = word {
            *lock(&self.partition) = invitation.partition.id;
            lock(&self.lives).insert(user, 1);
        }
        lock(&self.seats).insert(user, Arc::new(chair.into()));
    }
}
