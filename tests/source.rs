//! Reads a source file as the rules need it: code apart from comments, apart from string literals.
//!
//! A lexer of Rust (and near enough of C), not a parser: every character keeps its line and column,
//! and what does not belong to a part is blank in it.

/// A source file, named as in the repository.
#[derive(Clone, Debug)]
pub struct Source {
    /// Path from the repository's root, with slashes.
    pub path: String,
    /// As it is on disk.
    pub text: String,
    /// The same with comments and the insides of literals blanked.
    pub code: String,
    /// The same with everything but comments blanked.
    pub comments: String,
}

impl Source {
    /// Splits `text`.
    pub fn new(path: &str, text: &str) -> Self {
        let mut lexer = Lexer {
            chars: text.chars().collect(),
            at: 0,
            code: String::with_capacity(text.len()),
            comments: String::with_capacity(text.len()),
        };
        lexer.run();
        Source {
            path: path.to_owned(),
            text: text.to_owned(),
            code: lexer.code,
            comments: lexer.comments,
        }
    }

    /// The folder under `src/`, or `tests`.
    pub fn room(&self) -> &str {
        let inner = self.path.strip_prefix("src/").unwrap_or(&self.path);
        inner.split('/').next().unwrap_or_default()
    }

    /// Lines that hold code.
    pub fn code_lines(&self) -> usize {
        self.code.lines().filter(|line| !line.trim().is_empty()).count()
    }

    /// Every function with a body: its name, its first line and how many lines it has.
    pub fn functions(&self) -> Vec<(String, usize, usize)> {
        let mut found = Vec::new();
        for (at, _) in self.code.match_indices("fn ") {
            let before = self.code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
                continue;
            }
            let rest = &self.code[at + 3..];
            let name: String =
                rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if name.is_empty() {
                continue;
            }
            if let Some(length) = body_lines(rest) {
                found.push((name, line_of(&self.code, at), length));
            }
        }
        found
    }
}

/// The line, from 1, of byte `at`.
pub fn line_of(text: &str, at: usize) -> usize {
    1 + text[..at].matches('\n').count()
}

/// Lines up to the brace that closes the first one; `None` if a `;` comes before any.
fn body_lines(rest: &str) -> Option<usize> {
    let (mut depth, mut brackets, mut lines) = (0usize, 0usize, 1usize);
    for c in rest.chars() {
        match c {
            '\n' => lines += 1,
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets = brackets.saturating_sub(1),
            ';' if depth == 0 && brackets == 0 => return None,
            '{' => depth += 1,
            '}' if depth <= 1 => return Some(lines),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Code,
    Comment,
    Literal,
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    code: String,
    comments: String,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.at + ahead).copied().unwrap_or('\0')
    }

    fn take(&mut self, count: usize, part: Part) {
        for _ in 0..count {
            let Some(&c) = self.chars.get(self.at) else { return };
            let blank = if c == '\n' { '\n' } else { ' ' };
            self.code.push(if part == Part::Code { c } else { blank });
            self.comments.push(if part == Part::Comment { c } else { blank });
            self.at += 1;
        }
    }

    fn run(&mut self) {
        while self.at < self.chars.len() {
            match (self.peek(0), self.peek(1)) {
                ('/', '/') => self.line_comment(),
                ('/', '*') => self.block_comment(),
                ('"', _) => self.string(),
                ('r', '"' | '#') if self.starts_raw_string() => self.raw_string(),
                ('\'', _) => self.quote(),
                _ => self.take(1, Part::Code),
            }
        }
    }

    fn line_comment(&mut self) {
        while self.at < self.chars.len() && self.peek(0) != '\n' {
            self.take(1, Part::Comment);
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        while self.at < self.chars.len() {
            match (self.peek(0), self.peek(1)) {
                ('/', '*') => depth += 1,
                ('*', '/') => depth -= 1,
                _ => {
                    self.take(1, Part::Comment);
                    continue;
                }
            }
            self.take(2, Part::Comment);
            if depth == 0 {
                return;
            }
        }
    }

    fn string(&mut self) {
        self.take(1, Part::Code);
        while self.at < self.chars.len() && self.peek(0) != '"' {
            let escaped = self.peek(0) == '\\';
            self.take(if escaped { 2 } else { 1 }, Part::Literal);
        }
        self.take(1, Part::Code);
    }

    fn starts_raw_string(&self) -> bool {
        let before = self.at.checked_sub(1).map_or(' ', |at| self.chars[at]);
        let word = (before.is_alphanumeric() && before != 'b') || before == '_';
        let hashes = (1..).take_while(|ahead| self.peek(*ahead) == '#').count();
        !word && self.peek(1 + hashes) == '"'
    }

    fn raw_string(&mut self) {
        let hashes = (1..).take_while(|ahead| self.peek(*ahead) == '#').count();
        self.take(hashes + 2, Part::Code);
        while self.at < self.chars.len() {
            if self.peek(0) == '"' && (1..=hashes).all(|ahead| self.peek(ahead) == '#') {
                return self.take(1 + hashes, Part::Code);
            }
            self.take(1, Part::Literal);
        }
    }

    /// A character literal, or the tick of a lifetime.
    fn quote(&mut self) {
        let escaped = self.peek(1) == '\\';
        if !escaped && self.peek(2) != '\'' {
            return self.take(1, Part::Code);
        }
        self.take(1, Part::Code);
        self.take(if escaped { 2 } else { 1 }, Part::Literal);
        while self.at < self.chars.len() && self.peek(0) != '\'' {
            self.take(1, Part::Literal);
        }
        self.take(1, Part::Code);
    }
}

#[cfg(test)]
mod tests {
    use super::Source;

    #[test]
    fn literals_and_comments_are_not_code() {
        let text = "let a = \"unsafe // \\\" x\"; // b\n/* c /* d */ */ let e = r#\"f\"g\"#;\n";
        let source = Source::new("src/x/y.rs", text);
        assert!(!source.code.contains("unsafe") && !source.code.contains('b'));
        assert!(source.code.contains("let e") && !source.code.contains('g'));
        assert_eq!(source.comments.split_whitespace().collect::<String>(), "//b/*c/*d*/*/");
        assert_eq!(source.code.len(), text.len());
    }

    #[test]
    fn ticks_of_lifetimes_do_not_open_literals() {
        let source = Source::new("a.rs", "fn f<'a>(x: &'a str) { g('{', '\\'', \"}\") }\n");
        assert_eq!(source.functions(), [("f".to_owned(), 1, 1)]);
    }

    #[test]
    fn a_functions_length_is_counted_to_its_closing_brace() {
        let source = Source::new("a.rs", "trait T { fn a(x: [u8; 2]); }\nfn b() {\n  {}\n}\n");
        assert_eq!(source.functions(), [("b".to_owned(), 2, 3)]);
    }
}
