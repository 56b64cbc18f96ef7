//! Formats bytes, counts and durations, and parses sizes such as `512MiB` and ranges such as `10..13`.

use std::ops::Range;
use std::str::FromStr;

const STEPS: [(&str, u64); 6] =
    [("EiB", 1 << 60), ("PiB", 1 << 50), ("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Formats `bytes` in the largest binary unit in which the value is at least 1, with two decimals unless the value is a
/// whole number, such as `5.67 GiB` or `512 B`.
pub fn format_bytes(bytes: u64) -> String {
    for (unit, size) in STEPS {
        if bytes >= size {
            let value = bytes as f64 / size as f64;
            return if bytes.is_multiple_of(size) {
                format!("{} {unit}", bytes / size)
            } else {
                format!("{value:.2} {unit}")
            };
        }
    }
    format!("{bytes} B")
}

/// Formats a required size with the unit and decimals of [`format_bytes`], but rounded up, so that [`parse_bytes`] of
/// the text is never less than `bytes`, such as `40.50 GiB` or `40.02 GiB`.
pub fn format_required_bytes(bytes: u64) -> String {
    let Some((unit, size)) = STEPS[2..].iter().find(|(_, size)| bytes >= *size) else {
        return format_bytes(bytes);
    };
    let hundredths = (u128::from(bytes) * 100).div_ceil(u128::from(*size));
    match (hundredths / 100, hundredths % 100) {
        (whole, 0) => format!("{whole} {unit}"),
        (whole, part) => format!("{whole}.{part:02} {unit}"),
    }
}

/// Formats a size without spaces so that [`parse_bytes`] returns it exactly, such as `24GiB` or `28.6GiB`.
pub fn format_exact_bytes(bytes: u64) -> String {
    let (number, unit) = STEPS[2..]
        .iter()
        .find(|(_, size)| bytes >= *size)
        .map_or((bytes as f64, "B"), |(unit, size)| (bytes as f64 / *size as f64, *unit));
    let short = format!("{}{unit}", (number * 100.0).round() / 100.0);
    if parse_bytes(&short) == Ok(bytes) {
        return short;
    }
    let whole = STEPS[2..].iter().find(|(_, size)| bytes.is_multiple_of(*size));
    let (unit, size) = whole.copied().unwrap_or(("B", 1));
    format!("{}{unit}", bytes / size)
}

/// Formats two sizes like [`format_bytes`], or in a smaller unit if unequal sizes would look equal, such as `4718 MiB`.
pub fn format_bytes_apart(sizes: [u64; 2]) -> [String; 2] {
    let plain = sizes.map(format_bytes);
    if plain[0] != plain[1] || sizes[0] == sizes[1] {
        return plain;
    }
    let smaller = [("MiB", 1_u64 << 20), ("KiB", 1 << 10), ("B", 1)];
    let in_unit = |(unit, size): (&str, u64)| sizes.map(|bytes| format!("{} {unit}", bytes / size));
    let is_exact = |(_, size): &(&str, u64)| sizes.iter().all(|bytes| bytes.is_multiple_of(*size));
    smaller.into_iter().find(is_exact).map_or(plain, in_unit)
}

/// Like [`format_bytes`], with a sign, such as `+1.50 MiB`, `−512 B` or `0 B`.
pub fn format_signed_bytes(bytes: impl Into<i128>) -> String {
    let bytes: i128 = bytes.into();
    let sign = match bytes {
        0 => "",
        1.. => "+",
        _ => "−",
    };
    format!("{sign}{}", format_bytes(u64::try_from(bytes.unsigned_abs()).unwrap_or(u64::MAX)))
}

/// Formats `count` with a comma between each group of three digits.
pub fn format_count(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a count with its noun, such as `1 step` or `1,234 steps`.
pub fn count_of(count: u64, noun: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{} {noun}{s}", format_count(count))
}

/// Formats a number of floating-point operations in a suitable unit, such as `7 FLOP` or `3.33 TFLOP`.
pub fn format_flops(flops: u64) -> String {
    let units = ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"];
    let mut scaled = flops as f64;
    let mut unit = 0;
    // A value that would round to 1000 belongs to the next unit.
    while scaled >= 999.995 && unit + 1 < units.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{flops} {}", units[0]) } else { format!("{scaled:.2} {}", units[unit]) }
}

/// Formats a duration in nanoseconds in a suitable unit, such as `1.250 s`, `3.40 ms`, `12.0 µs` or `80 ns`.
pub fn format_nanos(nanos: u64) -> String {
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{:.1} µs", nanos as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", nanos as f64 / 1e6),
        _ => format!("{:.3} s", nanos as f64 / 1e9),
    }
}

/// Formats a duration in nanoseconds. Durations over two hours are in the largest unit in which the value is at least
/// 2, such as `633 days` or `30 h`; shorter durations as in [`format_nanos`].
pub fn format_duration(nanos: u64) -> String {
    const HOUR: u64 = 3_600_000_000_000;
    match nanos / HOUR {
        0..2 => format_nanos(nanos),
        hours @ 2..48 => format!("{hours} h"),
        hours => format!("{} days", format_count(hours / 24)),
    }
}

/// Parses a size in bytes: an integer or decimal number and an optional unit. `KiB`, `MiB`, `GiB`, `TiB` (and the short
/// `K`, `M`, `G`, `T`) are powers of 1024; `kB`, `MB`, `GB`, `TB` are powers of 1000; a number without a unit is bytes.
///
/// # Errors
/// Fails if the text is not a size, or if the size is 2^64 bytes or more.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number = number.replace('_', "");
    let scale: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        other => {
            return Err(format!(
                "unknown unit '{other}' in size '{text}': expected a size such as 512MiB, 24GiB or 1048576"
            ));
        }
    };
    let bad = || format!("invalid size '{text}': expected a size such as 512MiB, 24GiB or 1048576");
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale).ok_or_else(|| format!("'{text}' is 2^64 bytes or more"));
    }
    let value: f64 = number.parse().map_err(|_| bad())?;
    let bytes = value * scale as f64;
    if bytes.is_finite() && bytes < u64::MAX as f64 { Ok(bytes.round() as u64) } else { Err(bad()) }
}

