//! Containers, as people see and change them. Not here: what they mean for open files
//! (`allowing`).

use terral_format::ids::Member;
use terral_format::wire::containers::{Bounded, Container, ContainerName, Setting};
use terral_format::wire::message::{Reply, Request};
use terral_format::{Error, ErrorKind, Result, frame};

use crate::client::Client;
use crate::session::unexpected;

impl Client {
    /// All of them, by name. The run's own is one of them once it has a list.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] for who is bound to a place, or may not list.
    pub fn containers(&self) -> Result<Vec<Container>> {
        self.containers_with_quotas().map(|(all, _)| all)
    }

    /// The same, and which have quotas: with how much of them is used by files that were born on
    /// this machine.
    ///
    /// # Errors
    /// As those of [`Client::containers`].
    pub fn containers_with_quotas(&self) -> Result<(Vec<Container>, Vec<Bounded>)> {
        let (mut all, mut bounded): (Vec<Container>, Vec<Bounded>) = Default::default();
        loop {
            let after = all.last().map_or("", |last| last.name.as_str()).to_owned();
            let (page, quotas, is_last) = match self.0.call(Request::Containers(&after))? {
                Reply::Containers(page, quotas, is_last) => (page, quotas, is_last),
                _ => return Err(unexpected()),
            };
            let is_empty = page.is_empty();
            all.extend(page);
            bounded.extend(quotas);
            match (is_last, is_empty) {
                (true, _) => return Ok((all, bounded)),
                (false, true) => return Err(unexpected()),
                (false, false) => {}
            }
        }
    }

    /// The one of this name.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is none, and those of [`Client::containers`].
    pub fn container(&self, name: &ContainerName) -> Result<Container> {
        let found = self.containers()?.into_iter().find(|one| one.name == *name);
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("container {name}")))
    }

    /// Changes one: once this is answered, what it says counts for all that begins, on all machines
    /// but those that are given.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] if it is not his to change, [`ErrorKind::Exists`],
    /// [`ErrorKind::NotFound`], [`ErrorKind::TooMany`], [`ErrorKind::Invalid`].
    pub fn set_container(&self, setting: &Setting) -> Result<Vec<Member>> {
        match self.0.call(Request::SetContainer(&frame::encode(setting)?))? {
            Reply::Revoked { deaf, .. } => Ok(deaf),
            _ => Err(unexpected()),
        }
    }
}
