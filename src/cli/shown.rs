//! Names as they are shown: to people, whose terminal must do nothing that a name says, and in
//! JSON, which has no bytes that are no text.
//!
//! Not here: texts of the server's, whose names are for people only.

use serde_json::Value;

/// What a field of JSON is called that has the bytes of the field before the ending.
const BYTES: &str = "_bytes";

/// A text that does nothing to a terminal: a question mark stands for each control character, as
/// with `ls`.
pub fn tame(text: &str) -> String {
    text.replace(char::is_control, "?")
}

/// The same for a name.
pub fn tame_name(name: &[u8]) -> String {
    tame(&String::from_utf8_lossy(name))
}

/// Adds a name to an object: as text, and, where that is not all of it, its bytes as well, in a
/// field `FIELD_bytes`, with `%` and two digits for each byte that is `%` or not printable ASCII.
pub fn add_name(mut object: Value, field: &str, name: &[u8]) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(field.to_owned(), String::from_utf8_lossy(name).into());
        if std::str::from_utf8(name).is_err() {
            fields.insert(format!("{field}{BYTES}"), percent(name).into());
        }
    }
    object
}

fn percent(name: &[u8]) -> String {
    let plain = |byte: &u8| matches!(*byte, b' '..=b'~') && *byte != b'%';
    let shown = |byte: &u8| match plain(byte) {
        true => char::from(*byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    name.iter().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::{add_name, tame, tame_name};
    use serde_json::json;

    #[test]
    fn names_say_nothing_to_a_terminal() {
        assert_eq!(tame_name("plain \u{e4}".as_bytes()), "plain \u{e4}");
        assert_eq!(tame_name(b"a\x1b[2J\n\xc2\x9bb"), "a?[2J??b");
        assert_eq!(tame("a\tb"), "a?b");
    }

    #[test]
    fn the_bytes_of_a_name_that_is_no_text_are_told() {
        let named = |name| add_name(json!({ "kind": "File" }), "name", name);
        let plain = json!({ "kind": "File", "name": "100 %\u{e4}\u{1b}" });
        assert_eq!(named("100 %\u{e4}\u{1b}".as_bytes()), plain);
        let other = json!({ "kind": "File", "name": "1%\u{fffd}\n", "name_bytes": "1%25%E9%0A" });
        assert_eq!(named(b"1%\xe9\n"), other);
    }
}
