//! The colours of data, which are the same in dark and light windows and can be distinguished by colour-blind people.
//!
//! Seven are from Okabe and Ito's palette and two from Paul Tol's.

use eframe::egui::Color32;
use highwater_analysis::LineRole;
use highwater_analysis::diff::Change;
use highwater_snapshots::Category;

/// The colours of Okabe and Ito, and two of Tol's, in order of assignment.
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

/// The colour of unnamed values, and of values that share a legend entry. Of all greys, colour-blind people can
/// distinguish this one best from the nine colours.
pub(crate) const NEUTRAL: Color32 = Color32::from_rgb(0x6f, 0x75, 0x7d);

pub(crate) const fn category(category: Category) -> Color32 {
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

/// The colour of the entry with this index. The first colours have the strongest contrast.
pub(crate) fn entry(index: usize) -> Color32 {
    DISTINCT[index % DISTINCT.len()]
}

/// Returns a colour derived from a name. Equal names always have the same colour; different names may share one.
pub(crate) fn named(name: &str) -> Color32 {
    // FNV-1a, which, unlike the standard library's hashes, is stable.
    let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = name.bytes().fold(0x811c_9dc5, mix);
    DISTINCT[((hash >> 8) % DISTINCT.len() as u32) as usize]
}

/// The colour of a stack frame. Frames of the program stand out from internal ones.
pub(crate) const fn role(role: LineRole) -> Color32 {
    match role {
        LineRole::Program => DISTINCT[4],
        LineRole::Framework => NEUTRAL,
        LineRole::Allocator => Color32::from_rgb(0x55, 0x5c, 0x66),
    }
}

/// The colour of a group's change in a comparison: violet for less, red for more, dark for groups on only one side,
/// grey for no change. Except for grey, these differ from the colours of categories, and colour-blind people can
/// distinguish them.
pub(crate) const fn change(change: Change) -> Color32 {
    match change {
        Change::OnlyInA => Color32::from_rgb(0x4b, 0x2f, 0xd0),
        Change::Shrunk => Color32::from_rgb(0xb0, 0xa6, 0xff),
        Change::Same => NEUTRAL,
        Change::Grown => Color32::from_rgb(0xff, 0xb3, 0xa0),
        Change::OnlyInB => Color32::from_rgb(0xe0, 0x70, 0x5c),
    }
}

/// The text colour on `colour`: black or white, whichever has more contrast.
pub(crate) fn ink(colour: Color32) -> Color32 {
    // Relative luminance as defined by WCAG; both contrasts are equal at 0.179.
    let linear = |value: u8| (f32::from(value) / 255.0).powf(2.2);
    let light = 0.2126 * linear(colour.r()) + 0.7152 * linear(colour.g()) + 0.0722 * linear(colour.b());
    if light > 0.179 { Color32::BLACK } else { Color32::WHITE }
}

/// The background of the main button of a page, below white text.
pub(crate) const PRIMARY: Color32 = Color32::from_rgb(0x1c, 0x62, 0xa8);

/// Varies the lightness of `colour` for block `row`, so that neighbours in a stack differ slightly. The variation is
/// pseudo-random, so that blocks at regular intervals do not all look the same.
pub(crate) fn instance(colour: Color32, row: usize) -> Color32 {
    const LIGHTNESS: [f32; 4] = [1.0, 0.95, 0.985, 0.965];
    let scattered = (row as u32).wrapping_mul(0x9e37_79b9) >> 30;
    scale(colour, LIGHTNESS[scattered as usize])
}

/// Varies `colour` for every second layer of a model, so that neighbouring layers can be distinguished.
pub(crate) fn second_layer(colour: Color32) -> Color32 {
    scale(colour, 0.95)
}

/// The variant of `colour` for the edge between two bands.
pub(crate) fn edge(colour: Color32) -> Color32 {
    scale(colour, 0.8)
}

/// The variant of `colour` for a block that does not match the filter.
pub(crate) fn left_out(colour: Color32) -> Color32 {
    let grey = (u16::from(colour.r()) + u16::from(colour.g()) + u16::from(colour.b())) / 3;
    let grey = (grey / 4 + 96) as u8;
    Color32::from_rgba_unmultiplied(grey, grey, grey, 90)
}

fn scale(colour: Color32, factor: f32) -> Color32 {
    let channel = |value: u8| (f32::from(value) * factor).round() as u8;
    Color32::from_rgb(channel(colour.r()), channel(colour.g()), channel(colour.b()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_a_comparison_have_colours_of_their_own() {
        let changed = Change::ALL.iter().copied().filter(|state| *state != Change::Same).map(change);
        for colour in changed {
            assert!(Category::ALL.iter().all(|kind| largest_difference(category(*kind), colour) > 50), "{colour:?}");
        }
    }

    /// The largest difference of a channel.
    fn largest_difference(one: Color32, other: Color32) -> u8 {
        one.to_array().iter().zip(other.to_array()).map(|(one, other)| one.abs_diff(other)).max().unwrap_or(0)
    }

    /// What protanopes, deuteranopes and tritanopes see of linear RGB, by Machado, Oliveira and Fernandes, "A
    /// physiologically-based model for simulation of color vision deficiency" (2009), at severity 1.
    const VISIONS: [[[f64; 3]; 3]; 4] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    ];

    /// Eight entries and "others" are far apart in CIELAB, in which a difference of 2.3 is just noticeable.
    #[test]
    fn colours_of_one_legend_differ_for_colour_blind_people() {
        let legend: Vec<Color32> = DISTINCT[..8].iter().copied().chain([NEUTRAL]).collect();
        assert_apart(&legend, 14.0);
        assert_apart(&Change::ALL.iter().copied().map(change).collect::<Vec<_>>(), 20.0);
    }

    fn assert_apart(legend: &[Color32], least: f64) {
        for vision in VISIONS {
            let seen: Vec<[f64; 3]> = legend.iter().map(|colour| lab(transformed(vision, linear(*colour)))).collect();
            for (one, other) in (0..seen.len()).flat_map(|other| (0..other).map(move |one| (one, other))) {
                let squares = seen[one].iter().zip(seen[other]).map(|(one, other)| (one - other).powi(2));
                let difference = squares.sum::<f64>().sqrt();
                assert!(difference > least, "{:?} {:?}: {difference}", legend[one], legend[other]);
            }
        }
    }

    fn transformed(matrix: [[f64; 3]; 3], vector: [f64; 3]) -> [f64; 3] {
        matrix.map(|row| row.iter().zip(vector).map(|(factor, value)| factor * value).sum())
    }

    fn linear(colour: Color32) -> [f64; 3] {
        [colour.r(), colour.g(), colour.b()].map(|value| {
            let value = f64::from(value) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        })
    }

    /// CIELAB of linear sRGB under D65.
    fn lab(rgb: [f64; 3]) -> [f64; 3] {
        const XYZ: [[f64; 3]; 3] =
            [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]];
        let [x, y, z] = transformed(XYZ, rgb.map(|value| value.clamp(0.0, 1.0)));
        let root =
            |value: f64| if value > 216.0 / 24389.0 { value.cbrt() } else { (24389.0 / 27.0 * value + 16.0) / 116.0 };
        let [x, y, z] = [x / 0.95047, y, z / 1.08883].map(root);
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }
}
