//! Floors: inside a crate, imports point one way.
//!
//! `lib.rs` (or `main.rs`) declares its modules in the order of the floors, lowest first. A module may name modules on
//! lower floors and modules in its own folder. Inside a folder files do not name one another in a circle either. Only a
//! parent and its children may, because they are one thing in several files.
//!
//! Code for tests is left out: a test may know more than what it tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::{Finding, TextFile};

/// The crates with floors, each with the file that declares them.
const CRATES: &[&str] = &[
    "crates/engine/src/lib.rs",
    "crates/pager/src/lib.rs",
    "crates/arena/src/lib.rs",
    "crates/capi/src/lib.rs",
    "crates/python/src/lib.rs",
    "crates/cli/src/main.rs",
    "bench/src/lib.rs",
    "crates/sys/src/lib.rs",
    "crates/agent/src/lib.rs",
];

/// A module, as the names on the path to it from its crate's root.
type Module = Vec<String>;

/// One place where a module names another.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Arrow {
    from: Module,
    to: Module,
    path: PathBuf,
    line: usize,
}

/// Looks at every crate that has floors.
pub fn check(tree: &[TextFile], findings: &mut Vec<Finding>) {
    for root in CRATES {
        match Floors::read(tree, Path::new(root)) {
            Ok(floors) => floors.check(findings),
            Err(finding) => findings.push(finding),
        }
    }
}

/// A crate's modules and arrows.
struct Floors {
    /// Modules that the root declares, lowest first.
    order: Vec<String>,
    arrows: Vec<Arrow>,
}

impl Floors {
    fn read(tree: &[TextFile], root: &Path) -> Result<Floors, Finding> {
        let Some(main) = tree.iter().find(|file| file.path == root) else {
            return Err(Finding::error(
                root,
                0,
                "tidy expects floors here, and there is no such file",
            ));
        };
        let order = declared(&parse(main)?);
        let folder = root.parent().unwrap_or(root);
        let mut files = BTreeMap::new();
        for file in tree.iter().filter(|file| file.is("rs")) {
            if let Some(module) = module_of(folder, &file.path)
                && module.first().is_some_and(|top| order.contains(top))
            {
                files.insert(module, file);
            }
        }
        let mut arrows = Vec::new();
        for (module, file) in &files {
            let mut names = Names {
                module: module.clone(),
                found: Vec::new(),
            };
            names.visit_file(&parse(file)?);
            for (name, line) in names.found {
                // The file of a floor may be another crate's (`#[path]`).
                let is_known = |part: &Module| {
                    files.contains_key(part) || (part.len() == 1 && order.contains(&part[0]))
                };
                let to = (0..=name.len())
                    .rev()
                    .map(|end| name[..end].to_vec())
                    .find(|part| part.is_empty() || is_known(part))
                    .unwrap_or_default();
                arrows.push(Arrow {
                    from: module.clone(),
                    to,
                    path: file.path.clone(),
                    line,
                });
            }
        }
        Ok(Floors { order, arrows })
    }

    fn check(&self, findings: &mut Vec<Finding>) {
        let mut within = Vec::new();
        for arrow in &self.arrows {
            let (Some(from), Some(to)) = (arrow.from.first(), arrow.to.first()) else {
                let what = "names the root of the crate: say which module it is of, so that its floor can be seen";
                findings.push(Finding::error(&arrow.path, arrow.line, what));
                continue;
            };
            if from == to {
                within.push(arrow);
            } else if self.floor(from) <= self.floor(to) {
                let what = format!(
                    "`{from}` may not name `{to}`, on a floor above it (see the order of modules in the root)"
                );
                findings.push(Finding::error(&arrow.path, arrow.line, what));
            }
        }
        for circle in circles(&within) {
            let what = format!("files of one folder name one another in a circle: {circle}");
            let first = within
                .iter()
                .find(|arrow| circle.starts_with(&arrow.from.join("::")));
            let path = first.map_or(Path::new("."), |arrow| &arrow.path);
            findings.push(Finding::error(path, 0, what));
        }
    }

    fn floor(&self, module: &str) -> Option<usize> {
        self.order.iter().position(|name| name == module)
    }
}

