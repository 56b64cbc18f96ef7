//! Comparisons by hand.
