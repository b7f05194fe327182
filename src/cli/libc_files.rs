//! The C library's functions that reach files: what `libc_files.txt` says, family by family.
//!
//! Invariant: a name is in one family. Not here: which of them Terral stands for.

use std::collections::HashMap;

const TEXT: &str = include_str!("libc_files.txt");

/// How a function can be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By a function of its own.
    Itself,
    /// By the one whose result it works on.
    Via(&'static str),
    /// By none.
    Unseen,
}

/// Functions with one purpose and one fate.
#[derive(Debug)]
pub struct Family {
    /// What they do.
    pub name: &'static str,
    /// How they can be served.
    pub way: Way,
    /// What it means if one falls through.
    pub meaning: &'static str,
}

/// All families, in the order of the text, and where each function is.
pub struct Functions {
    /// In the order of the text.
    pub families: Vec<Family>,
    by_name: HashMap<&'static str, usize>,
}

fn family(line: &'static str) -> Option<Family> {
    let (head, meaning) = line.split_once(": ")?;
    let (name, way) = match head.rsplit_once(" via ") {
        Some((name, carrier)) => (name, Way::Via(carrier)),
        None => match head.strip_suffix(" unseen") {
            Some(name) => (name, Way::Unseen),
            None => (head, Way::Itself),
        },
    };
    Some(Family { name, way, meaning })
}

impl Functions {
    /// Reads the text.
    pub fn known() -> Self {
        let (mut families, mut by_name) = (Vec::new(), HashMap::new());
        for line in TEXT.lines().filter(|line| !line.starts_with('#')) {
            if line.starts_with(' ') {
                let place = families.len().saturating_sub(1);
                by_name.extend(line.split_ascii_whitespace().map(|name| (name, place)));
            } else {
                families.extend(family(line));
            }
        }
        Functions { families, by_name }
    }

    /// The family of a function; none if it does not reach files.
    pub fn family_of(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::{Functions, TEXT, Way};
    use crate::elf::Elf;
    use std::collections::HashSet;

    fn names() -> Vec<&'static str> {
        let lines = TEXT.lines().filter(|line| line.starts_with(' '));
        lines.flat_map(str::split_ascii_whitespace).collect()
    }

    #[test]
    fn each_line_is_read_and_each_name_is_in_one_family() {
        let known = Functions::known();
        let heads = TEXT.lines().filter(|line| !line.starts_with([' ', '#']) && !line.is_empty());
        assert_eq!(heads.count(), known.families.len());
        assert_eq!(names().len(), known.by_name.len(), "a name stands twice");
        let way = |name| known.family_of(name).map(|at| known.families[at].way);
        assert_eq!(way("open64"), Some(Way::Itself));
        assert_eq!(way("fprintf"), Some(Way::Via("fopen")));
        assert_eq!(way("syscall"), Some(Way::Unseen));
        assert_eq!(way("malloc"), None);
        for family in &known.families {
            let Way::Via(carrier) = family.way else { continue };
            assert_eq!(way(carrier), Some(Way::Itself), "{}", family.name);
        }
    }

    #[test]
    fn each_name_is_the_c_librarys() {
        let mapped = std::fs::read_to_string("/proc/self/maps").unwrap();
        let Some(path) = mapped.lines().find_map(|line| {
            let path = line.split_ascii_whitespace().nth(5)?;
            path.ends_with("/libc.so.6").then_some(path)
        }) else {
            println!("skipped: this test is not linked with glibc");
            return;
        };
        let exports = Elf::read(std::path::Path::new(path)).unwrap().exports;
        let exports: HashSet<&str> = exports.iter().map(String::as_str).collect();
        // An older glibc lacks some, none lacks many.
        let missing: Vec<&str> =
            names().into_iter().filter(|name| !exports.contains(name)).collect();
        let few = missing.iter().all(|name| name.starts_with("__isoc23_")) || missing.len() < 12;
        assert!(few, "{missing:?}");
    }
}
