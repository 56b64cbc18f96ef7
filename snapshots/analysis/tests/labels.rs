//! Tests that the command line's groups, the app's trees and its legends give a group the same label, for every key and
//! every kind of file.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use highwater_analysis::breakdown::Grouping;
use highwater_analysis::{BlockValues, Breakdown, GroupKey, Metric, Siblings, Tree, TreeKey, TreeQuery};
use highwater_pytorch::open::open_file;
use highwater_snapshots::{BlockId, Trace};

fn samples() -> Vec<PathBuf> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = [
        "snapshots/pytorch/testdata",
        "snapshots/pytorch/testdata/programs",
        "snapshots/testdata/v1",
        "engine/tests/data/replay",
    ];
    let files = folders.iter().filter_map(|folder| project.join(folder).read_dir().ok());
    files.flatten().map(|entry| entry.expect("a folder can be read").path()).collect()
}

/// The bytes of each group, by its label.
fn listed(trace: &Trace, blocks: &[BlockId], key: GroupKey) -> BTreeMap<String, u64> {
    let grouping = Grouping { keys: &[key], beside: &[], top: usize::MAX, siblings: Siblings::Each };
    let groups = Breakdown::of(trace, Metric::Requested, blocks, &grouping).groups;
    let labels: BTreeMap<String, u64> = groups.iter().map(|group| (group.key[0].clone(), group.bytes)).collect();
    assert_eq!(labels.len(), groups.len(), "no two groups by {key} read the same");
    labels
}

/// The bytes that end at each path of a tree, by the names on it.
fn drawn(trace: &Trace, blocks: &[BlockId], key: GroupKey) -> BTreeMap<String, u64> {
    let query = TreeQuery { keys: vec![TreeKey::By(key)], hides_internals: false, is_inverted: true };
    let tree = Tree::of(trace, Metric::Requested, blocks.to_vec(), &[], query);
    let between = if key == GroupKey::Stack { "\n" } else { "." };
    let mut labels = BTreeMap::new();
    for id in tree.ends(highwater_analysis::tree::NodeId::ROOT) {
        let names: Vec<String> = tree.path(id).into_iter().map(|id| tree.name(&trace.tables, id)).collect();
        *labels.entry(names.join(between)).or_default() += tree.node(id).own_bytes;
    }
    labels
}

/// The bytes of each value that colours distinguish, by its label.
fn coloured(trace: &Trace, blocks: &[BlockId], key: GroupKey) -> BTreeMap<String, u64> {
    let values = BlockValues::of(trace, key);
    let mut labels = BTreeMap::new();
    for row in blocks.iter().map(|id| id.0 as usize) {
        *labels.entry(values.label(values.value(row))).or_default() += trace.blocks.requested[row];
    }
    let all: Vec<usize> = (0..values.count()).collect();
    let names: BTreeSet<String> = values.names(&all).into_iter().collect();
    assert_eq!(names.len(), all.len(), "no two colours by {key} have the same name");
    labels
}

#[test]
fn groups_trees_and_legends_have_the_same_labels_and_bytes() {
    let (mut opened, mut groups) = (0, 0);
    for file in samples() {
        let Ok(found) = open_file(&file, &mut |_| ControlFlow::Continue(())) else {
            continue;
        };
        let (trace, device) = (&found.trace, found.trace.main_device());
        let is_on_device = |id: &BlockId| trace.blocks.device[id.0 as usize] == device;
        let blocks: Vec<BlockId> = trace.blocks.ids().filter(is_on_device).collect();
        opened += 1;
        for key in GroupKey::ALL.iter().copied().chain([GroupKey::ScopeTo(1), GroupKey::ScopeTo(2)]) {
            let (listed, drawn) = (listed(trace, &blocks, key), drawn(trace, &blocks, key));
            assert_eq!(listed, drawn, "{} by {key}", file.display());
            assert_eq!(listed, coloured(trace, &blocks, key), "{} by {key}", file.display());
            groups += listed.len();
        }
    }
    assert!(opened > 60 && groups > 5000, "{opened} files and {groups} groups were compared");
}
