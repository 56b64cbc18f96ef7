//! Every colour and size of the app, for dark and light windows.
//!
//! Data colours are the same in both and distinguishable by colour-blind people: the nine categories take Okabe and
//! Ito's palette and two of Paul Tol's; longer lists take a ramp from dark blue over green to yellow, in which
//! neighbours also differ in lightness. Lanes, axes and panels stay grey, so that colour always means data.

use eframe::egui::{self, Color32, Stroke};
use highwater_analysis::Metric;
use highwater_analysis::diff::Change;
use highwater_analysis::tree::LineRole;
use highwater_snapshots::{Category, Phase};

/// Height of the step lane and of the phase lane, in points.
pub(crate) const LANE_HEIGHT: f32 = 18.0;
/// Height of the overview, in points.
pub(crate) const OVERVIEW_HEIGHT: f32 = 58.0;
/// Width of the byte axis, in points: room for `1023.75 MiB`.
pub(crate) const AXIS_WIDTH: f32 = 72.0;
/// Minimum initial width of the panel at the side, in points.
pub(crate) const PANEL_WIDTH: f32 = 360.0;
/// The part of a wide window that the panel at the side takes at first, for module paths.
pub(crate) const PANEL_PART: f32 = 0.28;
/// Minimum distance between two labelled ticks of the time or event axis, in points.
pub(crate) const X_TICK_DISTANCE: f64 = 110.0;
/// Half the width of a label of the time or event axis, in points.
pub(crate) const X_LABEL_HALF: f64 = 26.0;
/// Minimum distance between two labelled ticks of the byte axis, in points.
pub(crate) const Y_TICK_DISTANCE: f64 = 38.0;
/// Width of a figure beside the bar of a cell.
pub const FIGURE_WIDTH: f32 = 76.0;
/// Width of a column of differences without bars, in points.
pub(crate) const DIFFERENCE_WIDTH: f32 = 96.0;
/// Height of a row in tables, in points.
pub(crate) const ROW_HEIGHT: f32 = 19.0;
/// Height of the name of the horizontal axis below the ticks, in points.
pub(crate) const AXIS_NAME_HEIGHT: f32 = 8.0;
/// Minimum height of the timeline's plot, in points.
pub(crate) const MIN_PLOT: f32 = 60.0;
/// Minimum height of the timeline's plot with its axis and the overview below, in points.
pub(crate) const MIN_WITH_OVERVIEW: f32 = 190.0;
/// Minimum height of the timeline with the totals above it, in points.
pub(crate) const MIN_WITH_TOTALS: f32 = 240.0;
/// Width of what is left of the folded panel at the side, in points.
pub(crate) const FOLDED_SIDE: f32 = 22.0;
/// Below this width, in points, the views at the side are below the timeline.
pub(crate) const UPRIGHT_WINDOW: f32 = 600.0;
/// Width of the search box, in points.
pub(crate) const SEARCH_WIDTH: f32 = 260.0;
/// Its width where there is little room.
pub(crate) const MIN_SEARCH_WIDTH: f32 = 110.0;
/// Width of the number of matches and the buttons behind the search box, in points.
pub(crate) const OUTCOME_WIDTH: f32 = 210.0;
/// Width of the list of completions, in points.
pub(crate) const COMPLETIONS_WIDTH: f32 = 420.0;
/// Initial height of the difference between two recordings, in points.
pub(crate) const DIFFERENCE_HEIGHT: f32 = 300.0;
/// Minimum height of two timelines beside the view below them, in points.
pub(crate) const MIN_PAIR: f32 = 345.0;
/// Minimum height of the difference, in points: headline, tabs and a few rows.
pub(crate) const MIN_DIFFERENCE: f32 = 150.0;
/// Minimum height of one of two timelines with a legend, in points.
pub(crate) const LEGEND_FROM: f32 = 205.0;
/// Initial height of the view below the timeline, in points.
pub(crate) const BOTTOM_HEIGHT: f32 = 280.0;
/// Initial height of the explanation below the timeline, in points.
pub(crate) const EXPLAIN_HEIGHT: f32 = 420.0;
/// Minimum width at which the explanation has two columns, in points.
pub(crate) const EXPLAIN_WIDE: f32 = 1000.0;
/// Minimum height of the explanation in two columns, in points; in less room it scrolls.
pub(crate) const EXPLAIN_MIN: f32 = 560.0;
/// Initial height of the what-if view below the timeline, in points.
pub(crate) const WHATIF_HEIGHT: f32 = 440.0;
/// Minimum width with the form beside the results, in points.
pub(crate) const WHATIF_WIDE: f32 = 860.0;
/// Minimum height of the what-if view in two columns, in points; in less room it scrolls.
pub(crate) const WHATIF_MIN: f32 = 360.0;
/// Width of the form, in points.
pub(crate) const FORM_WIDTHS: [f32; 2] = [350.0, 390.0];
/// Width of the names of the form's fields, in points.
pub(crate) const FORM_LABELS: f32 = 112.0;
/// Minimum height of the predicted curve, in points.
pub(crate) const CURVE_MIN: f32 = 150.0;
/// Height of the bar of the peak's parts, in points.
pub(crate) const PIECES_HEIGHT: f32 = 24.0;
/// Minimum height of the timeline beside the view below it, in points.
pub(crate) const MIN_TIMELINE: f32 = 215.0;
/// Width of a window below which the view below the timeline takes the full width, in points.
pub(crate) const NARROW_WINDOW: f32 = 1240.0;
/// Width of a table's scroll bar, in points.
pub(crate) const SCROLL_WIDTH: f32 = 11.0;
/// Minimum width of a table's column that takes the remaining width, in points.
pub(crate) const MIN_OPEN_COLUMN: f32 = 90.0;
/// Its maximum width beside a column with bars.
pub(crate) const MAX_OPEN_COLUMN: f32 = 420.0;
/// Minimum width of the row names of statistics, in points.
pub(crate) const MIN_FIRST_COLUMN: f32 = 140.0;
/// Height of a row of the address map, in points.
pub(crate) const MAP_ROW_HEIGHT: f32 = 15.0;
/// Free space below a row of the address map, in points.
pub(crate) const MAP_ROW_GAP: f32 = 4.0;
/// Minimum size in pixels at which a piece of memory is drawn distinctly from its neighbours.
pub(crate) const TALL_BAND: usize = 5;
/// Minimum height of the address lanes, in points.
pub(crate) const LANES_MIN: f32 = 90.0;
/// Maximum height of the address lanes, in points.
pub(crate) const LANES_MAX: f32 = 260.0;
/// Minimum height at which the analysis of a failed request and the map share a view, in points.
pub(crate) const FAILURE_MIN: f32 = 170.0;
/// Minimum height of the timeline above the analysis of a failed request, in points.
pub(crate) const TIMELINE_ABOVE_FAILURE: f32 = 165.0;
/// Minimum height at which the sums of the segments are above the analysis of a failed request, in points.
pub(crate) const FAILURE_WITH_SUMS: f32 = 360.0;
/// Minimum height of the map below the analysis of a failed request, in points.
pub(crate) const MAP_BELOW_FAILURE: f32 = 124.0;
/// Minimum width at which that analysis has three columns, in points.
pub(crate) const OOM_PANEL_WIDE: f32 = 1100.0;
/// Width of the table of segments beside the map, in points.
pub(crate) const SEGMENTS_TABLE_WIDTH: f32 = 750.0;
/// Minimum heights of the moment and of the statistics at the side, in points; in less room they scroll.
pub(crate) const MOMENT_MIN: f32 = 300.0;
/// Height of the moment below which its head is one line, in points.
pub(crate) const LOW_MOMENT: f32 = 230.0;
/// See [`MOMENT_MIN`].
pub(crate) const STATISTICS_MIN: f32 = 150.0;
/// Minimum height of the segments view, in points; in less room it scrolls.
pub(crate) const SEGMENTS_MIN: f32 = 320.0;
/// Width of the segments view below which its headline is smaller and its tools are in a menu, in points.
pub(crate) const SEGMENTS_WIDE: f32 = 1000.0;
/// Minimum height of the address map below lanes, in points.
pub(crate) const MAP_MIN: f32 = 90.0;
/// Height of a chart of bars with its labels, in points.
pub(crate) const CHART_HEIGHT: f32 = 130.0;
/// Minimum height at which statistics have a chart above their table, in points.
pub(crate) const MIN_WITH_CHART: f32 = 270.0;
/// Largest width of a bar of a chart, in points.
pub(crate) const WIDEST_BAR: f32 = 110.0;
/// Height of the hints below the table of the moment, in points.
pub(crate) const HINTS_HEIGHT: f32 = 150.0;
/// Height of a window that menus leave free, in points.
pub(crate) const MENU_MARGIN: f32 = 60.0;
/// Side of a legend's colour square, in points.
pub(crate) const SWATCH: f32 = 11.0;
/// Largest height of the details of the selected node in the panel of the moment, in points.
pub(crate) const DETAILS_HEIGHT: f32 = 260.0;
/// Height of the heading of a treemap's tile, in points.
pub(crate) const TILE_HEADER: f32 = 16.0;
/// Minimum area of a treemap's tile, in square points: smaller ones are merged.
pub(crate) const MIN_TILE: f64 = 40.0;
/// Minimum width of a flame graph's bar, in points: narrower ones are merged.
pub(crate) const MIN_BAR: f32 = 3.0;
/// Height of a flame graph's row, in points.
pub(crate) const FLAME_ROW: f32 = 18.0;
/// Minimum width of a label, in points; in less room it is left out.
pub(crate) const MIN_LABEL: f32 = 22.0;
/// Maximum number of entries of a legend; smaller ones share one.
pub(crate) const MAX_ENTRIES: usize = 8;
/// Distance of notices from the lower edge, in points: above the status bar.
pub(crate) const NOTICES_ABOVE: f32 = 40.0;
/// Width of the list of keys, in points.
pub(crate) const HELP_WIDTH: f32 = 760.0;
/// Largest width of a tooltip's wrapped text, in points.
pub(crate) const TOOLTIP_WIDTH: f32 = 460.0;
/// The same over a narrow timeline.
pub(crate) const MIN_TOOLTIP_WIDTH: f32 = 220.0;

