//! Which of root's members answers for a user's server: at its word that was let in, it alone says
//! that it is gone, and with it that goes.
//!
//! Not here: for whom a server speaks (`roster::Certificate`).

use serde::{Deserialize, Serialize};

use super::person::{GROUPS_MAX, Person};
use crate::ids::Member;

/// Longest name by which somebody logs in, bytes; Linux's own programs take 32.
pub const LOGIN_MAX: usize = 256;

/// Who answers for a user's server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answers {
    /// For which.
    pub member: Member,
    /// Which is trusted with all.
    pub by: Member,
    /// As its user is called on that one's machine; empty if he is not known there by a name.
    pub login: String,
}

/// A user whose server is to be let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Newcomer {
    /// Who.
    pub user: Person,
    /// As he is called on his machine; empty if he is not known there by a name.
    pub login: String,
}

impl Newcomer {
    /// Whether there is such a user.
    pub fn is_sound(&self) -> bool {
        let Newcomer { user, login } = self;
        login.len() <= LOGIN_MAX && !login.chars().any(char::is_control) && is_users(user)
    }
}

/// Whether somebody is a user, who may have a server of his own.
pub fn is_users(user: &Person) -> bool {
    !user.is_root() && user.groups.len() <= GROUPS_MAX
}
