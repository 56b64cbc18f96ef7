//! Checks trees of small traces against sums computed by hand, and their conditions against the filter.

use super::*;
use crate::index::beside::SegmentKind;
use crate::index::pools::BlockPool;
use crate::{Beside, Filter, Metric};
use highwater_notation::trace_from_text;
use highwater_snapshots::trace::Trace;
use highwater_snapshots::{Pool, StreamId};

/// Blocks 0 to 8: baseline weights, two layers and a sibling whose name has the same prefix, Python lines and lines
/// below.
const NET: &str = "
    baseline w 1000/1024 parameter @net.layers.1
    baseline u 24/512 parameter
    step 0
    phase forward
    alloc a 100/512 activation #linear @net.layers.0 < c10::cuda::malloc < forward < main
    alloc b 200/512 activation #relu @net.layers.1 < c10::cuda::malloc < forward < main
    alloc c 300/512 activation #linear @net.layers.10 stream=3 < at::mm < norm < forward < main
    alloc d 50/512 temporary #linear @net < forward < main
    step 1
    phase backward
    alloc e 100/512 gradient #linear @net.layers.0 < c10::cuda::malloc < backward < main
    alloc f 100/512 gradient #linear @other.net < main < forward
    alloc g 0 input @net < main
";

fn net() -> Trace {
    trace_from_text(NET).unwrap()
}

fn tree_of(trace: &Trace, keys: &str, change: impl FnOnce(&mut TreeQuery)) -> Tree {
    let keys = keys.split(',').map(|name| TreeKey::all().find(|key| key.name() == name).unwrap()).collect();
    let mut query = TreeQuery { keys, ..TreeQuery::default() };
    change(&mut query);
    Tree::of(trace, Metric::Requested, trace.blocks.ids().collect(), &[], query)
}

/// The tree as lines, each node indented below its parent.
fn drawn(trace: &Trace, tree: &Tree) -> Vec<String> {
    fn draw(trace: &Trace, tree: &Tree, id: NodeId, depth: usize, out: &mut Vec<String>) {
        let node = tree.node(id);
        let name = tree.name(&trace.tables, id);
        out.push(format!("{}{name} {}/{} {}", "  ".repeat(depth), node.bytes, node.own_bytes, node.blocks));
        for child in node.children() {
            draw(trace, tree, child, depth + 1, out);
        }
    }
    let mut out = Vec::new();
    draw(trace, tree, NodeId::ROOT, 0, &mut out);
    out
}

#[test]
fn module_paths_are_split_into_their_parts_and_add_up() {
    let trace = net();
    let tree = tree_of(&trace, "scope", |_| ());
    assert_eq!(
        drawn(&trace, &tree),
        [
            "all 1874/0 9",
            "  net 1750/50 7",
            "    layers 1700/0 5",
            "      1 1200/1200 2",
            "      10 300/300 1",
            "      0 200/200 2",
            "  other 100/0 1",
            "    net 100/100 1",
            "  (none) 24/24 1",
        ]
    );
}

#[test]
fn a_generated_entry_point_does_not_hide_the_lines_of_libraries() {
    let step = "/hw/engine/src/scenario/training.rs:78 highwater_engine::scenario::training::Training::step";
    let run = "/hw/engine/src/models/gpt2.rs:230 highwater_engine::models::gpt2::Mlp::run";
    let text = format!("alloc a 100 < highwater_engine::storage::allocate < {run} < {step} < main\n");
    let trace = trace_from_text(&text).unwrap();
    let hidden = tree_of(&trace, "stack", |query| query.hides_internals = true);
    let expected = ["all 100/0 1".to_owned(), format!("  {step} 100/0 1"), format!("    {run} 100/100 1")];
    assert_eq!(drawn(&trace, &hidden), expected);
}

#[test]
fn stacks_merge_into_call_trees_from_either_end() {
    let trace = net();
    let outer = tree_of(&trace, "stack", |_| ());
    let lines = drawn(&trace, &outer);
    assert_eq!(lines[0], "all 1874/0 9");
    assert_eq!(
        lines,
        [
            "all 1874/0 9",
            "  (none) 1024/1024 2",
            "  main 750/0 6",
            "    forward 650/50 4",
            "      c10::cuda::malloc 300/300 2",
            "      norm 300/0 1",
            "        at::mm 300/300 1",
            "    backward 100/0 1",
            "      c10::cuda::malloc 100/100 1",
            "  forward 100/0 1",
            "    main 100/100 1",
        ]
    );
    let hidden = tree_of(&trace, "stack", |query| query.hides_internals = true);
    assert_eq!(
        drawn(&trace, &hidden),
        [
            "all 1874/0 9",
            "  (none) 1024/1024 2",
            "  main 750/0 6",
            "    forward 650/350 4",
            "      norm 300/300 1",
            "    backward 100/100 1",
            "  forward 100/0 1",
            "    main 100/100 1",
        ]
    );
    let inner = tree_of(&trace, "stack", |query| query.is_inverted = true);
    let lines = drawn(&trace, &inner);
    assert_eq!(lines[2], "  c10::cuda::malloc 400/0 3");
    assert_eq!(lines[3..5], ["    forward 300/0 2", "      main 300/300 2"]);
}

