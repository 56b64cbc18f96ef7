//! The options of `highwater join`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

use super::CategoryChoice;

/// `highwater join`.
#[derive(Clone, Debug, Args)]
pub struct JoinArguments {
    /// Recordings, two or more: of several allocators of one program, or of several processes
    #[arg(value_name = "FILE", required = true, num_args = 2..)]
    pub files: Vec<PathBuf>,
    /// File to write; its ending sets the format, as for `convert`
    #[arg(long, value_name = "OUT")]
    pub out: PathBuf,
    /// Seconds to add to the times of the second recording, where clocks differ; repeat for the third, and so on
    #[arg(long = "offset", value_name = "SECONDS", allow_hyphen_values = true)]
    pub offsets: Vec<Seconds>,
    /// The categories.
    #[command(flatten)]
    pub categories: CategoryChoice,
    /// Print one JSON object to standard output
    #[arg(long)]
    pub json: bool,
}

/// A stretch of time, given in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seconds {
    /// In nanoseconds.
    pub nanos: i64,
}

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("invalid number of seconds '{text}': write for example 2, -0.25 or 0.000001");
        let (is_negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !is_number(whole) || !is_number(fraction) || fraction.len() > 9
        {
            return Err(wrong());
        }
        let digits = format!("{whole}{fraction:0<9}");
        let nanos: i64 = digits.parse().map_err(|_| wrong())?;
        Ok(Self { nanos: if is_negative { -nanos } else { nanos } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_read_to_the_nanosecond() {
        let nanos = |text: &str| text.parse::<Seconds>().ok().map(|seconds| seconds.nanos);
        assert_eq!(nanos("2"), Some(2_000_000_000));
        assert_eq!(nanos("-0.25"), Some(-250_000_000));
        assert_eq!(nanos("+.000000001"), Some(1));
        assert_eq!(nanos("1."), Some(1_000_000_000));
        for text in ["", "-", ".", "two", "1e3", "1.2.3", "0.0000000001", "99999999999", "--1"] {
            assert_eq!(nanos(text), None, "{text}");
        }
    }
}
