//! All actions of the app with their names, descriptions and keys, for menus, palette, keyboard and tests.

use highwater_analysis::GroupKey;

use crate::View;
use crate::files::HAS_PATHS;

/// Declares the commands in the order in which the palette lists them.
macro_rules! commands {
    ($($variant:ident = $name:literal, $tooltip:literal, [$($key:literal),*] $(, $words:literal)?;)+) => {
        /// An action of the app.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Command { $(#[doc = $tooltip] $variant,)+ }

        impl Command {
            /// Every command.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name in menus and in the palette.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            pub(crate) const fn tooltip(self) -> &'static str {
                match self { $(Self::$variant => $tooltip,)+ }
            }

            /// Additional search words for the palette.
            pub const fn words(self) -> &'static str {
                match self { $(Self::$variant => concat!($($words)?),)+ }
            }

            /// Returns the key combinations, each written as modifiers and a key joined by `+`, such as `Ctrl+O`. Menus
            /// show the first.
            pub const fn keys(self) -> &'static [&'static str] {
                match self { $(Self::$variant => &[$($key),*],)+ }
            }
        }
    };
}

commands! {
    Open = "Open…", "Open a recording: a .snap file, or a memory snapshot of PyTorch (pickle, JSON or saved page).",
        ["Ctrl+O"], "load file import snapshot";
    OpenFolder = "Open a folder…", "Open the recordings of all ranks of a run: a folder with one file per rank.",
        ["Ctrl+Shift+O"], "load directory ranks distributed ddp fsdp";
    Reload = "Reload", "Read the file again, for instance while it is still being written.",
        ["F5", "Ctrl+R"], "refresh";
    Close = "Close", "Close this recording.", ["Ctrl+W", "Alt+W"];
    Quit = "Quit", "Close the window.", ["Ctrl+Q"], "exit";
    Palette = "Find a command…", "Search all commands of the app.", ["Ctrl+P", "F1"], "help actions";
    ShowKeys = "Keys", "List all commands with their keys.", ["Questionmark"], "keyboard shortcuts bindings help";
    About = "About Highwater", "Show the version and the licence.", ["Shift+F1"], "license help";
    GoToPeak = "Go to the peak",
        "Zoom to the moment at which the chosen total is largest, and show what is using memory there; F shows everything again.",
        ["P"], "maximum highest high-water mark";
    FitAll = "Show everything", "Zoom out until the whole recording is visible.", ["F", "Home"], "reset view full";
    ZoomIn = "Zoom in", "Show half as much, around the middle.", ["Plus", "Equals"], "magnify";
    ZoomOut = "Zoom out", "Show twice as much, around the middle.", ["Minus"];
    ZoomInBytes = "Zoom in on bytes", "Show half as many bytes from top to bottom.",
        ["Shift+ArrowUp"], "vertical height";
    ZoomOutBytes = "Zoom out of bytes", "Show twice as many bytes from top to bottom.",
        ["Shift+ArrowDown"], "vertical height";
    PanLeft = "Move left", "Show earlier events.", ["ArrowLeft"], "pan scroll earlier";
    PanRight = "Move right", "Show later events.", ["ArrowRight"], "pan scroll later";
    PanUp = "Move up", "Show blocks higher in the stack.", ["ArrowUp"], "pan scroll";
    PanDown = "Move down", "Show blocks lower in the stack.", ["ArrowDown"], "pan scroll";
    PreviousStep = "Previous step", "Show the previous training step.", ["PageUp"], "iteration";
    NextStep = "Next step", "Show the next training step.", ["PageDown"], "iteration";
    GoToStep = "Go to step…", "Show a training step by its number; in the search for commands, also by: step 1200.",
        ["Ctrl+G"], "iteration number jump";
    PreviousPart = "Previous part", "Show the previous part of a recording that is too long to be shown at once.",
        ["Shift+PageUp"], "window long run";
    NextPart = "Next part", "Show the next part of a recording that is too long to be shown at once.",
        ["Shift+PageDown"], "window long run";
    PreviousPeak = "Previous peak",
        "Pin the previous local peak, from which the total falls by at least 2% of its maximum.",
        ["Shift+N"], "local maximum";
    NextPeak = "Next peak", "Pin the next local peak, from which the total falls by at least 2% of its maximum.",
        ["N"], "local maximum";
    NextOom = "Next failed request",
        "Go to the next request that failed (out of memory), on any device; wraps around at the end.",
        ["O"], "oom out-of-memory error crash";
    PreviousOom = "Previous failed request", "Go to the previous request that failed (out of memory), on any device.",
        ["Shift+O"], "oom out-of-memory error crash";
    PreviousEvent = "One event back", "Pin the moment one event earlier.", ["Shift+ArrowLeft"], "step";
    NextEvent = "One event forward", "Pin the moment one event later.", ["Shift+ArrowRight"], "step";
    Undo = "Undo", "Return to the previous view, total, axis, device, moment and search.",
        ["Ctrl+Z", "Alt+ArrowLeft", "Backspace"], "back";
    Redo = "Redo", "Return to the view before Undo.", ["Ctrl+Shift+Z", "Ctrl+Y", "Alt+ArrowRight"], "forward";
    MarkA = "Mark the moment as A",
        "Set the first of two moments, to see what is allocated, freed and kept between them.",
        ["OpenBracket"], "range interval between";
    MarkB = "Mark the moment as B",
        "Set the second of two moments, to see what is allocated, freed and kept between them.",
        ["CloseBracket"], "range interval between";
    Unmark = "Remove the marks", "Remove the marks A and B.", ["Shift+Escape"], "range clear";
    ShowRange = "Show from A to B", "Zoom to the range between the marks A and B.", ["R"], "range interval";
    LargestBlock = "Largest block", "Pin the largest live block of this moment, and show what allocated it.",
        ["G"], "biggest tensor allocation";
    BlockAbove = "Block above", "Pin the block above the pinned one in the stack.", ["K"];
    BlockBelow = "Block below", "Pin the block below the pinned one in the stack.", ["J"];
    ZoomToBlock = "Zoom to the block", "Zoom to the lifetime of the pinned block, from its allocation to its free.",
        ["B"], "lifetime tensor";
    Unpin = "Unpin", "Clear the pinned block and moment.", ["Escape"], "deselect";
    ToggleFit = "Automatic height", "Let the height follow the largest total in view, or keep it fixed.",
        ["Y"], "vertical autoscale";
    ToggleAxis = "Events or time", "Switch the horizontal axis between events, all of equal width, and time.",
        ["T"], "x axis";
    NextMetric = "Next total", "Switch between requested, allocated, active, reserved and device used.",
        ["M"], "metric memory";
    NextDevice = "Next device", "Show the next device of the recording.", ["D"], "gpu cuda";
    ColourByCategory = "Colour by category", "Parameters, gradients, optimizer state, activations …",
        ["1"], "color type kind";
    ColourByScope = "Colour by module", "The module that allocated the blocks.", ["2"], "color scope layer";
    ColourByOp = "Colour by operation", "The operation that allocated the blocks.", ["3"], "color op";
    ColourByCallSite = "Colour by call site", "The line of your program that allocated the blocks.",
        ["4"], "color frame source line stack";
    ColourByLifetime = "Colour by lifetime", "How long blocks are live: within a phase, within a step, across steps …",
        ["5"], "color";
    ColourByStream = "Colour by stream", "The stream that the blocks were allocated on.", ["6"], "color cuda";
    ColourByPool = "Colour by pool", "The allocator's pool, such as the private pool of a captured graph.",
        ["7"], "color cuda graph";
    DeeperScope = "Modules one level deeper", "Group modules by one more part of their path.",
        ["Period"], "scope depth layer";
    ShallowerScope = "Modules one level up", "Group modules by one part less of their path.",
        ["Comma"], "scope depth layer";
    ToggleStacking = "Stack by colour or by age", "Stack blocks by age, or all blocks of one colour together.",
        ["S"], "order sort";
    ToggleLines = "Lines of the totals", "Show or hide the lines for allocated, active, reserved and capacity.",
        ["L"], "metric curve";
    Search = "Search blocks",
        "Filter all views to the blocks that meet conditions such as category=activation size>=1MiB.",
        ["Ctrl+F", "Slash"], "filter find query where";
    ClearSearch = "Clear the search", "Remove all conditions, so that every block counts.",
        ["Ctrl+Shift+F"], "filter reset";
    ToggleHide = "Dim or hide the rest", "Show blocks that do not meet the conditions in grey, or not at all.",
        ["H"], "filter";
    ShowMoment = "Show what is using memory",
        "Show what is using memory at the moment, or what changed between A and B.",
        ["Ctrl+1"], "usage breakdown composition who owner vram";
    ToggleSide = "Fold the side panel", "Hide or show the panel next to the timeline.",
        ["F9"], "sidebar hide wide";
    NextLook = "Table, treemap or flame graph", "Switch between table, treemap and flame graph.",
        ["V"], "flamegraph icicle";
    NextKey = "Group by the next key", "Group memory by the next key: category, operation, module, stack, block …",
        ["W"], "breakdown";
    ShowBlock = "Show the block", "Show the stack and all facts of the pinned block.",
        ["Ctrl+2"], "tensor allocation backtrace traceback";
    ShowKept = "Show what is kept", "Show the memory that is allocated and never freed, and the lines that leak.",
        ["Ctrl+9"], "leak leaks leaking growth grows";
    ShowStatistics = "Show statistics",
        "Show steps, growth per step, sizes, lifetimes, and what limits the accuracy; press again for the next of these.",
        ["Ctrl+3"], "leak growth grows trust notes histogram kept";
    ShowSegments = "Show segments",
        "Show or hide the address map of the device's memory: blocks, free ranges, and the largest request that fits.",
        ["Ctrl+4"], "fragmentation fragmented allocator reserved";
    ShowEvents = "Show events", "Show or hide the list of all events.", ["Ctrl+5"], "allocations frees log";
    ShowExplain = "Explain the peak", "Show or hide the composition of the peak, the peak without each part, and advice.",
        ["Ctrl+6"], "why reduce save memory oom";
    ShowWhatIf = "Show what-if",
        "Show or hide the memory that the same requests would take with other allocator settings, on another device, or without some blocks.",
        ["Ctrl+7"], "fits whatif what if simulate predict capacity smaller gpu vram expandable_segments alloc_conf";
    ShowPlan = "Show the plan",
        "Show or hide the cheapest changes with which the step fits a memory budget: recomputed modules, a fused optimizer, allocator settings.",
        ["Ctrl+B"], "budget fits vram smaller gpu batch size lora mixed precision oom out-of-memory checkpoint checkpointing recompute recomputation activation cheapest save memory 24GiB";
    ShowRanks = "Show all ranks", "Show the ranks of the open folder, their peaks and outliers; press again to return.",
        ["Ctrl+8"], "distributed ddp fsdp gpus nodes";
    NextFile = "Next file", "Bring the next open recording to the front.", ["Ctrl+PageDown", "Ctrl+Tab", "Alt+PageDown"], "tab";
    PreviousFile = "Previous file", "Bring the previous open recording to the front.",
        ["Ctrl+PageUp", "Ctrl+Shift+Tab", "Alt+PageUp"], "tab";
    Compare = "Compare…",
        "Compare this recording with another one, or with itself at another moment; press again to return.",
        ["C"], "diff difference regression versus side by side";
    ToggleFollow = "Follow the file", "Start or stop reading the file while it is still being written.",
        ["Ctrl+L"], "live tail watch monitor";
    ScaleUp = "Larger", "Make everything larger.", ["Ctrl+Plus", "Ctrl+Equals"], "font size ui scale";
    ScaleDown = "Smaller", "Make everything smaller.", ["Ctrl+Minus"], "font size ui scale";
    ScaleReset = "Normal size", "Use the scale of the screen.", ["Ctrl+0"], "font size ui reset";
    ToggleContrast = "High contrast", "Switch high contrast on or off.", ["Ctrl+Shift+D"], "accessibility";
    ToggleTheme = "Light or dark", "Switch between a light and a dark window.", ["Ctrl+D"], "theme mode appearance";
    CopyTable = "Copy the table", "Copy the table of the view at the side as CSV.",
        ["Ctrl+Shift+C"], "export csv clipboard";
    SaveTable = "Save the table…", "Write the table of the view at the side as a CSV file.", ["Ctrl+E"], "export csv";
    SaveBelow = "Save the table below…", "Write the table of the view below the timeline as a CSV file.",
        ["Ctrl+Shift+E"], "export csv";
    SavePicture = "Save a picture…", "Write the timeline, and the view below it, as a PNG or SVG file.",
        ["Ctrl+S"], "export image plot figure";
    Screenshot = "Save the window…", "Write the whole window as a PNG file.",
        ["Ctrl+Shift+S"], "screenshot export image capture";
}