#[test]
fn lines_know_whose_they_are() {
    let trace = net();
    let tree = tree_of(&trace, "stack", |_| ());
    let role = |name: &str| tree.node(tree.ids().find(|id| tree.name(&trace.tables, *id) == name).unwrap()).role;
    assert_eq!(role("main"), LineRole::Program);
    assert_eq!(role("at::mm"), LineRole::Framework);
    assert_eq!(role("c10::cuda::malloc"), LineRole::Allocator);
}

#[test]
fn where_all_lines_are_machinery_one_stands_for_all() {
    let trace = trace_from_text("alloc a 8 < c10::cuda::malloc < at::mm < start_thread").unwrap();
    let tree = tree_of(&trace, "stack", |query| query.hides_internals = true);
    assert_eq!(drawn(&trace, &tree), ["all 8/0 1", "  at::mm 8/8 1"]);
}

#[test]
fn levels_stand_below_each_other_and_single_blocks_at_last() {
    let trace = net();
    let tree = tree_of(&trace, "category,block", |_| ());
    let lines = drawn(&trace, &tree);
    assert_eq!(lines[..3], ["all 1874/0 9", "  parameter 1024/0 2", "    block 0 1000/1000 1"]);
    assert_eq!(lines.iter().filter(|line| line.contains("block ")).count(), 9);
    assert!(lines.contains(&"  gradient 200/0 2".to_owned()));
}

/// Every key, and every pair of keys.
fn all_queries() -> Vec<TreeQuery> {
    let mut queries = Vec::new();
    for first in TreeKey::all() {
        let seconds = TreeKey::all().filter(|second| *second != first && first != TreeKey::Block);
        for keys in std::iter::once(vec![first]).chain(seconds.map(|second| vec![first, second])) {
            for (hides_internals, is_inverted) in [(false, false), (true, false), (false, true)] {
                queries.push(TreeQuery { keys: keys.clone(), hides_internals, is_inverted });
            }
        }
    }
    queries
}

#[test]
fn children_and_own_bytes_add_up_for_every_key_and_metric() {
    let trace = net();
    for metric in Metric::OF_BLOCKS {
        let bytes = if metric == Metric::Requested { &trace.blocks.requested } else { &trace.blocks.allocated };
        for query in all_queries() {
            let blocks: Vec<BlockId> = trace.blocks.ids().collect();
            let tree = Tree::of(&trace, metric, blocks.clone(), &[(Beside::Outside, 77)], query);
            assert_eq!(tree.total(), bytes.iter().sum::<u64>() + 77);
            assert_eq!(tree.blocks_of(NodeId::ROOT), blocks);
            for id in tree.ids() {
                let node = tree.node(id);
                let below: Vec<&Node> = node.children().map(|id| tree.node(id)).collect();
                assert_eq!(node.bytes, node.own_bytes + below.iter().map(|node| node.bytes).sum::<u64>());
                assert_eq!(node.blocks, node.own_blocks + below.iter().map(|node| node.blocks).sum::<u32>());
                assert!(below.iter().map(|node| node.bytes).is_sorted_by(|a, b| a >= b));
                assert!(node.children().all(|child| tree.node(child).parent == id && child > id));
                let own: u64 = tree.blocks_of(id).iter().map(|id| bytes[id.0 as usize]).sum();
                let beside = if matches!(node.part, Part::All | Part::Beside(_)) { 77 } else { 0 };
                assert_eq!((own + beside, tree.blocks_of(id).len()), (node.bytes, node.blocks as usize));
                let ends: u64 = tree.ends(id).iter().map(|id| tree.node(*id).own_bytes).sum();
                assert_eq!(ends, node.bytes);
            }
        }
    }
}

#[test]
fn a_condition_selects_exactly_the_blocks_of_its_node() {
    let trace = net();
    let (mut known, mut unknown) = (0, 0);
    for query in all_queries() {
        let tree = Tree::of(&trace, Metric::Requested, trace.blocks.ids().collect(), &[], query);
        for id in tree.ids().skip(1) {
            let Some(condition) = tree.condition(&trace, id) else {
                let is_single = matches!(tree.node(id).part, Part::Block(_));
                unknown += usize::from(!is_single);
                continue;
            };
            known += 1;
            let filter: Filter = condition.parse().unwrap_or_else(|why| panic!("{condition}: {why}"));
            let mut filter = filter.on(&trace);
            let found: Vec<BlockId> = trace.blocks.ids().filter(|id| filter.matches(*id)).collect();
            assert_eq!(found, tree.blocks_of(id), "{condition} for {}", tree.name(&trace.tables, id));
        }
    }
    // Two functions in the trace call each other, which no condition on lines can distinguish.
    assert!(known > 5 * unknown, "{known} nodes have a condition, {unknown} have none");
}

