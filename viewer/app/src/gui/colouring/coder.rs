//! Maps the property that blocks are coloured by to small numbers, and back to text.

use highwater_analysis::condition;
use highwater_analysis::frames::{LeadingFrame, leading_frame};
use highwater_analysis::growth::Leaks;
use highwater_analysis::pools::{BlockPool, Pools};
use highwater_analysis::{GroupKey, Lifetime};
use highwater_snapshots::intern::Interner;
use highwater_snapshots::line_text::unique_suffixes;
use highwater_snapshots::{BlockId, Category, OpId, ScopeId, StackId, StringId, Trace};
use rayon::prelude::*;

use super::{ColourBy, RUN};

/// Maps the property that blocks are coloured by to small numbers and back to text. Values are computed once per
/// scope, operation or stack, so that looking up a block is cheap.
pub(super) struct Coder<'a> {
    trace: &'a Trace,
    by: ColourBy,
    /// The code of each row of the table that blocks refer to; the last entry is for blocks without a value.
    code_of: Vec<u32>,
    /// The meaning of each code, as a row of another table; `u32::MAX` for none.
    meant: Vec<u32>,
    /// Distinct texts of source lines.
    lines: Vec<String>,
    /// Distinct streams, or codes of pools, in order.
    numbers: Vec<u64>,
    /// The pools, if these are coloured.
    pools: Pools,
    /// The module paths that blocks have, if these are coloured.
    scopes: Vec<ScopeId>,
    /// The leaks: blocks that leak have an entry apart from others of their category.
    leaks: Option<&'a Leaks>,
}

impl<'a> Coder<'a> {
    pub(super) fn new(trace: &'a Trace, by: ColourBy, leaks: Option<&'a Leaks>) -> Self {
        let pools = if by == ColourBy::Pool { Pools::of(trace) } else { Pools::default() };
        let (code_of, meant, lines, numbers, scopes) = Default::default();
        let mut coder = Self { trace, by, code_of, meant, lines, numbers, pools, scopes, leaks };
        let tables = &trace.tables;
        match by {
            // The second half is for blocks that leak.
            ColourBy::Category => coder.meant = (0..2 * Category::ALL.len() as u32).collect(),
            ColourBy::Lifetime => coder.meant = (0..Lifetime::ALL.len() as u32).collect(),
            ColourBy::Scope(depth) => {
                let scopes = (0..tables.scopes.len() as u32).map(ScopeId).chain([ScopeId::NONE]);
                coder.number(scopes.map(|scope| trace.tables.scope_to_depth(scope, depth).0));
                let is_met = met(tables.scopes.len(), trace.blocks.scope.iter().map(|scope| scope.0));
                coder.scopes =
                    (0_u32..).zip(is_met).filter(|(_, is_met)| *is_met).map(|(row, _)| ScopeId(row)).collect();
            }
            ColourBy::Op => {
                let ops = (0..tables.ops.len() as u32).map(OpId).chain([OpId::NONE]);
                coder.number(ops.map(|op| tables.op(op).map_or(u32::MAX, |op| op.name.0)));
            }
            ColourBy::CallSite => coder.find_lines(),
            ColourBy::Stream | ColourBy::Pool => {
                let rows: Vec<usize> = (0..trace.blocks.len()).collect();
                let met = rows.par_chunks(RUN).flat_map_iter(|rows| {
                    let mut numbers: Vec<u64> = rows.iter().map(|row| coder.number_of(*row)).collect();
                    numbers.sort_unstable();
                    numbers.dedup();
                    numbers
                });
                let mut numbers: Vec<u64> = met.collect();
                numbers.sort_unstable();
                numbers.dedup();
                coder.meant = (0..numbers.len() as u32).collect();
                coder.numbers = numbers;
            }
        }
        coder
    }

    /// Assigns codes to rows, one code per distinct meaning, in order of appearance.
    fn number(&mut self, meanings: impl Iterator<Item = u32>) {
        let meanings: Vec<u32> = meanings.collect();
        self.meant.clone_from(&meanings);
        self.meant.sort_unstable();
        self.meant.dedup();
        let code = |meaning: &u32| self.meant.partition_point(|other| other < meaning) as u32;
        self.code_of = meanings.iter().map(code).collect();
    }

    /// The stream or the pool of the block in `row`.
    fn number_of(&self, row: usize) -> u64 {
        match self.by {
            ColourBy::Pool => self.pools.pool(self.trace, &self.trace.blocks.get(BlockId(row as u32))).code(),
            _ => self.trace.blocks.stream[row].0,
        }
    }

    /// Finds the frame that represents every stack that a block has.
    fn find_lines(&mut self) {
        let tables = &self.trace.tables;
        let is_met = met(tables.stacks.len(), self.trace.blocks.stack.iter().map(|stack| stack.0));
        let line_of =
            |(row, is_met): (usize, &bool)| is_met.then(|| leading_frame(tables, StackId(row as u32))).flatten();
        let found: Vec<Option<LeadingFrame>> = is_met.par_iter().enumerate().with_min_len(64).map(line_of).collect();
        // Lines that read the same are one.
        let mut lines: Interner<String> = Interner::default();
        let mut meanings: Vec<u32> = Vec::with_capacity(found.len() + 1);
        for line in found {
            meanings.push(line.map_or(u32::MAX, |line| lines.intern(line.text(tables))));
        }
        self.lines = lines.into_rows();
        meanings.push(u32::MAX);
        self.number(meanings.into_iter());
    }

