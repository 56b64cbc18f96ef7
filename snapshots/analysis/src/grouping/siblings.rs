//! Merges rows of identical modules whose paths differ only in a number, such as the layers of a transformer, as in
//! `model.layers.{0-31}`.

use std::collections::HashMap;
use std::hash::Hash;

use super::dimension::GroupKey;

/// Whether modules that are identical except for a number in their paths are shown as one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Siblings {
    /// Identical modules share a row.
    #[default]
    Merged,
    /// Each module has its own row.
    Each,
}

/// Returns the position of the module path in `keys`; `None` if it is not a key.
pub(crate) fn module_at(keys: &[GroupKey]) -> Option<usize> {
    keys.iter().position(|key| matches!(key, GroupKey::Scope | GroupKey::ScopeTo(_)))
}

/// A part of the path of merged modules; `layer1.0` has four parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Part {
    /// Text around numbers.
    Text(String),
    /// One or more numbers, in order.
    Numbers(Vec<u64>),
}

impl Part {
    /// Splits a path into its names. Digits with a leading zero, such as `01`, are text rather than a number.
    fn all_of(path: &str) -> Vec<Self> {
        let mut parts = Vec::new();
        for run in path.as_bytes().chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit()) {
            let text = String::from_utf8_lossy(run);
            match (text.parse::<u64>(), parts.last_mut()) {
                (Ok(number), _) if number.to_string() == text => parts.push(Self::Numbers(vec![number])),
                (_, Some(Self::Text(before))) => before.push_str(&text),
                _ => parts.push(Self::Text(text.into_owned())),
            }
        }
        parts
    }

    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Numbers(numbers) => match numbers.as_slice() {
                [one] => one.to_string(),
                numbers => format!("{{{}}}", ranges(numbers)),
            },
        }
    }
}

/// Formats numbers in order, such as `0-3,7`.
fn ranges(numbers: &[u64]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let text = |run: &[u64]| match run {
        [first, .., last] => format!("{first}-{last}"),
        run => run.iter().map(u64::to_string).collect(),
    };
    runs.map(text).collect::<Vec<_>>().join(",")
}

/// Rows that are merged into one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// The path, which represents all rows.
    pub path: String,
    /// The indices of the rows.
    pub rows: Vec<usize>,
}

