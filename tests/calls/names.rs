//! What a path or a method's name stands for.

use super::containers;
use super::items::{Items, Receiver};
use super::kind::Kind;

/// What a name led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// This function, by its index.
    One(usize),
    /// One of several, or of a type that cannot be told.
    Unclear,
    /// None of ours.
    Nobody,
}

impl Items {
    /// The function that a path in `file` names; `own` is what `Self` is there.
    pub fn by_path(&self, file: usize, path: &[String], own: Option<&str>) -> Found {
        let whole = self.absolute(file, path);
        let Some((name, before)) = whole.split_last() else { return Found::Nobody };
        match before.last() {
            Some(owner) if owner == "Self" => self.of_type(file, own.unwrap_or_default(), name),
            Some(owner) if owner.starts_with(char::is_uppercase) => self.of_type(file, owner, name),
            _ => self.free(before, name, 0),
        }
    }

    /// A method of something of this kind; by its name alone if nothing is known of that.
    pub fn method(&self, file: usize, of: Option<&Kind>, name: &str) -> Found {
        let Some(of) = of else { return self.by_name_alone(name) };
        let mut kinds = vec![of];
        let mut at = 0;
        while let Some(kind) = kinds.get(at) {
            match self.of_type(file, &kind.name, name) {
                Found::Nobody => {
                    let also = self.stands_for.get(&kind.name).into_iter().flatten();
                    let new: Vec<&Kind> = also.filter(|also| !kinds.contains(also)).collect();
                    kinds.extend(new);
                }
                found => return found,
            }
            at += 1;
        }
        Found::Nobody
    }

    fn by_name_alone(&self, name: &str) -> Found {
        let mut all = (0..self.functions.len()).filter(|at| {
            let function = &self.functions[*at];
            function.name == name && function.receiver != Receiver::Nothing
        });
        match (all.next(), all.next()) {
            (None, _) => Found::Nobody,
            (Some(one), None) if !containers::is_common(name) => Found::One(one),
            _ => Found::Unclear,
        }
    }

    /// `name` of the type `owner`: of several such types the one nearest to `file`.
    fn of_type(&self, file: usize, owner: &str, name: &str) -> Found {
        let all: Vec<usize> = (0..self.functions.len())
            .filter(|at| {
                let function = &self.functions[*at];
                function.name == name && function.owner.as_deref() == Some(owner)
            })
            .collect();
        let here = &self.files[file];
        let near = |at: &&usize| self.functions[**at].file == file;
        let home = |at: &&usize| {
            self.files[self.functions[**at].file].module.first() == here.module.first()
        };
        match all[..] {
            [] => Found::Nobody,
            [one] => Found::One(one),
            _ => all
                .iter()
                .find(near)
                .or(all.iter().find(home))
                .map_or(Found::Unclear, |at| Found::One(*at)),
        }
    }

    /// A function without an owner, or one that the module has from another by `use`.
    fn free(&self, module: &[String], name: &str, depth: usize) -> Found {
        let files = (0..self.files.len()).filter(|at| self.files[*at].module == module);
        for file in files {
            let own = self.functions.iter().position(|function| {
                function.file == file && function.owner.is_none() && function.name == name
            });
            if let Some(own) = own {
                return Found::One(own);
            }
            if let Some(from) = self.files[file].uses.get(name).filter(|_| depth < 4) {
                let whole = self.absolute(file, from);
                if let Some((name, before)) = whole.split_last() {
                    return self.free(before, name, depth + 1);
                }
            }
        }
        Found::Nobody
    }

    /// A path from the crates' folders on, whatever it begins with.
    fn absolute(&self, file: usize, path: &[String]) -> Vec<String> {
        let here = &self.files[file];
        let Some((first, rest)) = path.split_first() else { return Vec::new() };
        let from = |start: &[String]| [start, rest].concat();
        match first.as_str() {
            "crate" => from(&here.module[..1]),
            "self" => from(&here.module),
            "super" => {
                let above = here.module.len().saturating_sub(1).max(1);
                let mut whole = here.module[..above].to_vec();
                for part in rest {
                    if part == "super" {
                        whole.truncate(whole.len().max(2) - 1)
                    } else {
                        whole.push(part.clone());
                    }
                }
                whole
            }
            _ => match here.uses.get(first) {
                Some(stands_for) if stands_for.first() != Some(first) => {
                    [self.absolute(file, stands_for), rest.to_vec()].concat()
                }
                _ if first.starts_with("terral_") => {
                    from(&[first.trim_start_matches("terral_").to_owned()])
                }
                _ => [&here.module[..], path].concat(),
            },
        }
    }
}
