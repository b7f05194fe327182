//! The calls in the bodies of functions, found by walking them once with what is known of types.

use std::slice;

use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{
    Block, Expr, ExprCall, ExprClosure, ExprMethodCall, Local, Macro, Member, Path, Stmt, Token,
};

use super::containers;
use super::items::{Function, Items, line};
use super::kind::Kind;
use super::known::Known;
use super::names::Found;

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The function that calls, by its index.
    pub from: usize,
    /// The one that is called.
    pub to: usize,
    /// The line of the call.
    pub line: usize,
}

/// The calls of some functions, and how many could not be told.
#[derive(Default)]
pub struct Calls {
    /// Those that could.
    pub told: Vec<Call>,
    /// Methods of a name that several types have, or the standard library, too: file, line, name.
    pub unclear: Vec<(usize, usize, String)>,
}

/// The calls of all functions for which `wanted` holds.
pub fn calls(items: &Items, wanted: impl Fn(&Function) -> bool) -> Calls {
    let mut all = Calls::default();
    for (at, function) in items.functions.iter().enumerate() {
        if let Some((_, body)) = function.body.as_ref().filter(|_| wanted(function)) {
            Walk { at, known: Known::new(items, function), all: &mut all }.block(body);
        }
    }
    all
}

/// A walk through one body.
struct Walk<'a> {
    at: usize,
    known: Known<'a>,
    all: &'a mut Calls,
}

impl Visit<'_> for Walk<'_> {
    fn visit_expr(&mut self, expr: &Expr) {
        self.expr(expr);
    }

    fn visit_block(&mut self, block: &Block) {
        self.block(block);
    }

    fn visit_local(&mut self, local: &Local) {
        let kind = local.init.as_ref().and_then(|init| {
            let kind = self.expr(&init.expr);
            if let Some((_, other)) = &init.diverge {
                self.expr(other);
            }
            kind
        });
        self.known.bind(&local.pat, kind);
    }

    fn visit_macro(&mut self, called: &Macro) {
        let list = Punctuated::<Expr, Token![,]>::parse_terminated;
        let first = |input: syn::parse::ParseStream<'_>| {
            let first: Expr = input.parse()?;
            input.parse::<proc_macro2::TokenStream>()?;
            Ok(first)
        };
        if let Ok(list) = called.parse_body_with(list) {
            list.iter().for_each(|expr| self.visit_expr(expr));
        } else if let Ok(first) = called.parse_body_with(first) {
            self.visit_expr(&first);
        }
    }
}

