//! Draws the bands as pixels on a background thread whenever the view changes.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use eframe::egui::{self, Color32, ColorImage};
use highwater_analysis::bands::{BandWindow, Bands, Column, Raster, column_totals};
use highwater_analysis::{Matches, Totals};
use highwater_snapshots::BlockId;
use highwater_snapshots::yielding::tick;
use rayon::prelude::*;

use crate::background::Urgency;
use crate::gui::colouring::Colouring;
use crate::gui::widgets::{Cancel, Query, computed, theme};
use crate::{ColourBy, Recording};

/// The stacking order of bands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Stacking {
    /// Blocks live before the recording first, then in order of allocation.
    #[default]
    Age,
    /// Blocks of the same colour are adjacent.
    Colour,
}

/// A request for a picture: its content and appearance.
#[derive(Clone, Debug)]
pub struct Request {
    /// The recording to draw.
    pub recording: Arc<Recording>,
    /// Index of the device.
    pub device: usize,
    /// The visible range, as a grid of pixels.
    pub window: BandWindow,
    /// The key by which blocks are coloured.
    pub colour_by: ColourBy,
    /// The order of the stack.
    pub stacking: Stacking,
    /// The blocks that are not dimmed.
    pub matches: Arc<Matches>,
    /// Whether dimmed blocks are hidden.
    pub is_hiding: bool,
    /// The block to outline.
    pub outlined: Option<BlockId>,
}

impl PartialEq for Request {
    fn eq(&self, other: &Self) -> bool {
        self.has_same_colours(other)
            && self.has_same_order(other)
            && self.window == other.window
            && self.outlined == other.outlined
    }
}

impl Request {
    fn has_same_colours(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.recording, &other.recording)
            && self.device == other.device
            && self.window.metric == other.window.metric
            && self.colour_by == other.colour_by
            && self.has_same_matches(other)
    }

    fn has_same_matches(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.matches, &other.matches) || self.matches.is_all() && other.matches.is_all()
    }

    fn has_same_order(&self, other: &Self) -> bool {
        let is_by_colour = self.stacking == Stacking::Colour;
        let hides_the_same = self.is_hiding == other.is_hiding && (!self.is_hiding || self.has_same_matches(other));
        hides_the_same
            && Arc::ptr_eq(&self.recording, &other.recording)
            && self.device == other.device
            && self.stacking == other.stacking
            && (!is_by_colour || self.colour_by == other.colour_by && self.window.metric == other.window.metric)
    }
}

/// A finished picture of the timeline, with the data needed to look up positions in it.
#[derive(Debug)]
pub struct Picture {
    /// The request answered by this picture.
    pub request: Request,
    /// The block under each pixel, and each column's moment.
    pub raster: Arc<Raster>,
    /// The maximum of each total in each column.
    pub totals: Arc<Vec<Totals>>,
    /// The pixels, until they have become a texture.
    pub image: Option<ColorImage>,
    /// The bytes that the outlined block covers in each column; empty if no block is outlined.
    pub outline: Vec<Option<Range<u64>>>,
    /// The colours and their legend.
    pub colouring: Arc<Colouring>,
    /// The stacking order.
    pub bands: Arc<Bands>,
}

impl Picture {
    /// Looks up a position, given as fractions of the picture's width from the left and of its height from the bottom:
    /// the column, with its exact moment and total, and the block of the pixel. `None` if the picture has no columns.
    /// Takes constant time.
    pub fn at(&self, across: f64, up: f64) -> Option<(Column, Option<BlockId>)> {
        let (width, height) = (self.raster.columns.len(), self.raster.height);
        // A share outside the picture is clamped horizontally; vertically there is no block.
        let x = ((across.max(0.0) * width as f64) as usize).min(width.checked_sub(1)?);
        let is_inside = (0.0..1.0).contains(&up);
        let block = is_inside.then(|| self.raster.block_at(x, (up * height as f64) as usize)).flatten();
        Some((*self.raster.columns.get(x)?, block))
    }

