//! Parses and prints settings in PyTorch's grammar `key:value,key:[a:b,c:d]`.

use std::fmt;
use std::str::FromStr;

use super::config::{AllocConfig, ConfigError, Divisions, MAX_REQUEST, MIB};

const KEYS: &str = "large_segment_size_mb, max_split_size_mb, max_non_split_rounding_mb, roundup_power2_divisions, \
                    garbage_collection_threshold, per_process_memory_fraction, expandable_segments";

/// PyTorch settings that do not affect device memory.
const WITHOUT_EFFECT: &[&str] = &[
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "pinned_use_cuda_host_register",
    "pinned_use_hip_host_register",
    "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb",
    "pinned_use_background_threads",
    "pinned_free_catch_all",
    "pinned_max_round_threshold_mb",
    "pinned_max_cached_size_mb",
];

impl AllocConfig {
    /// Returns these settings, overridden by those in `text`, which is in PyTorch's grammar.
    ///
    /// # Errors
    /// Returns an error if `text` does not follow the grammar, or has an unknown key or a value out of range.
    pub fn with(&self, text: &str) -> Result<Self, ConfigError> {
        apply(self, text)
    }
}

impl FromStr for AllocConfig {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        Self::default().with(text)
    }
}

impl fmt::Display for AllocConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(self, f)
    }
}

fn apply(config: &AllocConfig, text: &str) -> Result<AllocConfig, ConfigError> {
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let mut config = config.clone();
    let mut reader = Reader { text: &text, at: 0 };
    while !reader.at_end() {
        let key = reader.word();
        match key {
            "large_segment_size_mb" => {
                config.large_segment_bytes = reader.mebibytes("large_segment_size_mb")?;
            }
            "max_split_size_mb" => {
                config.max_split_bytes = Some(reader.mebibytes("max_split_size_mb")?);
            }
            "max_non_split_rounding_mb" => {
                config.max_non_split_rounding_bytes = Some(reader.mebibytes("max_non_split_rounding_mb")?);
            }
            "roundup_power2_divisions" => config.divisions = reader.divisions()?,
            "garbage_collection_threshold" => {
                let allowed = "a number between 0 and 1, both excluded";
                let inside = |share: f64| share > 0.0 && share < 1.0;
                let threshold = reader.share("garbage_collection_threshold", allowed, inside)?;
                config.garbage_collection_threshold = Some(threshold);
            }
            "per_process_memory_fraction" => {
                let inside = |share: f64| (0.0..=1.0).contains(&share);
                config.memory_fraction = reader.share("per_process_memory_fraction", "a number from 0 to 1", inside)?;
            }
            "expandable_segments" => {
                config.expandable_segments = match reader.value()? {
                    "True" => true,
                    "False" => false,
                    other => {
                        return Err(invalid("expandable_segments", other, "'True' or 'False'"));
                    }
                }
            }
            "backend" => match reader.value()? {
                "native" => {}
                other => return Err(invalid("backend", other, "'native', the caching allocator")),
            },
            "graph_capture_record_stream_reuse" => match reader.value()? {
                "False" => {}
                other => {
                    let allowed = "'False': CUDA graphs are not supported, and nothing is captured";
                    return Err(invalid("graph_capture_record_stream_reuse", other, allowed));
                }
            },
            key if WITHOUT_EFFECT.contains(&key) => {
                reader.value()?;
            }
            key => {
                return Err(ConfigError::UnknownKey { key: key.to_owned(), allowed: KEYS.to_owned() });
            }
        }
        if !reader.at_end() {
            reader.expect(',')?;
        }
    }
    check_together(&config)?;
    Ok(config)
}

/// Checks limits on one setting that depend on another.
fn check_together(config: &AllocConfig) -> Result<(), ConfigError> {
    let segment = config.large_segment_bytes / MIB;
    if segment <= 10 {
        return Err(invalid("large_segment_size_mb", &segment.to_string(), "a whole number of MiB above 10"));
    }
    let limited = [
        ("max_split_size_mb", config.max_split_bytes),
        ("max_non_split_rounding_mb", config.max_non_split_rounding_bytes),
    ];
    for (key, bytes) in limited {
        if let Some(bytes) = bytes
            && bytes < config.large_segment_bytes
        {
            let allowed = format!("a whole number of MiB from {segment} (large_segment_size_mb) upwards");
            return Err(invalid(key, &(bytes / MIB).to_string(), &allowed));
        }
    }
    Ok(())
}

fn invalid(key: &'static str, value: &str, allowed: &str) -> ConfigError {
    ConfigError::Invalid { key, value: value.to_owned(), allowed: allowed.to_owned() }
}

