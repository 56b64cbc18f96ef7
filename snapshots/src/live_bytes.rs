//! Computes the live memory while a recording is still being read, for a preview.

/// Minimum and maximum of the requested bytes of live blocks during some events, summed over all devices.
///
/// The values are exact for a `.snap` file. A PyTorch snapshot lists the blocks live at its start only at its end. Its
/// values are therefore relative to an unknown level, may be negative, and show only the curve's shape; each device
/// starts at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBytes {
    /// The minimum, in bytes.
    pub lowest: i64,
    /// The maximum, in bytes.
    pub highest: i64,
}

impl LiveBytes {
    /// Returns the smaller minimum and the larger maximum of the two.
    pub fn union(self, other: Self) -> Self {
        Self { lowest: self.lowest.min(other.lowest), highest: self.highest.max(other.highest) }
    }
}

/// Sums the sizes of blocks as they are allocated and freed, and records the minimum and maximum since the last query.
#[derive(Clone, Debug, Default)]
pub struct LiveBytesMeter {
    now: i64,
    lowest: i64,
    highest: i64,
    /// The first and the last time of the current device's events.
    times: Option<(u64, u64)>,
}

impl LiveBytesMeter {
    /// Adds a block.
    #[inline]
    pub fn begin(&mut self, bytes: u64) {
        self.now = self.now.saturating_add_unsigned(bytes);
        self.highest = self.highest.max(self.now);
    }

    /// Removes a block.
    #[inline]
    pub fn end(&mut self, bytes: u64) {
        self.now = self.now.saturating_sub_unsigned(bytes);
        self.lowest = self.lowest.min(self.now);
    }

    /// Records the time of an event; must be called for each event. A snapshot lists the devices one after another. If
    /// time decreases by more than half of the elapsed time, the events of the next device begin.
    #[inline]
    pub fn at_time(&mut self, time: u64) {
        match &mut self.times {
            Some((_, last)) if time >= *last => *last = time,
            Some((first, last)) if time >= *first + (*last - *first) / 2 => {}
            times => {
                *times = Some((time, time));
                self.now = 0;
                (self.lowest, self.highest) = (self.lowest.min(0), self.highest.max(0));
            }
        }
    }

    /// Returns the bounds since the last call.
    pub fn take(&mut self) -> LiveBytes {
        let levels = LiveBytes { lowest: self.lowest, highest: self.highest };
        (self.lowest, self.highest) = (self.now, self.now);
        levels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_since_the_last_question_and_include_where_it_began() {
        let mut meter = LiveBytesMeter::default();
        meter.begin(100);
        meter.end(30);
        assert_eq!(meter.take(), LiveBytes { lowest: 0, highest: 100 });
        meter.end(90);
        meter.begin(5);
        assert_eq!(meter.take(), LiveBytes { lowest: -20, highest: 70 });
        assert_eq!(meter.take(), LiveBytes { lowest: -15, highest: -15 });
    }

    #[test]
    fn another_device_begins_at_zero_again_and_a_little_disorder_is_no_device() {
        let mut meter = LiveBytesMeter::default();
        for (time, bytes) in [(1000, 10), (2000, 10), (1990, 10)] {
            meter.at_time(time);
            meter.begin(bytes);
        }
        assert_eq!(meter.take(), LiveBytes { lowest: 0, highest: 30 });
        meter.at_time(1001);
        meter.begin(7);
        meter.take();
        meter.begin(1);
        assert_eq!(meter.take(), LiveBytes { lowest: 7, highest: 8 });
    }

    #[test]
    fn sizes_that_cannot_be_do_not_overflow() {
        let mut meter = LiveBytesMeter::default();
        for _ in 0..3 {
            meter.begin(i64::MAX as u64);
            meter.begin(u64::MAX);
        }
        assert_eq!(meter.take(), LiveBytes { lowest: 0, highest: i64::MAX });
    }
}