/// Fraction of the visible range by which an arrow key moves the view.
const STRIDE: f64 = 0.15;

impl Command {
    /// Returns whether the command zooms, pans, or moves the cursor by one event.
    pub(crate) const fn is_movement(self) -> bool {
        matches!(
            self,
            Self::ZoomIn
                | Self::ZoomOut
                | Self::ZoomInBytes
                | Self::ZoomOutBytes
                | Self::PanLeft
                | Self::PanRight
                | Self::PanUp
                | Self::PanDown
                | Self::PreviousEvent
                | Self::NextEvent
        )
    }

    /// Returns `view` as zoomed or panned by this command; `None` if the command does neither. A zoom keeps the middle
    /// of the axis, or `bytes`, fixed.
    pub(crate) fn steered(self, view: &View, bytes: f64) -> Option<View> {
        let View { x, y } = view;
        let center = [(x.start + x.end) / 2.0, bytes.clamp(y.start, y.end)];
        let stride = [(x.end - x.start) * STRIDE, (y.end - y.start) * STRIDE];
        Some(match self {
            Self::ZoomIn => view.zoomed([0.5, 1.0], center),
            Self::ZoomOut => view.zoomed([2.0, 1.0], center),
            Self::ZoomInBytes => view.zoomed([1.0, 0.5], center),
            Self::ZoomOutBytes => view.zoomed([1.0, 2.0], center),
            Self::PanLeft => view.panned([-stride[0], 0.0]),
            Self::PanRight => view.panned([stride[0], 0.0]),
            Self::PanUp => view.panned([0.0, stride[1]]),
            Self::PanDown => view.panned([0.0, -stride[1]]),
            _ => return None,
        })
    }