#[test]
fn conditions_are_short_where_few_words_are_enough() {
    let trace = net();
    let condition = |keys: &str, name: &str| {
        let tree = tree_of(&trace, keys, |_| ());
        let id = tree.ids().find(|id| tree.name(&trace.tables, *id) == name).unwrap();
        tree.condition(&trace, id)
    };
    let is = |text: &str| Some(text.to_owned());
    assert_eq!(condition("category", "activation"), is("category=activation"));
    assert_eq!(condition("category,scope", "1"), is("category=parameter scope=net.layers.1"));
    assert_eq!(condition("scope", "layers"), is("scope~net.layers"));
    assert_eq!(condition("scope", "1"), is("scope=net.layers.1"));
    assert_eq!(condition("stack", "norm"), is("frame=norm"));
    assert_eq!(condition("stack", "(none)"), is("stack="));
    assert_eq!(condition("frame", "norm"), is("frame=norm"));
    assert_eq!(condition("frame", "forward"), None, "one stack has main within forward, others forward within main");
    assert_eq!(condition("step", "(none)"), is("step!=0,1"));
    assert_eq!(condition("block", "block 3"), None);
}

#[test]
fn lines_of_inner_groups_are_denied_where_their_stacks_pass_through() {
    let text = "alloc a 1 < forward < main\nalloc b 2 < norm < forward < main\nalloc c 4 < main";
    let trace = trace_from_text(text).unwrap();
    let tree = tree_of(&trace, "frame", |_| ());
    let conditions: Vec<_> = tree.ids().map(|id| tree.condition(&trace, id).unwrap_or_default()).collect();
    assert_eq!(conditions, ["", "frame=main frame!=forward,norm", "frame=norm", "frame=forward frame!=norm"]);
}

#[test]
fn an_empty_set_is_a_root_with_nothing_below() {
    let trace = net();
    let tree = Tree::of(&trace, Metric::Requested, Vec::new(), &[], TreeQuery::default());
    assert_eq!((tree.total(), tree.len(), tree.is_empty()), (0, 1, true));
    assert!(tree.ends(NodeId::ROOT).is_empty() && tree.stack_of(NodeId::ROOT).is_none());
}

#[test]
fn free_bytes_are_below_the_pool_and_stream_of_their_segment_and_named_once() {
    let trace = trace_from_text("alloc a 100\nalloc b 50 small stream=3").unwrap();
    let place = SegmentKind { pool: BlockPool::Shared(Pool::Large), stream: StreamId(3), bytes: 2 << 20 };
    let beside = [(Beside::Free(Some(place)), 7), (Beside::Outside, 2)];
    let drawn_by = |keys: &str| {
        let keys = keys.split(',').map(|name| TreeKey::all().find(|key| key.name() == name).unwrap()).collect();
        let query = TreeQuery { keys, ..TreeQuery::default() };
        let blocks = trace.blocks.ids().collect();
        drawn(&trace, &Tree::of(&trace, Metric::Allocated, blocks, &beside, query))
    };
    assert_eq!(
        drawn_by("pool"),
        [
            "all 159/0 2",
            "  large 107/100 1",
            "    (free in segments) 7/7 0",
            "  small 50/50 1",
            "  (outside the allocator) 2/2 0",
        ]
    );
    let by_size = drawn_by("stream,size");
    assert!(by_size.contains(&"  3 57/0 1".to_owned()), "{by_size:?}");
    assert!(by_size.contains(&"    (free in segments of 2 MiB) 7/7 0".to_owned()), "{by_size:?}");
    let by_category = drawn_by("category,pool");
    let at = by_category.iter().position(|line| line == "  (free in segments) 7/0 0").unwrap();
    assert_eq!(by_category[at + 1], "    large 7/7 0");
    assert_eq!(drawn_by("category,block").iter().filter(|line| line.contains("(free in segments)")).count(), 1);
}

#[test]
fn a_condition_of_several_modules_selects_exactly_their_blocks() {
    let trace = net();
    let tree = tree_of(&trace, "scope,category", |_| ());
    let leaf = |path: [&str; 4]| {
        let step = |at: Option<NodeId>, name: &&str| {
            tree.node(at?).children().find(|child| tree.name(&trace.tables, *child) == *name)
        };
        path.iter().fold(Some(NodeId::ROOT), step).unwrap()
    };
    let nodes = [leaf(["net", "layers", "0", "activation"]), leaf(["net", "layers", "10", "activation"])];
    let condition = tree.condition_of(&trace, &nodes).unwrap();
    let filter: Filter = condition.parse().unwrap();
    let mut filter = filter.on(&trace);
    let found: Vec<BlockId> = trace.blocks.ids().filter(|id| filter.matches(*id)).collect();
    assert_eq!(found, [BlockId(2), BlockId(4)], "{condition}");
}
