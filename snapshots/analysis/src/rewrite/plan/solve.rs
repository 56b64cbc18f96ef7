//! Chooses the cheapest set of modules to recompute so that a step fits a budget.
//!
//! The total after each event is linear in the choices, so this is a 0/1 program with one row for each event at which
//! the total can exceed the budget:
//!
//! ```text
//! minimise Σ costᵢ·xᵢ  such that  baseₜ + Σ deltaᵢₜ·xᵢ ≤ budget for all t,  xᵢ + xⱼ ≤ 1 for i within j
//! ```
//!
//! A greedy solution comes first. Branch and bound then searches for cheaper solutions; its bound is the cost of the
//! cheapest fractional solution for the most exceeded row alone. See Land and Doig, "An Automatic Method of Solving
//! Discrete Programming Problems" (1960).

use crate::index::addresses::release::greatest_common_divisor;

/// A linear program with choices of 0 or 1. Its solution keeps every row within a budget.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// The total of each row if nothing is chosen, in bytes.
    pub base: Vec<u64>,
    /// The choices, each taken or not.
    pub choices: Vec<Choice>,
}

/// A choice: its cost and its effects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The cost, at least 1.
    pub cost: u64,
    /// The change in bytes of each affected row, ordered by row.
    pub deltas: Vec<(u32, i64)>,
    /// The choices that are incompatible with it.
    pub excludes: Vec<u32>,
}

/// A set of choices that fits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Solution {
    /// The indices of the selected choices, in order.
    pub chosen: Vec<u32>,
    /// The sum of the costs of these choices.
    pub cost: u64,
    /// The largest row with these choices, in bytes.
    pub peak: u64,
    /// Whether no cheaper solution exists. If false, the search reached its limit.
    pub is_optimal: bool,
}

/// Maximum work of a search. A unit of work is a visit to one row, or to the change that one choice makes to one row.
const MAX_WORK: u64 = 1_000_000;

impl Program {
    /// Returns the largest row with the choices `chosen`.
    pub fn peak(&self, chosen: &[u32]) -> u64 {
        let mut rows = Rows::new(self);
        chosen.iter().for_each(|choice| rows.add(*choice, 1));
        rows.peak()
    }

    /// Returns the cheapest choices that keep every row within `budget` bytes, or `None` if none were found. The
    /// boolean is whether the search was complete; if it was, `None` means that there is no solution. The result is
    /// deterministic.
    pub fn solve(&self, budget: u64) -> (Option<Solution>, bool) {
        self.solve_within(budget, &mut { MAX_WORK })
    }

    /// Like [`solve`](Self::solve), but does at most `left` units of work, and subtracts the work done from `left`.
    fn solve_within(&self, budget: u64, left: &mut u64) -> (Option<Solution>, bool) {
        let unit = self.choices.iter().fold(0, |unit, choice| greatest_common_divisor(unit, choice.cost)).max(1);
        let rows = Rows::new(self);
        let mut search = Search { program: self, budget, best: None, left: *left, rows, unit };
        search.start_greedily();
        let mut state = vec![State::Open; self.choices.len()];
        search.branch(&mut state, &mut Vec::new(), 0);
        *left = search.left;
        let is_complete = search.left > 0;
        let solution = search.best.map(|(cost, mut chosen)| {
            chosen.sort_unstable();
            Solution { peak: self.peak(&chosen), chosen, cost, is_optimal: is_complete }
        });
        (solution, is_complete)
    }
}

impl Program {
    /// Returns the cheapest choices within `budget`. Of equally cheap choices, returns those with the lowest peak. The
    /// choices at a given cost do not depend on the budget, so a larger budget never costs more.
    pub fn cheapest(&self, budget: u64) -> (Option<Solution>, bool) {
        let mut left = MAX_WORK;
        let (found, mut is_complete) = self.solve_within(budget, &mut left);
        let Some(mut best) = found else { return (None, is_complete) };
        while let Some(lower) = best.peak.checked_sub(1) {
            let (next, complete) = self.solve_within(lower, &mut left);
            is_complete &= complete;
            match next.filter(|next| next.cost <= best.cost) {
                Some(next) => best = next,
                None => break,
            }
            if left == 0 {
                break;
            }
        }
        // From its own peak as the budget, any path of the search ends at the same choices.
        if let (Some(same), _) = self.solve(best.peak) {
            best = same;
        }
        best.is_optimal &= is_complete;
        (Some(best), is_complete)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Chosen,
    Left,
}

/// The rows after some choices.
#[derive(Clone, Debug)]
struct Rows<'a> {
    program: &'a Program,
    totals: Vec<i64>,
}

