//! Rows that the columns of a table share.

use std::rc::Rc;

/// The rows of a table, which are gone with its columns.
#[derive(Debug)]
pub struct Rows<R>(Rc<[R]>);

impl<R> Rows<R> {
    /// Number of rows.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// A value of each row, for a column.
    pub fn of<'a, V>(&self, value: impl Fn(&R) -> V + 'a) -> impl Fn(usize) -> V + 'a
    where
        R: 'a,
    {
        let rows = Rc::clone(&self.0);
        move |row| value(&rows[row])
    }
}

impl<R> FromIterator<R> for Rows<R> {
    fn from_iter<I: IntoIterator<Item = R>>(rows: I) -> Self {
        Self(rows.into_iter().collect())
    }
}
