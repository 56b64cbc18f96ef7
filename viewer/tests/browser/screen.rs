//! A virtual screen of Xvfb, whose pixels are in a file.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::connection::find;

/// Size of the app's window, at the top left: without a window manager.
const WINDOW: [usize; 2] = [1440, 900];
/// Bytes of a pixel.
const PIXEL: usize = 4;
/// What has not changed for so long is complete.
const STILL: Duration = Duration::from_secs(1);

/// A running X server.
pub(crate) struct Screen {
    child: Child,
    display: String,
    folder: tempfile::TempDir,
}

impl Screen {
    /// Starts a screen on a free display; `None` if Xvfb is not installed.
    pub(crate) fn start() -> Option<Self> {
        let program = find(&["Xvfb"])?;
        let folder = tempfile::tempdir().unwrap();
        // The pointer is in the middle: below the window, where it is over nothing.
        let size = format!("{}x{}x24", WINDOW[0], 3 * WINDOW[1]);
        let mut command = Command::new(program);
        command.args(["-displayfd", "1", "-screen", "0", &size, "-fbdir"]).arg(folder.path());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut number = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut number).unwrap();
        assert!(!number.trim().is_empty(), "Xvfb ended at once");
        Some(Self { child, display: format!(":{}", number.trim()), folder })
    }

    /// The value of `DISPLAY`.
    pub(crate) fn display(&self) -> &str {
        &self.display
    }

    /// Waits until the window has not changed for a while. Returns the time from `begun` until its last change.
    pub(crate) fn rested(&self, begun: Instant) -> Duration {
        let file = File::open(self.folder.path().join("Xvfb_screen0")).unwrap();
        let pixels = PIXEL * WINDOW[0] * WINDOW[1];
        // The format of xwd: a header, which begins with its size, colours of 12 bytes, and the rows from the top down.
        let field = |index: u64| {
            let mut bytes = [0; 4];
            file.read_exact_at(&mut bytes, 4 * index).unwrap();
            u64::from(u32::from_be_bytes(bytes))
        };
        let start = field(0) + 12 * field(19);
        let read = |buffer: &mut Vec<u8>| file.read_exact_at(buffer, start).unwrap();
        let (mut shown, mut now) = (vec![0; pixels], vec![0; pixels]);
        read(&mut shown);
        let mut changed = None;
        while changed.is_none_or(|changed: Instant| changed.elapsed() < STILL) {
            assert!(begun.elapsed() < super::connection::PATIENCE, "the screen never rests");
            read(&mut now);
            if now != shown {
                changed = Some(Instant::now());
                std::mem::swap(&mut now, &mut shown);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        changed.map_or(Duration::ZERO, |changed| changed - begun)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
