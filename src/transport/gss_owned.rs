//! What the library of Kerberos gives, each owned: released when it is dropped, and its bytes read
//! no longer. And the calls that make and use them, with their pointers.
//!
//! Invariant: nothing here is null but a context that has not begun. Not here: what one does with
//! them (`kerberos`).

use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;
use std::ptr;

use crate::gss_library::{Buffer, Handle, Library, Oid, OidSet, Store, Stores};
use crate::gss_status::{KERBEROS, Status};

/// A name is said as SERVICE@HOST (RFC 2743, 4.1).
const OF_SERVICE: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x01, 0x04];
/// For as long as the ticket is good.
const AS_LONG_AS_MAY_BE: u32 = u32::MAX;
/// Keys of who is spoken to.
const ACCEPTS: c_int = 2;
/// Of how what the library says of a context is laid out.
const LUCID_VERSION: u32 = 1;

/// Calls the library.
fn ask(call: impl FnOnce(&mut u32) -> u32) -> Result<u32, Status> {
    let mut kerberos = 0;
    let status = Status { call: call(&mut kerberos), kerberos };
    if status.failed() { Err(status) } else { Ok(status.call) }
}

/// Whether an identifier that the library gave is that of Kerberos 5.
fn is_kerberos(mechanism: *const Oid) -> bool {
    if mechanism.is_null() {
        return false;
    }
    // SAFETY: the library's own, which stays; its elements are as many as it says.
    unsafe {
        let Oid { length, elements } = &*mechanism;
        std::slice::from_raw_parts(elements.cast::<u8>(), *length as usize) == KERBEROS
    }
}

impl Buffer {
    /// What is in it.
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.value.is_null() {
            return &[];
        }
        // SAFETY: whoever filled it says how long it is; it outlives the borrow.
        unsafe { std::slice::from_raw_parts(self.value.cast(), self.length) }
    }
}

/// Bytes of the library, to be copied.
struct Output<'l>(&'l Library, Buffer);

impl<'l> Output<'l> {
    fn new(library: &'l Library) -> Self {
        Output(library, Buffer::EMPTY)
    }

    fn to_vec(&self) -> Vec<u8> {
        self.1.bytes().to_vec()
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        // SAFETY: filled by the library, or empty, which it takes as well.
        unsafe { (self.0.release_buffer)(&mut 0, &mut self.1) };
    }
}

