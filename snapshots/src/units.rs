//! One way to print bytes and durations, and to read sizes such as `512MiB`.

const STEPS: [(&str, u64); 6] =
    [("EiB", 1 << 60), ("PiB", 1 << 50), ("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// `bytes` in the largest binary unit that keeps it at one or above, with three significant digits or two decimals:
/// `5.67 GiB`, `512 B`.
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

/// Like [`format_bytes`], with a sign in front: `+1.50 MiB`, `-512 B`, `0 B`.
pub fn format_signed_bytes(bytes: i64) -> String {
    let sign = match bytes {
        0 => "",
        1.. => "+",
        _ => "-",
    };
    format!("{sign}{}", format_bytes(bytes.unsigned_abs()))
}

/// `count` with commas between groups of three digits.
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

/// A duration given in nanoseconds, in the unit that suits it: `1.250 s`, `3.40 ms`, `12.0 µs`, `80 ns`.
pub fn format_nanos(nanos: u64) -> String {
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{:.1} µs", nanos as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", nanos as f64 / 1e6),
        _ => format!("{:.3} s", nanos as f64 / 1e9),
    }
}

/// Reads a size in bytes: a whole or decimal number and an optional unit. `KiB`, `MiB`, `GiB`, `TiB` (and the short
/// `K`, `M`, `G`, `T`) are powers of 1024; `kB`, `MB`, `GB`, `TB` are powers of 1000; a bare number is bytes.
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
            return Err(format!("unknown unit '{other}' in size '{text}': write for example 512MiB, 24GiB or 1048576"));
        }
    };
    let bad = || format!("'{text}' is no size: write for example 512MiB, 24GiB or 1048576");
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale).ok_or_else(|| format!("'{text}' is larger than 2^64 bytes"));
    }
    let value: f64 = number.parse().map_err(|_| bad())?;
    let bytes = value * scale as f64;
    if bytes.is_finite() && bytes < u64::MAX as f64 { Ok(bytes.round() as u64) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_print_in_binary_units_and_whole_numbers_stay_whole() {
        assert_eq!(format_bytes(0), "0 B");
        assert_eq!(format_bytes(1023), "1023 B");
        assert_eq!(format_bytes(2 << 20), "2 MiB");
        assert_eq!(format_bytes(6_087_937_568), "5.67 GiB");
        assert_eq!(format_signed_bytes(-1536), "-1.50 KiB");
        assert_eq!(format_count(1_234_567), "1,234,567");
        assert_eq!(format_nanos(1_250_000_000), "1.250 s");
    }

    #[test]
    fn sizes_read_back_and_nonsense_is_refused_with_an_example() {
        assert_eq!(parse_bytes("4GiB"), Ok(4 << 30));
        assert_eq!(parse_bytes(" 1.5 MiB "), Ok(3 << 19));
        assert_eq!(parse_bytes("24GB"), Ok(24_000_000_000));
        assert_eq!(parse_bytes("512"), Ok(512));
        assert!(parse_bytes("lots").unwrap_err().contains("for example"));
        assert!(parse_bytes("3 parsecs").unwrap_err().contains("parsecs"));
        assert!(parse_bytes("99999999999TiB").is_err());
        assert!(parse_bytes("").is_err());
    }
}