/// Okabe and Ito's colours, and two of Tol's, in order of assignment.
const DISTINCT: [Color32; 9] = [
    Color32::from_rgb(0x00, 0x72, 0xb2),
    Color32::from_rgb(0xe6, 0x9f, 0x00),
    Color32::from_rgb(0x00, 0x9e, 0x73),
    Color32::from_rgb(0xcc, 0x79, 0xa7),
    Color32::from_rgb(0x56, 0xb4, 0xe9),
    Color32::from_rgb(0xd5, 0x5e, 0x00),
    Color32::from_rgb(0xf0, 0xe4, 0x42),
    Color32::from_rgb(0x88, 0x22, 0x55),
    Color32::from_rgb(0x99, 0x99, 0x33),
];

/// The colour of unnamed values, and of values that share a legend entry.
pub(crate) const NEUTRAL: Color32 = Color32::from_rgb(0x8c, 0x92, 0x9a);

/// The fixed colour of a category.
pub const fn category(category: Category) -> Color32 {
    match category {
        Category::Parameter => DISTINCT[0],
        Category::Buffer => DISTINCT[4],
        Category::Gradient => DISTINCT[1],
        Category::Activation => DISTINCT[2],
        Category::OptimizerState => DISTINCT[3],
        Category::Input => DISTINCT[6],
        Category::Temporary => DISTINCT[5],
        Category::Workspace => DISTINCT[7],
        Category::Unknown => NEUTRAL,
    }
}

