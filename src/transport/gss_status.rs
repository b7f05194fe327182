//! What the library of Kerberos says of a call that failed: why, as far as somebody can do
//! something about it, and its own words, on one line.

use std::ptr;

use crate::gss_library::{Buffer, Library, Oid};

/// Kerberos 5 (RFC 4121), as GSS-API names it.
pub(crate) const KERBEROS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02];
/// Set in what a call answers if it is not done, and is to be called again.
pub(crate) const CONTINUES: u32 = 1;
/// What a call answers has its errors here (RFC 2744, 3.9.1).
const ERRORS: u32 = 0xffff_0000;
/// And these are some of them.
const NO_KEY: u32 = 7 << 16;
const EXPIRED: u32 = 11 << 16;
const DEFECTIVE: u32 = 9 << 16;
const UNSEALED: u32 = 6 << 16;
/// Numbers of errors of Kerberos 5 begin here: those below 128 are of its protocol (RFC 4120,
/// 7.5.9), the others of MIT's library.
const KERBEROS_ERRORS: i32 = -1_765_328_384;
/// To ask for the words of the call.
const OF_CALL: i32 = 1;
/// To ask for those of Kerberos.
const OF_KERBEROS: i32 = 2;
/// Most that is repeated of them, characters.
const SHOWN: usize = 240;

/// What a call has answered, and what Kerberos adds to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub call: u32,
    pub kerberos: u32,
}

/// Why something failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Nobody has said who he is on this machine.
    NoTicket,
    /// The ticket was good.
    Over,
    /// The realm knows no such service.
    NoService,
    /// No server of the realm answers, or nobody says where it is.
    NoRealm,
    /// What the ticket is for is no key that is there.
    NoKey,
    /// Clocks differ too much.
    Clocks,
    /// The same was shown before.
    Repeated,
    /// What was shown is not whole, or not made by a key that is there.
    Damaged,
    /// Whatever else.
    Other,
}

impl Status {
    /// Whether something failed.
    pub fn failed(self) -> bool {
        self.call & ERRORS != 0
    }

    pub fn cause(self) -> Cause {
        match (self.kerberos as i32).wrapping_sub(KERBEROS_ERRORS) {
            7 => Cause::NoService,
            32 => Cause::Over,
            34 | 163 => Cause::Repeated,
            37 | 148 => Cause::Clocks,
            31 | 36 | 39 | 40 | 41 | 50 => Cause::Damaged,
            35 | 44 | 45 | 144 | 146 | 181 | 230 => Cause::NoKey,
            154 | 156 | 217 | 220 | 224 => Cause::NoRealm,
            141 | 195 | 203 => Cause::NoTicket,
            _ => match self.call & ERRORS {
                NO_KEY => Cause::NoTicket,
                EXPIRED => Cause::Over,
                DEFECTIVE | UNSEALED => Cause::Damaged,
                _ => Cause::Other,
            },
        }
    }

    /// In the library's own words.
    pub fn words(self, library: &Library) -> String {
        let (number, kind) = match self.kerberos {
            0 => (self.call, OF_CALL),
            kerberos => (kerberos, OF_KERBEROS),
        };
        let (mut minor, mut more, mut text) = (0, 0, Buffer::EMPTY);
        let mechanism = Oid::of(KERBEROS);
        // SAFETY: all of them live through the call; the mechanism's bytes are static.
        let status = unsafe {
            (library.display_status)(&mut minor, number, kind, &mechanism, &mut more, &mut text)
        };
        if status & ERRORS != 0 {
            return format!("error {number:#x}");
        }
        let words = shown(&String::from_utf8_lossy(text.bytes()));
        // SAFETY: it was filled by the library, and is not used after that.
        unsafe { (library.release_buffer)(&mut minor, ptr::from_mut(&mut text)) };
        words
    }
}

/// Fit for one line.
fn shown(said: &str) -> String {
    said.chars().map(|one| if one.is_control() { ' ' } else { one }).take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::{Cause, KERBEROS_ERRORS, NO_KEY, Status, shown};

    #[test]
    fn a_cause_is_what_somebody_can_do_something_about() {
        let cause = |call, kerberos: i32| {
            let kerberos = KERBEROS_ERRORS.wrapping_add(kerberos) as u32;
            Status { call, kerberos }.cause()
        };
        let failure = 13 << 16;
        assert_eq!(cause(failure, 7), Cause::NoService);
        assert_eq!(cause(failure, 34), Cause::Repeated);
        assert_eq!(cause(failure, 37), Cause::Clocks);
        assert_eq!(cause(NO_KEY, 0), Cause::NoTicket);
        assert_eq!(cause(NO_KEY, 181), Cause::NoKey);
        assert_eq!(cause(failure, 60), Cause::Other);
        assert!(!Status { call: super::CONTINUES, kerberos: 0 }.failed());
    }

    #[test]
    fn words_stay_on_one_line_and_end() {
        assert_eq!(shown("a\nb\u{1b}[0m"), "a b [0m");
        assert_eq!(shown(&"x".repeat(4096)).len(), 240);
    }
}
