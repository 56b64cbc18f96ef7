//! The facts of an answer by name, in the order of its JSON object.

use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};

use super::{Table, Value};

/// A fact of an answer.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Fact<'a> {
    /// A single value.
    Value(Value),
    /// A list with one object for each row.
    Table(Table<'a>),
    /// An object.
    Facts(Facts<'a>),
    /// A list of objects.
    List(Vec<Facts<'a>>),
}

/// The facts of an answer, or of a part of it.
#[derive(Debug, Default)]
pub struct Facts<'a>(Vec<(&'static str, Fact<'a>)>);

impl<'a> Facts<'a> {
    /// Facts by name. A name with [`Value::Absent`] is left out.
    pub fn new(facts: impl IntoIterator<Item = (&'static str, Fact<'a>)>) -> Self {
        Self(facts.into_iter().collect())
    }

    /// Appends more facts.
    #[must_use]
    pub fn and(mut self, more: Self) -> Self {
        self.0.extend(more.0);
        self
    }
}

impl Serialize for Facts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, fact) in &self.0 {
            if !matches!(fact, Fact::Value(Value::Absent)) {
                map.serialize_entry(name, fact)?;
            }
        }
        map.end()
    }
}

impl<V: Into<Value>> From<V> for Fact<'_> {
    fn from(value: V) -> Self {
        Self::Value(value.into())
    }
}

impl<'a> From<Table<'a>> for Fact<'a> {
    fn from(table: Table<'a>) -> Self {
        Self::Table(table)
    }
}

impl<'a> From<Facts<'a>> for Fact<'a> {
    fn from(facts: Facts<'a>) -> Self {
        Self::Facts(facts)
    }
}

impl<'a> From<Vec<Facts<'a>>> for Fact<'a> {
    fn from(list: Vec<Facts<'a>>) -> Self {
        Self::List(list)
    }
}

impl<'a> From<Option<Table<'a>>> for Fact<'a> {
    fn from(table: Option<Table<'a>>) -> Self {
        table.map_or(Self::Value(Value::Nothing), Into::into)
    }
}

impl<'a> From<Option<Facts<'a>>> for Fact<'a> {
    fn from(facts: Option<Facts<'a>>) -> Self {
        facts.map_or(Self::Value(Value::Nothing), Into::into)
    }
}

impl<'a> Fact<'a> {
    /// `fact`, or left out of the JSON object.
    pub fn or_absent(fact: Option<impl Into<Self>>) -> Self {
        fact.map_or(Self::Value(Value::Absent), Into::into)
    }
}

impl From<Vec<(&'static str, Value)>> for Facts<'_> {
    fn from(values: Vec<(&'static str, Value)>) -> Self {
        Self::new(values.into_iter().map(|(name, value)| (name, value.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Column;

    #[test]
    fn facts_are_an_object_in_their_order_without_those_that_are_absent() {
        let table = Table::new(1, [Column::number("step", "step", |row| row)]);
        let facts = Facts::new([
            ("b", 3_u64.into()),
            ("a", None::<String>.into()),
            ("left_out", Value::Absent.into()),
            ("rows", table.into()),
            ("inner", Facts::new([("flag", true.into())]).into()),
        ]);
        let facts = facts.and(Facts::new([("list", vec![Facts::default()].into())]));
        let json = "{\"b\":3,\"a\":null,\"rows\":[{\"step\":0}],\"inner\":{\"flag\":true},\"list\":[{}]}";
        assert_eq!(serde_json::to_string(&facts).unwrap(), json);
    }
}