/// The colour of entry `index` in an order: the first have the strongest contrast.
pub fn entry(index: usize) -> Color32 {
    DISTINCT[index % DISTINCT.len()]
}

/// The colour derived from a name: equal names have equal colours everywhere; different ones
/// may share one of the nine.
pub fn named(name: &str) -> Color32 {
    // FNV-1a, which, unlike the standard library's hashes, is stable.
    let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = name.bytes().fold(0x811c_9dc5, mix);
    DISTINCT[((hash >> 8) % DISTINCT.len() as u32) as usize]
}

/// The colour of a stack frame: the program's frames stand out from internal ones.
pub const fn role(role: LineRole) -> Color32 {
    match role {
        LineRole::Program => DISTINCT[4],
        LineRole::Framework => NEUTRAL,
        LineRole::Allocator => Color32::from_rgb(0x55, 0x5c, 0x66),
    }
}

/// The colour of a group's state in a comparison: violet for less, red for more, dark for groups on one side only, grey
/// for no change. None is the colour of a category, and colour-blind people can distinguish them.
pub const fn change(change: Change) -> Color32 {
    match change {
        Change::OnlyInA => Color32::from_rgb(0x4b, 0x2f, 0xd0),
        Change::Shrunk => Color32::from_rgb(0xd8, 0xd0, 0xff),
        Change::Same => NEUTRAL,
        Change::Grown => Color32::from_rgb(0xff, 0xb3, 0xa0),
        Change::OnlyInB => Color32::from_rgb(0xc8, 0x10, 0x2e),
    }
}

