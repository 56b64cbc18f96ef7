//! Compares the settings of two recordings and their devices.

use highwater_snapshots::ids::DeviceId;
use highwater_snapshots::trace::Trace;
use highwater_snapshots::units::format_bytes;

/// A setting of either recording; the value is `None` for a recording that does not have it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Setting {
    /// The name of the setting, as recorded.
    pub name: String,
    /// The value in A.
    pub a: Option<String>,
    /// The value in B.
    pub b: Option<String>,
}

impl Setting {
    /// Whether the values differ.
    pub fn differs(&self) -> bool {
        self.a != self.b
    }
}

/// The settings of both recordings: A's in order, then those that only B has.
pub fn settings(sides: [(&Trace, DeviceId); 2]) -> Vec<Setting> {
    let [a, b] = sides.map(|(trace, device)| facts(trace, device));
    let mut settings: Vec<Setting> =
        a.into_iter().map(|(name, value)| Setting { name, a: Some(value), b: None }).collect();
    for (name, value) in b {
        match settings.iter_mut().find(|setting| setting.name == name && setting.b.is_none()) {
            Some(setting) => setting.b = Some(value),
            None => settings.push(Setting { name, a: None, b: Some(value) }),
        }
    }
    settings
}

/// The settings of one recording, without values that differ between runs of the same program, such as times.
fn facts(trace: &Trace, device: DeviceId) -> Vec<(String, String)> {
    let header = &trace.header;
    let mut facts = vec![
        ("program".to_owned(), header.program.clone()),
        ("recorder".to_owned(), header.recorder.clone()),
        ("host".to_owned(), header.host.clone()),
        ("recorded".to_owned(), header.level.clone()),
    ];
    facts.extend(header.world_size.map(|size| ("world size".to_owned(), size.to_string())));
    facts.extend(header.rank.map(|rank| ("rank".to_owned(), rank.to_string())));
    facts.extend(header.facts.iter().cloned());
    if let Some(of_device) = trace.device_facts(device) {
        facts.push(("device".to_owned(), of_device.name.clone()));
        facts.push(("driver".to_owned(), of_device.driver.clone()));
        if of_device.capacity_bytes > 0 {
            facts.push(("capacity".to_owned(), format_bytes(of_device.capacity_bytes)));
        }
        facts.extend(of_device.settings.iter().cloned());
    }
    facts.retain(|(_, value)| !value.is_empty());
    facts
}