    /// Returns whether menus and lists contain the command. Browsers cannot open folders, and have their own commands
    /// to reload and close pages.
    pub const fn is_offered(self) -> bool {
        HAS_PATHS || !matches!(self, Self::OpenFolder | Self::Reload | Self::Quit)
    }

    /// Returns the grouping key of a command that sets colours, which for module paths of any depth is that of whole
    /// paths; `None` for other commands.
    pub const fn colours(self) -> Option<GroupKey> {
        Some(match self {
            Self::ColourByCategory => GroupKey::Category,
            Self::ColourByScope | Self::DeeperScope | Self::ShallowerScope => GroupKey::Scope,
            Self::ColourByOp => GroupKey::Op,
            Self::ColourByCallSite => GroupKey::Frame,
            Self::ColourByLifetime => GroupKey::Lifetime,
            Self::ColourByStream => GroupKey::Stream,
            Self::ColourByPool => GroupKey::Pool,
            _ => return None,
        })
    }

    /// Returns whether the command needs an open recording.
    pub const fn needs_recording(self) -> bool {
        !matches!(
            self,
            Self::Open
                | Self::OpenFolder
                | Self::Quit
                | Self::Palette
                | Self::ShowKeys
                | Self::About
                | Self::ToggleTheme
                | Self::ToggleContrast
                | Self::Screenshot
                | Self::ScaleUp
                | Self::ScaleDown
                | Self::ScaleReset
        )
    }

