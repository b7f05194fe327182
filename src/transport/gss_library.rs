//! The library of Kerberos, `libgssapi_krb5.so.2`: opened when it is first asked for, as a machine
//! may have none. Its types and calls, as RFC 2744 has them.
//!
//! Invariant: it is never closed, so what it gave stays. Not here: what the calls are for
//! (`kerberos`).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use terral_format::{Error, ErrorKind, Result};

/// As MIT's has been called since 2001.
const NAME: &CStr = c"libgssapi_krb5.so.2";

/// Bytes.
#[repr(C)]
pub(crate) struct Buffer {
    pub length: usize,
    pub value: *mut c_void,
}

impl Buffer {
    pub const EMPTY: Buffer = Buffer { length: 0, value: ptr::null_mut() };

    /// To be read only, and no longer than they live.
    pub fn of(bytes: &[u8]) -> Buffer {
        Buffer { length: bytes.len(), value: bytes.as_ptr().cast_mut().cast() }
    }
}

/// What an object identifier is.
#[repr(C)]
pub(crate) struct Oid {
    pub length: u32,
    pub elements: *mut c_void,
}

impl Oid {
    pub fn of(bytes: &'static [u8]) -> Oid {
        Oid { length: bytes.len() as u32, elements: bytes.as_ptr().cast_mut().cast() }
    }
}

/// Several.
#[repr(C)]
pub(crate) struct OidSet {
    pub count: usize,
    pub elements: *mut Oid,
}

/// Where keys are, by a word.
#[repr(C)]
pub(crate) struct Store {
    pub key: *const c_char,
    pub value: *const c_char,
}

/// Several.
#[repr(C)]
pub(crate) struct Stores {
    pub count: u32,
    pub elements: *const Store,
}

/// What begins all that MIT's library says of a context, version 1.
#[repr(C)]
pub(crate) struct Lucid {
    pub version: u32,
    pub initiate: u32,
    /// When its ticket is over, seconds since 1970.
    pub end_s: u32,
}

/// A name, a key or a context: what the library only has itself.
pub(crate) type Handle = *mut c_void;

type ImportName = unsafe extern "C" fn(*mut u32, *const Buffer, *const Oid, *mut Handle) -> u32;
type DisplayName = unsafe extern "C" fn(*mut u32, Handle, *mut Buffer, *mut *const Oid) -> u32;
type Release = unsafe extern "C" fn(*mut u32, *mut Handle) -> u32;
type ReleaseBuffer = unsafe extern "C" fn(*mut u32, *mut Buffer) -> u32;
type AcquireFrom = unsafe extern "C" fn(
    *mut u32,
    Handle,
    u32,
    *const OidSet,
    c_int,
    *const Stores,
    *mut Handle,
    *mut *mut OidSet,
    *mut u32,
) -> u32;
type Initiate = unsafe extern "C" fn(
    *mut u32,
    Handle,
    *mut Handle,
    Handle,
    *const Oid,
    u32,
    u32,
    *const c_void,
    *const Buffer,
    *mut *const Oid,
    *mut Buffer,
    *mut u32,
    *mut u32,
) -> u32;
type Accept = unsafe extern "C" fn(
    *mut u32,
    *mut Handle,
    Handle,
    *const Buffer,
    *const c_void,
    *mut Handle,
    *mut *const Oid,
    *mut Buffer,
    *mut u32,
    *mut u32,
    *mut Handle,
) -> u32;
type Inquire = unsafe extern "C" fn(
    *mut u32,
    Handle,
    *mut Handle,
    *mut Handle,
    *mut u32,
    *mut *const Oid,
    *mut u32,
    *mut c_int,
    *mut c_int,
) -> u32;
type GetMic = unsafe extern "C" fn(*mut u32, Handle, u32, *const Buffer, *mut Buffer) -> u32;
type VerifyMic =
    unsafe extern "C" fn(*mut u32, Handle, *const Buffer, *const Buffer, *mut u32) -> u32;
type DeleteContext = unsafe extern "C" fn(*mut u32, *mut Handle, *mut Buffer) -> u32;
type DisplayStatus =
    unsafe extern "C" fn(*mut u32, u32, c_int, *const Oid, *mut u32, *mut Buffer) -> u32;
type ExportLucid = unsafe extern "C" fn(*mut u32, *mut Handle, u32, *mut *mut Lucid) -> u32;
type FreeLucid = unsafe extern "C" fn(*mut u32, *mut Lucid) -> u32;

