//! Formats source lines as `path/file.py:184 function`, and parses and shortens them.

use std::borrow::Cow;
use std::collections::HashMap;

/// A source line as text: `path/file.py:184 function` with a line number, `function (library.so)` without one, and
/// `function` without a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineText<'a> {
    /// Path of the source file or library; empty if unknown.
    pub path: &'a str,
    /// Line number; 0 if unknown.
    pub line: u32,
    /// Function; may be empty.
    pub function: &'a str,
}

impl<'a> LineText<'a> {
    /// Parses text written by [`Display`](std::fmt::Display). Text in another form is interpreted as a function name.
    pub fn parse(text: &'a str) -> Self {
        if let Some(found) = Self::with_number(text) {
            return found;
        }
        let in_brackets = text.strip_suffix(')').and_then(|text| text.rsplit_once(" ("));
        match in_brackets {
            Some((function, path)) if !path.is_empty() => Self { path, line: 0, function },
            _ => Self { path: "", line: 0, function: text },
        }
    }

    /// Splits the text at the first `:digits` at its end or before a space into the path before and the function after.
    fn with_number(text: &'a str) -> Option<Self> {
        let mut colons = text.match_indices(':').map(|(at, _)| at).filter(|at| *at > 0);
        colons.find_map(|at| {
            let after = &text[at + 1..];
            let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
            let rest = &after[digits..];
            let line = after[..digits].parse().ok().filter(|line| *line > 0)?;
            let function = if rest.is_empty() { rest } else { rest.strip_prefix(' ')? };
            Some(Self { path: &text[..at], line, function })
        })
    }

    /// The last part of the path, such as `model.py`.
    pub fn file_name(&self) -> &'a str {
        self.path.rsplit(['/', '\\']).next().unwrap_or(self.path)
    }

    /// Returns the function's name in its source. In Rust, modules, traits and type parameters are omitted:
    /// `<app::nn::Attention<T> as app::nn::Module>::forward` is `Attention::forward`, `app::train::step` is `step`.
    pub fn short_function(&self) -> Cow<'a, str> {
        let is_qualified = self.function.starts_with('<') && self.function.contains(">::");
        if !is_qualified && !self.path.ends_with(".rs") {
            return Cow::Borrowed(self.function);
        }
        let parts = split_outside(self.function, "::");
        let named = parts.iter().rposition(|part| !part.starts_with('<'));
        let Some((at, name)) = named.map(|at| (at, without_parameters(parts[at]))).filter(|(_, name)| !name.is_empty())
        else {
            return Cow::Borrowed(self.function);
        };
        let owner =
            parts[..at].last().map(|part| match part.strip_prefix('<').and_then(|part| part.strip_suffix('>')) {
                Some(qualified) => type_name(qualified),
                None => without_parameters(part),
            });
        match owner {
            Some(owner) if at == 1 && is_qualified || owner.starts_with(char::is_uppercase) => {
                Cow::Owned(format!("{owner}::{name}"))
            }
            _ => Cow::Borrowed(name),
        }
    }
}

/// The parts of `text` between marks outside of `<>`.
fn split_outside<'t>(text: &'t str, mark: &str) -> Vec<&'t str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    for (at, sign) in text.char_indices() {
        match sign {
            '<' => depth += 1,
            // The `>` of an arrow `->` closes nothing.
            '>' if !text[..at].ends_with('-') => depth = depth.saturating_sub(1),
            _ if depth == 0 && at >= start && text[at..].starts_with(mark) => {
                parts.push(&text[start..at]);
                start = at + mark.len();
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn without_parameters(part: &str) -> &str {
    part.split('<').next().unwrap_or(part)
}

/// The name of the type in `app::Net<T> as app::Module` or `&dyn app::Module`.
fn type_name(qualified: &str) -> &str {
    let of = split_outside(qualified, " as ")[0].trim_start_matches(['&', '*']);
    let of = ["mut ", "const ", "dyn "].iter().fold(of, |of, word| of.strip_prefix(word).unwrap_or(of));
    without_parameters(split_outside(of.split(" + ").next().unwrap_or(of), "::").last().unwrap_or(&of))
}

/// Returns a line with the function's name in its source ([`LineText::short_function`]).
pub fn readable_line(text: &str) -> Cow<'_, str> {
    let line = LineText::parse(text);
    match line.short_function() {
        name if name == line.function => Cow::Borrowed(text),
        name => Cow::Owned(LineText { function: &name, ..line }.to_string()),
    }
}

impl std::fmt::Display for LineText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self { path: "", function, .. } => f.write_str(function),
            Self { path, line: 0, function } => write!(f, "{function} ({path})"),
            Self { path, line, function: "" } => write!(f, "{path}:{line}"),
            Self { path, line, function } => write!(f, "{path}:{line} {function}"),
        }
    }
}