impl<'a> Rows<'a> {
    fn new(program: &'a Program) -> Self {
        Self { program, totals: program.base.iter().map(|bytes| *bytes as i64).collect() }
    }

    fn add(&mut self, choice: u32, sign: i64) {
        for (row, delta) in &self.program.choices[choice as usize].deltas {
            self.totals[*row as usize] += sign * delta;
        }
    }

    fn worst(&self) -> Option<(usize, i64)> {
        self.totals.iter().copied().enumerate().max_by_key(|(row, total)| (*total, std::cmp::Reverse(*row)))
    }

    fn peak(&self) -> u64 {
        self.worst().map_or(0, |(_, total)| total.max(0) as u64)
    }
}

struct Search<'a> {
    program: &'a Program,
    budget: u64,
    best: Option<(u64, Vec<u32>)>,
    /// The remaining work; 0 at the limit.
    left: u64,
    rows: Rows<'a>,
    /// The greatest common divisor of all costs.
    unit: u64,
}

impl Search<'_> {
    /// Repeatedly makes the choice that lowers the worst row most for its cost until all rows fit, then drops choices
    /// that are not needed.
    fn start_greedily(&mut self) {
        let program = self.program;
        let mut rows = Rows::new(program);
        let mut state = vec![State::Open; program.choices.len()];
        let mut chosen: Vec<u32> = Vec::new();
        while let Some((row, total)) = rows.worst().filter(|(_, total)| *total > self.budget as i64) {
            self.spend(program.base.len() + program.choices.len());
            let excess = total - self.budget as i64;
            let relief = |choice: &u32| program.relief(*choice, row).min(excess);
            let open = (0..program.choices.len() as u32).filter(|choice| state[*choice as usize] == State::Open);
            let better = |one: &u32, other: &u32| {
                let left = relief(one) as i128 * i128::from(program.choices[*other as usize].cost);
                let right = relief(other) as i128 * i128::from(program.choices[*one as usize].cost);
                left.cmp(&right).then(other.cmp(one))
            };
            let Some(next) = open.filter(|choice| relief(choice) > 0).max_by(better) else { return };
            state[next as usize] = State::Chosen;
            program.choices[next as usize].excludes.iter().for_each(|other| state[*other as usize] = State::Left);
            rows.add(next, 1);
            chosen.push(next);
        }
        self.leave_out_the_unneeded(&mut rows, &mut chosen);
        let cost = program.cost(&chosen);
        self.offer(cost, &chosen);
    }

    /// Drops choices, the most expensive first, while all rows still fit.
    fn leave_out_the_unneeded(&self, rows: &mut Rows<'_>, chosen: &mut Vec<u32>) {
        let mut order = chosen.clone();
        order.sort_by_key(|choice| std::cmp::Reverse((self.program.choices[*choice as usize].cost, *choice)));
        for choice in order {
            rows.add(choice, -1);
            if rows.peak() <= self.budget {
                chosen.retain(|other| *other != choice);
            } else {
                rows.add(choice, 1);
            }
        }
    }

    fn spend(&mut self, work: usize) {
        self.left = self.left.saturating_sub(work as u64);
    }

    fn offer(&mut self, cost: u64, chosen: &[u32]) {
        if self.best.as_ref().is_none_or(|(best, _)| cost < *best) {
            self.best = Some((cost, chosen.to_vec()));
        }
    }

    /// Searches all completions of `chosen`; `self.rows` contains the rows with these choices, and `cost` is their
    /// cost.
    fn branch(&mut self, state: &mut [State], chosen: &mut Vec<u32>, cost: u64) {
        self.spend(self.rows.totals.len());
        if self.left == 0 {
            return;
        }
        let Some((row, total)) = self.rows.worst() else {
            self.offer(cost, chosen);
            return;
        };
        let limit = self.budget as i64;
        if total <= limit {
            self.offer(cost, chosen);
            return;
        }
        let Some(bound) = self.bound(state, cost) else { return };
        if self.best.as_ref().is_some_and(|(best, _)| bound >= *best) {
            return;
        }
        // Some choice that lowers the worst row has to be made: the one that lowers it most for its cost first.
        let program = self.program;
        let mut helpful: Vec<u32> = (0..program.choices.len() as u32)
            .filter(|choice| state[*choice as usize] == State::Open && program.relief(*choice, row) > 0)
            .collect();
        let excess = total - limit;
        helpful.sort_by(|one, other| {
            let value = |choice: u32, by: u32| {
                program.relief(choice, row).min(excess) as i128 * i128::from(program.choices[by as usize].cost)
            };
            value(*other, *one).cmp(&value(*one, *other)).then(one.cmp(other))
        });
        let mut left: Vec<u32> = Vec::new();
        for choice in helpful {
            let excluded: Vec<u32> = program.choices[choice as usize]
                .excludes
                .iter()
                .copied()
                .filter(|other| state[*other as usize] == State::Open)
                .collect();
            state[choice as usize] = State::Chosen;
            excluded.iter().for_each(|other| state[*other as usize] = State::Left);
            self.rows.add(choice, 1);
            chosen.push(choice);
            self.branch(state, chosen, cost + program.choices[choice as usize].cost);
            chosen.pop();
            self.rows.add(choice, -1);
            excluded.iter().for_each(|other| state[*other as usize] = State::Open);
            // Later branches need not look at sets with this choice again.
            state[choice as usize] = State::Left;
            left.push(choice);
        }
        left.into_iter().for_each(|choice| state[choice as usize] = State::Open);
    }

    /// Returns a lower bound on the cost of any completion. For each exceeded row, it takes the open choices with the
    /// best relief per cost, the last one fractionally (as in a fractional knapsack), and returns the largest of these
    /// costs. `None` if a row cannot be lowered enough.
    fn bound(&mut self, state: &[State], cost: u64) -> Option<u64> {
        let program = self.program;
        let limit = self.budget as i64;
        let mut most = cost;
        let exceeded = self.rows.totals.iter().filter(|total| **total > limit).count();
        self.spend(exceeded * program.choices.len());
        for (row, total) in self.rows.totals.iter().enumerate().filter(|(_, total)| **total > limit) {
            let mut excess = total - limit;
            let mut helpful: Vec<(i64, u64)> = (0..program.choices.len() as u32)
                .filter(|choice| state[*choice as usize] == State::Open)
                .map(|choice| (program.relief(choice, row).min(excess), program.choices[choice as usize].cost))
                .filter(|(relief, _)| *relief > 0)
                .collect();
            helpful.sort_by(|one, other| {
                (i128::from(other.0) * i128::from(one.1)).cmp(&(i128::from(one.0) * i128::from(other.1)))
            });
            let mut needed = cost;
            for (relief, price) in helpful {
                if excess <= relief {
                    // Rounded up: costs are integers.
                    needed += (u128::from(price) * excess as u128).div_ceil(relief as u128) as u64;
                    excess = 0;
                    break;
                }
                excess -= relief;
                needed += price;
            }
            if excess > 0 {
                return None;
            }
            most = most.max(needed);
        }
        // Every cost is a multiple of the unit.
        Some(cost + (most - cost).next_multiple_of(self.unit))
    }
}

