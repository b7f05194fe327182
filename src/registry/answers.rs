//! What etcd's JSON gateway answers, as far as it is needed.
//!
//! Invariant: 64-bit numbers are strings there, and what is 0, false or empty is left out; whatever
//! else comes is malformed, and nothing of it is used.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer};

/// Bytes as JSON has them.
pub fn encoded(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

fn number<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(serde::de::Error::custom)
}

fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(from)?;
    STANDARD.decode(text).map_err(serde::de::Error::custom)
}

/// How far it has come.
#[derive(Debug, Default, Deserialize)]
pub struct Header {
    #[serde(default, deserialize_with = "number")]
    pub revision: u64,
}

/// A key and its value.
#[derive(Debug, Deserialize)]
pub struct KeyValue {
    #[serde(default, deserialize_with = "bytes")]
    pub key: Vec<u8>,
    #[serde(default, deserialize_with = "bytes")]
    pub value: Vec<u8>,
    #[serde(default, deserialize_with = "number")]
    pub mod_revision: u64,
}

/// Of `/v3/kv/range`.
#[derive(Debug, Deserialize)]
pub struct Range {
    pub header: Header,
    #[serde(default)]
    pub kvs: Vec<KeyValue>,
    #[serde(default)]
    pub more: bool,
}

/// Of `/v3/kv/txn`.
#[derive(Debug, Deserialize)]
pub struct Transaction {
    pub header: Header,
    #[serde(default)]
    pub succeeded: bool,
}

/// Of `/v3/lease/grant`.
#[derive(Debug, Deserialize)]
pub struct Granted {
    #[serde(rename = "ID", deserialize_with = "number")]
    pub id: u64,
}

/// Of `/v3/lease/keepalive`: the first of a stream.
#[derive(Debug, Deserialize)]
pub struct Kept {
    pub result: Term,
}

/// What is left of a lease; 0 if it is over.
#[derive(Debug, Deserialize)]
pub struct Term {
    #[serde(default, rename = "TTL", deserialize_with = "number")]
    pub seconds: u64,
}

/// Of what is answered with nothing that is needed.
#[derive(Debug, Deserialize)]
pub struct Done {
    #[serde(rename = "header")]
    pub _header: Header,
}

/// Of `/v3/auth/authenticate`.
#[derive(Deserialize)]
pub struct Authenticated {
    pub token: String,
}

/// What failed, by the numbers of gRPC.
#[derive(Debug, Default, Deserialize)]
pub struct Failure {
    #[serde(default)]
    pub error: String,
    #[serde(default)]
    pub code: u32,
}
