//! Writes folded stacks, one per line, for flame graph tools.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::{NO_STACK, PeakStacks, program_entries};

/// Writes one line per stack, sorted: the frames from outermost to innermost, separated by `;`, a space, and the bytes.
pub(super) fn write(out: &mut impl Write, stacks: &PeakStacks<'_>) -> io::Result<()> {
    // Stacks that differ only in addresses read the same.
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for ((stack, _), sum) in &stacks.sums {
        let (tables, mut text) = (&stacks.trace.tables, stacks.trace.tables.folded_text(*stack));
        // Outermost first.
        text = text.split(';').take(program_entries(tables, *stack).count()).collect::<Vec<_>>().join(";");
        *lines.entry(if text.is_empty() { NO_STACK.to_owned() } else { text }).or_default() += sum.bytes;
    }
    lines.iter().try_for_each(|(line, bytes)| writeln!(out, "{line} {bytes}"))
}

#[cfg(test)]
mod tests {
    use crate::question::peak_stacks::StackFormat;
    use crate::question::peak_stacks::tests::written;

    fn folded(text: &str) -> String {
        String::from_utf8(written(text, StackFormat::Folded).0).unwrap()
    }

    #[test]
    fn the_lines_add_up_to_the_peak_and_say_outermost_first() {
        let text = "baseline w 100\nbaseline v 50 waiting\nalloc a 10 < f;x < main\nalloc b 30 < f;x < main\nfree b\n\
                    alloc c 20 < g < main\nfree a\nalloc d 5 < g < main";
        assert_eq!(folded(text), "(no stack) 100\nmain;f:x 40\n");
    }

    #[test]
    fn where_nothing_exceeds_the_baseline_the_baseline_is_reported() {
        assert_eq!(folded("baseline w 100 < load\nbaseline v 50 waiting\nfree w"), "load 100\n");
        assert_eq!(folded(""), "");
    }

    #[test]
    fn calls_of_the_recorder_are_left_out() {
        assert_eq!(
            folded("alloc a 10 < highwater_recorder::context::stack < f < main\nalloc b 5"),
            "(no stack) 5\nmain;f 10\n"
        );
    }
}