/// The C++ namespace in which PyTorch generates the classes of autograd nodes.
const AUTOGRAD_NODES: &str = "torch::autograd::generated::";

/// Shortens a function name that the Rust compiler generated for a closure or block: `main::{{closure}}#0` becomes
/// `main`. If nothing else is in the name, returns the kind, such as `closure`. For an autograd node, returns the
/// node's name, such as `MmBackward0`.
pub fn function_text(name: &str) -> Cow<'_, str> {
    if let Some((node, _)) = name.strip_prefix(AUTOGRAD_NODES).and_then(|name| name.split_once("::apply(")) {
        return Cow::Borrowed(node);
    }
    if !name.contains('{') {
        return Cow::Borrowed(name);
    }
    let mut out = String::with_capacity(name.len());
    let mut word = "";
    let mut rest = name;
    while let Some(at) = rest.find('{') {
        let (head, tail) = rest.split_at(at);
        let Some((kind, after)) = compiler_part(tail) else {
            out.push_str(head);
            out.push('{');
            rest = &tail[1..];
            continue;
        };
        word = kind;
        let head = head.strip_suffix("::").unwrap_or(head);
        out.push_str(head);
        rest = if out.is_empty() { after.strip_prefix("::").unwrap_or(after) } else { after };
    }
    out.push_str(rest);
    // Of a closure without a path, only its type parameters are left.
    if out.is_empty() || out.starts_with('<') && !word.is_empty() && !out.contains(">::") {
        return Cow::Borrowed(word);
    }
    Cow::Owned(out)
}

/// Names that the Rust compiler gives to unnamed parts of a path, such as `{closure#1}`, `{{closure}}#1` or `{impl#3}`.
const COMPILER_PARTS: &[&str] = &[
    "async_block",
    "async_closure",
    "async_fn",
    "closure",
    "closure_env",
    "constant",
    "constructor",
    "coroutine",
    "impl",
    "shim",
    "vtable.shim",
];

/// Maximum length of a compiler-generated part in bytes: the keyword and the text after it.
const MAX_COMPILER_PART: usize = 64;

/// Splits `text`, which starts with a compiler-generated part, into the keyword of that part and the remaining text.
fn compiler_part(text: &str) -> Option<(&str, &str)> {
    let is_double = text.starts_with("{{");
    let inner = if is_double { &text[2..] } else { &text[1..] };
    // The search ends early, so that many braces take no longer than other letters.
    let near = &inner[..inner.floor_char_boundary(MAX_COMPILER_PART)];
    let end = near.find(['#', ':', '}'])?;
    let (word, after) = inner.split_at(end);
    if !COMPILER_PARTS.contains(&word) {
        return None;
    }
    let near = &after[..after.floor_char_boundary(MAX_COMPILER_PART)];
    let after = &after[near.find('}')?..];
    let after = after.strip_prefix(if is_double { "}}" } else { "}" })?;
    let digits = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    match after.strip_prefix('#') {
        Some(number) if digits(number) > 0 => Some((word, &number[digits(number)..])),
        _ => Some((word, after)),
    }
}

