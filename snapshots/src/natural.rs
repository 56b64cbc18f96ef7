//! Natural sort order of names: numbers in names are compared by value.

use std::cmp::Ordering;

/// Compares names in natural order, in which `rank2` is before `rank10`.
pub fn compare(one: &str, other: &str) -> Ordering {
    let (mut one_left, mut other_left) = (one, other);
    while let (Some(a), Some(b)) = (one_left.chars().next(), other_left.chars().next()) {
        let (a_digits, b_digits) = (digits(one_left), digits(other_left));
        let (order, a_length, b_length) = if a_digits.is_empty() || b_digits.is_empty() {
            (a.cmp(&b), a.len_utf8(), b.len_utf8())
        } else {
            let (a_number, b_number) = (a_digits.trim_start_matches('0'), b_digits.trim_start_matches('0'));
            let order = a_number.len().cmp(&b_number.len()).then_with(|| a_number.cmp(b_number));
            (order, a_digits.len(), b_digits.len())
        };
        if order.is_ne() {
            return order;
        }
        (one_left, other_left) = (&one_left[a_length..], &other_left[b_length..]);
    }
    one_left.len().cmp(&other_left.len()).then_with(|| one.cmp(other))
}

fn digits(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_are_put_in_the_order_of_numbers() {
        let mut names = ["step.rank10.snap", "step.rank9.snap", "b", "step.rank09.snap", "a2b", "a10", "a2", ""];
        names.sort_by(|a, b| compare(a, b));
        let expected = ["", "a2", "a2b", "a10", "b", "step.rank09.snap", "step.rank9.snap", "step.rank10.snap"];
        assert_eq!(names, expected);
    }
}
