//! Identifies the recording of each row, and describes it in the file's metadata.

use highwater_app::files::fleet::Origin;
use highwater_app::report::{Facts, Value};
use highwater_snapshots::Trace;
use parquet::data_type::ByteArray;
use parquet::file::metadata::KeyValue;

use crate::output::{problem_texts, trust};

/// The schema version of the two tables. Later versions may add columns, but never change their meaning.
pub(super) const SCHEMA_VERSION: &str = "1";

#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) recording: ByteArray,
    /// The rank and the source of the rank; `None` if unknown.
    pub(super) rank: Option<(u32, Origin)>,
    started_us: u64,
}

impl Identity {
    pub(super) fn of(name: &str, rank: Option<(u32, Origin)>, trace: &Trace) -> Self {
        Self { recording: ByteArray::from(name), rank, started_us: trace.header.started_unix_us }
    }

    /// A time of the recording in nanoseconds since 1970.
    pub(super) fn unix_ns(&self, time_ns: u64) -> i64 {
        i64::try_from(self.started_us.saturating_mul(1000).saturating_add(time_ns)).unwrap_or(i64::MAX)
    }

    /// All names begin with `highwater.`.
    pub(super) fn metadata(&self, trace: &Trace) -> Vec<KeyValue> {
        let header = &trace.header;
        let number = |number: Option<u32>| number.map(|number| number.to_string());
        let devices: Vec<Facts<'_>> = trace
            .devices
            .iter()
            .map(|facts| {
                Facts::new([
                    ("device", facts.device.0.into()),
                    ("name", facts.name.as_str().into()),
                    ("capacity_bytes", facts.capacity_bytes.into()),
                    ("driver", facts.driver.as_str().into()),
                    ("settings", Value::of(&facts.settings).into()),
                ])
            })
            .collect();
        let from = |(_, origin): (u32, Origin)| origin.name().unwrap_or_default().to_owned();
        let facts = [
            ("schema", Some(SCHEMA_VERSION.to_owned())),
            ("recorder", Some(header.recorder.clone())),
            ("program", Some(header.program.clone())),
            ("host", Some(header.host.clone())),
            ("pid", Some(header.pid.to_string())),
            ("rank", number(self.rank.map(|(rank, _)| rank))),
            ("rank_from", self.rank.map(from)),
            ("world_size", number(header.world_size)),
            ("started_us", Some(header.started_unix_us.to_string())),
            ("clock", Some(header.clock.clone())),
            ("devices", serde_json::to_string(&devices).ok()),
            ("trust", serde_json::to_string(&trust(trace)).ok()),
            ("problems", serde_json::to_string(&problem_texts(trace)).ok()),
        ];
        facts.into_iter().filter_map(|(name, value)| Some(KeyValue::new(format!("highwater.{name}"), value?))).collect()
    }
}