/// Shortens a line of a stack to at most `max_chars` characters. Shortens the folders first (`…/models/vit.py:184
/// forward`), then the modules before the function name, then the end of the function name. Always keeps the end of the
/// file name and the line number, even if these exceed the limit.
pub fn shorten_line(text: &str, max_chars: usize) -> Cow<'_, str> {
    let readable = readable_line(text);
    if length(&readable) <= max_chars {
        return readable;
    }
    let text = &*readable;
    let line = LineText::parse(text);
    Cow::Owned(match line {
        LineText { path: "", .. } => match text.split_once(" in ").filter(|_| text.starts_with("0x")) {
            Some((address, module)) => shorten_path(module, max_chars, |path| format!("{address} in {path}")),
            None => cut_function(text, max_chars),
        },
        _ => {
            let write = |path: &str| LineText { path, ..line }.to_string();
            let has_room = length(line.function) < max_chars;
            let shortened = if has_room { shorten_path(line.path, max_chars, write) } else { write(line.file_name()) };
            match line.line {
                _ if length(&shortened) <= max_chars => shortened,
                0 => cut_right(&shortened, max_chars),
                _ => shorten_function(&line, max_chars),
            }
        }
    })
}

const MAX_CHAR_BYTES: usize = 4;

/// Passes to `write` the longest suffix of `path` that consists of whole folders and fits, or otherwise the file name.
fn shorten_path(path: &str, max_chars: usize, write: impl Fn(&str) -> String) -> String {
    let separator = if path.contains('\\') && !path.contains('/') { '\\' } else { '/' };
    let drive = path.get(..3).filter(|start| start.ends_with(":\\") || start.ends_with(":/")).unwrap_or("");
    // Longer ends do not fit, whatever their characters.
    let first = path.len().saturating_sub(max_chars.saturating_mul(MAX_CHAR_BYTES)).max(drive.len() + 1);
    let starts = path.match_indices(['/', '\\']).map(|(at, _)| at + 1).filter(|start| *start >= first);
    let kept = starts.map(|start| &path[start..]).filter(|rest| !rest.is_empty());
    let candidates = kept.flat_map(|rest| {
        [format!("{drive}…{separator}{rest}"), format!("…{separator}{rest}")].into_iter().map(|path| write(&path))
    });
    let fits = |text: &String| length(text) <= max_chars;
    candidates.into_iter().find(fits).unwrap_or_else(|| write(path.rsplit(['/', '\\']).next().unwrap_or(path)))
}

/// Returns the file name and line number, with as much of the function name as fits. Shortens a long file name.
fn shorten_function(line: &LineText<'_>, max_chars: usize) -> String {
    let name = line.file_name();
    let place = format!("{name}:{}", line.line);
    let left = max_chars.saturating_sub(length(&place));
    if left >= 3 {
        return format!("{place} {}", cut_function(line.function, left - 1));
    }
    if length(&place) <= max_chars {
        return place;
    }
    let number = length(&place) - length(name);
    let kept = max_chars.saturating_sub(number + 1);
    let tail: String = name.chars().skip(length(name).saturating_sub(kept)).collect();
    format!("…{tail}:{}", line.line)
}

/// Shortens a function to at most `max_chars` characters, such as `…::models::forward` instead of
/// `app::models::forward`. If it has types or arguments, which may contain paths, its end is cut instead.
fn cut_function(function: &str, max_chars: usize) -> String {
    if length(function) <= max_chars || function.contains(['<', '(', ' ']) {
        return cut_right(function, max_chars);
    }
    let first = function.len().saturating_sub(max_chars.saturating_mul(MAX_CHAR_BYTES));
    let ends = function.match_indices("::").map(|(at, _)| at).filter(|at| *at >= first);
    let shortened = |at: usize| format!("…{}", &function[at..]);
    let fits = ends.map(shortened).find(|text| length(text) <= max_chars);
    let fits = fits.or_else(|| function.rfind("::").map(shortened));
    cut_right(fits.as_deref().unwrap_or(function), max_chars)
}