/// The text colour on `colour`: black or white, whichever has more contrast.
pub(crate) fn ink(colour: Color32) -> Color32 {
    // Relative luminance as defined by WCAG; both contrasts are equal at 0.179.
    let linear = |value: u8| (f32::from(value) / 255.0).powf(2.2);
    let light = 0.2126 * linear(colour.r()) + 0.7152 * linear(colour.g()) + 0.0722 * linear(colour.b());
    if light > 0.179 { Color32::BLACK } else { Color32::WHITE }
}

/// `colour` for block `row` if its band is tall enough: neighbours in a stack differ slightly in
/// lightness. Scattered, so that blocks allocated at regular distances do not all look alike.
pub fn instance(colour: Color32, row: usize) -> Color32 {
    const LIGHTNESS: [f32; 4] = [1.0, 0.88, 0.96, 0.92];
    let scattered = (row as u32).wrapping_mul(0x9e37_79b9) >> 30;
    scale(colour, LIGHTNESS[scattered as usize])
}

/// `colour` for every second layer of a model, so that neighbours can be distinguished.
pub fn second_layer(colour: Color32) -> Color32 {
    scale(colour, 0.84)
}

/// `colour` at the edge between two bands.
pub fn edge(colour: Color32) -> Color32 {
    scale(colour, 0.72)
}

/// `colour` for a block that does not match the filter.
pub fn left_out(colour: Color32) -> Color32 {
    let grey = (u16::from(colour.r()) + u16::from(colour.g()) + u16::from(colour.b())) / 3;
    let grey = (grey / 4 + 96) as u8;
    Color32::from_rgba_unmultiplied(grey, grey, grey, 90)
}

fn scale(colour: Color32, factor: f32) -> Color32 {
    let channel = |value: u8| (f32::from(value) * factor).round() as u8;
    Color32::from_rgb(channel(colour.r()), channel(colour.g()), channel(colour.b()))
}

/// The colours that depend on the theme: light or dark.
#[derive(Clone, Copy, Debug)]
pub struct Shades {
    /// Background of the bands.
    pub canvas: Color32,
    /// Lines of the grid.
    pub grid: Color32,
    /// Explanatory text.
    pub faint: Color32,
    /// Important text.
    pub strong: Color32,
    /// The peak's marker.
    pub peak: Color32,
    /// Text on the peak's marker.
    pub on_peak: Color32,
    /// The pinned block's outline.
    pub pinned: Color32,
    /// The line of the moment under the pointer.
    pub cursor: Color32,
    /// The marks A and B, the ruler, and the range between them.
    pub mark: Color32,
    /// The border between two steps.
    pub step_border: Color32,
    /// Warnings.
    pub warning: Color32,
    /// The bar behind a table's row.
    pub bar: Color32,
    /// The selected row of a table.
    pub chosen: Color32,
    /// The visible part in the overview.
    pub window: Color32,
    /// The overview's curve.
    pub curve: Color32,
    lanes: [Color32; Phase::ALL.len()],
    lines: [Color32; 6],
}