/// Collects what a module names in its own crate.
struct Names {
    /// The module that is looked at, inline ones included.
    module: Module,
    found: Vec<(Module, usize)>,
}

impl Names {
    /// The whole path behind `crate` or `super`. `None` for a name of another crate, or one that is visible here
    /// without a path.
    fn absolute(&self, name: &[String]) -> Option<Module> {
        match name.first()?.as_str() {
            "crate" => Some(name[1..].to_vec()),
            "super" => {
                let up = name.iter().take_while(|part| *part == "super").count();
                let parent = self.module.len().checked_sub(up)?;
                Some([&self.module[..parent], &name[up..]].concat())
            }
            _ => None,
        }
    }

    fn note(&mut self, name: &[String], line: usize) {
        if let Some(absolute) = self.absolute(name) {
            self.found.push((absolute, line));
        }
    }

    fn note_tree(&mut self, before: &mut Vec<String>, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.note_tree(before, &path.tree);
                before.pop();
            }
            syn::UseTree::Group(group) => {
                group
                    .items
                    .iter()
                    .for_each(|tree| self.note_tree(before, tree));
            }
            syn::UseTree::Name(syn::UseName { ident })
            | syn::UseTree::Rename(syn::UseRename { ident, .. }) => {
                let line = ident.span().start().line;
                let is_self = ident == "self";
                let name: Vec<String> = before
                    .iter()
                    .cloned()
                    .chain((!is_self).then(|| ident.to_string()))
                    .collect();
                self.note(&name, line);
            }
            syn::UseTree::Glob(glob) => {
                self.note(before, glob.span().start().line);
            }
        }
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    // Statements of a function may be for tests, too.
    fn visit_expr_if(&mut self, expression: &'ast syn::ExprIf) {
        if !is_for_tests(&expression.attrs) {
            visit::visit_expr_if(self, expression);
        }
    }

    fn visit_expr_return(&mut self, expression: &'ast syn::ExprReturn) {
        if !is_for_tests(&expression.attrs) {
            visit::visit_expr_return(self, expression);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.note_tree(&mut Vec::new(), &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let name: Vec<String> = path
            .segments
            .iter()
            .map(|part| part.ident.to_string())
            .collect();
        self.note(&name, path.span().start().line);
        visit::visit_path(self, path);
    }

    // `pub(super)` and `pub(in …)` say who may look in. They name nothing.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}

fn parse(file: &TextFile) -> Result<syn::File, Finding> {
    syn::parse_file(&file.text).map_err(|error| {
        Finding::error(
            &file.path,
            error.span().start().line,
            format!("cannot be read as Rust: {error}"),
        )
    })
}

/// The modules that a root declares for the product (not for tests), in order.
fn declared(root: &syn::File) -> Vec<String> {
    let modules = root.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) if !is_for_tests(&module.attrs) => Some(module.ident.to_string()),
        _ => None,
    });
    modules.collect()
}

/// The module of a file that is in a crate's source folder and not for tests.
fn module_of(folder: &Path, path: &Path) -> Option<Module> {
    let inside = path.strip_prefix(folder).ok()?.with_extension("");
    let module: Module = inside
        .components()
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect();
    let last = module.last()?;
    let for_tests = last == "tests" || last.ends_with("_tests");
    (!for_tests).then_some(module)
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else {
            return false;
        };
        let condition = list.tokens.to_string();
        list.path.is_ident("cfg")
            && condition
                .split(|c: char| !c.is_alphanumeric())
                .any(|word| word == "test")
            && !condition.replace(' ', "").contains("not(test)")
    })
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        _ => &[],
    }
}

/// Circles among the files of a folder, except those of a parent with its children.
fn circles(arrows: &[&Arrow]) -> Vec<String> {
    let is_kin = |a: &Module, b: &Module| a.starts_with(b) || b.starts_with(a);
    let mut next: BTreeMap<&Module, Vec<&Module>> = BTreeMap::new();
    for arrow in arrows
        .iter()
        .filter(|arrow| !is_kin(&arrow.from, &arrow.to))
    {
        next.entry(&arrow.from).or_default().push(&arrow.to);
    }
    let mut found = Vec::new();
    for start in next.keys() {
        // Each circle is named once, by its first member.
        if let Some(way) = way_back(&next, start)
            && way.iter().all(|module| *module >= *start)
        {
            let names: Vec<String> = way.iter().map(|module| module.join("::")).collect();
            found.push(names.join(" -> "));
        }
    }
    found
}

