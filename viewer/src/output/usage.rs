//! Describes the error in a command line, in one line of text.

use highwater_snapshots::suggest::did_you_mean;

/// Returns the error in a command line as one line, without usage and without suggested options of dissimilar spelling.
pub(crate) fn usage_error(error: &clap::Error) -> String {
    let text = error.render().to_string();
    // An unknown option is a mistake, and not meant as a value.
    let is_useful = |line: &&str| {
        !line.is_empty()
            && !line.starts_with("For more information")
            && !line.contains("as a value, use")
            && !is_far_fetched(line, error)
    };
    let lines = text.lines().map(str::trim).filter(is_useful);
    let what: Vec<&str> = lines.take_while(|line| !line.starts_with("Usage:")).collect();
    what.join(" ").replace(" tip: ", "; tip: ")
}

/// Returns whether `line` suggests an option that is not spelt like the unknown one.
fn is_far_fetched(line: &str, error: &clap::Error) -> bool {
    use clap::error::{ContextKind, ContextValue};
    let text = |kind: ContextKind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (given, suggested) = (text(ContextKind::InvalidArg), text(ContextKind::SuggestedArg));
    let is_near = |(given, existing): (&str, &str)| !did_you_mean(given, [existing]).is_empty();
    line.contains("a similar argument exists") && !given.zip(suggested).is_some_and(is_near)
}
