//! Checks that a module uses only what is declared above it, at every depth: no module reaches one that a common
//! ancestor declares later, be it by `crate::`, by `super::` or by a re-export. Parents use their children, and
//! children what their parents define.

use std::collections::BTreeMap;

use crate::layering::{code_lines, declared_modules, packages, root, sources};

/// The names of a module and of those around it, from the crate on.
type Path = Vec<String>;

/// A file of a package.
#[derive(Debug, Default)]
struct Module {
    file: String,
    code: String,
    /// The modules that it declares, in order.
    children: Vec<String>,
    /// Where the names that it imports or re-exports are.
    imports: BTreeMap<String, Path>,
}

/// The modules of a package.
#[derive(Debug)]
struct Package(BTreeMap<Path, Module>);

fn is_part_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Reads the path, or the group of paths in braces, with which `text` begins, and adds each with the name it is given
/// to `found`, after `prefix`.
fn read_paths(text: &str, prefix: &[String], found: &mut Vec<(String, Path)>) {
    let text = text.trim_start();
    if let Some(group) = text.strip_prefix('{') {
        let (mut depth, mut start) = (1, 0);
        for (at, c) in group.char_indices() {
            depth += i32::from(c == '{') - i32::from(c == '}');
            if depth == 0 || depth == 1 && c == ',' {
                read_paths(&group[start..at], prefix, found);
                start = at + 1;
            }
            if depth == 0 {
                return;
            }
        }
        return;
    }
    let end = text.find(|c| !is_part_of_name(c)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if name.is_empty() {
        return;
    }
    let path: Path = prefix.iter().cloned().chain([name.to_owned()]).collect();
    match rest.strip_prefix("::") {
        Some(rest) if rest.starts_with(|c| is_part_of_name(c) || c == '{') => read_paths(rest, &path, found),
        _ => {
            let alias = rest.trim_start().strip_prefix("as ").unwrap_or_default();
            let alias: String = alias.chars().take_while(|c| is_part_of_name(*c)).collect();
            let name = if alias.is_empty() { name.to_owned() } else { alias };
            // In a group, `self` stands for the path before it.
            found.push((
                name,
                if path.len() > 1 && path.ends_with(&["self".to_owned()]) { prefix.to_vec() } else { path },
            ));
        }
    }
}

/// The paths after each `keyword` of a text that begins a word.
fn paths_after(code: &str, keyword: &str, prefix: &[&str]) -> Vec<(String, Path)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices(keyword) {
        let before = code[..at].chars().next_back();
        if !before.is_some_and(|c| is_part_of_name(c) || c == ':') {
            let prefix: Path = prefix.iter().map(|&name| name.to_owned()).collect();
            read_paths(&code[at + keyword.len()..], &prefix, &mut found);
        }
    }
    found
}

