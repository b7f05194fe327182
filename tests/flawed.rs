//! Promises of a protocol that `loom` explores: each holds with the rules as they are, and is
//! broken by each flaw that must break it, so that the exploration is known to look.

/// A scenario's promise with the protocol as it is, and with each flaw that must break it.
macro_rules! promise {
    ($name:ident, $scenario:expr, broken by [$($broken:ident: $flaw:ident),* $(,)?]) => {
        mod $name {
            use super::Flaw;

            #[test]
            fn holds() {
                $scenario(Flaw::None);
            }
            $(
                #[test]
                #[should_panic(expected = "promise:")]
                fn $broken() {
                    $scenario(Flaw::$flaw);
                }
            )*
        }
    };
}

pub(crate) use promise;
