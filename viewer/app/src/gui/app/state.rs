//! The app's state, for programs that drive it, as the page in a browser does in tests.

use highwater_analysis::Metric;
use serde_json::{Value, json};

use super::App;
use crate::gui::widgets::query::Computed as _;

impl App {
    /// The app's state: what is open, what went wrong, and of the recording in front its device, total, visible range
    /// (`x`), peak, and the bytes at the moment under the pointer, pinned, or else at the peak. It is busy while
    /// anything is being read, computed or drawn; ranks are those of the open folder, with their peaks.
    pub fn state(&self) -> Value {
        let front = self.current().map(|file| {
            let index = &file.recording.devices[file.selection.device];
            let peak = index.peak(&file.recording.trace, file.selection.metric);
            let x = &file.selection.view().x;
            json!({
                "name": file.recording.name,
                "events": file.recording.trace.events.len(),
                "device": index.device.0,
                "metric": file.selection.metric,
                "x": [x.start, x.end],
                "peak_bytes": peak.bytes,
                "peak_event": peak.event.map(|event| event.0),
                "moment_bytes": file.pointed_moment().bytes,
                "has_picture": file.timeline.picture().is_some(),
                "is_growing": file.following.is_some(),
            })
        });
        let is_front_busy = self.comparison().is_none() && self.current().is_some_and(|file| file.is_busy());
        let is_comparing_busy = self.comparison().is_some_and(|view| view.is_busy());
        let failures = self.failures.iter().map(|(path, why)| (path.display().to_string(), why));
        let ranks = self.fleet().into_iter().flat_map(|fleet| &fleet.ranks);
        json!({
            "is_busy": self.is_loading() || is_front_busy || is_comparing_busy,
            "recordings": self.files.iter().map(|file| &file.recording.name).collect::<Vec<_>>(),
            "failures": failures.collect::<Vec<_>>(),
            "messages": self.messages,
            "is_comparing": self.comparison().is_some(),
            "front": front,
            "ranks": ranks.map(|rank| (rank.label(), rank.peak(Metric::Allocated).bytes)).collect::<Vec<_>>(),
        })
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