fn cut_right(text: &str, max_chars: usize) -> String {
    if length(text) <= max_chars {
        return text.to_owned();
    }
    let kept: String = text.chars().take(max_chars.saturating_sub(1)).collect();
    kept.trim_end().to_owned() + "…"
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// Shortens lines by omitting folders that are not needed to distinguish files. Returns `train.py:184 step`, but
/// `a/model.py:3 forward` and `b/model.py:3 forward` if two files are called `model.py`. Takes O(n log n) time.
pub fn unique_suffixes<S: AsRef<str>>(texts: &[S]) -> Vec<String> {
    let lines: Vec<LineText<'_>> = texts.iter().map(|text| LineText::parse(text.as_ref())).collect();
    let mut paths: Vec<(Vec<&str>, &str)> =
        lines.iter().map(|line| (line.path.rsplit(['/', '\\']).collect(), line.path)).collect();
    paths.sort_unstable();
    paths.dedup();
    // In this order the path that shares most trailing parts with a path is one of its neighbours.
    let shared = |a: usize, b: usize| paths[a].0.iter().zip(&paths[b].0).take_while(|(a, b)| a == b).count();
    let mut kept: HashMap<&str, &str> = HashMap::with_capacity(paths.len());
    for (at, (parts, path)) in paths.iter().enumerate() {
        let before = at.checked_sub(1).map_or(0, |before| shared(before, at));
        let after = if at + 1 < paths.len() { shared(at, at + 1) } else { 0 };
        let needed = (before.max(after) + 1).min(parts.len());
        let bytes: usize = parts[..needed].iter().map(|part| part.len()).sum::<usize>() + needed - 1;
        kept.insert(path, &path[path.len() - bytes..]);
    }
    lines
        .iter()
        .map(|line| {
            let path = kept.get(line.path).copied().unwrap_or(line.path);
            LineText { path, function: &line.short_function(), ..*line }.to_string()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (&str, u32, &str) {
        let line = LineText::parse(text);
        assert_eq!(line.to_string(), text);
        (line.path, line.line, line.function)
    }

    #[test]
    fn lines_of_every_form_are_read_back() {
        assert_eq!(parsed("/home/me/train.py:184 step"), ("/home/me/train.py", 184, "step"));
        assert_eq!(parsed(r"C:\src\my model\train.py:7 <module>"), (r"C:\src\my model\train.py", 7, "<module>"));
        assert_eq!(parsed("a b/c:d.cu:3 f<int>(c10::Half)::g:3"), ("a b/c:d.cu", 3, "f<int>(c10::Half)::g:3"));
        assert_eq!(parsed("src/main.rs:12"), ("src/main.rs", 12, ""));
        assert_eq!(
            parsed("at::add(at::Tensor const&) (libtorch.so)"),
            ("libtorch.so", 0, "at::add(at::Tensor const&)")
        );
        assert_eq!(parsed("std::vector<int>::push_back"), ("", 0, "std::vector<int>::push_back"));
        for odd in ["", ":", ":3 x", "a:0 f", "a:b", "a:99999999999 f", "()", " ()", "ü:", "<a:1>"] {
            assert_eq!(parsed(odd).0, "", "{odd}");
        }
    }

    #[test]
    fn closures_read_as_the_function_around_them() {
        for (name, text) in [
            ("main", "main"),
            ("main::{{closure}}", "main"),
            ("app::main::{{closure}}#0", "app::main"),
            ("app::train::{closure#2}::{closure#0}", "app::train"),
            ("app::train::{closure#2}::inner", "app::train::inner"),
            ("app::net::{impl#3}::forward", "app::net::forward"),
            ("<app::Net as Module>::forward::{{closure}}", "<app::Net as Module>::forward"),
            ("core::ops::function::FnOnce::call_once{{vtable.shim}}", "core::ops::function::FnOnce::call_once"),
            ("app::run::{async_fn#0}", "app::run"),
            ("{closure#1}", "closure"),
            ("{impl#1}::forward", "forward"),
            ("{closure#0}<app::Net, app::Error>", "closure"),
            ("f(int)::{lambda(int)#1}::operator()(int) const", "f(int)::{lambda(int)#1}::operator()(int) const"),
            ("{", "{"),
            ("{{closure", "{{closure"),
            ("torch::autograd::generated::DivBackward0::apply(std::vector<at::Tensor, A>&&)", "DivBackward0"),
            ("torch::autograd::Node::operator()(int)", "torch::autograd::Node::operator()(int)"),
        ] {
            assert_eq!(function_text(name), text, "{name}");
        }
    }

    #[test]
    fn functions_of_rust_lose_modules_traits_and_type_parameters() {
        let short = |path: &str, function: &str| LineText { path, line: 1, function }.short_function().into_owned();
        for (name, text) in [
            ("<app::nn::Attention as app::nn::Module>::forward_into", "Attention::forward_into"),
            ("<app::NextToken<M> as app::task::Task<M>>::loss", "NextToken::loss"),
            ("<T as app::Task>::loss", "T::loss"),
            ("<T>::loss", "T::loss"),
            ("<[T] as app::Sum>::sum", "[T]::sum"),
            ("<&dyn core::ops::Fn<(), Output = i32> + core::marker::Sync as core::ops::FnOnce<()>>::call", "Fn::call"),
            ("<app::Map<fn(app::A) -> app::B> as Iterator>::fold", "Map::fold"),
        ] {
            assert_eq!(short("", name), text, "{name}");
        }
        for (name, text) in [
            ("app::session::Session::run", "Session::run"),
            ("app::train::step", "step"),
            ("alloc::vec::Vec<T,A>::extend::<app::Net>", "Vec::extend"),
            ("adapted<app::Net, app::new>", "adapted"),
            ("closure", "closure"),
            ("<app::Net>", "<app::Net>"),
            ("", ""),
        ] {
            assert_eq!(short("/src/run.rs", name), text, "{name}");
        }
        for name in ["<module>", "at::native::add(at::Tensor<int> const&)", "app::step", "forward"] {
            assert_eq!(short("a.py", name), name);
        }
        let deep = "<".repeat(1 << 16) + "::f";
        assert_eq!(short("a.rs", &deep), deep);
        assert_eq!(readable_line("/src/run.rs:3 app::Net<T>::run"), "/src/run.rs:3 Net::run");
        assert_eq!(shorten_line("/src/run.rs:3 app::Net<T>::run", 99), "/src/run.rs:3 Net::run");
        assert_eq!(unique_suffixes(&["/src/run.rs:3 app::Net<T>::run"]), ["run.rs:3 Net::run"]);
    }

    #[test]
    fn names_of_many_braces_are_read_in_one_pass() {
        for name in ["{".repeat(1 << 16), "{closure#".repeat(1 << 13), "{{closure".repeat(1 << 13)] {
            assert_eq!(function_text(&name), name);
        }
    }

    #[test]
    fn folders_give_way_first_then_the_function_and_never_the_line_number() {
        let unix = "/home/me/project/models/vit.py:184 forward";
        for (width, expected) in [
            (42, unix),
            (41, "…/me/project/models/vit.py:184 forward"),
            (30, "…/models/vit.py:184 forward"),
            (26, "…/vit.py:184 forward"),
            (18, "vit.py:184 forward"),
            (15, "vit.py:184 for…"),
            (13, "vit.py:184 f…"),
            (12, "vit.py:184"),
            (9, "…t.py:184"),
            (2, "…:184"),
            (0, "…:184"),
        ] {
            assert_eq!(shorten_line(unix, width), expected, "{width}");
        }
        for width in 0..60 {
            let short = shorten_line(unix, width);
            assert!(short.contains(":184") && short.chars().count() <= width.max(5), "{width}: {short}");
        }
    }

    #[test]
    fn paths_of_windows_keep_their_drive_where_it_fits() {
        let windows = r"C:\Users\me\my project\train.py:184 f";
        assert_eq!(shorten_line(windows, 36), r"C:\…\me\my project\train.py:184 f");
        assert_eq!(shorten_line(windows, 30), r"…\me\my project\train.py:184 f");
        assert_eq!(shorten_line(windows, 29), r"…\my project\train.py:184 f");
        assert_eq!(shorten_line(windows, 20), r"C:\…\train.py:184 f");
        assert_eq!(shorten_line(windows, 18), r"…\train.py:184 f");
        assert_eq!(shorten_line("D:/a/b/c.py:1 f", 13), "…/b/c.py:1 f");
        assert_eq!(shorten_line("D:/long folder/c.py:1 f", 13), "D:/…/c.py:1 f");
    }

    #[test]
    fn lines_without_a_number_or_a_file_are_cut_where_they_say_least() {
        assert_eq!(shorten_line("cublasLtCreate (/usr/lib/libcublasLt.so)", 36), "cublasLtCreate (…/libcublasLt.so)");
        assert_eq!(shorten_line("at::native::add_kernel", 12), "…::add_kern…");
        assert_eq!(shorten_line("at::native::add_kernel", 13), "…::add_kernel");
        assert_eq!(shorten_line("at::add(at::Tensor const&)", 12), "at::add(at:…");
        assert_eq!(shorten_line("run.rs:34 app::scenario::run::run_steps", 28), "run.rs:34 run_steps");
        assert_eq!(shorten_line("run.cc:34 app::scenario::run::run_steps", 28), "run.cc:34 …::run::run_steps");
        assert_eq!(shorten_line("0x30c0 in /usr/lib/libcuda.so", 24), "0x30c0 in …/libcuda.so");
        assert_eq!(shorten_line("größe.py:3 größe", 14), "größe.py:3 gr…");
    }

    #[test]
    fn lines_of_any_length_are_shortened() {
        let long = 1 << 17;
        for text in [
            format!("{}/model.py:7 f", "a/".repeat(long / 2)),
            format!("/p/model.py:7 {}f", "a::".repeat(long / 3)),
            format!("{}f", "a::".repeat(long / 3)),
            format!("{}.py:7 f", "a".repeat(long)),
            "a".repeat(long),
            format!("f ({}.so)", "a/".repeat(long / 2)),
        ] {
            let short = shorten_line(&text, 40);
            assert!(short.chars().count() <= 40, "{short}");
            assert_eq!(short.contains(":7"), text.contains(":7"), "{short}");
        }
    }

    #[test]
    fn folders_are_shown_only_where_they_distinguish_files() {
        let unique = |texts: &[&str]| unique_suffixes(texts);
        assert_eq!(
            unique(&["/p/a/model.py:3 f", "/p/b/model.py:3 f", "/p/train.py:9 main", "/p/train.py:10 main", "at::mm"]),
            ["a/model.py:3 f", "b/model.py:3 f", "train.py:9 main", "train.py:10 main", "at::mm"]
        );
        assert_eq!(unique(&["/x/a/b/m.py:1 f", "/y/a/b/m.py:1 f"]), ["x/a/b/m.py:1 f", "y/a/b/m.py:1 f"]);
        assert_eq!(unique(&["m.py:1 f", "/a/m.py:1 f", "/a/m.py:2 f"]), ["m.py:1 f", "a/m.py:1 f", "a/m.py:2 f"]);
        assert_eq!(unique(&[r"C:\a\m.py:1 f", r"C:\b\m.py:1 f"]), [r"a\m.py:1 f", r"b\m.py:1 f"]);
        assert_eq!(unique(&["f (/usr/lib/libx.so)"]), ["f (libx.so)"]);
        assert!(unique_suffixes::<&str>(&[]).is_empty());
    }
}
