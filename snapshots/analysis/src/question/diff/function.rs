//! Normalizes function names for comparing stacks: removes the parts that a compiler adds.

use highwater_snapshots::line_text::function_text;

/// The displayed name of a function, without the compiler's hash (`::h0123456789abcdef`), and with its type parameters
/// replaced by `_`, such as `vit::Block<_>::forward`.
pub(super) fn comparable_name(name: &str) -> String {
    let name = function_text(without_hash(name));
    let mut bare = String::with_capacity(name.len());
    let mut depth = 0_usize;
    let mut before = ' ';
    for c in name.chars() {
        match c {
            // `<T as Trait>::method` starts with a bracket; `f<T>` and `f::<T>` have one after a name.
            '<' if before.is_alphanumeric() || before == '_' || before == ':' || depth > 0 => {
                if depth == 0 {
                    bare.push_str("<_>");
                }
                depth += 1;
            }
            '>' if depth > 0 && before != '-' => depth -= 1,
            _ if depth > 0 => {}
            _ => bare.push(c),
        }
        before = c;
    }
    bare
}

fn without_hash(name: &str) -> &str {
    match name.rsplit_once("::h") {
        Some((head, hash)) if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => head,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_compiler_adds_goes_and_what_a_person_wrote_stays() {
        for (name, bare) in [
            ("train::main", "train::main"),
            ("train::main::h0123456789abcdef", "train::main"),
            ("net::Block<f32, 3>::forward", "net::Block<_>::forward"),
            ("run::<Vec<Option<u8>>>::go", "run::<_>::go"),
            ("<net::Block as Module>::forward", "<net::Block as Module>::forward"),
            ("step::{{closure}}#12", "step"),
            ("step::{closure#2}::inner", "step::inner"),
            ("map<fn(u8) -> u8>::call", "map<_>::call"),
            ("at::native::add(at::Tensor const&)", "at::native::add(at::Tensor const&)"),
            ("_call_impl", "_call_impl"),
        ] {
            assert_eq!(comparable_name(name), bare, "{name}");
        }
    }
}