impl Walk<'_> {
    fn block(&mut self, block: &Block) -> Option<Kind> {
        let outside = self.known.enter();
        let mut last = None;
        for statement in &block.stmts {
            last = None;
            match statement {
                Stmt::Expr(expr, None) => last = self.expr(expr),
                Stmt::Item(syn::Item::Fn(inner)) => drop(self.block(&inner.block)),
                Stmt::Item(_) => {}
                other => visit::visit_stmt(self, other),
            }
        }
        self.known.leave(outside);
        last
    }

    /// Finds the calls in `expr`, and says of what kind it is.
    fn expr(&mut self, expr: &Expr) -> Option<Kind> {
        match expr {
            Expr::Path(path) => self.path(&path.path, line(expr)),
            Expr::Call(call) => self.call(call),
            Expr::MethodCall(call) => self.method(call),
            Expr::Field(field) => {
                let base = self.expr(&field.base)?;
                let name = match &field.member {
                    Member::Named(name) => name.to_string(),
                    Member::Unnamed(at) => at.index.to_string(),
                };
                self.known.field(&base, &name)
            }
            Expr::Reference(inner) => self.expr(&inner.expr),
            Expr::Paren(inner) => self.expr(&inner.expr),
            Expr::Group(inner) => self.expr(&inner.expr),
            Expr::Unary(inner) => self.expr(&inner.expr),
            Expr::Try(inner) => containers::held(&self.expr(&inner.expr)?),
            Expr::Block(block) => self.block(&block.block),
            Expr::Index(index) => {
                let base = self.expr(&index.expr);
                self.expr(&index.index);
                containers::held(&base?)
            }
            Expr::Tuple(tuple) => {
                let of = tuple.elems.iter().map(|part| self.expr(part)).collect();
                Some(Kind { name: "()".to_owned(), of })
            }
            Expr::Struct(made) => {
                visit::visit_expr_struct(self, made);
                self.known.named_type(&made.path)
            }
            Expr::Closure(closure) => self.closure(closure, &[]),
            // What it binds stays known to what it is a condition of.
            Expr::Let(binding) => {
                let kind = self.expr(&binding.expr);
                self.known.bind(&binding.pat, kind);
                None
            }
            Expr::If(_) | Expr::While(_) | Expr::ForLoop(_) | Expr::Match(_) => self.branch(expr),
            other => {
                visit::visit_expr(self, other);
                None
            }
        }
    }

    /// What binds names for what stands in it alone.
    fn branch(&mut self, expr: &Expr) -> Option<Kind> {
        let outside = self.known.enter();
        let gives = match expr {
            Expr::If(branch) => {
                let outside = self.known.enter();
                self.expr(&branch.cond);
                let kind = self.block(&branch.then_branch);
                self.known.leave(outside);
                let other = branch.else_branch.as_ref().and_then(|(_, other)| self.expr(other));
                kind.or(other)
            }
            Expr::While(branch) => {
                self.expr(&branch.cond);
                self.block(&branch.body);
                None
            }
            Expr::ForLoop(each) => {
                let over = self.expr(&each.expr);
                let over = over.and_then(|over| containers::after(&over, "into_iter", None));
                self.known.bind(&each.pat, over.and_then(|over| over.part(0)));
                self.block(&each.body);
                None
            }
            Expr::Match(choice) => {
                let kind = self.expr(&choice.expr);
                let mut gives = None;
                for arm in &choice.arms {
                    let outside = self.known.enter();
                    self.known.bind(&arm.pat, kind.clone());
                    if let Some((_, guard)) = &arm.guard {
                        self.expr(guard);
                    }
                    let given = self.expr(&arm.body);
                    gives = gives.or(given);
                    self.known.leave(outside);
                }
                gives
            }
            _ => None,
        };
        self.known.leave(outside);
        gives
    }

    fn path(&mut self, path: &Path, line: usize) -> Option<Kind> {
        if let Some(kind) = self.known.local(path) {
            return kind;
        }
        let Known { items, function, .. } = self.known;
        let written: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        let own = self.known.own_kind().map(|own| own.name.as_str());
        match items.by_path(function.file, &written, own) {
            Found::One(to) => {
                self.all.told.push(Call { from: self.at, to, line });
                items.functions[to].gives.clone()
            }
            _ => None,
        }
    }

    fn call(&mut self, call: &ExprCall) -> Option<Kind> {
        let told = self.all.told.len();
        let gives = self.expr(&call.func);
        let to = self
            .all
            .told
            .get(told)
            .map(|call| call.to)
            .filter(|_| matches!(&*call.func, Expr::Path(_)));
        let wrapped: Vec<Option<Kind>> = self.arguments(to, None, call.args.iter());
        if let (None, Expr::Path(path)) = (to, &*call.func) {
            let name = path.path.segments.last()?.ident.to_string();
            return match name.as_str() {
                "Some" => Some(Kind::holding("Option", wrapped.into_iter().next()?)),
                "Ok" => Some(Kind::holding("Result", wrapped.into_iter().next()?)),
                "new" | "clone" | "take" | "replace" => wrapped.into_iter().next()?,
                _ => self.known.named_type(&path.path),
            };
        }
        gives
    }

    fn method(&mut self, call: &ExprMethodCall) -> Option<Kind> {
        let of = self.expr(&call.receiver);
        let name = call.method.to_string();
        let at = line(&call.method);
        match self.known.items.method(self.known.function.file, of.as_ref(), &name) {
            Found::One(to) => {
                self.all.told.push(Call { from: self.at, to, line: at });
                self.arguments(Some(to), None, call.args.iter());
                self.known.items.functions[to].gives.clone()
            }
            found => {
                if found == Found::Unclear {
                    self.all.unclear.push((self.known.function.file, at, name.clone()));
                }
                let takes = of.as_ref().and_then(|of| containers::closure_takes(of, &name));
                let given = self.arguments(None, takes, call.args.iter());
                let closure = given.into_iter().next_back().flatten();
                let of = of?;
                containers::after(&of, &name, closure)
            }
        }
    }

    /// Walks arguments; closures among them take what the function that is called says, or `first`.
    fn arguments<'e>(
        &mut self,
        to: Option<usize>,
        first: Option<Kind>,
        arguments: impl Iterator<Item = &'e Expr>,
    ) -> Vec<Option<Kind>> {
        let takes = to.map_or(&[][..], |to| &self.known.items.functions[to].takes[..]);
        let mut kinds = Vec::new();
        for (at, argument) in arguments.enumerate() {
            let said = takes.get(at).cloned().flatten().filter(|kind| kind.name == "Fn");
            kinds.push(match (argument, said) {
                (Expr::Closure(closure), Some(said)) => self.closure(closure, &said.of),
                (Expr::Closure(closure), None) => self.closure(closure, slice::from_ref(&first)),
                (other, _) => self.expr(other),
            });
        }
        kinds
    }

    fn closure(&mut self, closure: &ExprClosure, takes: &[Option<Kind>]) -> Option<Kind> {
        let outside = self.known.enter();
        for (at, input) in closure.inputs.iter().enumerate() {
            self.known.bind(input, takes.get(at).cloned().flatten());
        }
        let gives = self.expr(&closure.body);
        self.known.leave(outside);
        gives
    }
}
