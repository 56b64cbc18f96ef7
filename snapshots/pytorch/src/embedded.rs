//! Recovers the `.snap` recording that this program embeds as a string in the snapshots that it exports.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::digest::EventDigest;
use super::raw::{EMBEDDED_MARKER, RawSnapshot};
use highwater_snapshots::error::Problem;
use highwater_snapshots::format::read_bytes;
use highwater_snapshots::trace::Trace;

/// Returns the start of the string for a snapshot with this event digest. The recording's bytes follow in base64.
pub(super) fn prefix(digest: u32) -> String {
    format!("{EMBEDDED_MARKER}:{digest:08x}:")
}

/// Returns the recording that this program embedded in the snapshot, which is more exact than the snapshot; `None` if
/// there is none.
///
/// # Errors
/// Returns a problem if the recording cannot be used, because the events were edited since or the string is damaged.
pub fn recover(raw: &RawSnapshot) -> Option<Result<Trace, Problem>> {
    let text = raw.highwater.as_deref()?;
    Some(read(text, EventDigest::of(raw)).map_err(Problem::new))
}

fn read(text: &str, digest: u32) -> Result<Trace, String> {
    const ASIDE: &str = "is ignored, and the file is read like any other snapshot";
    let mut parts = text.splitn(3, ':');
    let mut part = || parts.next().unwrap_or_default();
    let (marker, written, body) = (part(), part(), part());
    if marker != EMBEDDED_MARKER {
        return Err(format!("the recording embedded in the file is of an unknown kind: it {ASIDE}"));
    }
    if u32::from_str_radix(written, 16) != Ok(digest) {
        return Err(format!("the file was edited after it was written: the recording embedded in it {ASIDE}"));
    }
    let bytes = STANDARD.decode(body).map_err(|why| why.to_string());
    let trace = bytes.and_then(|bytes| read_bytes(&bytes).map_err(|why| why.to_string()));
    trace.map_err(|why| format!("the recording embedded in the file is damaged ({why}): it {ASIDE}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::{Action, RawEvent};
    use crate::sequences::Sequences;
    use highwater_notation::{text_from_trace, trace_from_text};
    use highwater_snapshots::format::write_trace;

    fn snapshot() -> RawSnapshot {
        let (stack, extras, action) = (Sequences::NONE, 0, Action::Alloc);
        let event = RawEvent { address: 4096, size: 512, time_us: 9, stream: 0, stack, extras, action };
        let mut raw = RawSnapshot { traces: vec![vec![event]], ..RawSnapshot::default() };
        let bytes = write_trace(Vec::new(), &trace_from_text("alloc a 512 parameter").unwrap()).unwrap();
        raw.highwater = Some(prefix(EventDigest::of(&raw)) + &STANDARD.encode(bytes));
        raw
    }

    #[test]
    fn the_recording_comes_back_from_a_snapshot_that_nobody_touched() {
        let trace = recover(&snapshot()).unwrap().unwrap();
        assert_eq!(text_from_trace(&trace), "alloc b0 512/512 parameter large\n");
        assert!(recover(&RawSnapshot::default()).is_none());
    }

    #[test]
    fn an_edited_snapshot_and_a_damaged_text_are_distinguished() {
        let why = |change: &dyn Fn(&mut RawSnapshot)| {
            let mut raw = snapshot();
            change(&mut raw);
            recover(&raw).unwrap().unwrap_err().what
        };
        assert!(why(&|raw| raw.traces[0][0].size = 1024).contains("was edited after it was written"));
        let text = |raw: &mut RawSnapshot, change: &dyn Fn(&str) -> String| {
            raw.highwater = raw.highwater.as_deref().map(change);
        };
        assert!(why(&|raw| text(raw, &|text| text.replace("snap1", "snap2"))).contains("unknown kind"));
        assert!(why(&|raw| text(raw, &|text| text[..60].to_owned())).contains("damaged"));
        assert!(why(&|raw| text(raw, &|text| text.to_owned() + "!")).contains("damaged"));
        assert!(why(&|raw| text(raw, &|_| String::new())).contains("unknown kind"));
    }
}
