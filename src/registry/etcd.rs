//! The registry that etcd keeps (3.4 and later), by its JSON gateway: one request, one answer.
//!
//! Invariants: nobody waits longer than [`PATIENCE`] for a member of it, and nothing longer than
//! [`ANSWER_MAX`] is read; what only looks is asked of the next member if one does not answer, and
//! what changes something is not, as it may have been done. A password goes to etcd alone, and is
//! shown nowhere.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use terral_format::{Error, ErrorKind, Result};
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

use crate::answers::{Authenticated, Done, Failure, Granted, Kept, Range, Transaction, encoded};
use crate::login::Login;
use crate::place::Place;
use crate::registry::{Change, Entry, Guard, Lease, Registry, Revision, View, check};

/// One member has so long for an answer.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// Longest answer, bytes.
pub const ANSWER_MAX: u64 = 32 << 20;
/// A connection that nobody has used for so long is not used again: etcd may have ended it.
const IDLE: Duration = Duration::from_secs(5);

/// As gRPC numbers them.
mod code {
    pub const INVALID: u32 = 3;
    pub const LATE: u32 = 4;
    pub const NOT_FOUND: u32 = 5;
    pub const DENIED: u32 = 7;
    pub const PRECONDITION: u32 = 9;
    pub const UNAVAILABLE: u32 = 14;
    pub const UNAUTHENTICATED: u32 = 16;
}

/// See the module.
pub struct Etcd {
    place: Place,
    login: Login,
    agent: Agent,
    /// Which member has answered last.
    last: AtomicUsize,
    /// By what etcd knows who has logged in.
    token: Mutex<Option<String>>,
}

/// Whether it may be done twice.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    Yes,
    No,
}

