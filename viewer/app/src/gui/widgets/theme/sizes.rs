//! The sizes of the app's layout, in points unless noted otherwise.

pub(crate) const LANE_HEIGHT: f32 = 18.0;
pub(crate) const OVERVIEW_HEIGHT: f32 = 56.0;
/// Width of the byte axis: room for `1023.75 MiB`.
pub(crate) const AXIS_WIDTH: f32 = 72.0;
/// Space beside the end of the time or event axis.
pub(crate) const END_MARGIN: f32 = 12.0;
/// Minimum initial width of the panel at the side.
pub(crate) const PANEL_WIDTH: f32 = 360.0;
/// Initial share of a wide window's width for the side panel, sufficient for module paths.
pub(crate) const PANEL_PART: f32 = 0.28;
/// Minimum distance between two labelled ticks of the time or event axis.
pub(crate) const X_TICK_DISTANCE: f64 = 110.0;
/// Half the width of a label of the time or event axis.
pub(crate) const X_LABEL_HALF: f64 = 26.0;
/// Minimum distance between two labelled ticks of the byte axis.
pub(crate) const Y_TICK_DISTANCE: f64 = 38.0;
/// Width of a share next to the bar of a cell.
pub(crate) const SHARE_WIDTH: f32 = 42.0;
/// Width of a figure next to the bar of a cell.
pub(crate) const FIGURE_WIDTH: f32 = 76.0;
/// Width of a column of differences without bars.
pub(crate) const DIFFERENCE_WIDTH: f32 = 96.0;
pub(crate) const ANSWER_SIZE: f32 = 20.0;
pub(crate) const ROW_HEIGHT: f32 = 20.0;
/// Height of the name of the horizontal axis below the ticks.
pub(crate) const AXIS_NAME_HEIGHT: f32 = 8.0;
/// Minimum height of the timeline's plot.
pub(crate) const MIN_PLOT: f32 = 60.0;
/// Minimum height of the timeline's plot with its axis and the overview below.
pub(crate) const MIN_WITH_OVERVIEW: f32 = 190.0;
/// Minimum height of the timeline with the totals above it.
pub(crate) const MIN_WITH_TOTALS: f32 = 240.0;
pub(crate) const FOLDED_SIDE: f32 = 22.0;
/// Width of a window below which the side panel moves below the timeline.
pub(crate) const UPRIGHT_WINDOW: f32 = 600.0;
pub(crate) const SEARCH_WIDTH: f32 = 260.0;
pub(crate) const MIN_SEARCH_WIDTH: f32 = 110.0;
/// Width of the number of matches and the buttons next to the search box.
pub(crate) const OUTCOME_WIDTH: f32 = 210.0;
pub(crate) const COMPLETIONS_WIDTH: f32 = 420.0;
/// Initial height of the difference between two recordings.
pub(crate) const DIFFERENCE_HEIGHT: f32 = 248.0;
/// Minimum height of two timelines next to the view below them.
pub(crate) const MIN_PAIR: f32 = 345.0;
/// Minimum height of the difference: tabs, a title and a few rows.
pub(crate) const MIN_DIFFERENCE: f32 = 144.0;
/// Height of one of two timelines below which the legend is beside the name instead of below it.
pub(crate) const LEGEND_FROM: f32 = 205.0;
/// Initial height of the view below the timeline.
pub(crate) const BOTTOM_HEIGHT: f32 = 280.0;
/// Initial height of Explain, What-if and Plan below the timeline.
pub(crate) const ANSWERS_HEIGHT: f32 = 480.0;
/// Minimum width at which the explanation has two columns.
pub(crate) const EXPLAIN_WIDE: f32 = 1000.0;
/// Minimum width of the What-if view with the form next to the results.
pub(crate) const WHATIF_WIDE: f32 = 860.0;
/// Minimum height of the What-if view in two columns; with less space it scrolls.
pub(crate) const WHATIF_MIN: f32 = 360.0;
/// Minimum and maximum width of the What-if form.
pub(crate) const FORM_WIDTHS: [f32; 2] = [350.0, 390.0];
/// Width of the names of the form's fields.
pub(crate) const FORM_LABELS: f32 = 112.0;
/// Minimum height of the predicted curve.
pub(crate) const CURVE_MIN: f32 = 150.0;
/// Height of the bar of the peak's parts.
pub(crate) const PIECES_HEIGHT: f32 = 24.0;
/// Minimum height of the timeline beside the view below it.
pub(crate) const MIN_TIMELINE: f32 = 215.0;
/// Width of a window below which the view below the timeline takes the full width.
pub(crate) const NARROW_WINDOW: f32 = 1240.0;
pub(crate) const SCROLL_WIDTH: f32 = 11.0;
/// Minimum width of a table column that takes the remaining width.
pub(crate) const MIN_OPEN_COLUMN: f32 = 90.0;
/// Maximum width of a column that takes the remaining width next to a column with bars.
pub(crate) const MAX_OPEN_COLUMN: f32 = 320.0;
/// Width of a column that takes the remaining width, above which bars grow instead.
pub(crate) const NAMES_BEFORE_BARS: f32 = 150.0;
pub(crate) const MAP_ROW_HEIGHT: f32 = 15.0;
pub(crate) const MAP_ROW_GAP: f32 = 4.0;
/// Minimum size in pixels of a memory range that is drawn distinctly from its neighbours.
pub(crate) const TALL_BAND: usize = 5;
pub(crate) const LANES_MIN: f32 = 90.0;
pub(crate) const LANES_MAX: f32 = 260.0;
/// Minimum height at which the analysis of a failed request and the map share a view.
pub(crate) const FAILURE_MIN: f32 = 170.0;
/// Initial share of the window's height for the analysis of a failed request and the map.
pub(crate) const FAILURE_PART: f32 = 0.55;
/// Minimum height of the timeline above the analysis of a failed request.
pub(crate) const TIMELINE_ABOVE_FAILURE: f32 = 165.0;
/// Minimum height at which the sums of the segments are shown above the analysis of a failed request.
pub(crate) const FAILURE_WITH_SUMS: f32 = 360.0;
/// Minimum height of the map below the analysis of a failed request.
pub(crate) const MAP_BELOW_FAILURE: f32 = 124.0;
/// Width of the table of segments beside the map.
pub(crate) const SEGMENTS_TABLE_WIDTH: f32 = 770.0;
/// Minimum height of the Moment panel; with less space it scrolls.
pub(crate) const MOMENT_MIN: f32 = 300.0;
/// Height of the Moment panel below which its heading is a single line.
pub(crate) const LOW_MOMENT: f32 = 230.0;
/// Minimum height of the Statistics panel; with less space it scrolls.
pub(crate) const STATISTICS_MIN: f32 = 150.0;
/// Minimum height of the Segments view; with less space it scrolls.
pub(crate) const SEGMENTS_MIN: f32 = 320.0;
/// Width of the Segments view below which its headline is smaller and its tools are in a menu.
pub(crate) const SEGMENTS_WIDE: f32 = 1000.0;
/// Minimum height of the address map below lanes.
pub(crate) const MAP_MIN: f32 = 90.0;
pub(crate) const MENU_HEIGHT: f32 = 25.0;
/// Height that menus leave free in the window.
pub(crate) const MENU_MARGIN: f32 = 60.0;
pub(crate) const SWATCH: f32 = 11.0;
/// Maximum height of the details of the selected node in the Moment panel.
pub(crate) const DETAILS_HEIGHT: f32 = 260.0;
pub(crate) const TILE_HEADER: f32 = 16.0;
/// Minimum area of a treemap's tile, in square points; smaller tiles are merged.
pub(crate) const MIN_TILE: f64 = 40.0;
/// Minimum width of a flame graph's bar; narrower bars are merged.
pub(crate) const MIN_BAR: f32 = 3.0;
pub(crate) const FLAME_ROW: f32 = 18.0;
/// Minimum width of a label; labels with less space are omitted.
pub(crate) const MIN_LABEL: f32 = 22.0;
/// Maximum number of entries of a legend; all other values share one additional entry.
pub(crate) const MAX_ENTRIES: usize = 8;
/// Distance of notices from the lower edge. Keeps them above the status bar.
pub(crate) const NOTICES_ABOVE: f32 = 40.0;
pub(crate) const HELP_WIDTH: f32 = 760.0;
pub(crate) const TOOLTIP_WIDTH: f32 = 460.0;
/// Largest width of a tooltip's wrapped text over a narrow timeline.
pub(crate) const MIN_TOOLTIP_WIDTH: f32 = 220.0;