    /// The bytes that `block` covers in each column, in the resolution of the picture, found by binary search.
    pub(crate) fn covered_by(&self, block: BlockId) -> Vec<Option<Range<u64>>> {
        let window = &self.request.window;
        let span = u128::from(window.bytes.end.saturating_sub(window.bytes.start));
        let byte = |y: usize| window.bytes.start + (span * y as u128 / self.raster.height.max(1) as u128) as u64;
        let pixels = self.bands.pixels_of(&self.raster, block).into_iter();
        pixels.map(|pixels| pixels.map(|pixels| byte(pixels.start)..byte(pixels.end))).collect()
    }
}

/// The two pictures of a timeline; only the last request for each is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The whole recording at low resolution: for the overview, and until the detail is ready.
    Whole,
    /// The visible range, at full resolution.
    Detail,
}

#[derive(Debug)]
pub(super) struct Painter {
    /// One query per [`Part`]; both share a [`PictureCache`].
    queries: [Query<Request, Picture>; 2],
}

computed!(Painter: queries);

impl Default for Painter {
    fn default() -> Self {
        let studio = Arc::new(Mutex::new(PictureCache::default()));
        let query = |part| {
            let studio = Arc::clone(&studio);
            let draw = move |request: &Request, _: &Cancel| {
                let mut studio = studio.lock().unwrap_or_else(PoisonError::into_inner);
                Some(studio.draw(part, request.clone()))
            };
            Query::new("highwater-paint", draw).showing_late().with_urgency(Urgency::Picture)
        };
        Self { queries: [query(Part::Whole), query(Part::Detail)] }
    }
}

impl Painter {
    /// Requests a picture, unless it was the last one requested.
    pub(super) fn ask(&mut self, ctx: &egui::Context, part: Part, request: &Request) {
        self.queries[part as usize].ask(ctx, request);
    }

    pub(super) fn take(&mut self) -> Vec<(Part, Picture)> {
        let parts = [Part::Whole, Part::Detail].into_iter().zip(&mut self.queries);
        parts.filter_map(|(part, query)| query.take().map(|picture| (part, picture))).collect()
    }
}

/// The inputs of a picture that do not depend on colours.
#[derive(Clone)]
struct Drawn {
    raster: Arc<Raster>,
    totals: Arc<Vec<Totals>>,
}

#[derive(Default)]
struct PictureCache {
    colouring: Option<(Request, Arc<Colouring>)>,
    bands: Option<(Request, Arc<Bands>)>,
    rasters: [Option<(Request, Drawn)>; 2],
}

impl PictureCache {
    fn draw(&mut self, part: Part, request: Request) -> Picture {
        let colouring = self.colouring(&request);
        let bands = self.bands(&request, &colouring);
        let Drawn { raster, totals } = self.drawn(part, &request, &bands);
        let index = &request.recording.devices[request.device];
        let metric = request.window.metric;
        let outline = request.outlined.map_or_else(Vec::new, |block| {
            bands.outline(&request.recording.trace, &index.live, metric, &raster.columns, block)
        });
        let image = Some(image_of(&raster, &colouring));
        Picture { request, raster, totals, image, outline, colouring, bands }
    }

    fn colouring(&mut self, request: &Request) -> Arc<Colouring> {
        if let Some((_, colouring)) = self.colouring.as_ref().filter(|(known, _)| known.has_same_colours(request)) {
            return Arc::clone(colouring);
        }
        let Request { recording, device, colour_by, matches, window, .. } = request;
        let colouring = Arc::new(Colouring::build(recording, *device, *colour_by, window.metric, matches));
        self.colouring = Some((request.clone(), Arc::clone(&colouring)));
        colouring
    }

    fn bands(&mut self, request: &Request, colouring: &Colouring) -> Arc<Bands> {
        if let Some((_, bands)) = self.bands.as_ref().filter(|(known, _)| known.has_same_order(request)) {
            return Arc::clone(bands);
        }
        let trace = &request.recording.trace;
        let device = request.recording.devices[request.device].device;
        let bands = match request.stacking {
            Stacking::Age => Bands::in_block_order(trace, device),
            Stacking::Colour => Bands::grouped(trace, device, |id| colouring.entry(id) as u8),
        };
        let matches = &request.matches;
        let bands = if request.is_hiding { bands.showing(trace, |id| matches.contains(id)) } else { bands };
        let bands = Arc::new(bands);
        self.bands = Some((request.clone(), Arc::clone(&bands)));
        bands
    }

