//! Extended attributes: each call is a message.

use terral_format::wire::message::{Reply, Request, Target, XattrHow};
use terral_format::{Error, ErrorKind, Result};

use crate::session::{Connection, unexpected};

impl Connection {
    pub(crate) fn xattr(&self, target: Target<'_>, name: &[u8]) -> Result<Vec<u8>> {
        check(name)?;
        match self.call(Request::Xattr { target, name })? {
            Reply::Xattr(value) => Ok(value),
            _ => Err(unexpected()),
        }
    }

    pub(crate) fn xattrs(&self, target: Target<'_>) -> Result<Vec<Vec<u8>>> {
        let mut all: Vec<Vec<u8>> = Vec::new();
        loop {
            let after = all.last().cloned().unwrap_or_default();
            match self.call(Request::XattrNames { target, after: &after })? {
                Reply::XattrNames { names, last } => {
                    let empty = names.is_empty();
                    all.extend(names);
                    if last || empty {
                        return Ok(all);
                    }
                }
                _ => return Err(unexpected()),
            }
        }
    }

    pub(crate) fn set_xattr(
        &self,
        target: Target<'_>,
        name: &[u8],
        value: Option<&[u8]>,
        how: XattrHow,
    ) -> Result<()> {
        check(name)?;
        if value.is_some_and(|value| value.len() > terral_format::wire::message::XATTR_VALUE_MAX) {
            return Err(Error::new(ErrorKind::TooBig, "extended attribute"));
        }
        match self.call(Request::SetXattr { target, name, value, how })? {
            Reply::Done => Ok(()),
            _ => Err(unexpected()),
        }
    }
}

/// What would not fit a message; the rest is the server's to judge.
fn check(name: &[u8]) -> Result<()> {
    if name.len() > terral_format::local::geometry::NAME_MAX {
        return Err(Error::new(ErrorKind::OutOfRange, "name of an extended attribute"));
    }
    Ok(())
}
