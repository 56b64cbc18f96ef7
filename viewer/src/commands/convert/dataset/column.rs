//! A column of a table: its name, type and description, and the computation of its values.

use std::sync::Arc;

use parquet::basic::{ConvertedType, Encoding, LogicalType, Repetition, Type as Physical};
use parquet::data_type::ByteArray;
use parquet::errors::Result;
use parquet::schema::types::{Type, TypePtr};

/// A function that computes a row's value, or `None` for an empty cell; `V` is the table's rows.
type Compute<V, T> = Box<dyn Fn(&mut V, usize) -> Option<T>>;

pub(super) enum Values<V> {
    /// Numbers that repeat; dictionary-encoded.
    Repeating(Compute<V, i64>),
    /// Numbers close to that of the previous row; delta-encoded.
    Running(Compute<V, i64>),
    /// Texts that repeat; dictionary-encoded.
    Texts(Compute<V, ByteArray>),
}

pub(super) struct Column<V> {
    pub(super) name: &'static str,
    /// The description of the values, as in `docs/ranks.md`.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test compares it with the documentation"))]
    pub(super) about: &'static str,
    pub(super) is_optional: bool,
    pub(super) values: Values<V>,
}

impl<V> Column<V> {
    pub(super) fn number(
        name: &'static str,
        about: &'static str,
        value: impl Fn(&mut V, usize) -> Option<i64> + 'static,
    ) -> Self {
        Self { name, about, is_optional: true, values: Values::Repeating(Box::new(value)) }
    }

    pub(super) fn running(
        name: &'static str,
        about: &'static str,
        value: impl Fn(&mut V, usize) -> Option<i64> + 'static,
    ) -> Self {
        Self { name, about, is_optional: true, values: Values::Running(Box::new(value)) }
    }

    pub(super) fn text(
        name: &'static str,
        about: &'static str,
        value: impl Fn(&mut V, usize) -> Option<ByteArray> + 'static,
    ) -> Self {
        Self { name, about, is_optional: true, values: Values::Texts(Box::new(value)) }
    }

    /// Returns the same column with a value in each row.
    pub(super) fn always(self) -> Self {
        Self { is_optional: false, ..self }
    }

    /// Returns the name of the type in query engines.
    #[cfg(test)]
    pub(super) fn type_name(&self) -> &'static str {
        if matches!(self.values, Values::Texts(_)) { "VARCHAR" } else { "BIGINT" }
    }

    /// Returns the encoding of the values, unless they are dictionary-encoded.
    pub(super) fn encoding(&self) -> Option<Encoding> {
        matches!(self.values, Values::Running(_)).then_some(Encoding::DELTA_BINARY_PACKED)
    }

    fn field(&self) -> Result<TypePtr> {
        let repetition = if self.is_optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let field = match self.values {
            Values::Repeating(_) | Values::Running(_) => Type::primitive_type_builder(self.name, Physical::INT64),
            Values::Texts(_) => Type::primitive_type_builder(self.name, Physical::BYTE_ARRAY)
                .with_logical_type(Some(LogicalType::String))
                .with_converted_type(ConvertedType::UTF8),
        };
        field.with_repetition(repetition).build().map(Arc::new)
    }
}

pub(super) fn schema<V>(columns: &[Column<V>]) -> Result<TypePtr> {
    let fields = columns.iter().map(Column::field).collect::<Result<Vec<_>>>()?;
    Type::group_type_builder("schema").with_fields(fields).build().map(Arc::new)
}

/// Converts a number to the integer type that all Parquet engines support; `None` if it does not fit.
pub(super) fn number(value: u64) -> Option<i64> {
    i64::try_from(value).ok()
}
