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
    /// The view before this one.
    Back = "Back", "Return to the view before this one.", ["Alt+ArrowLeft", "Backspace"];
    /// The view that `Back` left.
    Forward = "Forward", "Return to the view that Back left.", ["Alt+ArrowRight"];
    /// Show the life of the pinned block.
    ZoomToBlock = "Show the block's life", "Zoom to the pinned block, from its allocation to its free.", ["B"];
    /// Let go of the pinned block.
    Unpin = "Let go of the block", "Clear the pinned block and moment.", ["Escape"];
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
    /// Switch between light and dark.
    ToggleTheme = "Light or dark", "Switch between a light and a dark window.", ["Ctrl+D"];
    /// Copy the table of the moment.
    CopyMoment = "Copy the table", "Copy who holds memory at this moment as CSV.", ["Ctrl+Shift+C"];
    /// Write a picture of the window.
    Screenshot = "Save a picture…", "Write the window as a PNG file.", ["Ctrl+S"];
}

impl Command {
    /// Whether it needs an open recording.
    pub const fn needs_recording(self) -> bool {
        !matches!(self, Self::Open | Self::Quit | Self::Palette | Self::ToggleTheme | Self::Screenshot)
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