    fn drawn(&mut self, part: Part, request: &Request, bands: &Bands) -> Drawn {
        let known = self.rasters[part as usize].as_ref();
        let known = known.filter(|(known, _)| known.has_same_order(request) && known.window == request.window);
        if let Some((_, drawn)) = known {
            return drawn.clone();
        }
        let trace = &request.recording.trace;
        let index = &request.recording.devices[request.device];
        let (raster, totals) = rayon::join(
            || Arc::new(bands.raster(trace, &index.live, &index.series, &request.window)),
            || Arc::new(column_totals(trace, &index.series, &request.window)),
        );
        let drawn = Drawn { raster, totals };
        self.rasters[part as usize] = Some((request.clone(), drawn.clone()));
        drawn
    }
}

/// Size of the tiles in which columns are transposed to rows, chosen to fit into the CPU cache.
const SQUARE: usize = 32;

/// Returns the raster in colour, transposed to rows from the top down.
fn image_of(raster: &Raster, colouring: &Colouring) -> ColorImage {
    let (width, height) = (raster.columns.len(), raster.height);
    let mut upright = vec![Color32::TRANSPARENT; width * height];
    let columns = upright.par_chunks_mut(height.max(1)).zip(raster.blocks.par_chunks(height.max(1)));
    columns.with_min_len(SQUARE).for_each(|(colours, column)| {
        tick();
        colour_column(column, colouring, colours);
    });
    let mut pixels = vec![Color32::TRANSPARENT; width * height];
    pixels.par_chunks_mut((SQUARE * width).max(1)).enumerate().for_each(|(strip, pixels)| {
        for left in (0..width).step_by(SQUARE) {
            tick();
            for (row, pixels) in pixels.chunks_mut(width).enumerate() {
                let y = height - 1 - (strip * SQUARE + row);
                let right = (left + SQUARE).min(width);
                for (x, pixel) in (left..right).zip(&mut pixels[left..right]) {
                    *pixel = upright[x * height + y];
                }
            }
        }
    });
    ColorImage::new([width, height], pixels)
}

/// Minimum height, in pixels, of a band with its own lightness and an edge; thinner bands get the plain colour.
const TALL: usize = 5;

