//! The secret in the page's address, without which nothing is served: other users of a machine can reach its ports.

use crate::output::outcome::Failure;

/// Random bytes in a token.
const BYTES: usize = 16;

/// Returns a new token: letters and digits.
pub(super) fn random() -> Result<String, Failure> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|why| Failure::Usage(format!("cannot create the secret address: {why}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Whether both are the same, in a time that does not tell where they differ.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    let differences = one.bytes().zip(other.bytes()).fold(0, |all, (one, other)| all | (one ^ other));
    one.len() == other.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_are_compared_whole() {
        let [one, other] = [random().unwrap(), random().unwrap()];
        assert!(one != other && one.len() == 32 && one.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert!(is_same(&one, &one.clone()) && !is_same(&one, &other));
        assert!(!is_same(&one, &one[..31]) && !is_same("", &one) && !is_same(&one, &format!("{one}0")));
    }
}