    /// Number of codes.
    pub(super) fn codes(&self) -> usize {
        self.meant.len()
    }

    /// The code of the block in `row`.
    #[inline]
    pub(super) fn code(&self, row: usize) -> usize {
        let blocks = &self.trace.blocks;
        let of_table = |row: u32| {
            let last = self.code_of.len().saturating_sub(1);
            self.code_of.get((row as usize).min(last)).map_or(0, |code| *code as usize)
        };
        match self.by {
            ColourBy::Category => {
                let leaks = self.leaks.is_some_and(|leaks| leaks.has(self.trace, BlockId(row as u32)));
                blocks.category[row] as usize + if leaks { Category::ALL.len() } else { 0 }
            }
            ColourBy::Scope(_) => of_table(blocks.scope[row].0),
            ColourBy::Op => of_table(blocks.op[row].0),
            ColourBy::CallSite => of_table(blocks.stack[row].0),
            ColourBy::Lifetime => Lifetime::of(self.trace, &blocks.get(BlockId(row as u32))) as usize,
            ColourBy::Stream | ColourBy::Pool => {
                let number = self.number_of(row);
                self.numbers.partition_point(|other| *other < number)
            }
        }
    }

    /// Whether `code` stands for "no value".
    pub(super) fn is_none(&self, code: usize) -> bool {
        self.meant.get(code) == Some(&u32::MAX)
    }

    /// The names of `codes`; of lines, with as many folders as distinguish them.
    pub(super) fn names(&self, codes: &[usize]) -> Vec<String> {
        let names: Vec<String> = codes.iter().map(|code| self.name(*code)).collect();
        if self.by == ColourBy::CallSite { unique_suffixes(&names) } else { names }
    }

    /// The `--where` condition for the blocks of a code. A line of code matches every stack that contains it.
    pub(super) fn condition(&self, code: usize) -> Option<String> {
        let of = |key: GroupKey, label: String| condition::of_group(&[key], &[label], &[]);
        match self.by {
            // No condition selects what leaks.
            ColourBy::Category if code >= Category::ALL.len() => None,
            ColourBy::Category => of(GroupKey::Category, self.name(code)),
            ColourBy::Op => of(GroupKey::Op, self.name(code)),
            ColourBy::CallSite => of(GroupKey::Frame, self.name(code)),
            ColourBy::Lifetime => of(GroupKey::Lifetime, self.name(code)),
            ColourBy::Stream => of(GroupKey::Stream, self.numbers[code].to_string()),
            ColourBy::Pool => of(GroupKey::Pool, self.name(code)),
            ColourBy::Scope(depth) => {
                let tables = &self.trace.tables;
                if self.is_none(code) {
                    return of(GroupKey::Scope, self.name(code));
                }
                let is_own = |scope: &ScopeId| tables.scope_to_depth(*scope, depth).0 == self.meant[code];
                let (own, others): (Vec<ScopeId>, Vec<ScopeId>) = self.scopes.iter().partition(|scope| is_own(scope));
                let path = |scope: &ScopeId| tables.scope_path(*scope);
                condition::of_paths(own.iter().map(path).collect(), &others.iter().map(path).collect::<Vec<_>>())
            }
        }
    }

    fn name(&self, code: usize) -> String {
        let tables = &self.trace.tables;
        let meant = self.meant.get(code).copied().unwrap_or(u32::MAX);
        if meant == u32::MAX {
            return "(none)".to_owned();
        }
        match self.by {
            ColourBy::Category => match Category::ALL.get(code) {
                Some(category) => category.name().to_owned(),
                None => format!("{}, leaking", Category::ALL[code - Category::ALL.len()]),
            },
            ColourBy::Lifetime => Lifetime::ALL[code].name().to_owned(),
            ColourBy::Stream => stream_name(self.numbers[code]),
            ColourBy::Pool => BlockPool::from_code(self.numbers[code]).to_string(),
            ColourBy::Scope(_) => tables.scope_path(ScopeId(meant)),
            ColourBy::Op => tables.string(StringId(meant)).to_owned(),
            ColourBy::CallSite => self.lines[meant as usize].clone(),
        }
    }
}

/// Which of the first `rows` rows of a table occur.
fn met(rows: usize, occurring: impl Iterator<Item = u32>) -> Vec<bool> {
    let mut is_met = vec![false; rows];
    for row in occurring {
        if let Some(is_met) = is_met.get_mut(row as usize) {
            *is_met = true;
        }
    }
    is_met
}

pub(super) fn stream_name(stream: u64) -> String {
    format!("stream {stream}")
}
