//! What is known at a place in a function: the names that are bound there, and of what kind they
//! and their parts are.

use syn::{Member, Pat, Path};

use super::containers;
use super::items::{Function, Items};
use super::kind::Kind;

/// The names known at a place.
pub struct Known<'a> {
    /// All that was read.
    pub items: &'a Items,
    /// The function in which the place is.
    pub function: &'a Function,
    bound: Vec<(String, Option<Kind>)>,
}

impl<'a> Known<'a> {
    /// At the beginning of a function: what it is called on, and what it takes.
    pub fn new(items: &'a Items, function: &'a Function) -> Self {
        let mut known = Known { items, function, bound: Vec::new() };
        let own = known.own_kind().cloned();
        known.bound.extend(own.map(|own| ("self".to_owned(), Some(own))));
        if let Some((signature, _)) = &function.body {
            let typed = signature.inputs.iter().filter_map(|input| match input {
                syn::FnArg::Typed(input) => Some(&input.pat),
                syn::FnArg::Receiver(_) => None,
            });
            typed.zip(&function.takes).for_each(|(name, kind)| known.bind(name, kind.clone()));
        }
        known
    }

    /// Where a block begins: for [`Known::leave`] at its end.
    pub fn enter(&self) -> usize {
        self.bound.len()
    }

    /// Forgets what was bound since.
    pub fn leave(&mut self, entered: usize) {
        self.bound.truncate(entered);
    }

    /// The kind of a name that is bound here; `None` if it is not.
    pub fn local(&self, name: &Path) -> Option<Option<Kind>> {
        let name = name.get_ident()?;
        let bound = self.bound.iter().rev().find(|(bound, _)| name == bound);
        bound.map(|(_, kind)| kind.clone())
    }

    /// What `Self` is.
    pub fn own_kind(&self) -> Option<&'a Kind> {
        let bounds = self.function.bounds.iter().rev();
        bounds.clone().find(|(name, _)| name == "Self").map(|(_, kind)| kind)
    }

    /// The names that a pattern gives to parts of what is of this kind.
    pub fn bind(&mut self, pattern: &Pat, kind: Option<Kind>) {
        let part = |at: usize| kind.as_ref().and_then(|kind| kind.part(at));
        match pattern {
            Pat::Ident(name) => self.bound.push((name.ident.to_string(), kind)),
            Pat::Reference(inner) => self.bind(&inner.pat, kind),
            Pat::Paren(inner) => self.bind(&inner.pat, kind),
            Pat::Type(typed) => {
                let said = Kind::read(&typed.ty, &self.function.bounds);
                self.bind(&typed.pat, said.filter(|said| said.name != "_").or(kind));
            }
            Pat::Tuple(tuple) => {
                let parts = tuple.elems.iter().enumerate();
                parts.for_each(|(at, inner)| self.bind(inner, part(at)));
            }
            Pat::TupleStruct(inner) => {
                let name = self.variant(&inner.path);
                for (at, pattern) in inner.elems.iter().enumerate() {
                    let kind = match name.as_str() {
                        "Some" | "Ok" => part(0),
                        _ => self.items.fields.get(&(name.clone(), at.to_string())).cloned(),
                    };
                    self.bind(pattern, kind);
                }
            }
            Pat::Struct(inner) => {
                let name = self.variant(&inner.path);
                for field in &inner.fields {
                    let Member::Named(member) = &field.member else { continue };
                    let of = (name.clone(), member.to_string());
                    self.bind(&field.pat, self.items.fields.get(&of).cloned());
                }
            }
            Pat::Or(several) => {
                several.cases.iter().for_each(|case| self.bind(case, kind.clone()));
            }
            Pat::Slice(slice) => {
                let inner = kind.as_ref().and_then(containers::held);
                slice.elems.iter().for_each(|pattern| self.bind(pattern, inner.clone()));
            }
            _ => {}
        }
    }

    /// `Enum::Variant`, or the name of a struct.
    fn variant(&self, path: &Path) -> String {
        let mut parts: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if parts.first().is_some_and(|first| first == "Self") {
            parts[0] = self.own_kind().map(|own| own.name.clone()).unwrap_or_default();
        }
        let types = parts.iter().rev().take(2).filter(|part| part.starts_with(char::is_uppercase));
        let mut types: Vec<&str> = types.map(String::as_str).collect();
        types.reverse();
        types.join("::")
    }

    /// The type that is made by naming it, or a variant of it.
    pub fn named_type(&self, path: &Path) -> Option<Kind> {
        let shown = self.variant(path);
        let name = shown.split("::").next().filter(|name| self.items.types.contains_key(*name))?;
        Some(Kind::plain(name))
    }

    /// The kind of a field.
    pub fn field(&self, of: &Kind, name: &str) -> Option<Kind> {
        if of.name == "()" {
            return of.part(name.parse().ok()?);
        }
        let own = self.items.fields.get(&(of.name.clone(), name.to_owned()));
        let others = self.items.stands_for.get(&of.name).into_iter().flatten();
        let mut others = others.filter(|other| other.name != of.name);
        own.cloned().or_else(|| others.find_map(|other| self.field(other, name)))
    }
}
