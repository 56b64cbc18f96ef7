//! The colours that depend on the theme. Lanes, axes and panels are grey, so that other colours always mean data.

use eframe::egui::{self, Color32, Stroke};
use highwater_analysis::Metric;
use highwater_snapshots::Phase;

pub(super) fn contrast_id() -> egui::Id {
    egui::Id::unique("highwater: high contrast")
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Shades {
    /// Background of the bands.
    pub canvas: Color32,
    pub grid: Color32,
    /// Explanatory text.
    pub faint: Color32,
    /// Important text.
    pub strong: Color32,
    /// The peak's marker, and the outline of the pinned block.
    pub peak: Color32,
    /// Text on the peak's marker.
    pub on_peak: Color32,
    /// The line of the moment under the pointer.
    pub cursor: Color32,
    /// The marks A and B, the ruler, and the range between them.
    pub mark: Color32,
    /// The border between two steps.
    pub step_border: Color32,
    pub warning: Color32,
    /// The bar behind a number in a table.
    pub bar: Color32,
    /// The selected row of a table.
    pub chosen: Color32,
    /// Check boxes and radio buttons, without their marks.
    pub(super) switch: Color32,
    lanes: [Color32; Phase::ALL.len()],
    pub(super) lines: [Color32; 6],
}

impl Shades {
    pub(crate) const fn of(theme: egui::Theme) -> Self {
        match theme {
            egui::Theme::Dark => Self {
                canvas: Color32::from_rgb(0x12, 0x14, 0x18),
                grid: Color32::from_rgb(0x3a, 0x40, 0x4a),
                faint: Color32::from_rgb(0x9a, 0xa2, 0xad),
                strong: Color32::from_rgb(0xf2, 0xf4, 0xf7),
                peak: Color32::from_rgb(0xff, 0xff, 0xff),
                on_peak: Color32::from_rgb(0x12, 0x14, 0x18),
                cursor: Color32::from_rgb(0xc8, 0xce, 0xd6),
                mark: Color32::from_rgb(0x6f, 0xe0, 0xff),
                step_border: Color32::from_rgb(0x6b, 0x74, 0x80),
                warning: Color32::from_rgb(0xff, 0xb8, 0x4d),
                bar: Color32::from_rgb(0x3d, 0x47, 0x56),
                chosen: Color32::from_rgb(0x2c, 0x4a, 0x6e),
                switch: Color32::from_rgb(0x70, 0x78, 0x84),
                lanes: [
                    Color32::from_rgb(0x2a, 0x2f, 0x37),
                    Color32::from_rgb(0x3a, 0x46, 0x52),
                    Color32::from_rgb(0x4a, 0x44, 0x56),
                    Color32::from_rgb(0x56, 0x4c, 0x3e),
                    Color32::from_rgb(0x3e, 0x50, 0x49),
                    Color32::from_rgb(0x2f, 0x34, 0x3c),
                    Color32::from_rgb(0x33, 0x49, 0x54),
                ],
                lines: [
                    Color32::from_rgb(0xff, 0xff, 0xff),
                    Color32::from_rgb(0xff, 0xd9, 0x8a),
                    Color32::from_rgb(0xff, 0x9d, 0x5c),
                    Color32::from_rgb(0x8f, 0xc7, 0xff),
                    Color32::from_rgb(0xd0, 0xa8, 0xff),
                    Color32::from_rgb(0xff, 0x6b, 0x6b),
                ],
            },
            egui::Theme::Light => Self {
                canvas: Color32::from_rgb(0xfc, 0xfc, 0xfd),
                grid: Color32::from_rgb(0xd4, 0xd9, 0xe0),
                faint: Color32::from_rgb(0x5c, 0x66, 0x72),
                strong: Color32::from_rgb(0x10, 0x14, 0x1a),
                peak: Color32::from_rgb(0x10, 0x14, 0x1a),
                on_peak: Color32::from_rgb(0xff, 0xff, 0xff),
                cursor: Color32::from_rgb(0x3a, 0x44, 0x50),
                mark: Color32::from_rgb(0x00, 0x62, 0x9b),
                step_border: Color32::from_rgb(0x8a, 0x94, 0xa0),
                warning: Color32::from_rgb(0x9a, 0x58, 0x00),
                bar: Color32::from_rgb(0xc2, 0xcd, 0xda),
                chosen: Color32::from_rgb(0xc3, 0xda, 0xf5),
                switch: Color32::from_rgb(0x82, 0x8a, 0x96),
                lanes: [
                    Color32::from_rgb(0xec, 0xee, 0xf1),
                    Color32::from_rgb(0xd9, 0xe3, 0xee),
                    Color32::from_rgb(0xe4, 0xdd, 0xee),
                    Color32::from_rgb(0xf0, 0xe4, 0xd2),
                    Color32::from_rgb(0xd8, 0xea, 0xe1),
                    Color32::from_rgb(0xe6, 0xe9, 0xed),
                    Color32::from_rgb(0xd3, 0xe8, 0xec),
                ],
                lines: [
                    Color32::from_rgb(0x10, 0x14, 0x1a),
                    Color32::from_rgb(0xa0, 0x6a, 0x00),
                    Color32::from_rgb(0xc0, 0x48, 0x00),
                    Color32::from_rgb(0x00, 0x58, 0xb0),
                    Color32::from_rgb(0x6e, 0x2f, 0xb0),
                    Color32::from_rgb(0xc0, 0x1c, 0x1c),
                ],
            },
        }
    }

    /// The colours of the window that contains `ui`.
    pub(crate) fn in_ui(ui: &egui::Ui) -> Self {
        let shades = Self::of(if ui.visuals().dark_mode { egui::Theme::Dark } else { egui::Theme::Light });
        let has_contrast = ui.data(|data| data.get_temp(contrast_id())).unwrap_or(false);
        if has_contrast { shades.in_contrast(ui.visuals().dark_mode) } else { shades }
    }

    /// Returns these colours with high contrast: text, lines and marks differ as much as possible from the background.
    pub(super) const fn in_contrast(self, is_dark: bool) -> Self {
        let (ink, paper) = if is_dark { (Color32::WHITE, Color32::BLACK) } else { (Color32::BLACK, Color32::WHITE) };
        let middle = Color32::from_rgb(0x80, 0x80, 0x80);
        let soft = if is_dark { Color32::from_rgb(0xdc, 0xdc, 0xdc) } else { Color32::from_rgb(0x28, 0x28, 0x28) };
        Self {
            canvas: paper,
            grid: middle,
            faint: soft,
            strong: ink,
            peak: ink,
            on_peak: paper,
            cursor: ink,
            step_border: soft,
            ..self
        }
    }

    /// The colour of text that is neither important nor an explanation.
    pub(crate) fn text(&self) -> Color32 {
        self.faint.lerp_to_gamma(self.strong, 0.6)
    }

    pub(crate) const fn phase(&self, phase: Phase) -> Color32 {
        self.lanes[phase as usize]
    }

    /// The colour of a step in its lane. Alternates between even and odd steps.
    pub(crate) const fn step(&self, step: u32) -> Color32 {
        self.lanes[if step.is_multiple_of(2) { 1 } else { 5 }]
    }

    pub(crate) fn metric(&self, metric: Metric) -> Stroke {
        let row = Metric::ALL.iter().position(|other| *other == metric).unwrap_or(0);
        Stroke::new(if metric == Metric::Requested { 1.2 } else { 1.1 }, self.lines[row])
    }

    /// The stroke of a predicted total, which is dashed over the recorded one.
    pub(crate) fn predicted(&self, metric: Metric) -> Stroke {
        Stroke::new(2.0, self.metric(metric).color)
    }

    pub(crate) const fn failure(&self) -> Color32 {
        self.lines[5]
    }

    pub(crate) fn capacity(&self) -> Stroke {
        Stroke::new(1.5, self.failure())
    }
}
