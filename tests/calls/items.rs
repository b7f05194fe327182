//! What sources define: functions, the fields of types, and the names that a file imports.
//!
//! Code that is compiled for tests only is not looked at.

use std::collections::HashMap;

use syn::spanned::Spanned;
use syn::{
    Attribute, Fields, FnArg, ImplItem, Item, Meta, Signature, TraitItem, TypeParamBound, UseTree,
};

use super::kind::{Bounds, Kind, bind};
use crate::source::Source;

/// How a function takes what it is called on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// It is called on nothing.
    Nothing,
    /// `&self`, or by value.
    Reads,
    /// `&mut self`.
    Changes,
}

/// One function.
pub struct Function {
    /// Index into [`Items::files`].
    pub file: usize,
    /// Line of its name, from 1.
    pub line: usize,
    /// The type, or trait, whose it is.
    pub owner: Option<String>,
    /// Its name.
    pub name: String,
    /// How it takes what it is called on.
    pub receiver: Receiver,
    /// What it takes besides.
    pub takes: Vec<Option<Kind>>,
    /// What it returns.
    pub gives: Option<Kind>,
    /// What it was read from; no body in a trait that only asks for it.
    pub body: Option<(Signature, syn::Block)>,
    /// What names of types stand for in it.
    pub bounds: Bounds,
}

impl Function {
    /// Whether it may change what it is given.
    pub fn changes(&self) -> bool {
        let inputs = self.body.iter().flat_map(|(signature, _)| &signature.inputs);
        let mut given = inputs.filter_map(|input| match input {
            syn::FnArg::Typed(given) => Some(&*given.ty),
            syn::FnArg::Receiver(_) => None,
        });
        let mutable =
            |ty: &syn::Type| matches!(ty, syn::Type::Reference(r) if r.mutability.is_some());
        self.receiver == Receiver::Changes || given.any(mutable)
    }

    /// `Type::name`, or `name`.
    pub fn shown(&self) -> String {
        self.owner.iter().map(|owner| format!("{owner}::")).collect::<String>() + &self.name
    }
}

/// One file.
pub struct File {
    /// From the repository's root.
    pub path: String,
    /// The crate's folder and the modules: `server`, `storage`, `taking`.
    pub module: Vec<String>,
    /// What imported names stand for, as written.
    pub uses: HashMap<String, Vec<String>>,
}

/// All that was read.
#[derive(Default)]
pub struct Items {
    /// The files.
    pub files: Vec<File>,
    /// The functions of all of them.
    pub functions: Vec<Function>,
    /// Fields by type and name; those of a variant are of `Enum::Variant`.
    pub fields: HashMap<(String, String), Kind>,
    /// Where else the methods of a type may be: what it dereferences to, is another name of, or
    /// implements.
    pub stands_for: HashMap<String, Vec<Kind>>,
    /// The files that define types, by name.
    pub types: HashMap<String, Vec<usize>>,
}

impl Items {
    /// Reads sources; a file that does not parse is an error, with its path.
    pub fn read(sources: &[&Source]) -> Result<Items, String> {
        let mut parsed = Vec::new();
        let mut tests = Vec::new();
        for source in sources {
            let file = syn::parse_file(&source.text)
                .map_err(|error| format!("{}: {error}", source.path))?;
            let module = module_of(&source.path);
            for item in &file.items {
                if let Item::Mod(inner) = item
                    && is_test(&inner.attrs)
                {
                    tests.push([&module[..], &[inner.ident.to_string()]].concat());
                }
            }
            parsed.push((source.path.clone(), module, file));
        }
        let mut items = Items::default();
        for (path, module, file) in parsed {
            if tests.iter().any(|test| module.starts_with(test)) {
                continue;
            }
            items.files.push(File { path, module, uses: HashMap::new() });
            file.items.into_iter().for_each(|item| items.item(item));
        }
        Ok(items)
    }