/// Its calls.
pub(crate) struct Library {
    pub import_name: ImportName,
    pub display_name: DisplayName,
    pub release_name: Release,
    pub release_buffer: ReleaseBuffer,
    pub acquire_from: AcquireFrom,
    pub release_key: Release,
    pub initiate: Initiate,
    pub accept: Accept,
    pub inquire: Inquire,
    pub get_mic: GetMic,
    pub verify_mic: VerifyMic,
    pub delete_context: DeleteContext,
    pub display_status: DisplayStatus,
    pub export_lucid: ExportLucid,
    pub free_lucid: FreeLucid,
}

fn missing(what: &str) -> Error {
    let context = format!(
        "{what}: install the Kerberos libraries (Debian: libgssapi-krb5-2; Fedora, RHEL: krb5-libs)"
    );
    Error::new(ErrorKind::Unsupported, context)
}

/// What the linker has said last.
fn linker_says() -> String {
    // SAFETY: it gives null or a string that stays until this thread's next call of the linker.
    let said = unsafe { libc::dlerror() };
    if said.is_null() {
        return "cannot be opened".into();
    }
    // SAFETY: not null, see above; copied before the next call.
    unsafe { CStr::from_ptr(said) }.to_string_lossy().into_owned()
}

/// One call of an opened library.
///
/// # Safety
/// `F` is the type of the C function of this name.
unsafe fn symbol<F: Copy>(library: Handle, name: &CStr) -> Result<F> {
    const { assert!(size_of::<F>() == size_of::<Handle>()) };
    // SAFETY: the library is open, and stays.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    if found.is_null() {
        let (library, name) = (NAME.to_string_lossy(), name.to_string_lossy());
        return Err(missing(&format!("{library}: too old: it has no {name}")));
    }
    // SAFETY: a pointer to that function, of the same size, and not null.
    Ok(unsafe { std::mem::transmute_copy(&found) })
}

impl Library {
    fn open(name: &CStr) -> Result<Library> {
        // SAFETY: a name that ends with 0; what it runs as it is opened is the system's own.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(missing(&linker_says()));
        }
        // SAFETY: each field has the type that RFC 2744, or MIT's headers, give its function.
        unsafe {
            Ok(Library {
                import_name: symbol(library, c"gss_import_name")?,
                display_name: symbol(library, c"gss_display_name")?,
                release_name: symbol(library, c"gss_release_name")?,
                release_buffer: symbol(library, c"gss_release_buffer")?,
                acquire_from: symbol(library, c"gss_acquire_cred_from")?,
                release_key: symbol(library, c"gss_release_cred")?,
                initiate: symbol(library, c"gss_init_sec_context")?,
                accept: symbol(library, c"gss_accept_sec_context")?,
                inquire: symbol(library, c"gss_inquire_context")?,
                get_mic: symbol(library, c"gss_get_mic")?,
                verify_mic: symbol(library, c"gss_verify_mic")?,
                delete_context: symbol(library, c"gss_delete_sec_context")?,
                display_status: symbol(library, c"gss_display_status")?,
                export_lucid: symbol(library, c"gss_krb5_export_lucid_sec_context")?,
                free_lucid: symbol(library, c"gss_krb5_free_lucid_sec_context")?,
            })
        }
    }

    /// The library of this machine.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if there is none; says what to install.
    pub fn get() -> Result<&'static Library> {
        static OPENED: OnceLock<Result<Library>> = OnceLock::new();
        OPENED.get_or_init(|| Library::open(NAME)).as_ref().map_err(Clone::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::{ErrorKind, Library};

    #[test]
    fn a_machine_without_kerberos_is_told_what_to_install() {
        let said = Library::open(c"libgssapi_krb5_of_nowhere.so.2").err().expect("there is none");
        assert_eq!(said.kind, ErrorKind::Unsupported);
        for part in ["libgssapi_krb5_of_nowhere.so.2", "libgssapi-krb5-2", "krb5-libs"] {
            assert!(said.context.contains(part) && !said.context.contains('\n'), "{said}");
        }
    }

    #[test]
    fn a_library_that_is_another_is_refused() {
        let said = Library::open(c"libc.so.6").err().expect("no such calls");
        assert!(said.context.contains("gss_import_name"), "{said}");
    }
}
