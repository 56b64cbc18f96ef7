//! Finds the largest batch size or sequence length for which a step fits, by bisection.

const MOST: usize = 1 << 24;

/// Returns the largest size for which `fits` returns true, found by doubling from `start` and then by bisection; `None`
/// if not even 1 fits. If `fits` is not monotone, a larger size may exist.
///
/// # Errors
/// Returns the first error of `fits`.
pub(super) fn largest(
    start: usize,
    mut fits: impl FnMut(usize) -> Result<bool, String>,
) -> Result<Option<usize>, String> {
    let (mut low, mut high) = (0, start.max(1));
    while high <= MOST && fits(high)? {
        (low, high) = (high, high * 2);
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle)? { low = middle } else { high = middle }
    }
    Ok((low > 0).then_some(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_size_that_fits_is_found_from_any_start() {
        for most in [1, 2, 3, 7, 100] {
            for start in [1, 4, 64, 1000] {
                assert_eq!(largest(start, |size| Ok(size <= most)), Ok(Some(most)), "{most} from {start}");
            }
        }
        assert_eq!(largest(8, |_| Ok(false)), Ok(None));
        assert_eq!(largest(8, |_| Err("no".to_owned())), Err("no".to_owned()));
    }
}