    fn item(&mut self, item: Item) {
        let file = self.files.len() - 1;
        match item {
            Item::Use(import) if !is_test(&import.attrs) => {
                imported(&import.tree, &mut Vec::new(), &mut self.files[file].uses);
            }
            Item::Fn(function) if !is_test(&function.attrs) => {
                self.function(None, &Vec::new(), function.sig, Some(*function.block));
            }
            Item::Struct(item) => {
                let name = item.ident.to_string();
                self.fields_of(&name, &item.fields, &item.generics);
                self.types.entry(name).or_default().push(file);
            }
            Item::Enum(item) => {
                let name = item.ident.to_string();
                for variant in &item.variants {
                    let variant_name = format!("{name}::{}", variant.ident);
                    self.fields_of(&variant_name, &variant.fields, &item.generics);
                }
                self.types.entry(name).or_default().push(file);
            }
            Item::Type(alias) => {
                if let Some(kind) = Kind::read(&alias.ty, &Vec::new()) {
                    self.stands_for.entry(alias.ident.to_string()).or_default().push(kind);
                }
            }
            Item::Trait(item) => {
                let name = item.ident.to_string();
                let above = item.supertraits.iter().filter_map(|bound| match bound {
                    TypeParamBound::Trait(bound) => bound.path.segments.last(),
                    _ => None,
                });
                let above = above.map(|last| Kind::plain(&last.ident.to_string()));
                self.stands_for.entry(name.clone()).or_default().extend(above);
                let bounds = vec![("Self".to_owned(), Kind::plain(&name))];
                for method in item.items {
                    if let TraitItem::Fn(method) = method {
                        self.function(Some(&name), &bounds, method.sig, method.default);
                    }
                }
                self.types.entry(name).or_default().push(file);
            }
            Item::Impl(block) if !is_test(&block.attrs) => self.block(block),
            Item::Mod(inner) if !is_test(&inner.attrs) => {
                let inside = inner.content.into_iter().flat_map(|(_, items)| items);
                inside.for_each(|item| self.item(item));
            }
            _ => {}
        }
    }

    fn block(&mut self, block: syn::ItemImpl) {
        let mut bounds = Vec::new();
        bind(&block.generics, &mut bounds);
        let Some(owner) = Kind::read(&block.self_ty, &bounds) else { return };
        bounds.push(("Self".to_owned(), owner.clone()));
        if let Some(last) = block.trait_.as_ref().and_then(|(_, of, _)| of.segments.last()) {
            let of = Kind::plain(&last.ident.to_string());
            self.stands_for.entry(owner.name.clone()).or_default().push(of);
        }
        for item in block.items {
            match item {
                ImplItem::Fn(method) if !is_test(&method.attrs) => {
                    self.function(Some(&owner.name), &bounds, method.sig, Some(method.block));
                }
                ImplItem::Type(item) if item.ident == "Target" => {
                    if let Some(target) = Kind::read(&item.ty, &bounds) {
                        self.stands_for.entry(owner.name.clone()).or_default().push(target);
                    }
                }
                _ => {}
            }
        }
    }

    fn function(
        &mut self,
        owner: Option<&str>,
        bounds: &Bounds,
        signature: Signature,
        body: Option<syn::Block>,
    ) {
        let mut bounds = bounds.clone();
        bind(&signature.generics, &mut bounds);
        let receiver = match signature.receiver() {
            None => Receiver::Nothing,
            Some(of) if of.reference.is_some() && of.mutability.is_some() => Receiver::Changes,
            Some(_) => Receiver::Reads,
        };
        let takes = signature.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(input) => Some(Kind::read(&input.ty, &bounds)),
            FnArg::Receiver(_) => None,
        });
        self.functions.push(Function {
            file: self.files.len() - 1,
            line: signature.ident.span().start().line,
            owner: owner.map(str::to_owned),
            name: signature.ident.to_string(),
            receiver,
            takes: takes.collect(),
            gives: Kind::returned(&signature.output, &bounds),
            body: body.map(|body| (signature, body)),
            bounds,
        });
    }

    fn fields_of(&mut self, name: &str, fields: &Fields, generics: &syn::Generics) {
        let mut bounds = Vec::new();
        bind(generics, &mut bounds);
        for (at, field) in fields.iter().enumerate() {
            let field_name = field.ident.as_ref().map_or(at.to_string(), |name| name.to_string());
            if let Some(kind) = Kind::read(&field.ty, &bounds) {
                self.fields.insert((name.to_owned(), field_name), kind);
            }
        }
    }
}

/// The line at which something stands.
pub fn line(of: &impl Spanned) -> usize {
    of.span().start().line
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        _ => false,
    })
}

/// `src/server/storage/mod.rs` is `server`, `storage`.
fn module_of(path: &str) -> Vec<String> {
    let inner = path.strip_prefix("src/").unwrap_or(path).trim_end_matches(".rs");
    let mut module: Vec<String> = inner.split('/').map(str::to_owned).collect();
    if ["mod", "lib", "main"].iter().any(|own| module.last().is_some_and(|last| last == own)) {
        module.pop();
    }
    module
}

fn imported(tree: &UseTree, way: &mut Vec<String>, into: &mut HashMap<String, Vec<String>>) {
    let mut named = |name: String, last: String| {
        let whole = if last == "self" { way.clone() } else { [&way[..], &[last]].concat() };
        into.insert(if name == "self" { way.last().cloned().unwrap_or(name) } else { name }, whole);
    };
    match tree {
        UseTree::Path(path) => {
            way.push(path.ident.to_string());
            imported(&path.tree, way, into);
            way.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| imported(tree, way, into)),
        UseTree::Name(name) => named(name.ident.to_string(), name.ident.to_string()),
        UseTree::Rename(name) => named(name.rename.to_string(), name.ident.to_string()),
        UseTree::Glob(_) => {}
    }
}
