//! Encodes the current view as text for the fragment of a page's URL, so that the link restores the view.

use std::ops::Range;
use std::path::PathBuf;

use eframe::egui;
use form_urlencoded::{Serializer, parse};
use highwater_analysis::Metric;
use highwater_snapshots::BlockId;

use super::App;
use crate::gui::host;
use crate::gui::open_file::OpenFile;
use crate::gui::views::list::{Bottom, Side};
use crate::gui::views::timeline::Stacking;
use crate::gui::window::file_style::FileStyle;
use crate::gui::window::settings::Settings;
use crate::{Axis, ColourBy, Pin};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Link {
    /// The recording, and its view settings.
    pub(super) look: FileStyle,
    pin: Option<Pin>,
    side: Side,
    bottom: Option<Bottom>,
    search: String,
}

impl Link {
    /// The current view of `file`; `None` if a link cannot refer to the file.
    fn of(file: &OpenFile, settings: &Settings) -> Option<Self> {
        let look = FileStyle::of(&file.recording, &file.selection, settings.paint.colour_by, settings.paint.stacking)?;
        let search = file.search.text().to_owned();
        Some(Self { look, pin: file.selection.pin, side: settings.side, bottom: settings.bottom, search })
    }

    /// Encodes the link as `name=value` pairs. The event axis, stacking by age, and whatever is not set are omitted.
    fn to_text(&self) -> String {
        let FileStyle { path, device, metric, axis, colours, events, x, y } = &self.look;
        let mut text = Serializer::new(String::new());
        let mut put = |name: &str, value: String| {
            text.append_pair(name, &value);
        };
        put("recording", path.to_string_lossy().into_owned());
        put("events", events.to_string());
        put("device", device.to_string());
        put("total", metric.name().to_owned());
        if *axis == Axis::Time {
            put("across", "time".to_owned());
        }
        if let Some((by, stacking)) = colours {
            put("by", by.to_string());
            if *stacking == Stacking::Colour {
                put("stack", "colour".to_owned());
            }
        }
        let range = |[start, end]: [f64; 2]| format!("{start}..{end}");
        x.iter().for_each(|x| put("x", range(*x)));
        y.iter().for_each(|y| put("bytes", range(*y)));
        if let Some(Pin { block, moment }) = self.pin {
            put("moment", moment.to_string());
            block.into_iter().for_each(|block| put("block", block.0.to_string()));
        }
        put("side", self.side.name().to_lowercase());
        self.bottom.into_iter().for_each(|view| put("below", view.name().to_lowercase()));
        if !self.search.is_empty() {
            put("where", self.search.clone());
        }
        text.finish()
    }

    /// Parses a link; `None` if it contains no recording. Unknown names and values are ignored.
    fn from_text(text: &str) -> Option<Self> {
        let mut look = FileStyle::default();
        let (mut moment, mut block) = (None, None);
        let (mut by, mut stacking) = (None, Stacking::Age);
        let mut link =
            Self { look: FileStyle::default(), pin: None, side: Side::Moment, bottom: None, search: String::new() };
        for (name, value) in parse(text.trim_start_matches('#').as_bytes()) {
            match &*name {
                "recording" => look.path = PathBuf::from(value.into_owned()),
                "events" => look.events = value.parse().unwrap_or(0),
                "device" => look.device = value.parse().unwrap_or(0),
                "total" => {
                    let named = Metric::ALL.into_iter().find(|metric| metric.name() == value);
                    look.metric = named.unwrap_or_default();
                }
                "across" => look.axis = if value == "time" { Axis::Time } else { Axis::Event },
                "by" => by = value.parse::<ColourBy>().ok(),
                "stack" => stacking = if value == "colour" { Stacking::Colour } else { Stacking::Age },
                "x" => look.x = range_of(&value),
                "bytes" => look.y = range_of(&value),
                "moment" => moment = value.parse().ok(),
                "block" => block = value.parse().ok().map(BlockId),
                "side" => link.side = Side::named(&value).unwrap_or(Side::Moment),
                "below" => link.bottom = Bottom::named(&value),
                "where" => link.search = value.into_owned(),
                _ => {}
            }
        }
        look.colours = by.map(|by| (by, stacking));
        link.pin = moment.map(|moment| Pin { block, moment });
        link.look = look;
        (!link.look.path.as_os_str().is_empty()).then_some(link)
    }

    /// Restores the view in `file`, as far as its recording permits.
    fn apply(&self, ctx: &egui::Context, file: &mut OpenFile, settings: &mut Settings) {
        self.look.apply(&file.recording, &mut file.selection);
        if let Some(colours) = self.look.colours {
            (settings.paint.colour_by, settings.paint.stacking) = colours;
        }
        (settings.side, settings.bottom) = (self.side, self.bottom);
        let trace = &file.recording.trace;
        let is_there = |pin: &Pin| {
            let has_block = pin.block.is_none_or(|block| block.index().is_some_and(|row| row < trace.blocks.len()));
            pin.moment <= trace.events.len() && has_block
        };
        // A link does not say which part of a long recording it shows.
        let is_whole = file.recording.run.is_none();
        file.selection.pin = self.pin.filter(|pin| is_whole && self.look.events == trace.events.len() && is_there(pin));
        file.search_for(ctx, &self.search);
    }
}

