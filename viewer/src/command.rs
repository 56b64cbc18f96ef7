//! Command: every action of the app, with its name, its explanation and its keys, for menus, palette, keyboard and tests.

/// Declares the commands in the order in which the palette lists them.
macro_rules! commands {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $tooltip:literal, [$($key:literal),*];)+) => {
        /// An action of the app.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Command { $($(#[$doc])* $variant,)+ }

        impl Command {
            /// Every command.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// What it is called in menus and in the palette.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// What it does, in a sentence.
            pub const fn tooltip(self) -> &'static str {
                match self { $(Self::$variant => $tooltip,)+ }
            }

            /// Its keys, each as modifiers and a key joined by `+`: `Ctrl+O`. The first is shown.
            pub const fn keys(self) -> &'static [&'static str] {
                match self { $(Self::$variant => &[$($key),*],)+ }
            }
        }
    };
}

commands! {
    /// Ask for a file and open it.
    Open = "Open…", "Open a recording: a .snap file, or a memory snapshot of PyTorch (pickle, JSON or saved page).", ["Ctrl+O"];
    /// Ask for a folder and open it.
    OpenFolder = "Open a folder…", "Open the recordings of a run's ranks: a folder with one file a rank.", ["Ctrl+Shift+O"];
    /// Read the current file again.
    Reload = "Reload", "Read the file again, for instance while it is still being written.", ["F5", "Ctrl+R"];
    /// Close the current recording.
    Close = "Close", "Close this recording.", ["Ctrl+W"];
    /// Leave.
    Quit = "Quit", "Close the window.", ["Ctrl+Q"];
    /// Search all commands.
    Palette = "Find a command…", "Search everything that the app can do.", ["Ctrl+P", "F1"];
    /// Show the moment of the peak.
    GoToPeak = "Go to the peak", "Centre the moment at which the chosen total is largest, and take it apart.", ["P"];
    /// Show the whole recording.
    FitAll = "Show everything", "Zoom out until the whole recording is visible.", ["F", "Home"];
    /// Magnify.
    ZoomIn = "Zoom in", "Show half as much, around the middle.", ["Plus", "Equals"];
    /// Reduce.
    ZoomOut = "Zoom out", "Show twice as much, around the middle.", ["Minus"];
    /// Magnify the bytes alone.
    ZoomInBytes = "Zoom in on bytes", "Show half as many bytes from top to bottom.", ["Shift+ArrowUp"];
    /// Reduce the bytes alone.
    ZoomOutBytes = "Zoom out of bytes", "Show twice as many bytes from top to bottom.", ["Shift+ArrowDown"];
    /// Earlier.
    PanLeft = "Move left", "Show what comes before.", ["ArrowLeft"];
    /// Later.
    PanRight = "Move right", "Show what comes after.", ["ArrowRight"];
    /// Higher.
    PanUp = "Move up", "Show what lies higher in the stack.", ["ArrowUp"];
    /// Lower.
    PanDown = "Move down", "Show what lies lower in the stack.", ["ArrowDown"];
    /// The step before this one.
    PreviousStep = "Previous step", "Show the training step before this one.", ["PageUp"];
    /// The step after this one.
    NextStep = "Next step", "Show the training step after this one.", ["PageDown"];
    /// The local peak before the moment.
    PreviousPeak = "Previous peak", "Pin the peak before this moment: where the total turned, by a fiftieth of the highest at least.", ["Shift+N"];
    /// The local peak after the moment.
    NextPeak = "Next peak", "Pin the peak after this moment: where the total turns, by a fiftieth of the highest at least.", ["N"];
    /// The request before the moment that could not be met.
    PreviousOom = "Previous out-of-memory", "Pin the request before this moment that could not be met.", ["Shift+O"];
    /// The request after the moment that could not be met.
    NextOom = "Next out-of-memory", "Pin the request after this moment that could not be met.", ["O"];
    /// One event earlier.
    PreviousEvent = "One event back", "Pin the moment one event before this one.", ["Shift+ArrowLeft"];
    /// One event later.
    NextEvent = "One event on", "Pin the moment one event after this one.", ["Shift+ArrowRight"];
    /// Undo.
    Undo = "Undo", "Return to what was looked at before: view, total, axis, moment and search.", ["Ctrl+Z", "Alt+ArrowLeft", "Backspace"];
    /// Undo the undoing.
    Redo = "Redo", "Look again at what Undo left.", ["Ctrl+Shift+Z", "Ctrl+Y", "Alt+ArrowRight"];
    /// Mark the moment as A.
    MarkA = "Mark the moment as A", "Set the first of two moments between which is asked what was born, freed and kept.", ["OpenBracket"];
    /// Mark the moment as B.
    MarkB = "Mark the moment as B", "Set the second of two moments between which is asked what was born, freed and kept.", ["CloseBracket"];
    /// Take both marks away.
    Unmark = "Take the marks away", "Take the marks A and B away.", ["Shift+Escape"];
    /// Show what lies between the marks.
    ShowRange = "Show from A to B", "Zoom to what lies between the marks A and B.", ["R"];
    /// Pin the largest block of the moment.
    LargestBlock = "Largest block", "Pin the largest block that lives at this moment, and show who made it.", ["G"];
    /// Pin the block above the pinned one.
    BlockAbove = "Block above", "Pin the block that lies on the pinned one in the stack.", ["K"];
    /// Pin the block below the pinned one.
    BlockBelow = "Block below", "Pin the block beneath the pinned one in the stack.", ["J"];
    /// Show the life of the pinned block.
    ZoomToBlock = "Show the block's life", "Zoom to the pinned block, from its allocation to its free.", ["B"];
    /// Let go of the pinned block.
    Unpin = "Let go of the block", "Clear the pinned block and moment.", ["Escape"];
    /// Fit the height.
    ToggleFit = "Fit the height", "Let the height of the view follow the largest total in it, or leave it as it is.", ["Y"];
    /// Switch between events and time.
    ToggleAxis = "Events or time", "Lay the recording out by event, each as wide as any other, or by time.", ["T"];
    /// The next total.
    NextMetric = "Next total", "Switch between requested, allocated, active, reserved and device used.", ["M"];
    /// The next device.
    NextDevice = "Next device", "Show the next device of the recording.", ["D"];
    /// Colour by category.
    ColourByCategory = "Colour by category", "What blocks are for: parameters, activations, gradients …", ["1"];
    /// Colour by module.
    ColourByScope = "Colour by module", "The module in which blocks were made.", ["2"];
    /// Colour by operation.
    ColourByOp = "Colour by operation", "The operation that made blocks.", ["3"];
    /// Colour by source line.
    ColourByCallSite = "Colour by call site", "The line of your program that made blocks.", ["4"];
    /// Colour by lifetime.
    ColourByLifetime = "Colour by lifetime", "How long blocks live: within a phase, a step, across steps …", ["5"];
    /// Colour by stream.
    ColourByStream = "Colour by stream", "The stream that blocks were allocated for.", ["6"];
    /// Tell modules apart further down.
    DeeperScope = "Modules one level deeper", "Tell apart one more part of the module path.", ["Period"];
    /// Tell modules apart further up.
    ShallowerScope = "Modules one level up", "Tell apart one part less of the module path.", ["Comma"];
    /// Switch the stacking order.
    ToggleStacking = "Stack by colour or by age", "Stack blocks in the order of allocation, or those of one colour together.", ["S"];
    /// Show or hide the lines of the totals.
    ToggleLines = "Lines of the totals", "Show or hide the lines for allocated, active, reserved and capacity.", ["L"];
    /// Go to the search box.
    Search = "Search blocks", "Type conditions that blocks must meet, such as category=activation size>=1MiB; all views follow.", ["Ctrl+F", "Slash"];
    /// Take the conditions away.
    ClearSearch = "Clear the search", "Take away the conditions that blocks must meet.", ["Ctrl+Shift+F"];
    /// Dim or hide the rest.
    ToggleHide = "Dim or hide the rest", "Show blocks that do not meet the conditions in grey, or not at all.", ["H"];
    /// The moment's panel.
    ShowMoment = "Show who holds memory", "Show who holds memory at the moment, or between A and B.", ["Ctrl+1"];
    /// The next look of the moment's panel.
    NextLook = "Table, treemap or flame graph", "Show who holds memory as a table, as areas, or as bars below bars.", ["V"];
    /// The next key of the moment's panel.
    NextKey = "Taken apart by", "Take memory apart by the next key: category, operation, module, stack, block …", ["W"];
    /// The block's panel.
    ShowBlock = "Show the block", "Show all that is known of the pinned block.", ["Ctrl+2"];
    /// The statistics.
    ShowStatistics = "Show statistics", "Show steps, what stays, sizes, lifetimes, and what the numbers rest on; again for the next of these.", ["Ctrl+3"];
    /// The segments.
    ShowSegments = "Show segments", "Show or hide where in the device's memory blocks lie, and what is free.", ["Ctrl+4"];
    /// The events.
    ShowEvents = "Show events", "Show or hide the list of all events.", ["Ctrl+5"];
    /// The explanation.
    ShowExplain = "Show why the peak is so high", "Show or hide what the peak is made of, what would be left without each part, and what could be done.", ["Ctrl+6"];
    /// What would have been.
    ShowWhatIf = "Show what if", "Show or hide what the same requests would have taken with other settings, on another device, or without some blocks.", ["Ctrl+7"];
    /// The ranks of the folder.
    ShowRanks = "Show all ranks", "Show the ranks of the open folder, with their peaks and which stand out; again to return.", ["Ctrl+8"];
    /// The next file.
    NextFile = "Next file", "Bring the next open recording to the front.", ["Ctrl+PageDown", "Ctrl+Tab"];
    /// The file before.
    PreviousFile = "Previous file", "Bring the open recording before this one to the front.", ["Ctrl+PageUp", "Ctrl+Shift+Tab"];
    /// Set two files side by side.
    Compare = "Compare…", "Set this recording beside another one, or beside itself at another moment, and show what makes the difference; again to return.", ["C"];
    /// Follow the file.
    ToggleFollow = "Follow the file", "Read on while the file is still being written, or stop.", ["Ctrl+L"];
    /// Larger letters.
    ScaleUp = "Larger", "Make everything larger.", ["Ctrl+Plus", "Ctrl+Equals"];
    /// Smaller letters.
    ScaleDown = "Smaller", "Make everything smaller.", ["Ctrl+Minus"];
    /// The screen's own scale.
    ScaleReset = "Normal size", "Make everything as large as the screen asks for.", ["Ctrl+0"];
    /// High contrast.
    ToggleContrast = "High contrast", "Switch strong lines and letters on or off.", ["Ctrl+Shift+D"];
    /// Switch between light and dark.
    ToggleTheme = "Light or dark", "Switch between a light and a dark window.", ["Ctrl+D"];
    /// Copy the table in front.
    CopyTable = "Copy the table", "Copy the table of the panel at the side as CSV.", ["Ctrl+Shift+C"];
    /// Write the table at the side.
    SaveTable = "Save the table…", "Write the table of the view at the side as a CSV file.", ["Ctrl+E"];
    /// Write the table below.
    SaveBelow = "Save the table below…", "Write the table of the view below the timeline as a CSV file.", ["Ctrl+Shift+E"];
    /// Write a picture of the recording.
    SavePicture = "Save a picture…", "Write the timeline, and the view below it, as a PNG or SVG file.", ["Ctrl+S"];
    /// Write a picture of the window.
    Screenshot = "Save the window…", "Write the whole window as a PNG file.", ["Ctrl+Shift+S"];
}