impl Package {
    /// Reads the files of a package, each with its path within `src`.
    fn read<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut modules = BTreeMap::new();
        for (file, text) in files {
            let mut path: Path = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
            path.pop_if(|last| last == "mod" || last == "lib");
            let code: String = code_lines(text).collect::<Vec<_>>().join("\n");
            let children = declared_modules(text);
            modules.insert(path, Module { file: file.to_owned(), code, children, imports: BTreeMap::new() });
        }
        let mut package = Self(modules);
        let imports: Vec<(Path, BTreeMap<String, Path>)> =
            package.0.iter().map(|(at, module)| (at.clone(), package.imports(at, module))).collect();
        imports.into_iter().for_each(|(at, imports)| package.0.entry(at).or_default().imports = imports);
        package
    }

    fn imports(&self, at: &[String], module: &Module) -> BTreeMap<String, Path> {
        let paths = paths_after(&module.code, "use ", &[]);
        let full = |(name, path): (String, Path)| {
            let begins_at_child = module.children.contains(&path[0]);
            let path = if begins_at_child { [at, &path].concat() } else { full_path(at, &path)? };
            Some((name, path))
        };
        paths.into_iter().filter_map(full).collect()
    }

    /// The innermost module of a path from the crate on.
    fn module_of(&self, path: &[String]) -> Path {
        let mut path = path.to_vec();
        // Re-exports lead from one path to another a few times at most.
        for _ in 0..8 {
            let depth = (0..=path.len()).rev().find(|depth| self.0.contains_key(&path[..*depth])).unwrap_or(0);
            let module = path[..depth].to_vec();
            let import = path.get(depth).and_then(|name| self.0.get(&module)?.imports.get(name));
            match import {
                Some(import) if !import.starts_with(&path[..=depth]) => {
                    path = import.iter().chain(&path[depth + 1..]).cloned().collect();
                }
                _ => return module,
            }
        }
        path
    }

    /// Where a module uses one that is declared below it, or below a module around it.
    fn upward_uses(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for (at, module) in &self.0 {
            let prefixes = ["crate", "super", "self"];
            let paths = prefixes.iter().flat_map(|prefix| paths_after(&module.code, &format!("{prefix}::"), &[prefix]));
            for path in paths.filter_map(|(_, path)| full_path(at, &path)) {
                let used = self.module_of(&path);
                let common = at.iter().zip(&used).take_while(|(one, other)| one == other).count();
                let (Some(own), Some(other)) = (at.get(common), used.get(common)) else { continue };
                let children = &self.0[&at[..common]].children;
                let place = |name: &String| children.iter().position(|child| child == name);
                if place(own).zip(place(other)).is_some_and(|(own, other)| other > own) {
                    broken.push(format!("{} uses {}, which is declared below {own}", module.file, used.join("::")));
                }
            }
        }
        broken
    }
}

/// A path that begins with `crate`, `super` or `self` in the module `at`, from the crate on; `None` for other crates.
fn full_path(at: &[String], path: &[String]) -> Option<Path> {
    let supers = path.iter().take_while(|name| *name == "super").count();
    let (base, rest) = match path.first()?.as_str() {
        "crate" => (&at[..0], &path[1..]),
        "self" => (at, &path[1..]),
        "super" => (&at[..at.len().checked_sub(supers)?], &path[supers..]),
        _ => return None,
    };
    Some([base, rest].concat())
}

#[test]
fn a_module_uses_only_what_is_declared_above_it() {
    let mut broken = Vec::new();
    for folder in packages().filter(|folder| *folder != "tests") {
        let src = format!("{folder}/src/");
        let files = sources(&root().join(&src), &[".rs"]);
        let within = files.iter().map(|(path, text)| (path.trim_start_matches(&src), text.as_str()));
        let package = Package::read(within.filter(|(path, _)| !path.starts_with("bin/") && *path != "main.rs"));
        assert!(!package.0.is_empty(), "{folder} has modules");
        broken.extend(package.upward_uses().into_iter().map(|one| format!("{src}{one}")));
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn an_upward_use_is_found_at_any_depth_through_super_and_through_re_exports() {
    let files = [
        ("lib.rs", "mod a;\n#[cfg(test)]\nmod tests;\nmod b;\npub(super) mod c;\npub use c::Late;\n"),
        ("a.rs", "use crate::b;\nuse std::fmt;\n// crate::c\n#[cfg(test)]\nmod tests { use crate::c; }"),
        ("b/mod.rs", "mod one;\nmod two;\nuse two::Two;\npub struct B;"),
        ("b/one.rs", "use super::{B, Two};\nfn f() -> super::super::a::A { crate::Late::new() }"),
        ("b/two.rs", "use super::{B, one::{self, One}};\nuse crate::{a::{A, self}, b::one as first};"),
        ("c.rs", "use crate::{a, b::two::Two};"),
    ];
    let found = Package::read(files).upward_uses();
    let expected = [
        "a.rs uses b, which is declared below a",
        "b/one.rs uses c, which is declared below b",
        "b/one.rs uses b::two, which is declared below one",
    ];
    assert_eq!(found, expected);
}
