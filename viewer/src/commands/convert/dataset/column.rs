//! A column of a table: name, type, description, and how its values are computed.

use std::sync::Arc;

use highwater_analysis::GroupKey;
use parquet::basic::{ConvertedType, Encoding, LogicalType, Repetition, Type as Physical};
use parquet::data_type::ByteArray;
use parquet::errors::Result;
use parquet::schema::types::{Type, TypePtr};

/// The computation of a row's value; `V` is the table's rows.
pub(super) enum Value<V> {
    /// A number that repeats: dictionary-encoded.
    Number(fn(&mut V, usize) -> Option<i64>),
    /// A number close to that of the previous row: delta-encoded.
    Running(fn(&mut V, usize) -> Option<i64>),
    /// A text that repeats: dictionary-encoded.
    Text(fn(&mut V, usize) -> Option<ByteArray>),
    /// The value of a grouping key, a number.
    KeyNumber(GroupKey, fn(&mut V, GroupKey, usize) -> Option<i64>),
    /// The value of another grouping key, as conditions have it.
    KeyText(GroupKey, fn(&mut V, GroupKey, usize) -> Option<ByteArray>),
}

/// A column of a table of `V`.
pub(super) struct Column<V> {
    pub(super) name: &'static str,
    /// The description of its values, stored in the table's metadata.
    pub(super) about: &'static str,
    /// Whether values can be null.
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

    /// Returns the type, as query engines name it.
    pub(super) fn type_name(&self) -> &'static str {
        match self.value {
            Value::Number(_) | Value::Running(_) | Value::KeyNumber(..) => "BIGINT",
            Value::Text(_) | Value::KeyText(..) => "VARCHAR",
        }
    }

    /// Returns the encoding of its values, unless they are dictionary-encoded.
    pub(super) fn encoding(&self) -> Option<Encoding> {
        matches!(self.value, Value::Running(_)).then_some(Encoding::DELTA_BINARY_PACKED)
    }

    fn field(&self) -> Result<TypePtr> {
        let repetition = if self.is_optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let field = match self.value {
            Value::Number(_) | Value::Running(_) | Value::KeyNumber(..) => {
                Type::primitive_type_builder(self.name, Physical::INT64)
            }
            Value::Text(_) | Value::KeyText(..) => Type::primitive_type_builder(self.name, Physical::BYTE_ARRAY)
                .with_logical_type(Some(LogicalType::String))
                .with_converted_type(ConvertedType::UTF8),
        };
        field.with_repetition(repetition).build().map(Arc::new)
    }
}

/// Returns the schema of a table with `columns`.
pub(super) fn schema<V>(columns: &[Column<V>]) -> Result<TypePtr> {
    let fields = columns.iter().map(Column::field).collect::<Result<Vec<_>>>()?;
    Type::group_type_builder("schema").with_fields(fields).build().map(Arc::new)
}

/// Converts a number to the type that Parquet's engines share; `None` if it does not fit.
pub(super) fn number(value: u64) -> Option<i64> {
    i64::try_from(value).ok()
}