fn range_of(text: &str) -> Option<[f64; 2]> {
    let (start, end) = text.split_once("..")?;
    let Range { start, end } = start.parse().ok()?..end.parse().ok()?;
    Some([start, end])
}

impl App {
    /// Restores the view of the link fragment `text` as soon as its recording is open.
    pub(super) fn follow_link(&mut self, ctx: &egui::Context, text: &str) {
        self.link = Link::from_text(text);
        self.linked = self.link.as_ref().map(|link| link.look.path.clone());
        let Some(path) = self.linked.clone() else { return };
        if let Some(row) = self.row_of(&path) {
            self.bring_to_front(row);
            self.apply_link(ctx, row);
        } else if self.fleet().is_some_and(|fleet| fleet.ranks.iter().any(|rank| rank.path == path)) {
            self.open_served(&path);
        }
    }

    /// Applies the link that waits for the file in `row`.
    pub(super) fn apply_link(&mut self, ctx: &egui::Context, row: usize) {
        let is_of = |link: &mut Link| self.files[row].recording.path.as_ref() == Some(&link.look.path);
        if let Some(link) = self.link.take_if(is_of) {
            link.apply(ctx, &mut self.files[row], &mut self.settings);
        }
    }

    /// Updates the page's URL to the current view, unless the view is still moving.
    pub(super) fn show_link(&mut self) {
        let file = self.current().filter(|file| !file.timeline.is_moving());
        let Some(text) = file.and_then(|file| Link::of(file, &self.settings)).map(|link| link.to_text()) else {
            return;
        };
        if self.shown_link != text {
            host::show_link(&text);
            self.shown_link = text;
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_analysis::GroupKey;
    use highwater_notation::trace_from_text;

    use super::*;
    use crate::session::Recording;

    const TEXT: &str = "alloc x 5 device=1\nalloc a 100 t=10us\nalloc y 50 device=1\nalloc b 300\nfree y device=1";

    fn app() -> App {
        let mut app = App::default();
        let recording = Recording::new("a b.snap", Some(PathBuf::from("a b.snap")), trace_from_text(TEXT).unwrap());
        app.show(&egui::Context::default(), recording);
        app
    }

    #[test]
    fn a_link_shows_what_was_looked_at() {
        let ctx = egui::Context::default();
        let mut left = app();
        let file = &mut left.files[0];
        file.selection.set_device(&file.recording, 1);
        file.selection.set_metric(&file.recording, Metric::Allocated);
        file.selection.set_axis(&file.recording, Axis::Time);
        file.selection.zoom(&file.recording, [0.5, 0.5], [2000.0, 10.0]);
        file.selection.pin = Some(Pin { block: Some(BlockId(2)), moment: 3 });
        file.search_for(&ctx, "size>=1KiB & more");
        (left.settings.paint.colour_by, left.settings.paint.stacking) =
            (ColourBy(GroupKey::ScopeTo(2)), Stacking::Colour);
        (left.settings.side, left.settings.bottom) = (Side::Block, Some(Bottom::WhatIf));
        let text = Link::of(&left.files[0], &left.settings).unwrap().to_text();
        assert!(
            text.starts_with("recording=a+b.snap&events=6&device=1&total=allocated&across=time&by=scope%3A2"),
            "{text}"
        );
        let mut found = App::default();
        found.follow_link(&ctx, &format!("#{text}"));
        let opened = app().files.remove(0);
        found.files.push(opened);
        found.apply_link(&ctx, 0);
        assert_eq!(found.files[0].selection, left.files[0].selection);
        assert_eq!(found.files[0].search.text(), "size>=1KiB & more");
        assert_eq!((found.settings.side, found.settings.bottom), (Side::Block, Some(Bottom::WhatIf)));
        assert_eq!(
            (found.settings.paint.colour_by, found.settings.paint.stacking),
            (ColourBy(GroupKey::ScopeTo(2)), Stacking::Colour)
        );
        assert!(found.link.is_none(), "it is applied once");
    }

    #[test]
    fn what_a_link_says_wrongly_is_passed_over() {
        assert_eq!(Link::from_text(""), None);
        assert_eq!(Link::from_text("#device=1&total=allocated"), None);
        let text = "recording=a+b.snap&events=6&device=x&total=all&by=scope:0&x=1..&bytes=..&moment=9&block=70&side=up&below=0&new=1";
        let link = Link::from_text(text).unwrap();
        assert_eq!(
            (link.look.device, link.look.metric, link.look.colours, link.look.x),
            (0, Metric::Requested, None, None)
        );
        let (ctx, mut app) = (egui::Context::default(), app());
        app.follow_link(&ctx, text);
        assert_eq!(app.files[0].selection.pin, None, "there is no such block");
        app.follow_link(&ctx, "recording=a+b.snap&events=4&moment=2");
        assert_eq!(app.files[0].selection.pin, None, "the recording has changed");
        app.follow_link(&ctx, "recording=a+b.snap&events=6&moment=2");
        assert_eq!(app.files[0].selection.pin, Some(Pin { block: None, moment: 2 }));
    }
}
