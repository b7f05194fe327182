//! Bytes as text: two hexadecimal digits each, small letters only, so that a text has one form.

/// As text.
pub fn text(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// What a text stands for; `None` if it is none, or longer than so many bytes.
pub fn bytes(text: &str, most: usize) -> Option<Vec<u8>> {
    if text.len() / 2 > most || !text.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let pairs = text.as_bytes().chunks_exact(2);
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::{bytes, text};

    #[test]
    fn a_text_has_one_form() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(bytes(&text(&all), 256), Some(all.clone()));
        assert_eq!((bytes("", 0), bytes(&text(&all), 255)), (Some(vec![]), None));
        for none in ["0", "0A", "+1", "0x", "\u{e4}\u{e4}"] {
            assert_eq!(bytes(none, 8), None, "{none}");
        }
    }
}
