//! The settings of an allocator, with PyTorch's names, defaults and limits.

use highwater_snapshots::suggest::did_you_mean;

use super::driver::Driver;

/// The number of bytes in a MiB, the unit of sizes in settings.
pub(super) const MIB: u64 = 1 << 20;
/// The largest request, and the largest size in settings, in bytes.
pub(super) const MAX_REQUEST: u64 = 1 << 60;

/// Settings of an allocator. Parsed from text in PyTorch's grammar (`PYTORCH_CUDA_ALLOC_CONF`) and printed in a
/// canonical form that omits defaults.
///
/// ```
/// use highwater_allocator::AllocConfig;
///
/// let config: AllocConfig = "max_split_size_mb: 128, roundup_power2_divisions:[256:1,512:2,>:4]".parse()?;
/// assert_eq!(config.max_split_bytes(), Some(128 << 20));
/// assert_eq!(config.to_string(), "max_split_size_mb:128,roundup_power2_divisions:[256:1,512:2,>:4]");
/// # Ok::<(), highwater_allocator::ConfigError>(())
/// ```
///
/// Sizes are whole numbers of MiB, at most 2⁴⁰.
///
/// | key | allowed | default |
/// |---|---|---|
/// | `large_segment_size_mb` | above 10 | 20 |
/// | `max_split_size_mb` | at least `large_segment_size_mb` | no limit |
/// | `max_non_split_rounding_mb` | at least `large_segment_size_mb` | `large_segment_size_mb` |
/// | `roundup_power2_divisions` | a power of two, or a list `[MiB:divisions,…,>:divisions]` | no division |
/// | `garbage_collection_threshold` | between 0 and 1, both excluded | off |
/// | `per_process_memory_fraction` | from 0 to 1 | 1 |
/// | `expandable_segments` | `True`, `False` | `False` |
///
/// `backend:native` and PyTorch's settings for pinned host memory and locking are accepted, so that a string that works
/// in PyTorch works here; they do not affect device memory and are not printed. CUDA graphs are not supported:
/// `graph_capture_record_stream_reuse` may only be `False`.
#[derive(Clone, Debug, PartialEq)]
pub struct AllocConfig {
    pub(super) large_segment_bytes: u64,
    pub(super) max_split_bytes: Option<u64>,
    pub(super) max_non_split_rounding_bytes: Option<u64>,
    pub(super) divisions: Divisions,
    pub(super) garbage_collection_threshold: Option<f64>,
    pub(super) memory_fraction: f64,
    pub(super) expandable_segments: bool,
}

impl Default for AllocConfig {
    fn default() -> Self {
        Self {
            large_segment_bytes: 20 * MIB,
            max_split_bytes: None,
            max_non_split_rounding_bytes: None,
            divisions: Divisions::default(),
            garbage_collection_threshold: None,
            memory_fraction: 1.0,
            expandable_segments: false,
        }
    }
}

impl AllocConfig {
    /// Returns these settings with `key` reset to its default. An unknown key changes nothing.
    pub fn without(&self, key: &str) -> Self {
        let (mut config, default) = (self.clone(), Self::default());
        match key {
            "large_segment_size_mb" => config.large_segment_bytes = default.large_segment_bytes,
            "max_split_size_mb" => config.max_split_bytes = default.max_split_bytes,
            "max_non_split_rounding_mb" => config.max_non_split_rounding_bytes = default.max_non_split_rounding_bytes,
            "roundup_power2_divisions" => config.divisions = default.divisions,
            "garbage_collection_threshold" => config.garbage_collection_threshold = None,
            "per_process_memory_fraction" => config.memory_fraction = default.memory_fraction,
            "expandable_segments" => config.expandable_segments = default.expandable_segments,
            _ => {}
        }
        config
    }

    /// Returns the size in bytes of a segment for requests above 1 MiB and under 10 MiB, and of a page of the large
    /// pool's expandable segments.
    pub(crate) fn large_segment_bytes(&self) -> u64 {
        self.large_segment_bytes
    }