impl Etcd {
    /// For this etcd; nobody is asked yet.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for certificates that are none, and for TLS without any.
    pub fn new(place: Place, login: Login) -> Result<Self> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .https_only(place.encrypted)
            .proxy(None)
            .max_redirects(0)
            .timeout_global(Some(PATIENCE))
            .max_idle_age(IDLE);
        let config = match place.encrypted {
            true => config.tls_config(tls(&login)?),
            false => config,
        };
        let (last, token) = (AtomicUsize::new(0), Mutex::new(None));
        Ok(Etcd { place, login, agent: config.build().new_agent(), last, token })
    }

    fn failed(&self, kind: ErrorKind, at: &str, why: impl std::fmt::Display) -> Error {
        let scheme = if self.place.encrypted { "etcds" } else { "etcd" };
        Error::new(kind, format!("{scheme}://{at}: {why}"))
    }

    /// Asks one member. Only the first of what it answers is read.
    fn ask_one<A: DeserializeOwned>(&self, at: &str, path: &str, body: &Value) -> Result<A> {
        let scheme = if self.place.encrypted { "https" } else { "http" };
        let mut request = self.agent.post(format!("{scheme}://{at}{path}"));
        if let Some(token) = self.token() {
            request = request.header("Authorization", token);
        }
        let body = body.to_string();
        let away = |error: ureq::Error| self.failed(kind_of(&error), at, error);
        let mut answer = request.content_type("application/json").send(&body).map_err(away)?;
        let status = answer.status();
        let text = answer.body_mut().with_config().limit(ANSWER_MAX).read_to_vec().map_err(away)?;
        if !status.is_success() {
            let failure: Failure = serde_json::from_slice(&text).unwrap_or_default();
            return Err(self.said(at, status.as_u16(), &failure));
        }
        // Who keeps a lease has a stream, and needs its first answer.
        let mut answers = serde_json::Deserializer::from_slice(&text).into_iter::<A>();
        let strange = |why: String| self.failed(ErrorKind::Malformed, at, format!("{path}: {why}"));
        match answers.next() {
            Some(answer) => answer.map_err(|error| strange(error.to_string())),
            None => Err(strange("no answer in it".into())),
        }
    }

    /// What etcd says that it does not do.
    fn said(&self, at: &str, status: u16, failure: &Failure) -> Error {
        let needs = failure.error.contains("user name is empty");
        // Users were changed since it was given: another one is good.
        let is_old = failure.error.contains("revision of auth store is old");
        let kind = match failure.code {
            _ if needs => ErrorKind::Denied,
            _ if is_old => ErrorKind::Unauthorized,
            code::DENIED => ErrorKind::Denied,
            code::UNAUTHENTICATED => ErrorKind::Unauthorized,
            code::NOT_FOUND => ErrorKind::NotFound,
            code::INVALID | code::PRECONDITION => ErrorKind::Invalid,
            code::LATE | code::UNAVAILABLE => ErrorKind::Unreachable,
            _ if status >= 500 => ErrorKind::Unreachable,
            _ => ErrorKind::Malformed,
        };
        // No more of what somebody else has written than fits on a line.
        let line = failure.error.chars().filter(|c| !c.is_control()).take(200);
        let why: String = line.collect();
        let what = if needs { " (it asks for a user: --control-login FILE)" } else { "" };
        self.failed(kind, at, format!("HTTP {status}: {why}{what}"))
    }

    fn token(&self) -> Option<String> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn log_in(&self, at: &str) -> Result<()> {
        let Some((name, password)) = &self.login.user else { return Ok(()) };
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let body = json!({ "name": name, "password": password });
        let said: Authenticated = self.ask_one(at, "/v3/auth/authenticate", &body)?;
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(said.token);
        Ok(())
    }

    /// Asks one member, and logs in if that is needed.
    fn ask_at<A: DeserializeOwned>(&self, at: &str, path: &str, body: &Value) -> Result<A> {
        if self.login.user.is_some() && self.token().is_none() {
            self.log_in(at)?;
        }
        match self.ask_one(at, path, body) {
            // The word by which it knew who asks has run out.
            Err(error) if error.kind == ErrorKind::Unauthorized && self.login.user.is_some() => {
                self.log_in(at)?;
                self.ask_one(at, path, body)
            }
            answered => answered,
        }
    }

    fn ask<A: DeserializeOwned>(&self, path: &str, body: &Value, again: Again) -> Result<A> {
        let members = self.place.at.len();
        let first = self.last.load(Ordering::Relaxed);
        let mut tries = 0;
        loop {
            let at = (first + tries) % members;
            let answered = self.ask_at(&self.place.at[at], path, body);
            match answered {
                Err(error) if error.kind == ErrorKind::Unreachable => {
                    self.last.store((at + 1) % members, Ordering::Relaxed);
                    tries += 1;
                    if again == Again::No || tries >= members {
                        return Err(error);
                    }
                }
                answered => {
                    self.last.store(at, Ordering::Relaxed);
                    return answered;
                }
            }
        }
    }
}

/// Of what comes instead of an answer.
fn kind_of(error: &ureq::Error) -> ErrorKind {
    match error {
        ureq::Error::BodyExceedsLimit(_)
        | ureq::Error::Protocol(_)
        | ureq::Error::Http(_)
        | ureq::Error::LargeResponseHeader(..)
        | ureq::Error::TooManyRedirects => ErrorKind::Malformed,
        _ => ErrorKind::Unreachable,
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<Certificate<'static>>> {
    let bad = || Error::new(ErrorKind::Invalid, "certificates of --control-login: not PEM");
    let mut all = Vec::new();
    for item in parse_pem(pem) {
        if let PemItem::Certificate(certificate) = item.map_err(|_| bad())? {
            all.push(certificate);
        }
    }
    if all.is_empty() { Err(bad()) } else { Ok(all) }
}

fn tls(login: &Login) -> Result<TlsConfig> {
    let none = || {
        let why = "etcds:// needs who vouches for etcd: a line `ca FILE` of --control-login";
        Error::new(ErrorKind::Invalid, why)
    };
    let ca = certificates(login.ca.as_deref().ok_or_else(none)?)?;
    let own = login.own.as_ref().map(|(certificate, key)| {
        let bad = |_| Error::new(ErrorKind::Invalid, "the key of --control-login: not PEM");
        let key = PrivateKey::from_pem(key).map_err(bad)?;
        Ok(ClientCert::new_with_certs(&certificates(certificate)?, key))
    });
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&ca))
        .client_cert(own.transpose()?)
        .unversioned_rustls_crypto_provider(provider)
        .build())
}

