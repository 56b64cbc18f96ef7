//! Options that several commands share; clap derives the parser and the help from them.

pub(crate) mod values;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use clap::Args;
use highwater_analysis::guess::RULES;
use highwater_analysis::{Metric, Siblings};

pub(crate) use values::{At, Categories, ComparedAt, GroupKeys, Where};

/// Parses `words` as the arguments of a command; all other arguments have their defaults.
///
/// # Panics
/// Panics if the command does not accept the words.
pub(crate) fn arguments_of<T: Args>(words: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> T {
    let command = T::augment_args(clap::Command::new("highwater").no_binary_name(true));
    let parsed = command.try_get_matches_from(words).and_then(|matches| T::from_arg_matches(&matches));
    parsed.unwrap_or_else(|why| panic!("{why}"))
}

pub(crate) fn arguments_of_file<T: Args>(file: &Path) -> T {
    arguments_of(["--".as_ref(), file.as_os_str()])
}

/// The arguments of every command that reads a recording and has a table.
#[derive(Clone, Debug, Args)]
pub struct Source {
    /// The recording; `-` is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The output format.
    #[command(flatten)]
    pub form: Form,
}

/// The output format of an answer with a table; the default is text.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Form {
    /// Print one JSON object: sizes in bytes, times in microseconds since 1970
    #[arg(long)]
    pub json: bool,
    /// Print the table as comma-separated values with a header row; sizes in bytes
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

impl Form {
    /// Whether the answer is text.
    pub fn is_text(self) -> bool {
        !self.json && !self.csv
    }
}

/// The arguments of a command that reads a recording and has no table.
#[derive(Clone, Debug, Args)]
pub struct TablelessSource {
    /// The recording; `-` is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Print one JSON object: sizes in bytes, times in microseconds since 1970
    #[arg(long)]
    pub json: bool,
}

impl TablelessSource {
    /// Returns the output format.
    pub fn form(&self) -> Form {
        Form { json: self.json, csv: false }
    }
}

/// The device to report on.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct DeviceChoice {
    /// Device N [default: the one that ran out of memory, else the one with the highest peak]
    #[arg(long, value_name = "N")]
    pub device: Option<u16>,
}

/// The blocks to include, and the sources of their categories and phases if these were not recorded.
#[derive(Clone, Debug, Default, Args)]
pub struct BlockChoice {
    /// Only blocks that match all conditions, such as 'category=activation size>=1MiB', or a plain word: adam
    ///
    /// A plain word or quoted phrase matches where the stack, scope, op or category contains it, ignoring case. Text
    /// keys (category, op, scope, phase, pool, lifetime, stack, frame) take = != ~ !~ where ~ means "contains"; numeric
    /// keys (size, allocated, step, stream, device) take = != < <= > >=. Comma-separated values match any of them.
    /// Lifetimes: phase, step, steps (freed in the same phase, the same step, a later step), kept (live at the end);
    /// `before` and `always`: allocated before the recording, and freed in it or live at its end.
    #[arg(long = "where", value_name = "FILTER", default_value = "", hide_default_value = true)]
    pub filter: Where,
    /// The source of categories that were not recorded.
    #[command(flatten)]
    pub categories: CategoryChoice,
}

/// Whether identical modules are combined into one row.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct ModuleChoice {
    /// List each module separately; by default, equal modules whose paths differ only in a number, such as layers, are
    /// one row
    #[arg(long)]
    pub each: bool,
}

impl ModuleChoice {
    pub(crate) fn siblings(self) -> Siblings {
        if self.each { Siblings::Each } else { Siblings::Merged }
    }
}

static CATEGORIES_HELP: LazyLock<String> = LazyLock::new(|| {
    format!(
        "Source of the categories that are not recorded: 'guess' derives them, and phases and steps, from stacks and \
         lifetimes; 'none' leaves them unknown; a rules file has lines such as\n\n  \
         optimizer_state if stack~adam.py lifetime=kept\n  builtin off\n\nwith conditions as in --where; the first \
         matching line applies; if none matches, the built-in rules do, unless the file has 'builtin off'. [default: \
         guess for PyTorch's files; a .snap keeps what was guessed when it was written]\n\nThe built-in rules:\n{RULES}"
    )
});