/// Parses a size like [`parse_bytes`], for limits and device sizes. A number below 1 MiB without a unit is an error.
///
/// # Errors
/// Fails if the text is not a size, or if a unit seems to be missing.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    let number = text.trim();
    if (1..1 << 20).contains(&bytes) && number.ends_with(|c: char| !c.is_ascii_alphabetic()) {
        let unit = if bytes < 1024 { "GiB" } else { "MiB" };
        return Err(format!("{number} is {bytes} bytes; did you mean {number}{unit}? ({number}B for bytes)"));
    }
    Ok(bytes)
}

/// Parses a non-empty half-open range, such as `10..13` for 10, 11 and 12; `None` for any other text.
pub fn parse_range<T: FromStr + PartialOrd>(text: &str) -> Option<Range<T>> {
    let (from, to) = text.split_once("..")?;
    let range = from.parse().ok()?..to.parse().ok()?;
    (!range.is_empty()).then_some(range)
}

/// Formats a share of a total, such as `61%`, `0.4%`, `<0.1%` or `0%`.
pub fn format_share(bytes: u64, total: u64) -> String {
    if bytes == 0 || total == 0 {
        return "0%".to_owned();
    }
    let percent = bytes as f64 / total as f64 * 100.0;
    match percent {
        10.0.. => format!("{percent:.0}%"),
        0.1.. => format!("{percent:.1}%"),
        _ => "<0.1%".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_formatted_in_decimal_units() {
        let texts = [0, 999, 1000, 999_999, 3_331_000_000_000, u64::MAX].map(format_flops);
        assert_eq!(texts, ["0 FLOP", "999 FLOP", "1.00 kFLOP", "1.00 MFLOP", "3.33 TFLOP", "18.45 EFLOP"]);
    }

    #[test]
    fn bytes_print_in_binary_units_and_whole_numbers_stay_whole() {
        assert_eq!(format_bytes(0), "0 B");
        assert_eq!(format_bytes(1023), "1023 B");
        assert_eq!(format_bytes(2 << 20), "2 MiB");
        assert_eq!(format_bytes(6_087_937_568), "5.67 GiB");
        assert_eq!(format_signed_bytes(-1536_i64), "−1.50 KiB");
        assert_eq!(format_count(1_234_567), "1,234,567");
        assert_eq!(format_nanos(1_250_000_000), "1.250 s");
    }

    #[test]
    fn unequal_sizes_never_print_alike() {
        let apart = |one, other| format_bytes_apart([one, other]).map(|text| text.replace(' ', ""));
        assert_eq!(apart(4_947_181_568, 4_945_084_416), ["4718MiB", "4716MiB"]);
        assert_eq!(apart(5 << 30, 4_945_084_416), ["5GiB", "4.61GiB"]);
        assert_eq!(apart((1 << 30) + 1, 1 << 30), ["1.00GiB", "1GiB"], "a whole number has no decimals");
        assert_eq!(apart(1_234_567, 1_234_566), ["1234567B", "1234566B"]);
        assert_eq!(apart(3, 3), ["3B", "3B"]);
    }

    #[test]
    fn a_required_size_reads_back_as_no_less() {
        for (bytes, text) in [
            (0, "0 B"),
            (1000, "1000 B"),
            (3 << 19, "1.50 MiB"),
            (1025, "1.01 KiB"),
            ((1 << 20) - 1, "1024 KiB"),
            (81 << 29, "40.50 GiB"),
            ((40 << 30) + (14 << 20), "40.02 GiB"),
            (85_362 << 20, "83.37 GiB"),
            ((40 << 30) - 1, "40 GiB"),
            ((1 << 40) + 1, "1.01 TiB"),
        ] {
            assert_eq!(format_required_bytes(bytes), text);
            assert!(parse_bytes(text).unwrap() >= bytes, "{text}");
        }
        assert!(parse_bytes(&format_bytes((40 << 30) + (14 << 20))).unwrap() < (40 << 30) + (14 << 20), "rounds down");
        for bytes in [0, 1000, 1 << 10, 3 << 20, 24 << 30, u64::MAX, (1 << 60) + 1] {
            assert_eq!(parse_bytes(&format_exact_bytes(bytes)), Ok(bytes));
        }
        for text in ["24GiB", "28.6GiB", "1.25TiB", "40974MiB", "1000B"] {
            assert_eq!(format_exact_bytes(parse_bytes(text).unwrap()), text);
        }
    }

    #[test]
    fn a_small_number_without_a_unit_is_no_limit() {
        assert_eq!(parse_size("24").unwrap_err(), "24 is 24 bytes; did you mean 24GiB? (24B for bytes)");
        assert_eq!(parse_size("8000").unwrap_err(), "8000 is 8000 bytes; did you mean 8000MiB? (8000B for bytes)");
        for (text, bytes) in [("24B", 24), ("0", 0), ("0.5 KiB", 512), ("1048576", 1 << 20)] {
            assert_eq!(parse_size(text), Ok(bytes));
        }
    }

    #[test]
    fn sizes_read_back_and_nonsense_is_refused_with_an_example() {
        assert_eq!(parse_bytes("4GiB"), Ok(4 << 30));
        assert_eq!(parse_bytes(" 1.5 MiB "), Ok(3 << 19));
        assert_eq!(parse_bytes("24GB"), Ok(24_000_000_000));
        assert_eq!(parse_bytes("512"), Ok(512));
        assert!(parse_bytes("lots").unwrap_err().contains("such as"));
        assert!(parse_bytes("3 parsecs").unwrap_err().contains("parsecs"));
        assert!(parse_bytes("99999999999TiB").is_err());
        assert!(parse_bytes("").is_err());
    }

    #[test]
    fn a_range_has_its_first_number_and_the_one_after_its_last() {
        assert_eq!(parse_range("10..13"), Some(10_u32..13));
        assert_eq!(["13..13", "10", "a..3", "..3"].map(parse_range::<u32>), [const { None }; 4]);
    }

    #[test]
    fn shares_are_short_and_never_vanish() {
        assert_eq!(
            [
                format_share(0, 9),
                format_share(1, 1_000_000),
                format_share(1, 200),
                format_share(1, 3),
                format_share(3, 3)
            ],
            ["0%", "<0.1%", "0.5%", "33%", "100%"]
        );
        assert_eq!(format_share(0, 0), "0%");
    }
}