/// Where the keys end that begin with this: etcd's prefixes are ranges.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

impl Registry for Etcd {
    fn describe(&self) -> String {
        self.place.to_string()
    }

    fn below(&self, prefix: &str) -> Result<View> {
        let key = if prefix.is_empty() { encoded([0]) } else { encoded(prefix) };
        let body = json!({ "key": key, "range_end": encoded(end_of(prefix)) });
        let found: Range = self.ask("/v3/kv/range", &body, Again::Yes)?;
        let strange = |why: &str| {
            Error::new(ErrorKind::Malformed, format!("{}: keys {prefix}…: {why}", self.place))
        };
        if found.more {
            return Err(strange("not all were said"));
        }
        let mut entries = Vec::with_capacity(found.kvs.len());
        for one in found.kvs {
            let key = String::from_utf8(one.key).map_err(|_| strange("one is no text"))?;
            if !key.starts_with(prefix) || one.mod_revision == 0 {
                return Err(strange("one that nobody asked for"));
            }
            let changed = Revision(one.mod_revision);
            entries.push(Entry { key, value: one.value, changed });
        }
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(View { entries, revision: Revision(found.header.revision) })
    }

    fn commit(&self, guards: &[Guard], changes: &[Change]) -> Result<Option<Revision>> {
        check(guards, changes)?;
        let compare = guards.iter().map(|guard| match guard {
            Guard::Absent(key) => json!({
                "target": "VERSION", "result": "EQUAL", "key": encoded(key), "version": "0",
            }),
            Guard::Unchanged(key, Revision(at)) => json!({
                "target": "MOD", "result": "EQUAL", "key": encoded(key),
                "mod_revision": at.to_string(),
            }),
        });
        let success = changes.iter().map(|change| match change {
            Change::Put { key, value, lease } => {
                let lease = lease.map_or(0, |lease| lease.0).to_string();
                let put = json!({ "key": encoded(key), "value": encoded(value), "lease": lease });
                json!({ "request_put": put })
            }
            Change::Remove(key) => {
                json!({ "request_delete_range": { "key": encoded(key) } })
            }
        });
        let (compare, success): (Vec<_>, Vec<_>) = (compare.collect(), success.collect());
        let body = json!({ "compare": compare, "success": success });
        let done: Transaction = self.ask("/v3/kv/txn", &body, Again::No)?;
        Ok(done.succeeded.then_some(Revision(done.header.revision)))
    }

    fn grant(&self, term: Duration) -> Result<Lease> {
        let seconds = term.as_secs_f64().ceil().max(1.0) as u64;
        let body = json!({ "TTL": seconds.to_string(), "ID": "0" });
        // One that nobody knows of runs out.
        let granted: Granted = self.ask("/v3/lease/grant", &body, Again::Yes)?;
        Ok(Lease(granted.id))
    }

    fn keep(&self, lease: Lease) -> Result<bool> {
        let body = json!({ "ID": lease.0.to_string() });
        let kept: Kept = self.ask("/v3/lease/keepalive", &body, Again::Yes)?;
        Ok(kept.result.seconds > 0)
    }

    fn end(&self, lease: Lease) -> Result<()> {
        let body = json!({ "ID": lease.0.to_string() });
        match self.ask::<Done>("/v3/lease/revoke", &body, Again::Yes) {
            Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
            ended => ended.map(drop),
        }
    }
}

#[cfg(test)]
mod tests;
