//! Steps that a server which is built for tests can be told to leave out: what looks for flaws must
//! find these. Every other build does all of them, and nothing of this is in it.

/// A step, and what it is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// What was answered is remembered: who asks again, as the server died, gets the same.
    RememberAnswer,
    /// A chunk is looked at before it leaves memory: what is owed of it stays.
    KeepDirty,
    /// What is about to get its name in the backing is announced: it is ours after a restart, too.
    Announce,
    /// A new version is copied anew when an append has lost its ticket: it may have bytes of that.
    CopyAnew,
    /// What is kept of another machine's file goes when that is shown no more.
    ForgetKept,
    /// Who waits for what may wait for him lets go of what he has taken.
    Release,
    /// Who may have a file open without a word is asked before its bytes go.
    AskHolders,
    /// Who asks for a lock of another machine's file is marked here before.
    MarkLocks,
    /// Clients look by themselves no longer than what they look at is shown.
    EndLooks,
    /// What clients look at by themselves is as the copy says.
    CompareCopies,
    /// A directory is changed for others once the store has what it was owed of its names.
    Settle,
    /// Nothing is brought while another member moves a directory where some of it may be.
    Rest,
    /// Another machine's file is let go by its home before a name of it is taken away.
    LetGo,
    /// What was asked back before it had come is not taken when it comes.
    Fence,
    /// Nobody uses a chunk that is asked back.
    Freeze,
    /// A chunk that may have been written to since it was offered is not handed over.
    CompareOffers,
    /// What somebody has mapped is not given back.
    KeepMapped,
    /// Nothing is added to a batch that goes.
    Seal,
    /// Who ends keeps his locks until what he has written is where it is to be.
    KeepLocks,
    /// What is known of names in directories that are here stays when a file has another one.
    KeepNames,
    /// What was born elsewhere is shown by its number, and not by its place here.
    ShowNumbers,
    /// What has a name in the store is what is known of it, when a new version is renamed over it;
    /// what it was a moment before is no reason to replace it.
    CompareThere,
    /// That processes wait for each other over several machines is believed when it was said twice.
    SayTwice,
    /// All operations of a transaction are looked at before the first is done, and written at once.
    Together,
    /// A transaction of which another member is to know is decided once it does.
    AskWitness,
    /// That a witness is asked is in the log before.
    NoteWitness,
    /// It is said that a transaction never comes to be once its witness has forgotten it.
    ReleaseWitness,
    /// A witness forgets a transaction once its homes were told.
    KeepWitness,
    /// A witness tells the homes of who was removed.
    TellAsWitness,
    /// Who is just writing is waited for, or overtaken, before a file counts as fenced.
    WaitForWriters,
    /// What is written on condition is in the log before it is in memory.
    RecordFirst,
    /// What was written until committed is merged by bytes. Who merges is a script in tests.
    #[cfg(test)]
    MergeBytes,
}

/// Whether a step is done.
#[cfg(not(test))]
pub const fn does(_: Step) -> bool {
    true
}

#[cfg(test)]
pub use tests::does;

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use super::Step;

    thread_local! {
        static LEFT_OUT: Cell<Option<Step>> = const { Cell::new(None) };
    }

    /// Whether a step is done, by servers of this thread.
    pub fn does(step: Step) -> bool {
        LEFT_OUT.get() != Some(step)
    }

    /// What `act` gives if servers of this thread leave out this step meanwhile.
    pub(crate) fn without<T>(step: Step, act: impl FnOnce() -> T) -> T {
        LEFT_OUT.set(Some(step));
        let done = act();
        LEFT_OUT.set(None);
        done
    }
}