impl Shades {
    /// The colours of `theme`.
    pub const fn of(theme: egui::Theme) -> Self {
        match theme {
            egui::Theme::Dark => Self {
                canvas: Color32::from_rgb(0x12, 0x14, 0x18),
                grid: Color32::from_rgb(0x3a, 0x40, 0x4a),
                faint: Color32::from_rgb(0x9a, 0xa2, 0xad),
                strong: Color32::from_rgb(0xf2, 0xf4, 0xf7),
                peak: Color32::from_rgb(0xff, 0xff, 0xff),
                on_peak: Color32::from_rgb(0x12, 0x14, 0x18),
                pinned: Color32::from_rgb(0xff, 0xff, 0xff),
                cursor: Color32::from_rgb(0xc8, 0xce, 0xd6),
                mark: Color32::from_rgb(0x6f, 0xe0, 0xff),
                step_border: Color32::from_rgb(0x6b, 0x74, 0x80),
                warning: Color32::from_rgb(0xff, 0xb8, 0x4d),
                bar: Color32::from_rgb(0x3d, 0x47, 0x56),
                chosen: Color32::from_rgb(0x2c, 0x4a, 0x6e),
                window: Color32::from_rgba_unmultiplied_const(0xff, 0xff, 0xff, 34),
                curve: Color32::from_rgb(0x9a, 0xa2, 0xad),
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
                pinned: Color32::from_rgb(0x00, 0x00, 0x00),
                cursor: Color32::from_rgb(0x3a, 0x44, 0x50),
                mark: Color32::from_rgb(0x00, 0x62, 0x9b),
                step_border: Color32::from_rgb(0x8a, 0x94, 0xa0),
                warning: Color32::from_rgb(0x9a, 0x58, 0x00),
                bar: Color32::from_rgb(0xc2, 0xcd, 0xda),
                chosen: Color32::from_rgb(0xc3, 0xda, 0xf5),
                window: Color32::from_rgba_unmultiplied_const(0x10, 0x20, 0x40, 30),
                curve: Color32::from_rgb(0x5c, 0x66, 0x72),
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

    /// The same with high contrast: text, lines and marks differ as much as possible from the background.
    const fn in_contrast(self, is_dark: bool) -> Self {
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
            pinned: ink,
            cursor: ink,
            step_border: soft,
            curve: ink,
            ..self
        }
    }

    /// The colour of a phase in its lane.
    pub const fn phase(&self, phase: Phase) -> Color32 {
        self.lanes[phase as usize]
    }

    /// The colour of a step in its lane: even and odd ones differ.
    pub const fn step(&self, step: u32) -> Color32 {
        self.lanes[if step.is_multiple_of(2) { 1 } else { 5 }]
    }

    /// The colour of a total's line.
    pub fn metric(&self, metric: Metric) -> Stroke {
        let row = Metric::ALL.iter().position(|other| *other == metric).unwrap_or(0);
        Stroke::new(if metric == Metric::Requested { 1.2 } else { 1.1 }, self.lines[row])
    }

    /// The colour of a predicted total's line, which is dashed over the measured one.
    pub fn predicted(&self, metric: Metric) -> Stroke {
        Stroke::new(2.0, self.metric(metric).color)
    }

    /// The colour of the capacity's line.
    pub fn capacity(&self) -> Stroke {
        Stroke::new(1.5, self.lines[5])
    }
}

/// The id under which the window stores whether it is in high contrast.
fn contrast_id() -> egui::Id {
    egui::Id::unique("highwater: high contrast")
}

/// Sets fonts, spacing and widget colours for both themes, in high contrast or not.
pub fn install(ctx: &egui::Context, has_contrast: bool) {
    ctx.data_mut(|data| data.insert_temp(contrast_id(), has_contrast));
    for theme in [egui::Theme::Dark, egui::Theme::Light] {
        let is_dark = theme == egui::Theme::Dark;
        let shades = Shades::of(theme);
        let shades = if has_contrast { shades.in_contrast(is_dark) } else { shades };
        ctx.style_mut_of(theme, |style| {
            style.visuals = if is_dark { egui::Visuals::dark() } else { egui::Visuals::light() };
            style.spacing.item_spacing = egui::vec2(8.0, 4.0);
            style.spacing.button_padding = egui::vec2(7.0, 3.0);
            style.spacing.scroll = egui::style::ScrollStyle::solid();
            style.interaction.selectable_labels = true;
            style.interaction.tooltip_delay = 0.35;
            style.visuals.extreme_bg_color = shades.canvas;
            style.visuals.warn_fg_color = shades.warning;
            style.visuals.weak_text_color = Some(shades.faint);
            style.visuals.hyperlink_color = shades.lines[3];
            if has_contrast {
                style.visuals.panel_fill = shades.canvas;
                style.visuals.window_fill = shades.canvas;
                style.visuals.override_text_color = Some(shades.strong);
                for widget in [&mut style.visuals.widgets.inactive, &mut style.visuals.widgets.noninteractive] {
                    widget.bg_stroke = Stroke::new(1.0, shades.faint);
                }
            }
        });
    }
}

/// The placeholder of an empty field: an example, fainter than typed text and in italics.
pub fn placeholder(ui: &egui::Ui, text: &str) -> egui::RichText {
    egui::RichText::new(text).italics().color(Shades::in_ui(ui).faint.gamma_multiply(0.75))
}

/// A square of the legend's colour.
pub(crate) fn swatch_ui(ui: &mut egui::Ui, colour: Color32) {
    let (rect, _) = ui.allocate_exact_size(egui::vec2(SWATCH, SWATCH), egui::Sense::hover());
    ui.painter().rect_filled(rect, 2.0, colour);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_a_comparison_have_colours_of_their_own() {
        let changed = Change::ALL.into_iter().filter(|state| *state != Change::Same).map(change);
        for colour in changed {
            assert!(Category::ALL.iter().all(|kind| distance(category(*kind), colour) > 50), "{colour:?}");
        }
    }

    /// The largest difference of a channel.
    fn distance(one: Color32, other: Color32) -> u8 {
        one.to_array().iter().zip(other.to_array()).map(|(one, other)| one.abs_diff(other)).max().unwrap_or(0)
    }
}