impl Program {
    /// Returns the bytes by which `choice` lowers `row`; negative if `choice` raises the row.
    fn relief(&self, choice: u32, row: usize) -> i64 {
        let deltas = &self.choices[choice as usize].deltas;
        let found = deltas.binary_search_by_key(&(row as u32), |(row, _)| *row);
        found.map_or(0, |index| -deltas[index].1)
    }

    fn cost(&self, chosen: &[u32]) -> u64 {
        chosen.iter().map(|choice| self.choices[*choice as usize].cost).sum()
    }

    /// Returns the choices with the lowest peak found, regardless of cost. Among equal peaks, returns the cheapest.
    pub fn minimum(&self) -> Solution {
        self.minimum_within(MAX_WORK)
    }

    /// Like [`minimum`](Self::minimum), but with about `max_work` units of work for each budget tried in the bisection.
    /// A unit is a visit of a row, or of a choice's change to a row.
    pub fn minimum_within(&self, max_work: u64) -> Solution {
        let mut best = Solution { peak: self.peak(&[]), is_optimal: true, ..Solution::default() };
        let (mut low, mut is_lowest) = (0, true);
        while low < best.peak {
            let middle = low + (best.peak - low) / 2;
            match self.solve_within(middle, &mut max_work.clone()) {
                (Some(lower), _) => best = lower,
                (None, is_complete) => {
                    is_lowest &= is_complete;
                    low = middle + 1;
                }
            }
        }
        if let (Some(cheaper), is_complete) = self.solve_within(best.peak, &mut max_work.clone()) {
            best = cheaper;
            is_lowest &= is_complete;
        }
        best.is_optimal = is_lowest;
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A generator of numbers (xorshift).
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, end: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % end
        }
    }

    fn random(numbers: &mut Numbers) -> Program {
        let (rows, choices) = (1 + numbers.below(12) as usize, 1 + numbers.below(9) as u32);
        let base = (0..rows).map(|_| 500 + numbers.below(1000)).collect();
        let equal = numbers.below(2) == 0;
        let mut all: Vec<Choice> = (0..choices)
            .map(|_| {
                let deltas = (0..rows as u32).filter_map(|row| {
                    let by = numbers.below(260) as i64 - 200;
                    (numbers.below(3) > 0 && by != 0).then_some((row, by))
                });
                let deltas: Vec<(u32, i64)> = deltas.collect();
                Choice { deltas, excludes: Vec::new(), cost: if equal { 3 } else { 1 + numbers.below(9) } }
            })
            .collect();
        if choices > 2 && numbers.below(2) == 0 {
            all[0].excludes = vec![1, 2];
            all[1].excludes = vec![0];
            all[2].excludes = vec![0];
        }
        Program { base, choices: all }
    }

    /// The least cost that fits, and the lowest peak of all, by trying every set.
    fn by_trying(program: &Program, budget: u64) -> (Option<u64>, u64) {
        let count = program.choices.len() as u32;
        let sets =
            (0..1_u32 << count).map(|set| (0..count).filter(|choice| set >> choice & 1 == 1).collect::<Vec<_>>());
        let allowed = sets.filter(|set| {
            set.iter().all(|one| !program.choices[*one as usize].excludes.iter().any(|other| set.contains(other)))
        });
        let all: Vec<(u64, u64)> = allowed.map(|set| (program.peak(&set), program.cost(&set))).collect();
        let fits = all.iter().filter(|(peak, _)| *peak <= budget).map(|(_, cost)| *cost).min();
        (fits, all.iter().map(|(peak, _)| *peak).min().unwrap())
    }

    #[test]
    fn nothing_cheaper_exists_and_nothing_lower() {
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
        let mut solved = [0, 0];
        for round in 0..3000 {
            let program = random(&mut numbers);
            let budget = 400 + numbers.below(1100);
            let (least, lowest) = by_trying(&program, budget);
            let (solution, is_complete) = program.solve(budget);
            assert!(is_complete);
            assert_eq!(solution.as_ref().map(|solution| solution.cost), least, "{round}: {program:?} {budget}");
            if let Some(solution) = &solution {
                assert!(solution.peak <= budget && solution.is_optimal);
                assert_eq!(program.peak(&solution.chosen), solution.peak);
            }
            solved[usize::from(solution.is_some())] += 1;
            assert_eq!(program.minimum().peak, lowest, "{round}: {program:?}");
            let cheapest = program.cheapest(budget).0;
            assert_eq!(cheapest.as_ref().map(|solution| solution.cost), least, "{round}");
            if let Some(solution) = cheapest {
                assert_eq!(program.cheapest(solution.peak).0, Some(solution), "{round}");
            }
        }
        assert!(solved[0] > 300 && solved[1] > 300, "{solved:?}");
    }

    #[test]
    fn equal_blocks_of_a_deep_model_are_chosen_at_once() {
        // Block i is saved from row i to row 2n − i; recomputing it holds it again at its own backward.
        let (count, bytes) = (126_u32, 100_i64);
        let rows = 2 * count;
        let base: Vec<u64> =
            (0..rows).map(|row| 1000 + bytes as u64 * u64::from(row.min(rows - row).min(count))).collect();
        let choice = |block: u32| Choice {
            cost: 7,
            deltas: (block + 1..rows - block - 1).map(|row| (row, 10 - bytes)).collect(),
            excludes: Vec::new(),
        };
        let program = Program { base, choices: (0..count).map(choice).collect() };
        for share in [95, 80, 50, 30, 20] {
            let budget = program.peak(&[]) * share / 100;
            let (solution, is_complete) = program.solve(budget);
            assert!(is_complete && solution.is_some(), "{share}");
        }
        let minimum = program.minimum();
        assert!(minimum.is_optimal);
    }
}