/// The sources of values that are not recorded: categories, and the classification of source lines as user code.
#[derive(Clone, Debug, Default, Args)]
pub struct CategoryChoice {
    /// Source of the categories that are not recorded: guesses, or a rules file
    #[arg(long, value_name = "FILE|guess|none", long_help = CATEGORIES_HELP.as_str())]
    pub categories: Option<Categories>,
    /// Treat lines that contain PATTERN as library code, so that their callers represent stacks; repeatable
    ///
    /// PATTERN is a part of a line as --by stack shows it, with file, line and function: 'pool.rs' or 'Tensor::zeros'.
    /// Lines of Rust's libraries, of frameworks and of the allocator that called the recorder are library code anyway.
    #[arg(long, value_name = "PATTERN")]
    pub skip: Vec<String>,
}

/// The files and options of a suggested command, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilesAndOptions {
    pub files: Vec<PathBuf>,
    /// Names without their dashes, and values.
    pub options: Vec<(&'static str, String)>,
}

impl FilesAndOptions {
    pub(crate) fn of(file: &Path) -> Self {
        Self { files: vec![file.to_owned()], options: Vec::new() }
    }

    /// Replaces the files.
    pub(crate) fn about(self, files: &[&Path]) -> Self {
        Self { files: files.iter().map(|file| (*file).to_owned()).collect(), ..self }
    }

    /// Adds `--device` if `device` is given and the option is not present.
    pub(crate) fn on_device(self, device: Option<u16>) -> Self {
        if self.options.iter().any(|(name, _)| *name == "device") { self } else { self.with("device", device) }
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.options.retain(|(known, _)| *known != name);
        self
    }

    pub(crate) fn with(mut self, name: &'static str, value: Option<impl ToString>) -> Self {
        self.options.extend(value.map(|value| (name, value.to_string())));
        self
    }

    pub(crate) fn metric(self, metric: Metric) -> Self {
        self.with("metric", (metric != Metric::Requested).then_some(metric.name()))
    }

    pub(crate) fn filters(mut self, name: &'static str, filters: &[Where]) -> Self {
        self.options.extend(filters.iter().map(|filter| (name, filter.text.clone())));
        self
    }

    pub(crate) fn blocks(self, blocks: &BlockChoice) -> Self {
        self.with("where", blocks.filter.stated()).categories(&blocks.categories)
    }

    pub(crate) fn categories(self, choice: &CategoryChoice) -> Self {
        let given = self.with("categories", choice.categories.as_ref().map(Categories::to_string));
        choice.skip.iter().fold(given, |given, pattern| given.with("skip", Some(pattern)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::info::InfoArguments;
    use crate::commands::peak::PeakArguments;
    use crate::commands::render::RenderArguments;
    use crate::commands::simulate::SimulateArguments;

    #[test]
    fn what_is_not_given_has_its_default_also_for_a_file_that_looks_like_an_option() {
        let file = Path::new("--json");
        let peak: PeakArguments = arguments_of_file(file);
        assert_eq!((peak.source.file.as_path(), peak.source.form.json, peak.top), (file, false, 20));
        let info: InfoArguments = arguments_of_file(file);
        assert_eq!((info.source.file.as_path(), info.device), (file, None));
        let render: RenderArguments = arguments_of(["--out=-a.png", "--", "a.snap"]);
        assert_eq!((render.out.as_path(), render.view.as_str()), (Path::new("-a.png"), "timeline"));
        let simulate: SimulateArguments = arguments_of(["--gpu", "h100", "--", "python", "--steps"]);
        assert_eq!((simulate.steps, simulate.words.len()), (3, 2));
    }
}