impl Command {
    /// Whether it needs an open recording.
    pub const fn needs_recording(self) -> bool {
        !matches!(
            self,
            Self::Open
                | Self::OpenFolder
                | Self::Quit
                | Self::Palette
                | Self::ToggleTheme
                | Self::ToggleContrast
                | Self::Screenshot
                | Self::ScaleUp
                | Self::ScaleDown
                | Self::ScaleReset
        )
    }

    /// The commands whose name or explanation holds every word of `text`, whatever its case; best first.
    pub fn search(text: &str) -> Vec<Self> {
        let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
        let rank = |command: Self| {
            let name = command.name().to_lowercase();
            let all = format!("{name} {}", command.tooltip().to_lowercase());
            let holds = |text: &str| words.iter().all(|word| text.contains(word.as_str()));
            match (holds(&name), holds(&all)) {
                (true, _) => Some(0),
                (false, true) => Some(1),
                _ => None,
            }
        };
        let mut found: Vec<(u8, Self)> =
            Self::ALL.iter().filter_map(|&command| Some((rank(command)?, command))).collect();
        found.sort_by_key(|(rank, _)| *rank);
        found.into_iter().map(|(_, command)| command).collect()
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
    fn the_palette_finds_by_name_first_then_by_explanation() {
        assert_eq!(Command::search("PEAK")[0], Command::GoToPeak);
        assert_eq!(Command::search("colour category")[0], Command::ColourByCategory);
        assert!(Command::search(".snap").contains(&Command::Open));
        assert!(Command::search("pickle").contains(&Command::Open));
        assert!(Command::search("nonsense").is_empty());
        assert_eq!(Command::search("").len(), Command::ALL.len());
    }
}
