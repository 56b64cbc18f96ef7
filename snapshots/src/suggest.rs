//! Suggests the correct spelling of a mistyped word, for error messages.

/// Returns ` (did you mean 'scope'?)` with the word of `known` most similar to `word`; empty if no word is similar.
pub fn did_you_mean<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    nearest(word, known).map_or_else(String::new, |known| format!(" (did you mean '{known}'?)"))
}

/// Returns the word of `known` with the smallest edit distance from `word`, the first one in a tie. The distance must
/// be at most a third of the letters of the longer word. It counts as 1 if `word` has three or more letters and is the
/// start of the known word.
fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let word = word.to_lowercase();
    let length = word.chars().count();
    let distance = |known: &str| match known.starts_with(&word) && length >= 3 {
        true => 1,
        false => strsim::damerau_levenshtein(&word, known),
    };
    let rated = known.into_iter().map(|known| (distance(known), known));
    let near = rated.filter(|(distance, known)| *distance <= length.max(known.chars().count()) / 3);
    near.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_word_is_suggested_and_another_word_is_not() {
        let known = ["category", "op", "scope", "step", "stack", "frame", "size"];
        let nearest = |word| nearest(word, known);
        assert_eq!(nearest("catgeory"), Some("category"));
        assert_eq!(nearest("categories"), Some("category"));
        assert_eq!(nearest("cat"), Some("category"));
        assert_eq!(nearest("Scope"), Some("scope"));
        assert_eq!(nearest("frme"), Some("frame"));
        assert_eq!(nearest("sacle"), None, "two letters of five differ");
        assert_eq!(nearest("x"), None);
        assert_eq!(nearest(""), None);
        assert_eq!(did_you_mean("stak", known), " (did you mean 'stack'?)");
        assert_eq!(did_you_mean("colour", known), "");
    }
}
