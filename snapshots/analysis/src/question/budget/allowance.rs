//! The amount by which a peak may exceed the peak of a baseline: a percentage or a number of bytes.

use std::fmt;
use std::str::FromStr;

use highwater_snapshots::units::{format_bytes, parse_bytes};

/// Number of units of [`Allowance::Share`] per percent.
const PARTS: u64 = 1_000_000;
/// Maximum number of decimal digits of a percentage.
const DIGITS: usize = 6;

/// The amount by which a peak may exceed the peak of a baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// A number of bytes.
    Bytes(u64),
    /// A share of the baseline, in millionths of a percent.
    Share(u64),
}

impl Allowance {
    /// The allowance in bytes for a baseline of `bytes`, rounded down.
    pub fn of(self, bytes: u64) -> u64 {
        match self {
            Self::Bytes(allowed) => allowed,
            Self::Share(parts) => {
                let allowed = u128::from(bytes) * u128::from(parts) / (100 * u128::from(PARTS));
                u64::try_from(allowed).unwrap_or(u64::MAX)
            }
        }
    }
}

impl fmt::Display for Allowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => f.write_str(&format_bytes(*bytes)),
            Self::Share(parts) => {
                let text = format!("{}.{:06}", parts / PARTS, parts % PARTS);
                write!(f, "{}%", text.trim_end_matches('0').trim_end_matches('.'))
            }
        }
    }
}

/// Parses `5%`, `2.5 %`, `5` (also a share), or a size with its unit, such as `200MiB`.
impl FromStr for Allowance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let number = text.strip_suffix('%').unwrap_or(text).trim_end();
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let is_number = !number.is_empty() && (whole.len() + fraction.len() > 0);
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if is_number && is_digits(whole) && is_digits(fraction) && fraction.len() <= DIGITS {
            let digits = format!("{whole}{fraction:0<DIGITS$}");
            let parts = digits.parse::<u64>().map_err(|_| format!("'{text}' is too large"))?;
            return Ok(Self::Share(parts));
        }
        let wrong = || format!("'{text}': expected a share or a size, such as 5% or 200MiB");
        if text.ends_with('%') {
            return Err(wrong());
        }
        parse_bytes(text).map(Self::Bytes).map_err(|_| wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_sizes_are_read_exactly() {
        let of = |text: &str| text.parse::<Allowance>().unwrap();
        assert_eq!(of("5%"), Allowance::Share(5_000_000));
        assert_eq!(of(" 5 "), of("5.0 %"));
        assert_eq!(of("0"), Allowance::Share(0));
        assert_eq!(of("200MiB"), Allowance::Bytes(200 << 20));
        assert_eq!(of("2.5%").of(1_000), 25);
        assert_eq!(of("0.1%").of(999), 0, "rounded down");
        assert_eq!(of("100%").of(u64::MAX), u64::MAX);
        assert_eq!(of("1000%").of(u64::MAX), u64::MAX);
        assert_eq!([of("2.50%"), of("5"), of("1MiB")].map(|one| one.to_string()), ["2.5%", "5%", "1 MiB"]);
        for wrong in ["", "%", ".", "-5%", "5MiB%", "lots", "1.0000001%", "99999999999999999999%"] {
            assert!(wrong.parse::<Allowance>().is_err(), "{wrong}");
        }
    }
}