/// The shortest way from a module back to itself.
fn way_back<'a>(
    next: &BTreeMap<&'a Module, Vec<&'a Module>>,
    start: &'a Module,
) -> Option<Vec<&'a Module>> {
    let mut ways = std::collections::VecDeque::from([vec![start]]);
    let mut seen = Vec::new();
    while let Some(way) = ways.pop_front() {
        for to in way
            .last()
            .and_then(|last| next.get(*last))
            .into_iter()
            .flatten()
        {
            let longer = || [way.as_slice(), &[*to]].concat();
            if *to == start {
                return Some(longer());
            }
            if !seen.contains(to) {
                seen.push(*to);
                ways.push_back(longer());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::tests::{errors, sample};
    use super::*;

    const ROOT: &str = "a/src/lib.rs";

    fn wrong(files: &[(&str, &str)]) -> Vec<String> {
        let tree: Vec<TextFile> = [(ROOT, "mod low;\nmod high;\n#[cfg(test)]\nmod testing;\n")]
            .iter()
            .chain(files)
            .map(|(path, text)| sample(path, text))
            .collect();
        errors(|findings| match Floors::read(&tree, Path::new(ROOT)) {
            Ok(floors) => floors.check(findings),
            Err(finding) => findings.push(finding),
        })
    }

    #[test]
    fn arrows_downwards_pass() {
        let files = [
            (
                "a/src/low.rs",
                "pub struct Low;\n#[cfg(test)]\nmod tests { use crate::high::High; }\n",
            ),
            ("a/src/high.rs", "mod part;\nuse crate::low::Low;\n"),
            (
                "a/src/low/inner.rs",
                "fn f() {\n#[cfg(test)]\nif crate::high::is() { return; }\n#[cfg(test)]\nreturn crate::high::f();\n}\n\
                 mod inline { use super::f; }\n",
            ),
            (
                "a/src/high/part.rs",
                "use super::High;\npub(in crate::high) fn f(x: crate::low::Low) {}\n",
            ),
            ("a/src/low/tests.rs", "use crate::high::High;\n"),
        ];
        assert_eq!(wrong(&files), Vec::<String>::new());
    }

    #[test]
    fn arrows_upwards_are_found() {
        for up in [
            "use crate::high::High;",
            "use crate::{high::{self, High}};",
            "fn f() { crate::high::run(); }",
            "impl From<super::high::High> for u8 {}",
            "#[cfg(not(test))]\nuse crate::high::High;",
        ] {
            let found = wrong(&[("a/src/low.rs", up), ("a/src/high.rs", "")]);
            assert!(
                !found.is_empty() && found[0].contains("on a floor above"),
                "{up}: {found:?}"
            );
        }
    }

    #[test]
    fn a_file_of_another_crate_is_a_floor() {
        // `low` and `high` are declared, and their files lie elsewhere (`#[path]`).
        let down = wrong(&[("a/src/high/part.rs", "use crate::low::Low;")]);
        assert_eq!(down, Vec::<String>::new());
        let up = wrong(&[("a/src/low/part.rs", "use crate::high::High;")]);
        assert!(up[0].contains("on a floor above"), "{up:?}");
    }

    #[test]
    fn the_root_hides_floors() {
        let found = wrong(&[("a/src/high.rs", "use crate::Low;")]);
        assert!(found[0].contains("root of the crate"), "{found:?}");
    }

    #[test]
    fn circles_of_siblings_are_found_and_those_of_families_are_not() {
        let family = [
            ("a/src/low.rs", "mod one;\nmod two;\nuse one::One;\n"),
            (
                "a/src/low/one.rs",
                "use super::Low;\nuse super::two::Two;\n",
            ),
            ("a/src/low/two.rs", "use super::Low;\n"),
        ];
        assert_eq!(wrong(&family), Vec::<String>::new());
        let mut circle = family;
        circle[2].1 = "use super::one::One;\n";
        let found = wrong(&circle);
        assert!(
            found.len() == 1 && found[0].contains("low::one -> low::two -> low::one"),
            "{found:?}"
        );
    }
}