/// A parser for text without white space.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn at_end(&self) -> bool {
        self.at == self.text.len()
    }

    /// Reads up to the next separator.
    fn word(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let word = &rest[..rest.find([',', ':', '[', ']']).unwrap_or(rest.len())];
        self.at += word.len();
        word
    }

    fn next_is(&self, separator: char) -> bool {
        self.text[self.at..].starts_with(separator)
    }

    fn expect(&mut self, separator: char) -> Result<(), ConfigError> {
        if self.next_is(separator) {
            self.at += separator.len_utf8();
            return Ok(());
        }
        let found = self.text[self.at..].chars().next().map_or("the end".to_owned(), |c| format!("'{c}'"));
        Err(ConfigError::Grammar { expected: separator, after: self.text[..self.at].to_owned(), found })
    }

    /// Reads the colon and the single value after a key.
    fn value(&mut self) -> Result<&'a str, ConfigError> {
        self.expect(':')?;
        Ok(self.word())
    }

    fn mebibytes(&mut self, key: &'static str) -> Result<u64, ConfigError> {
        let value = self.value()?;
        let bytes = value.parse::<u64>().ok().and_then(|count| count.checked_mul(MIB));
        let bytes = bytes.filter(|&bytes| bytes <= MAX_REQUEST);
        let allowed = || format!("a whole number of MiB, at most {}", MAX_REQUEST / MIB);
        bytes.ok_or_else(|| invalid(key, value, &allowed()))
    }

    fn share(&mut self, key: &'static str, allowed: &str, inside: fn(f64) -> bool) -> Result<f64, ConfigError> {
        let value = self.value()?;
        value.parse().ok().filter(|&share| inside(share)).ok_or_else(|| invalid(key, value, allowed))
    }

    /// Reads one number for all intervals, or a list. The list `[64:8,256:4,>:1]` sets 8 up to 127 MiB, no division up
    /// to 255 MiB, 4 up to 511 MiB, and 1 above.
    fn divisions(&mut self) -> Result<Divisions, ConfigError> {
        const KEY: &str = "roundup_power2_divisions";
        self.expect(':')?;
        if !self.next_is('[') {
            let value = self.word();
            let number = value.parse().ok().filter(|number: &u64| number.is_power_of_two());
            let number = number.ok_or_else(|| invalid(KEY, value, "a power of two, or a list [MiB:divisions,…]"))?;
            return Ok(Divisions([number; 16]));
        }
        self.expect('[')?;
        let mut divisions = Divisions::default();
        let mut last: Option<usize> = None;
        while !self.next_is(']') {
            let from = self.word();
            let value = self.value()?;
            let number = value.parse().ok().filter(|number: &u64| *number == 0 || number.is_power_of_two());
            let number = number
                .ok_or_else(|| invalid(KEY, &format!("{from}:{value}"), "0 or a power of two after the colon"))?;
            if from == ">" {
                divisions.0[last.unwrap_or(0) + 1..].fill(number);
            } else {
                let start = from.parse().ok().filter(|start: &u64| start.is_power_of_two());
                let allowed = "a power of two, in MiB, or '>' before the colon";
                let start = start.ok_or_else(|| invalid(KEY, &format!("{from}:{value}"), allowed))?;
                let index = start.ilog2().min(15) as usize;
                if last.is_none() {
                    divisions.0[..index].fill(number);
                }
                divisions.0[index] = number;
                last = Some(index);
            }
            if !self.next_is(']') {
                self.expect(',')?;
            }
        }
        self.expect(']')?;
        Ok(divisions)
    }
}

/// Prints the settings that differ from the defaults, in the order of the table at [`AllocConfig`].
fn print(config: &AllocConfig, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let default = AllocConfig::default();
    let mut parts = Vec::new();
    if config.large_segment_bytes != default.large_segment_bytes {
        parts.push(format!("large_segment_size_mb:{}", config.large_segment_bytes / MIB));
    }
    if let Some(bytes) = config.max_split_bytes {
        parts.push(format!("max_split_size_mb:{}", bytes / MIB));
    }
    if let Some(bytes) = config.max_non_split_rounding_bytes {
        parts.push(format!("max_non_split_rounding_mb:{}", bytes / MIB));
    }
    if config.divisions != default.divisions {
        parts.push(format!("roundup_power2_divisions:{}", config.divisions));
    }
    if let Some(threshold) = config.garbage_collection_threshold {
        parts.push(format!("garbage_collection_threshold:{threshold}"));
    }
    if config.memory_fraction != default.memory_fraction {
        parts.push(format!("per_process_memory_fraction:{}", config.memory_fraction));
    }
    if config.expandable_segments {
        parts.push("expandable_segments:True".to_owned());
    }
    f.write_str(&parts.join(","))
}

/// Prints the shortest list that parses to the same numbers.
impl fmt::Display for Divisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers = &self.0;
        if numbers.iter().all(|&number| number == numbers[0]) && numbers[0] != 0 {
            return write!(f, "{}", numbers[0]);
        }
        let first = numbers.iter().take_while(|&&number| number == numbers[0]).count() - 1;
        let tail = numbers.iter().rev().take_while(|&&number| number == numbers[15]).count();
        let tail_start = (16 - tail).max(first + 1);
        write!(f, "[{}:{}", 1_u64 << first, numbers[0])?;
        for (index, &number) in numbers.iter().enumerate().take(tail_start).skip(first + 1) {
            if number != 0 || (index + 1 == tail_start && numbers[15] != 0) {
                write!(f, ",{}:{number}", 1_u64 << index)?;
            }
        }
        if tail_start < 16 && numbers[15] != 0 {
            write!(f, ",>:{}", numbers[15])?;
        }
        f.write_str("]")
    }
}