/// Merges `rows`, each a path and a key that must be equal in merged rows. A merged path represents exactly the
/// combinations of its numbers. Results are ordered by their first row, and the rows of each by their numbers.
pub fn merge<K: Clone + Eq + Hash>(rows: impl Iterator<Item = (String, K)>) -> Vec<Merged> {
    struct Row<K> {
        parts: Vec<Part>,
        key: K,
        rows: Vec<usize>,
    }
    let row = |(at, (path, key)): (usize, (String, K))| Row { parts: Part::all_of(&path), key, rows: vec![at] };
    let mut merged: Vec<Row<K>> = rows.enumerate().map(row).collect();
    let numbers = |row: &Row<K>| {
        let numbers = row.parts.iter().map(|part| if let Part::Numbers(numbers) = part { numbers[0] } else { 0 });
        numbers.collect::<Vec<u64>>()
    };
    let numbers: Vec<Vec<u64>> = merged.iter().map(numbers).collect();
    let depth = merged.iter().map(|row| row.parts.len()).max().unwrap_or(0);
    // Innermost numbers first: then rows with the same numbers there merge by the numbers further out.
    for at in (0..depth).rev() {
        let is_number = |row: &Row<K>| matches!(row.parts.get(at), Some(Part::Numbers(_)));
        let mut row_of: HashMap<(Vec<Part>, K), usize> = HashMap::new();
        let mut next: Vec<Row<K>> = Vec::with_capacity(merged.len());
        for mut row in merged {
            let mut others = row.parts.clone();
            if is_number(&row) {
                others[at] = Part::Numbers(Vec::new());
            }
            match row_of.get(&(others.clone(), row.key.clone())) {
                Some(&known) if is_number(&row) => {
                    if let (Part::Numbers(numbers), Part::Numbers(more)) =
                        (&mut next[known].parts[at], &mut row.parts[at])
                    {
                        numbers.append(more);
                        numbers.sort_unstable();
                        numbers.dedup();
                    }
                    next[known].rows.append(&mut row.rows);
                }
                _ => {
                    if is_number(&row) {
                        row_of.insert((others, row.key.clone()), next.len());
                    }
                    next.push(row);
                }
            }
        }
        merged = next;
    }
    let of_row = |mut row: Row<K>| {
        row.rows.sort_by_key(|row| &numbers[*row]);
        Merged { path: row.parts.iter().map(Part::text).collect(), rows: row.rows }
    };
    merged.into_iter().map(of_row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(rows: &[(&str, u64)]) -> Vec<(String, usize)> {
        let merged = merge(rows.iter().map(|(path, bytes)| ((*path).to_owned(), *bytes)));
        let mut all: Vec<usize> = merged.iter().flat_map(|one| one.rows.clone()).collect();
        all.sort_unstable();
        assert_eq!(all, (0..rows.len()).collect::<Vec<_>>(), "each row is in one");
        merged.into_iter().map(|one| (one.path, one.rows.len())).collect()
    }

    fn of(rows: &[(&str, usize)]) -> Vec<(String, usize)> {
        rows.iter().map(|(path, count)| ((*path).to_owned(), *count)).collect()
    }

    #[test]
    fn equal_layers_are_one_row_and_others_stay() {
        let rows = [("h.0", 7), ("h.2", 7), ("h.1", 7), ("h.3", 8), ("h.4", 7), ("wte", 7), ("h.05", 7), ("", 7)];
        assert_eq!(merged(&rows), of(&[("h.{0-2,4}", 4), ("h.3", 1), ("wte", 1), ("h.05", 1), ("", 1)]));
    }

    #[test]
    fn numbers_at_several_places_merge_to_exactly_their_combinations() {
        let rows: Vec<String> =
            (0..4).flat_map(|layer| (0..3).map(move |expert| format!("l.{layer}.e.{expert}.w"))).collect();
        let rows: Vec<(&str, u64)> = rows.iter().map(|path| (path.as_str(), 1)).collect();
        assert_eq!(merged(&rows), of(&[("l.{0-3}.e.{0-2}.w", 12)]));
        assert_eq!(merged(&rows[..11]), of(&[("l.{0-2}.e.{0-2}.w", 9), ("l.3.e.{0-1}.w", 2)]));
    }

    #[test]
    fn numbers_inside_names_merge_too() {
        let rows = [("layer3.0", 7), ("layer1.0", 7), ("layer2.0", 7), ("layer1.1", 7), ("conv2d", 5), ("01x2", 7)];
        assert_eq!(
            merged(&rows),
            of(&[("layer{2-3}.0", 2), ("layer1.{0-1}", 2), ("conv2d", 1), ("01x2", 1)]),
            "exactly the combinations of numbers"
        );
        let all: Vec<String> = (0..12).map(|at| format!("blocks.{at}.act{}", at % 2)).collect();
        assert_eq!(merge(all.iter().map(|path| (path.clone(), ()))).len(), 2);
    }

    #[test]
    fn members_are_in_the_order_of_their_numbers() {
        let paths = ["h.10.a1", "h.9.a1", "h.11.a1", "h.2.a1"];
        let merged = merge(paths.iter().map(|path| ((*path).to_owned(), ())));
        assert_eq!((merged[0].path.as_str(), &merged[0].rows[..]), ("h.{2,9-11}.a1", &[3, 1, 0, 2][..]));
    }

    #[test]
    fn two_layers_that_differ_below_are_two_rows() {
        assert_eq!(
            merged(&[("h.0.attn", 1), ("h.1.attn", 1), ("h.0.mlp", 2), ("h.1.mlp", 3)]),
            of(&[("h.{0-1}.attn", 2), ("h.0.mlp", 1), ("h.1.mlp", 1)])
        );
    }
}
