//! `highwater render`: draws a recording without a display.

#[cfg(feature = "gui")]
mod drawing;
#[cfg(not(feature = "gui"))]
#[path = "render/drawing_disabled.rs"]
mod drawing;

pub(crate) use drawing::{Drawing, recording, run};

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use highwater_analysis::{DiffAt, GroupKey, Metric};
use highwater_app::colour_by::ColourBy;
use highwater_snapshots::parse_size;

use crate::args::values::metric_parser;
use crate::args::{BlockChoice, DeviceChoice, TablelessSource};
use crate::args::{ComparedAt, GroupKeys};

const VIEW: &str = "timeline";
const SIZE: PictureSize = PictureSize([1600, 900]);
const SCALE: f32 = 1.0;

/// Arguments of `highwater render`.
#[derive(Clone, Debug, Args)]
pub struct RenderArguments {
    /// The recording, and how to answer.
    #[command(flatten)]
    pub source: TablelessSource,
    /// Second recording, with --view diff; without it, two steps of the first are compared
    #[arg(value_name = "B")]
    pub b: Option<PathBuf>,
    /// Picture to write: .png or .svg
    ///
    /// An existing file is replaced once the new one is complete.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// View: timeline, segments, flame, treemap, table, explain, plan or diff
    #[arg(long, value_name = "NAME", default_value = VIEW)]
    pub view: String,
    /// Width and height in pixels
    #[arg(long, value_name = "WxH", default_value_t = SIZE)]
    pub size: PictureSize,
    /// Scale of text and lines: 2 for print or a high-resolution screen
    #[arg(long, value_name = "F", default_value_t = SCALE)]
    pub scale: f32,
    /// Colour theme
    #[arg(long, value_enum, default_value_t)]
    pub theme: PictureTheme,
    /// The device to draw.
    #[command(flatten)]
    pub device: DeviceChoice,
    /// Memory total
    #[arg(long, value_name = "M", default_value_t, value_parser = metric_parser())]
    pub metric: Metric,
    /// Colour by a grouping key, where scope is the first level of modules and stack the line of code; with --view
    /// table, treemap and flame one or two grouping keys; with --view diff those of `highwater diff` [default:
    /// category; table, treemap and flame have their own]
    #[arg(long, value_name = "KEY")]
    pub by: Option<PictureBy>,
    /// Order of the bands: oldest at the bottom, or blocks of one colour together
    #[arg(long, value_enum, default_value_t)]
    pub stack_by: PictureOrder,
    /// Horizontal axis
    #[arg(long, value_enum, default_value_t)]
    pub axis: PictureAxis,
    /// First event to draw
    #[arg(long, value_name = "N")]
    pub from: Option<u64>,
    /// Last event to draw
    #[arg(long, value_name = "N")]
    pub to: Option<u64>,
    /// Event whose state is drawn in segments, flame, treemap and table [default: the peak]; with --view diff the
    /// moment to compare: peak, end, step:N or step-end:N
    #[arg(long, value_name = "MOMENT")]
    pub at: Option<PictureAt>,
    /// Moment of B, with --view diff [default: as --at; of one recording, the step after it]
    #[arg(long, value_name = "MOMENT")]
    pub at_b: Option<ComparedAt>,
    /// Device N of B, with --view diff [default: as --device]
    #[arg(long, value_name = "N")]
    pub device_b: Option<u16>,
    /// Device memory, with --view plan [default: the device's, or less than the recorded peak]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub budget: Option<u64>,
    /// The blocks to show in colour. With --view diff, the blocks to compare.
    #[command(flatten)]
    pub blocks: BlockChoice,
}

/// Width and height in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PictureSize(pub [u32; 2]);

impl fmt::Display for PictureSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [width, height] = self.0;
        write!(f, "{width}x{height}")
    }
}

impl FromStr for PictureSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let sides = text.split_once(['x', 'X', '×']).and_then(|(width, height)| {
            let side = |text: &str| text.trim().parse::<u32>().ok();
            Some([side(width)?, side(height)?])
        });
        sides.map(Self).ok_or_else(|| "expected width and height in pixels, such as 1600x900".to_owned())
    }
}

/// The keys of `--by`: colours, groups, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PictureBy {
    /// The colour key, or the reason it is invalid.
    pub colours: Result<ColourBy, String>,
    /// The grouping keys, or the reason they are invalid.
    pub keys: Result<GroupKeys, String>,
}

impl PictureBy {
    pub(crate) fn groups(keys: Vec<GroupKey>) -> Self {
        Self { colours: Ok(ColourBy::default()), keys: Ok(GroupKeys(keys)) }
    }
}

impl Default for PictureBy {
    fn default() -> Self {
        Self::groups(vec![GroupKey::Category])
    }
}

impl FromStr for PictureBy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let colours = text.parse::<ColourBy>();
        let keys = text.parse::<GroupKeys>();
        match (colours, keys) {
            (Err(_), Err(why)) => Err(why),
            (colours, keys) => Ok(Self { colours, keys }),
        }
    }
}

/// The value of `--at`: the moment that a picture shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PictureAt {
    /// The moment after this event.
    Event(u64),
    /// A moment of a comparison.
    Compared(DiffAt),
}

impl FromStr for PictureAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let compared = |ComparedAt(at)| Self::Compared(at);
        let why = || "expected an event number; with --view diff, peak, end, step:N or step-end:N".to_owned();
        text.parse().map(Self::Event).or_else(|_| text.parse().map(compared)).map_err(|_: String| why())
    }
}

/// The colour theme of a picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PictureTheme {
    /// Dark on light.
    #[default]
    Light,
    /// Light on dark.
    Dark,
}

/// The stacking order of bands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PictureOrder {
    /// Oldest at the bottom.
    #[default]
    Age,
    /// Blocks of one colour together.
    #[value(alias = "color")]
    Colour,
}

/// Horizontal axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PictureAxis {
    /// Events, equally spaced.
    #[default]
    Event,
    /// Time.
    Time,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_colours_are_read_and_mistakes_say_what_is_allowed() {
        assert_eq!("640x480".parse(), Ok(PictureSize([640, 480])));
        for text in ["640", "640x", "x480", "-1x5", "640x480x3", "4294967296x1", ""] {
            assert!(text.parse::<PictureSize>().unwrap_err().contains("1600x900"), "{text}");
        }
        let why = |text: &str| text.parse::<PictureBy>().unwrap_err();
        let by = "scope:2".parse::<PictureBy>().unwrap();
        assert_eq!(
            (by.colours, by.keys.unwrap().to_string()),
            (Ok(ColourBy(GroupKey::ScopeTo(2))), "scope:2".to_owned())
        );
        assert!("size,pool".parse::<PictureBy>().unwrap().colours.is_err());
        assert_eq!(("7".parse(), "end".parse()), (Ok(PictureAt::Event(7)), Ok(PictureAt::Compared(DiffAt::End))));
        assert!("-1".parse::<PictureAt>().unwrap_err().contains("step:N"));
        assert!(why("scope:0").contains("scope:2") && why("op:2").contains("keys are category"));
    }
}
