//! A column of a table: name, type, description, and how its values are computed.

use std::sync::Arc;

use parquet::basic::{ConvertedType, Encoding, LogicalType, Repetition, Type as Physical};
use parquet::data_type::ByteArray;
use parquet::errors::Result;
use parquet::schema::types::{Type, TypePtr};

/// How the value of a row is got; `V` is the table's rows.
pub(super) enum Value<V> {
    /// A number that repeats: stored once and referred to.
    Number(fn(&mut V, usize) -> Option<i64>),
    /// A number that goes on from that of the row before: its difference is stored.
    Running(fn(&mut V, usize) -> Option<i64>),
    /// A text that repeats: stored once and referred to.
    Text(fn(&mut V, usize) -> Option<ByteArray>),
}

/// A column of a table of `V`.
pub(super) struct Column<V> {
    pub(super) name: &'static str,
    /// Its text.
    pub(super) about: &'static str,
    /// Whether there are rows without a value.
    pub(super) is_optional: bool,
    pub(super) value: Value<V>,
}

impl<V> Column<V> {
    pub(super) fn always(name: &'static str, about: &'static str, value: Value<V>) -> Self {
        Self { name, about, is_optional: false, value }
    }

    pub(super) fn or_null(name: &'static str, about: &'static str, value: Value<V>) -> Self {
        Self { name, about, is_optional: true, value }
    }

    /// The type, as query engines call it.
    pub(super) fn type_name(&self) -> &'static str {
        match self.value {
            Value::Number(_) | Value::Running(_) => "BIGINT",
            Value::Text(_) => "VARCHAR",
        }
    }

    /// How its values are stored, where they are not stored once and referred to.
    pub(super) fn encoding(&self) -> Option<Encoding> {
        matches!(self.value, Value::Running(_)).then_some(Encoding::DELTA_BINARY_PACKED)
    }

    fn field(&self) -> Result<TypePtr> {
        let repetition = if self.is_optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let field = match self.value {
            Value::Number(_) | Value::Running(_) => Type::primitive_type_builder(self.name, Physical::INT64),
            Value::Text(_) => Type::primitive_type_builder(self.name, Physical::BYTE_ARRAY)
                .with_logical_type(Some(LogicalType::String))
                .with_converted_type(ConvertedType::UTF8),
        };
        field.with_repetition(repetition).build().map(Arc::new)
    }
}

/// The table that `columns` make.
pub(super) fn schema<V>(columns: &[Column<V>]) -> Result<TypePtr> {
    let fields = columns.iter().map(Column::field).collect::<Result<Vec<_>>>()?;
    Type::group_type_builder("schema").with_fields(fields).build().map(Arc::new)
}

/// A number as Parquet's engines agree on it; none where it has no place there.
pub(super) fn number(value: u64) -> Option<i64> {
    i64::try_from(value).ok()
}
