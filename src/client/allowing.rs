//! Whether a call may use bytes now. What another member has issued counts only for some time: then
//! the server is asked, which asks on. Not here: changes that are deferred (`deferred`), which wait
//! for nobody, and ask the server instead.

use std::sync::atomic::Ordering;

use terral_format::Result;
use terral_format::local::tables::LEASED;
use terral_format::wire::message::Request;

use crate::clock::real_ns;
use crate::session::{Connection, Own};

impl Connection {
    /// Refuses what the capability does not allow, or no more; `needs` are bits of
    /// [`terral_format::wire::capability::Operations`].
    #[inline]
    pub(crate) fn allows(&self, needs: u64) -> Result<()> {
        let own = self.own()?;
        let allowed = own.page().operations.load(Ordering::SeqCst);
        if allowed & (needs | LEASED) == needs { Ok(()) } else { self.allows_still(own, needs) }
    }

    #[cold]
    fn allows_still(&self, own: &Own, needs: u64) -> Result<()> {
        own.check(needs)?;
        if own.lasts(real_ns()) {
            return Ok(());
        }
        self.call(Request::Renew)?;
        own.check(needs)
    }
}
