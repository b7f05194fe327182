//! The rule that every promise names its test: in `docs/semantics.md`, each row of a table, each
//! item of a list and each paragraph that begins in bold refers to a test that exists.
//!
//! A reference is a link with a label, `[appends]`; at the end of the page stands where it leads
//! and which function there is meant: `[appends]: ../tests/steps.rs "an_append_is_…"`.

use std::collections::{BTreeMap, BTreeSet};

use crate::rules::Finding;
use crate::source::Source;

/// What the page says: the promises, and where labels lead.
struct Page<'a> {
    /// First line, from 1, and text of each.
    promises: Vec<(usize, String)>,
    labels: BTreeMap<&'a str, Label<'a>>,
    /// Where a label is used.
    used: Vec<(usize, &'a str)>,
}

struct Label<'a> {
    line: usize,
    path: &'a str,
    function: &'a str,
}

/// Promises of the page at `path` without a test, and tests there that do not exist.
pub fn without_test(path: &str, text: &str, sources: &[Source]) -> Vec<Finding> {
    let page = Page::read(text);
    let finding = |line: usize, what: String| Finding { file: path.to_owned(), line, what };
    let mut found = Vec::new();
    for (line, promise) in &page.promises {
        if !references(promise).any(|label| page.labels.contains_key(label)) {
            let begin: String = promise.chars().take(50).collect();
            found.push(finding(*line, format!("`{begin}…` names no test: write `[label]`")));
        }
    }
    for (label, Label { line, path, function }) in &page.labels {
        let below = path.strip_prefix("../").unwrap_or(path);
        let source = sources.iter().find(|source| source.path == below);
        if !source.is_some_and(|source| tests(source).contains(function)) {
            found.push(finding(*line, format!("[{label}]: no test `{function}` in {below}")));
        }
        if !page.used.iter().any(|(_, used)| used == label) {
            found.push(finding(*line, format!("[{label}] is not referred to")));
        }
    }
    let unknown = page.used.iter().filter(|(_, label)| !page.labels.contains_key(label));
    found.extend(unknown.map(|(line, label)| finding(*line, format!("[{label}] leads nowhere"))));
    found
}

impl<'a> Page<'a> {
    fn read(text: &'a str) -> Self {
        let (mut page, mut open) =
            (Page { promises: vec![], labels: BTreeMap::new(), used: vec![] }, false);
        for (at, line) in text.lines().enumerate() {
            if let Some((label, target)) = definition(line) {
                let (path, rest) = target.split_once(' ').unwrap_or((target, ""));
                let label_of = Label { line: at + 1, path, function: rest.trim_matches('"') };
                page.labels.insert(label, label_of);
                continue;
            }
            page.used.extend(references(line).map(|label| (at + 1, label)));
            let lead = line.ends_with(":**");
            let row = line.starts_with('|') && !text.lines().nth(at + 1).is_some_and(is_rule);
            if (row && !is_rule(line))
                || line.starts_with("* ")
                || (line.starts_with("**") && !lead)
            {
                page.promises.push((at + 1, line.to_owned()));
                open = !row;
            } else if open && !line.trim().is_empty() && !line.starts_with('|') {
                let (_, promise) = page.promises.last_mut().expect("one is open");
                promise.push(' ');
                promise.push_str(line.trim());
            } else {
                open = false;
            }
        }
        page
    }
}

/// The line below a table's head.
fn is_rule(line: &str) -> bool {
    line.starts_with("|-")
}

fn definition(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix('[')?.split_once("]: ")
}

/// The labels in a text: what stands in brackets, and is no link with a target of its own.
fn references(text: &str) -> impl Iterator<Item = &str> {
    let after_open = text.split('[').skip(1);
    let inside = after_open.filter_map(|rest| rest.split_once(']'));
    inside.filter(|(_, after)| !after.starts_with('(')).map(|(label, _)| label)
}

/// The names of a source's tests that run.
fn tests(source: &Source) -> BTreeSet<&str> {
    let (mut found, mut is_test) = (BTreeSet::new(), false);
    for line in source.code.lines().map(str::trim) {
        match line.strip_prefix("fn ").and_then(|rest| rest.split('(').next()) {
            Some(name) if is_test => {
                found.insert(name);
                is_test = false;
            }
            Some(_) => is_test = false,
            None => is_test = line == "#[test]" || (is_test && !line.starts_with("#[ignore")),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::without_test;
    use crate::source::Source;

    fn found(text: &str) -> Vec<String> {
        let source = "#[test]\nfn one() {}\n#[test]\n#[ignore]\nfn two() {}\nfn three() {}\n";
        let sources = [Source::new("tests/a.rs", source)];
        let found = without_test("docs/p.md", text, &sources);
        found.into_iter().map(|finding| format!("{}: {}", finding.line, finding.what)).collect()
    }

    const ONE: &str = "\n[one]: ../tests/a.rs \"one\"\n";

    #[test]
    fn rows_items_and_headed_paragraphs_name_a_test() {
        let row = "| Call | Seen |\n|---|---|\n| x | y {} |\n";
        let item = "* so it is,\n  and so {}\n";
        let headed = "**This:** is\nso {}.\n";
        for promise in [row, item, headed] {
            assert!(found(&(promise.replace("{}", "[one]") + ONE)).is_empty(), "{promise}");
            let without = promise.replace("{}", "[a page](b.md)") + "\n[one]\n" + ONE;
            assert_eq!(found(&without).len(), 1, "{promise}");
        }
        assert!(found("Prose.\n\nMore prose.\n").is_empty());
    }

    #[test]
    fn labels_lead_to_tests_that_exist_and_run() {
        for bad in ["two", "three", "four"] {
            let text = format!("* so [one] [{bad}]\n{ONE}[{bad}]: ../tests/a.rs \"{bad}\"\n");
            assert_eq!(found(&text).len(), 1, "{bad}");
        }
        assert_eq!(found(&format!("* so [one] [other]\n{ONE}")), ["1: [other] leads nowhere"]);
        assert_eq!(found(ONE), ["2: [one] is not referred to"]);
    }
}
