//! A type as far as calls need it: its last name, and what it is of. References and pointers that
//! dereference to what they hold are that.

use syn::{
    GenericArgument, GenericParam, Generics, PathArguments, PathSegment, ReturnType, Type,
    TypeParamBound, WherePredicate,
};

/// Pointers whose methods, here, are those of what they point to.
const POINTERS: &[&str] = &["Arc", "Box", "Rc", "Weak", "Ref", "RefMut", "MutexGuard", "Cow"];

/// A type: `Option<Arc<Names>>` is an `Option` of `Names`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The last part of its path; `()` for tuples, `[]` for slices and arrays, `Fn` for callables.
    pub name: String,
    /// Its parameters; of a callable, what it takes.
    pub of: Vec<Option<Kind>>,
}

/// What a name of a type stands for where it is read: `Self`, and parameters with bounds.
pub type Bounds = Vec<(String, Kind)>;

impl Kind {
    /// One without parameters.
    pub fn plain(name: &str) -> Kind {
        Kind { name: name.to_owned(), of: Vec::new() }
    }

    /// A container of one thing.
    pub fn holding(name: &str, what: Option<Kind>) -> Kind {
        Kind { name: name.to_owned(), of: vec![what] }
    }

    /// Its parameter number `at`.
    pub fn part(&self, at: usize) -> Option<Kind> {
        self.of.get(at).cloned().flatten()
    }

    /// As it is written; `None` if calls cannot use it.
    pub fn read(written: &Type, bounds: &Bounds) -> Option<Kind> {
        match written {
            Type::Reference(to) => Kind::read(&to.elem, bounds),
            Type::Paren(inner) => Kind::read(&inner.elem, bounds),
            Type::Group(inner) => Kind::read(&inner.elem, bounds),
            Type::Slice(slice) => Some(Kind::holding("[]", Kind::read(&slice.elem, bounds))),
            Type::Array(array) => Some(Kind::holding("[]", Kind::read(&array.elem, bounds))),
            Type::Tuple(tuple) => {
                let of = tuple.elems.iter().map(|part| Kind::read(part, bounds)).collect();
                Some(Kind { name: "()".to_owned(), of })
            }
            Type::ImplTrait(what) => bounded(what.bounds.iter(), bounds),
            Type::TraitObject(what) => bounded(what.bounds.iter(), bounds),
            Type::Path(path) => segment(path.path.segments.last()?, bounds),
            _ => None,
        }
    }

    /// What a function returns.
    pub fn returned(written: &ReturnType, bounds: &Bounds) -> Option<Kind> {
        match written {
            ReturnType::Default => None,
            ReturnType::Type(_, written) => Kind::read(written, bounds),
        }
    }
}

/// The first bound that says something.
fn bounded<'a>(written: impl Iterator<Item = &'a TypeParamBound>, bounds: &Bounds) -> Option<Kind> {
    let mut traits = written.filter_map(|bound| match bound {
        TypeParamBound::Trait(bound) => bound.path.segments.last(),
        _ => None,
    });
    traits.find_map(|last| segment(last, bounds))
}

fn segment(last: &PathSegment, bounds: &Bounds) -> Option<Kind> {
    let name = last.ident.to_string();
    if let Some((_, stands_for)) = bounds.iter().rev().find(|(bound, _)| *bound == name) {
        return Some(stands_for.clone());
    }
    let of: Vec<Option<Kind>> = match &last.arguments {
        PathArguments::None => Vec::new(),
        PathArguments::AngleBracketed(list) => {
            let argument = |argument: &GenericArgument| match argument {
                GenericArgument::Type(written) => Some(Kind::read(written, bounds)),
                GenericArgument::AssocType(item) => Some(Kind::read(&item.ty, bounds)),
                _ => None,
            };
            list.args.iter().filter_map(argument).collect()
        }
        PathArguments::Parenthesized(call) => {
            let of = call.inputs.iter().map(|input| Kind::read(input, bounds)).collect();
            return Some(Kind { name: "Fn".to_owned(), of });
        }
    };
    if POINTERS.contains(&name.as_str()) {
        return of.into_iter().next().flatten();
    }
    Some(Kind { name, of })
}

/// Adds what the parameters of an item are bound by.
pub fn bind(generics: &Generics, bounds: &mut Bounds) {
    for parameter in &generics.params {
        if let GenericParam::Type(parameter) = parameter
            && let Some(kind) = bounded(parameter.bounds.iter(), bounds)
        {
            bounds.push((parameter.ident.to_string(), kind));
        }
    }
    for predicate in generics.where_clause.iter().flat_map(|clause| &clause.predicates) {
        if let WherePredicate::Type(predicate) = predicate
            && let Type::Path(path) = &predicate.bounded_ty
            && let Some(name) = path.path.get_ident()
            && let Some(kind) = bounded(predicate.bounds.iter(), bounds)
        {
            bounds.push((name.to_string(), kind));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Kind;

    fn read(written: &str) -> Kind {
        Kind::read(&syn::parse_str(written).expect(written), &Vec::new()).expect(written)
    }

    #[test]
    fn pointers_are_what_they_point_to() {
        let names = Some(Kind::plain("Names"));
        assert_eq!(read("&mut Box<crate::names::Names>"), Kind::plain("Names"));
        assert_eq!(read("Option<Arc<dyn Names + Send>>"), Kind::holding("Option", names.clone()));
        assert_eq!(read("impl Iterator<Item = &Names> + '_"), Kind::holding("Iterator", names));
    }
}
