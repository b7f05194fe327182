//! Whether a call may use bytes now. What another member has issued counts only for some time: then
//! the server is asked, which asks on. Who has logged in asks of each file once containers have
//! changed. Not here: changes that are deferred (`deferred`), which wait for nobody, and ask the
//! server instead.

use std::sync::atomic::Ordering;

use terral_format::Result;
use terral_format::local::tables::{CONTAINED, LEASED};
use terral_format::wire::message::{FileRef, Reply, Request};

use crate::clock::real_ns;
use crate::session::{Connection, Own, unexpected};

impl Connection {
    /// Refuses what the capability does not allow, or no more; `needs` are bits of
    /// [`terral_format::wire::capability::Operations`]. Who has logged in is refused what
    /// `contained` says.
    #[inline]
    pub(crate) fn allows(&self, needs: u64, contained: impl FnOnce() -> Result<()>) -> Result<()> {
        let own = self.own()?;
        let allowed = own.page().operations.load(Ordering::SeqCst);
        if allowed & (needs | LEASED | CONTAINED) == needs {
            return Ok(());
        }
        self.allows_still(own, needs, contained)
    }

    #[cold]
    fn allows_still(
        &self,
        own: &Own,
        needs: u64,
        contained: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        own.check(needs)?;
        let allowed = own.page().operations.load(Ordering::SeqCst);
        if allowed & LEASED != 0 && !own.lasts(real_ns()) {
            self.call(Request::Renew)?;
            own.check(needs)?;
        }
        if allowed & CONTAINED == 0 { Ok(()) } else { contained() }
    }

    /// Whether this process acts for who has logged in, of whom containers say what he may.
    pub(crate) fn is_contained(&self) -> Result<bool> {
        Ok(self.own()?.page().operations.load(Ordering::SeqCst) & CONTAINED != 0)
    }

    /// How often containers have changed; 0: there never were any.
    pub(crate) fn containers(&self) -> u64 {
        self.memory.superblock().containers.load(Ordering::SeqCst)
    }

    /// Has the server look whether containers let this process use a file so.
    #[cold]
    pub(crate) fn use_of(&self, file: FileRef, needs: u64) -> Result<()> {
        match self.call(Request::Use { file, access: needs as u8 })? {
            Reply::Done => Ok(()),
            _ => Err(unexpected()),
        }
    }
}