    /// Returns the size in bytes from which blocks are never split; `None` if all blocks may be split.
    pub fn max_split_bytes(&self) -> Option<u64> {
        self.max_split_bytes
    }

    /// Returns the number of bytes, exclusive, by which a block that is never split may exceed the request.
    pub fn max_non_split_rounding_bytes(&self) -> u64 {
        self.max_non_split_rounding_bytes.unwrap_or(self.large_segment_bytes)
    }

    /// Returns the number of divisions between powers of two.
    pub fn divisions(&self) -> &Divisions {
        &self.divisions
    }

    /// Returns the fraction of the memory limit above which cached segments are garbage collected; `None` if garbage
    /// collection is off. Has no effect unless the memory fraction is below 1.
    pub fn garbage_collection_threshold(&self) -> Option<f64> {
        self.garbage_collection_threshold
    }

    /// Returns the fraction of the device memory that may be reserved.
    pub fn memory_fraction(&self) -> f64 {
        self.memory_fraction
    }

    /// Returns whether segments grow page by page within reserved addresses.
    pub fn expandable_segments(&self) -> bool {
        self.expandable_segments
    }

    /// Checks that `driver` supports the settings.
    ///
    /// # Errors
    /// Returns an error if expandable segments are on, and the device has no virtual memory management or its page size
    /// does not divide `large_segment_size_mb`.
    pub fn check_driver(&self, driver: &dyn Driver) -> Result<(), ConfigError> {
        if !self.expandable_segments {
            return Ok(());
        }
        let Some(page) = driver.page_bytes() else {
            return Err(ConfigError::NoVirtualMemory { kind: driver.kind().name() });
        };
        match self.large_segment_bytes.is_multiple_of(page) {
            true => Ok(()),
            false => Err(ConfigError::Invalid {
                key: "large_segment_size_mb",
                value: (self.large_segment_bytes / MIB).to_string(),
                allowed: format!(
                    "a size in MiB that is a multiple of the device's page size ({page} bytes) with \
                     expandable_segments:True"
                ),
            }),
        }
    }

    pub(super) fn splits_freely(&self, bytes: u64) -> bool {
        self.max_split_bytes.is_none_or(|limit| bytes < limit)
    }
}

/// The number of divisions between powers of two when a request is rounded up, for each of the sixteen intervals from
/// `[1 MiB, 2 MiB)` to `[32 GiB, ∞)`. Sizes under 1 MiB use the first number. 0 and 1 mean no division.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Divisions(pub(super) [u64; 16]);

impl Divisions {
    /// Returns the number of divisions for a request of `bytes`.
    #[inline]
    pub fn of(&self, bytes: u64) -> u64 {
        let doublings_above_a_mib = bytes.max(1).ilog2().saturating_sub(20);
        self.0[doublings_above_a_mib.min(15) as usize]
    }
}

/// An error in allocator settings, with the key, its value and the accepted values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No setting has this name.
    #[error("allocator settings: unknown key '{key}'{}; the keys are {allowed}", did_you_mean(.key, .allowed.split(", ")))]
    UnknownKey {
        /// The key as written.
        key: String,
        /// The names of all settings.
        allowed: String,
    },
    /// An invalid value for a setting.
    #[error("allocator settings: invalid value '{value}' for {key}; expected {allowed}")]
    Invalid {
        /// The name of the setting.
        key: &'static str,
        /// The value as written.
        value: String,
        /// A description of the allowed values.
        allowed: String,
    },
    /// The text ends early, or a separator is missing.
    #[error("allocator settings: expected '{expected}' after '{after}', found {found}; write key:value,key:[a:b,c:d]")]
    Grammar {
        /// The expected separator.
        expected: char,
        /// The text before the missing separator.
        after: String,
        /// The text that was found instead.
        found: String,
    },
    /// Expandable segments on a device without virtual memory management.
    #[error(
        "allocator settings: expandable_segments:True is not supported on the {kind} device: it has no virtual memory \
         management"
    )]
    NoVirtualMemory {
        /// The name of the driver's kind.
        kind: &'static str,
    },
}
