//! The app's state, for programs that drive it, as the page in a browser does in tests.

use highwater_analysis::Metric;
use serde::Serialize;

use super::App;
use crate::gui::widgets::query::Computed as _;

/// The app's state.
#[derive(Debug, Serialize)]
pub struct AppState {
    /// Whether anything is being read, computed or drawn.
    pub is_busy: bool,
    /// The open recordings, in the order of their tabs.
    pub recordings: Vec<String>,
    /// Files that could not be opened, each with the reason.
    pub failures: Vec<(String, String)>,
    /// Messages to the user.
    pub messages: Vec<String>,
    /// Whether two recordings are being compared.
    pub is_comparing: bool,
    /// The recording in front.
    pub front: Option<FrontState>,
    /// The ranks of the open folder, each with its largest allocated total.
    pub ranks: Vec<(String, u64)>,
}

/// The state of the recording in front.
#[derive(Debug, Serialize)]
pub struct FrontState {
    /// Its name.
    pub name: String,
    /// Its number of events.
    pub events: usize,
    /// The ordinal of the device.
    pub device: u16,
    /// The total.
    pub metric: Metric,
    /// The visible range of the axis.
    pub x: [f64; 2],
    /// Bytes at the peak of the total.
    pub peak_bytes: u64,
    /// The event that leads to the peak.
    pub peak_event: Option<u32>,
    /// Bytes at the moment: under the pointer, pinned, or the peak.
    pub moment_bytes: u64,
    /// Whether the timeline has its picture.
    pub has_picture: bool,
    /// Whether it is still being written.
    pub is_growing: bool,
}

impl App {
    /// Returns the app's state.
    pub fn state(&self) -> AppState {
        let front = self.current().map(|file| {
            let index = &file.recording.devices[file.selection.device];
            let peak = index.peak(&file.recording.trace, file.selection.metric);
            let x = &file.selection.view().x;
            FrontState {
                name: file.recording.name.clone(),
                events: file.recording.trace.events.len(),
                device: index.device.0,
                metric: file.selection.metric,
                x: [x.start, x.end],
                peak_bytes: peak.bytes,
                peak_event: peak.event.map(|event| event.0),
                moment_bytes: file.pointed_moment().bytes,
                has_picture: file.timeline.picture().is_some(),
                is_growing: file.following.is_some(),
            }
        });
        let is_front_busy = self.comparison().is_none() && self.current().is_some_and(|file| file.is_busy());
        let is_comparing_busy = self.comparison().is_some_and(|view| view.is_busy());
        AppState {
            is_busy: self.is_loading() || is_front_busy || is_comparing_busy,
            recordings: self.files.iter().map(|file| file.recording.name.clone()).collect(),
            failures: self.failures.iter().map(|(path, why)| (path.display().to_string(), why.clone())).collect(),
            messages: self.messages.clone(),
            is_comparing: self.comparison().is_some(),
            front,
            ranks: self.fleet().map_or_else(Vec::new, |fleet| {
                fleet.ranks.iter().map(|rank| (rank.label(), rank.peak(Metric::Allocated).bytes)).collect()
            }),
        }
    }

    /// The table of a view as CSV, by the view's name.
    ///
    /// # Errors
    ///
    /// Fails with a message if nothing is open, there is no such view, or it is not complete: it must be shown.
    pub fn table(&mut self, view: &str) -> Result<String, String> {
        let write = self.current_mut().ok_or("nothing is open")?.table(view)?;
        let mut csv = Vec::new();
        write(&mut csv).map_err(|why| why.to_string())?;
        String::from_utf8(csv).map_err(|why| why.to_string())
    }
}
