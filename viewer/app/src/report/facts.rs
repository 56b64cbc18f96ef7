//! The facts of a report with their names, in the order of its JSON object.

use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};

use super::{Field, IntoValue, Table, Value};

/// A fact of a report.
#[derive(Debug)]
pub struct Fact<'a> {
    /// The value, a table or further facts.
    pub content: Content<'a>,
    /// Whether the fact may be null in other answers.
    pub is_optional: bool,
}

/// The content of a fact.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Content<'a> {
    /// A single value.
    Value(Value),
    /// A list with one object for each row.
    Table(Table<'a>),
    /// An object.
    Facts(Facts<'a>),
    /// A list of objects.
    List(Vec<Facts<'a>>),
}

/// The facts of a report, or of a section of it, with their names.
#[derive(Debug, Default)]
pub struct Facts<'a>(pub Vec<(&'static str, Fact<'a>)>);

impl<'a> Facts<'a> {
    /// Creates facts from names and values. The JSON object omits facts with [`Value::Absent`].
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
            if !matches!(fact.content, Content::Value(Value::Absent)) {
                map.serialize_entry(name, &fact.content)?;
            }
        }
        map.end()
    }
}

impl<'a> From<Content<'a>> for Fact<'a> {
    fn from(content: Content<'a>) -> Self {
        Self { content, is_optional: false }
    }
}

impl<V: IntoValue> From<V> for Fact<'_> {
    fn from(value: V) -> Self {
        Field::from(value).into()
    }
}

impl From<Field> for Fact<'_> {
    fn from(Field { value, is_optional }: Field) -> Self {
        Self { content: Content::Value(value), is_optional }
    }
}

impl<'a> From<Table<'a>> for Fact<'a> {
    fn from(table: Table<'a>) -> Self {
        Content::Table(table).into()
    }
}

impl<'a> From<Facts<'a>> for Fact<'a> {
    fn from(facts: Facts<'a>) -> Self {
        Content::Facts(facts).into()
    }
}

impl<'a> From<Vec<Facts<'a>>> for Fact<'a> {
    fn from(list: Vec<Facts<'a>>) -> Self {
        Content::List(list).into()
    }
}

impl<'a> From<Option<Table<'a>>> for Fact<'a> {
    fn from(table: Option<Table<'a>>) -> Self {
        Self { is_optional: true, ..table.map_or_else(|| Value::Nothing.into(), Into::into) }
    }
}

impl<'a> From<Option<Facts<'a>>> for Fact<'a> {
    fn from(facts: Option<Facts<'a>>) -> Self {
        Self { is_optional: true, ..facts.map_or_else(|| Value::Nothing.into(), Into::into) }
    }
}

impl<'a> Fact<'a> {
    /// Returns the fact; `None` is omitted from the JSON object.
    pub fn or_absent(fact: Option<impl Into<Self>>) -> Self {
        fact.map_or_else(|| Value::Absent.into(), Into::into)
    }
}

impl From<Vec<(&'static str, Field)>> for Facts<'_> {
    fn from(fields: Vec<(&'static str, Field)>) -> Self {
        Self::new(fields.into_iter().map(|(name, field)| (name, field.into())))
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