    /// Returns the commands whose name, search words or tooltip contain every word of `text`, ignoring case: first
    /// those found by name, then those by search words, then those by tooltip.
    pub fn search(text: &str) -> Vec<Self> {
        let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
        let rank = |command: Self| {
            let name = command.name().to_lowercase();
            let known = format!("{name} {}", command.words());
            let all = format!("{known} {}", command.tooltip().to_lowercase());
            let holds = |text: &str| words.iter().all(|word| has_word(text, word));
            [name, known, all].iter().position(|text| holds(text))
        };
        let mut found: Vec<(usize, Self)> =
            Self::ALL.iter().filter_map(|&command| Some((rank(command)?, command))).collect();
        found.sort_by_key(|(rank, _)| *rank);
        found.into_iter().map(|(_, command)| command).collect()
    }
}

/// Returns whether a word of `text` starts with `word`, so that `oom` does not match `zoom`. If `word` contains
/// punctuation, it may occur anywhere in the text.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |sign: char| sign.is_alphanumeric() || sign == '_';
    if word.chars().all(is_part) {
        text.split(|sign| !is_part(sign)).any(|known| known.starts_with(word))
    } else {
        text.contains(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_commands_share_a_name_or_a_key() {
        let mut names: Vec<&str> = Command::ALL.iter().map(|command| command.name()).collect();
        let mut keys: Vec<&str> = Command::ALL.iter().flat_map(|command| command.keys()).copied().collect();
        let counts = (names.len(), keys.len());
        names.sort_unstable();
        names.dedup();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!((names.len(), keys.len()), counts);
        assert!(Command::ALL.iter().all(|command| command.tooltip().ends_with(['.', '…'])));
    }

    #[test]
    fn the_words_of_the_field_find_their_commands_first() {
        let first = [
            ("oom", Command::NextOom),
            ("out of memory", Command::NextOom),
            ("leak", Command::ShowKept),
            ("growth", Command::ShowKept),
            ("who", Command::ShowMoment),
            ("fit", Command::ShowWhatIf),
            ("fits", Command::ShowWhatIf),
            ("smaller gpu", Command::ShowWhatIf),
            ("vram", Command::ShowMoment),
            ("batch size", Command::ShowPlan),
            ("lora", Command::ShowPlan),
            ("mixed precision", Command::ShowPlan),
            ("fragmentation", Command::ShowSegments),
            ("export", Command::CopyTable),
            ("csv", Command::CopyTable),
            ("save", Command::SaveTable),
            ("screenshot", Command::Screenshot),
            ("compare", Command::Compare),
            ("diff", Command::Compare),
            ("peak", Command::GoToPeak),
            ("what-if", Command::ShowWhatIf),
            ("what if", Command::ShowWhatIf),
            ("budget", Command::ShowPlan),
            ("plan", Command::ShowPlan),
            ("checkpoint", Command::ShowPlan),
            ("recompute", Command::ShowPlan),
            ("memory usage", Command::ShowMoment),
            ("memory", Command::ShowMoment),
            ("flamegraph", Command::NextLook),
            ("color category", Command::ColourByCategory),
            ("shortcuts", Command::ShowKeys),
            ("version", Command::About),
            ("filter", Command::Search),
            ("gpu", Command::NextDevice),
            ("go to step", Command::GoToStep),
        ];
        for (text, command) in first {
            assert_eq!(Command::search(text).first(), Some(&command), "{text}");
        }
    }

    #[test]
    fn the_palette_finds_by_name_first_then_by_explanation() {
        assert_eq!(Command::search("PEAK")[0], Command::GoToPeak);
        assert_eq!(Command::search("colour category")[0], Command::ColourByCategory);
        assert!(Command::search(".snap").contains(&Command::Open));
        assert!(Command::search("pickle").contains(&Command::Open));
        assert!(["fit", "oom", "save memory"].iter().all(|text| Command::search(text).contains(&Command::ShowPlan)));
        assert!(Command::search("nonsense").is_empty());
        assert_eq!(Command::search("").len(), Command::ALL.len());
    }
}