/// Colours a column's pixels, band by band. The edge is a darker line at the top of a band below another one.
fn colour_column(column: &[BlockId], colouring: &Colouring, colours: &mut [Color32]) {
    let mut start = 0;
    for band in column.chunk_by(|below, above| below == above) {
        let end = start + band.len();
        if let (Some(&block), Some(colours)) =
            (band.first().filter(|block| block.is_some()), colours.get_mut(start..end))
        {
            if band.len() < TALL {
                colours.fill(colouring.colour(block));
            } else {
                let colour = colouring.instance_colour(block);
                colours.fill(colour);
                let has_neighbour = column.get(end).is_some_and(|above| above.is_some());
                if let Some(top) = colours.last_mut().filter(|_| has_neighbour) {
                    *top = theme::edge(colour);
                }
            }
        }
        start = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gui::widgets::query::Computed as _;
    use highwater_analysis::bands::Across;
    use highwater_analysis::{GroupKey, Metric};
    use highwater_notation::trace_from_text;

    fn request(colour_by: ColourBy) -> Request {
        let text = "baseline w 40 parameter\nalloc a 40 activation\nfree a\nalloc g 40 gradient";
        let recording = Arc::new(Recording::new("test", None, trace_from_text(text).unwrap()));
        let across = Across::Moments(0.0..5.0);
        let window = BandWindow { metric: Metric::Requested, across, width: 5, bytes: 0..80, height: 10 };
        let (stacking, matches) = (Stacking::Age, Arc::new(Matches::default()));
        Request {
            recording,
            device: 0,
            window,
            colour_by,
            stacking,
            matches,
            is_hiding: false,
            outlined: Some(BlockId(1)),
        }
    }

    #[test]
    fn pixels_wear_the_colours_of_their_blocks_and_the_last_request_wins() {
        let (mut painter, ctx) = (Painter::default(), egui::Context::default());
        let last = request(ColourBy::default());
        painter.ask(&ctx, Part::Detail, &request(ColourBy(GroupKey::Op)));
        painter.ask(&ctx, Part::Detail, &last);
        painter.wait();
        let (_, picture) = painter.take().pop().unwrap();
        assert!(picture.request == last && !painter.is_busy());
        let image = picture.image.as_ref().unwrap();
        let at = |x: usize, y: usize| image.pixels[y * 5 + x];
        assert_eq!(at(0, 0), Color32::TRANSPARENT);
        let colour = |row: u32| picture.colouring.instance_colour(BlockId(row));
        assert_eq!([at(0, 9), at(1, 0), at(4, 0)], [colour(0), colour(1), colour(2)]);
        assert_eq!(at(4, 5), theme::edge(colour(0)), "a line parts two bands");
        let followed: Vec<bool> = picture.outline.iter().map(Option::is_some).collect();
        assert_eq!(followed, [false, true, false, false, false]);
        assert_eq!(picture.outline[1], Some(40..80));
        assert_eq!(picture.covered_by(BlockId(1)), picture.outline);
        let at = |across: f64, up: f64| picture.at(across, up).map(|(column, block)| (column.moment, block));
        assert_eq!(at(0.3, 0.6), Some((1, Some(BlockId(1)))));
        assert_eq!(at(0.5, 0.6), Some((2, None)), "nothing lies above the total");
        assert_eq!(at(7.0, 0.1), Some((4, Some(BlockId(0)))));
        assert_eq!(at(0.3, -0.1), Some((1, None)));
    }

    #[test]
    fn every_pixel_of_a_large_picture_lands_in_its_place() {
        let request = request(ColourBy::default());
        let (width, height) = (3 * SQUARE + 5, 2 * SQUARE + 7);
        let index = &request.recording.devices[0];
        let window = BandWindow { width, height, ..request.window.clone() };
        let trace = &request.recording.trace;
        let bands = Bands::in_block_order(trace, index.device);
        let raster = bands.raster(trace, &index.live, &index.series, &window);
        let colouring = Colouring::build(&request.recording, 0, ColourBy::default(), window.metric, &request.matches);
        let image = image_of(&raster, &colouring);
        for x in 0..width {
            let mut colours = vec![Color32::TRANSPARENT; height];
            colour_column(raster.column(x), &colouring, &mut colours);
            let shown: Vec<Color32> = (0..height).rev().map(|row| image.pixels[row * width + x]).collect();
            assert_eq!(shown, colours);
            assert_eq!(colours.contains(&Color32::TRANSPARENT), raster.block_at(x, height - 1).is_none());
        }
    }

    #[test]
    fn bands_too_thin_to_be_distinguished_are_one_even_area() {
        let text: String = (0..8).map(|block| format!("alloc b{block} 10 activation\n")).collect();
        let recording = Recording::new("thin", None, trace_from_text(&text).unwrap());
        let colouring = Colouring::build(&recording, 0, ColourBy::default(), Metric::Requested, &Arc::default());
        let thin = [BlockId(0), BlockId(1), BlockId(1), BlockId(2), BlockId(3), BlockId(4)];
        let base = theme::category(highwater_snapshots::Category::Activation);
        let coloured = |column: &[BlockId]| {
            let mut colours = vec![Color32::TRANSPARENT; column.len()];
            colour_column(column, &colouring, &mut colours);
            colours
        };
        assert_eq!(coloured(&thin), [base; 6]);
        let tall = [BlockId(5); TALL];
        assert_eq!(coloured(&tall), [theme::instance(base, 5); TALL]);
        let below = [[BlockId(4); TALL].as_slice(), &[BlockId(5), BlockId::NONE]].concat();
        let colours = coloured(&below);
        let own = theme::instance(base, 4);
        assert_eq!(colours, [own, own, own, own, theme::edge(own), base, Color32::TRANSPARENT]);
    }
}
