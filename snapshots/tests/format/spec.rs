//! Spec: the specification and the code say the same.
use highwater_snapshots::event::{Alloc, Event, What};
use highwater_snapshots::format::{EndFacts, SnapWriter};
use highwater_snapshots::trace::Header;
use highwater_snapshots::{Category, DeviceId, OpId, Pool, ScopeId, StackId, StreamId};

fn example() -> Vec<u8> {
    let header = Header { recorder: "hw".to_owned(), program: "p".to_owned(), pid: 7, ..Header::default() };
    let mut writer = SnapWriter::new(Vec::new(), &header).unwrap();
    writer.append_strings(&["mlp"]).unwrap();
    writer.append_scopes(&[highwater_snapshots::tables::Scope { parent: ScopeId::NONE, name: highwater_snapshots::StringId(0) }]).unwrap();
    let alloc = |block, address, requested, category, scope| What::Alloc(Alloc { block, address, requested, allocated: 1024, stream: StreamId(0), pool: Pool::Small, category, op: OpId::NONE, scope });
    let event = |time_ns, what| Event { time_ns, device: DeviceId(0), stack: StackId::NONE, what };
    let events = [
        event(1000, What::Step(0)),
        event(1300, alloc(0, 0x20_0000, 1000, Category::Parameter, ScopeId(0))),
        event(1350, alloc(1, 0x20_0400, 1024, Category::Activation, ScopeId::NONE)),
        event(1500, What::FreeRequested(1)),
        event(1500, What::FreeCompleted(1)),
    ];
    writer.write_events(&events).unwrap();
    writer.finish(&EndFacts::default()).unwrap()
}
#[test]
fn x() { std::fs::write("/tmp/example.snap", example()).unwrap(); }