/// Of somebody, or something.
pub(crate) struct Name(&'static Library, Handle);

impl Name {
    fn none(library: &'static Library) -> Self {
        Name(library, ptr::null_mut())
    }

    /// That of a service on a host.
    pub(crate) fn of_service(library: &'static Library, said: &str) -> Result<Self, Status> {
        let (mut name, kind) = (Name::none(library), Oid::of(OF_SERVICE));
        let bytes = Buffer::of(said.as_bytes());
        // SAFETY: all of them live through the call, which copies what it needs.
        ask(|minor| unsafe { (library.import_name)(minor, &bytes, &kind, &mut name.1) })?;
        Ok(name)
    }

    /// As Kerberos writes it: `alice@REALM`.
    fn text(&self) -> Result<String, Status> {
        let (library, mut text) = (self.0, Output::new(self.0));
        // SAFETY: the name is one, and the text is released when it is dropped.
        ask(|minor| unsafe {
            (library.display_name)(minor, self.1, &mut text.1, ptr::null_mut())
        })?;
        Ok(String::from_utf8_lossy(&text.to_vec()).into_owned())
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        if !self.1.is_null() {
            // SAFETY: given by the library, released once.
            unsafe { (self.0.release_name)(&mut 0, &mut self.1) };
        }
    }
}

/// Keys, with which one is spoken to.
pub(crate) struct Keys(&'static Library, Handle);

impl Keys {
    /// Those of a file; `FILE:/path`.
    pub(crate) fn of_file(library: &'static Library, at: &CStr) -> Result<Self, Status> {
        let mut keys = Keys(library, ptr::null_mut());
        let store = Store { key: c"keytab".as_ptr(), value: at.as_ptr() };
        let stores = Stores { count: 1, elements: &store };
        let mut kerberos = Oid::of(KERBEROS);
        let only = OidSet { count: 1, elements: &mut kerberos };
        let (any, unasked) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: all of them live through the call, which copies what it needs; null is allowed
        // for the name (any), and for what is not asked.
        ask(|minor| unsafe {
            (library.acquire_from)(
                minor,
                any,
                AS_LONG_AS_MAY_BE,
                &only,
                ACCEPTS,
                &stores,
                &mut keys.1,
                unasked,
                ptr::null_mut(),
            )
        })?;
        Ok(keys)
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if !self.1.is_null() {
            // SAFETY: given by the library, released once.
            unsafe { (self.0.release_key)(&mut 0, &mut self.1) };
        }
    }
}

/// What a step of a context gives.
pub(crate) struct Step {
    /// For the other side.
    pub token: Vec<u8>,
    /// What holds of the context.
    pub flags: u32,
    /// Whether it is made by Kerberos 5, and by nothing else.
    pub by_kerberos: bool,
    /// What the call has answered.
    pub call: u32,
}

/// What two have who have proven to each other who they are. Not to be used by two threads at once,
/// which is why it is not [`Sync`].
pub(crate) struct Context(&'static Library, Handle, PhantomData<*mut c_void>);

// SAFETY: the library keeps nothing of a context with a thread (MIT: a context may be used by any
// thread, by one at a time).
unsafe impl Send for Context {}

impl Context {
    pub(crate) fn new(library: &'static Library) -> Self {
        Context(library, ptr::null_mut(), PhantomData)
    }

    /// A step of who begins, with a ticket of his own.
    pub(crate) fn initiate(
        &mut self,
        target: &Name,
        wanted: u32,
        token: &[u8],
    ) -> Result<Step, Status> {
        let (library, mut made) = (self.0, Output::new(self.0));
        let (heard, kerberos) = (Buffer::of(token), Oid::of(KERBEROS));
        let (mut flags, mut mechanism) = (0, ptr::null());
        let (own, unbound) = (ptr::null_mut(), ptr::null());
        // SAFETY: all of them live through the call; null is allowed for the ticket (one's own),
        // the bindings (none), and a context that has not begun.
        let call = ask(|minor| unsafe {
            (library.initiate)(
                minor,
                own,
                &mut self.1,
                target.1,
                &kerberos,
                wanted,
                0,
                unbound,
                &heard,
                &mut mechanism,
                &mut made.1,
                &mut flags,
                ptr::null_mut(),
            )
        })?;
        let by_kerberos = is_kerberos(mechanism);
        Ok(Step { token: made.to_vec(), flags, by_kerberos, call })
    }

    /// The step of who is spoken to, and who speaks to him.
    pub(crate) fn accept(&mut self, keys: &Keys, token: &[u8]) -> Result<(Step, Name), Status> {
        let (library, mut made) = (self.0, Output::new(self.0));
        let heard = Buffer::of(token);
        let (mut flags, mut mechanism, mut who) = (0, ptr::null(), Name::none(library));
        let (unbound, unasked) = (ptr::null(), ptr::null_mut());
        // SAFETY: all of them live through the call; null is allowed for the bindings (none), for
        // what is not asked, and for a context that has not begun.
        let call = ask(|minor| unsafe {
            (library.accept)(
                minor,
                &mut self.1,
                keys.1,
                &heard,
                unbound,
                &mut who.1,
                &mut mechanism,
                &mut made.1,
                &mut flags,
                unasked,
                ptr::null_mut(),
            )
        })?;
        let by_kerberos = is_kerberos(mechanism);
        Ok((Step { token: made.to_vec(), flags, by_kerberos, call }, who))
    }

    /// Who has begun it, and who was spoken to.
    pub(crate) fn names(&self) -> Result<(String, String), Status> {
        let library = self.0;
        let (mut from, mut to) = (Name::none(library), Name::none(library));
        let (nothing, none) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the context is whole; null is allowed for what is not asked.
        ask(|minor| unsafe {
            (library.inquire)(
                minor,
                self.1,
                &mut from.1,
                &mut to.1,
                nothing,
                ptr::null_mut(),
                nothing,
                none,
                none,
            )
        })?;
        Ok((from.text()?, to.text()?))
    }

    /// What shows that a message is of this side of the context.
    pub(crate) fn seal(&self, message: &[u8]) -> Result<Vec<u8>, Status> {
        let (library, mut made) = (self.0, Output::new(self.0));
        let message = Buffer::of(message);
        // SAFETY: the context is whole; the rest lives through the call.
        ask(|minor| unsafe { (library.get_mic)(minor, self.1, 0, &message, &mut made.1) })?;
        Ok(made.to_vec())
    }

    /// Whether a message is of the other side: that, and no word more.
    pub(crate) fn check(&self, message: &[u8], seal: &[u8]) -> Result<(), Status> {
        let library = self.0;
        let (message, seal) = (Buffer::of(message), Buffer::of(seal));
        // SAFETY: the context is whole; the rest lives through the call; null is allowed for what
        // is not asked.
        let call = ask(|minor| unsafe {
            (library.verify_mic)(minor, self.1, &message, &seal, ptr::null_mut())
        })?;
        if call == 0 { Ok(()) } else { Err(Status { call, kerberos: 0 }) }
    }

    /// When the ticket is over by which it was begun, seconds since 1970, to the second: the time
    /// that the library says otherwise is longer by what clocks may differ.
    pub(crate) fn end_s(mut self) -> Result<u64, Status> {
        let (library, mut says) = (self.0, ptr::null_mut());
        // SAFETY: the context is whole, and is none after that.
        ask(|minor| unsafe {
            (library.export_lucid)(minor, &mut self.1, LUCID_VERSION, &mut says)
        })?;
        if says.is_null() {
            return Err(Status { call: 13 << 16, kerberos: 0 });
        }
        // SAFETY: of the version that was asked for, which begins as `Lucid` does.
        let end_s = unsafe { (*says).end_s };
        // SAFETY: given by the library, released once, and not used after that.
        unsafe { (library.free_lucid)(&mut 0, says) };
        Ok(end_s.into())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if !self.1.is_null() {
            // SAFETY: given by the library, deleted once; null: no token of that is asked for.
            unsafe { (self.0.delete_context)(&mut 0, &mut self.1, ptr::null_mut()) };
        }
    }
}
