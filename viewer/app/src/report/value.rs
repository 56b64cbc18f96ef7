//! The values of facts and cells, exact and unformatted.

use std::cmp::Ordering;
use std::path::Path;

use highwater_snapshots::natural;
use serde::ser::{Serialize, SerializeMap as _, Serializer};

/// A conversion to a value. The type determines whether the value may be missing.
pub trait IntoValue: Into<Value> {
    /// Whether the value may be missing.
    const IS_OPTIONAL: bool = false;
}

/// The value of a field of an object, and whether it may be missing.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The value of the field.
    pub value: Value,
    /// Whether the value may be missing.
    pub is_optional: bool,
}

impl<V: IntoValue> From<V> for Field {
    fn from(value: V) -> Self {
        Self { value: value.into(), is_optional: V::IS_OPTIONAL }
    }
}

/// A value of a fact or of a table cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// A value that does not apply to this row; null in JSON.
    #[default]
    Nothing,
    /// A value that is omitted from the JSON object.
    Absent,
    /// A size, a count, or the index of an event or step.
    Number(u64),
    /// A signed difference, such as growth.
    Difference(i128),
    /// A fraction.
    Fraction(f64),
    /// True or false.
    Flag(bool),
    /// A text, which may come from a file.
    Text(String),
    /// Several values.
    List(Vec<Self>),
    /// Named values.
    Map(Vec<(&'static str, Field)>),
    /// A value of another type, converted to JSON.
    Json(serde_json::Value),
}

impl Value {
    /// Converts a serializable value, such as the name of a variant or a small struct.
    pub fn of(value: impl Serialize) -> Self {
        match serde_json::to_value(value) {
            Ok(serde_json::Value::String(name)) => Self::Text(name),
            Ok(value) => Self::Json(value),
            Err(_) => Self::Nothing,
        }
    }

    /// Returns the value as unformatted text, for files. Sizes are in bytes.
    pub fn bare(&self) -> String {
        match self {
            Self::Nothing | Self::Absent => String::new(),
            Self::Number(number) => number.to_string(),
            Self::Difference(difference) => difference.to_string(),
            Self::Fraction(fraction) => fraction.to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::Text(text) => text.clone(),
            Self::List(values) => values.iter().map(Self::bare).collect::<Vec<_>>().join(", "),
            Self::Map(values) => {
                let named = values.iter().map(|(name, field)| format!("{name} {}", field.value.bare()));
                named.collect::<Vec<_>>().join(", ")
            }
            Self::Json(value) => value.to_string(),
        }
    }

    /// Compares two values. Numbers precede texts, which are compared in natural order.
    pub fn compare(&self, other: &Self) -> Ordering {
        let number = |value: &Self| match value {
            Self::Number(number) => Some(i128::from(*number)),
            Self::Difference(difference) => Some(*difference),
            _ => None,
        };
        if let (Self::Fraction(one), Self::Fraction(other)) = (self, other) {
            return one.total_cmp(other);
        }
        match (number(self), number(other)) {
            (None, None) => natural::compare(&self.bare(), &other.bare()),
            (one, other) => one.cmp(&other),
        }
    }

    /// Returns the value; `None` is omitted from the JSON object.
    pub fn or_absent(value: Option<impl Into<Self>>) -> Self {
        value.map_or(Self::Absent, Into::into)
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Nothing | Self::Absent => serializer.serialize_none(),
            Self::Number(number) => serializer.serialize_u64(*number),
            Self::Difference(difference) => serializer.serialize_i128(*difference),
            Self::Fraction(fraction) => serializer.serialize_f64(*fraction),
            Self::Flag(flag) => serializer.serialize_bool(*flag),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(values) => serializer.collect_seq(values),
            Self::Json(value) => value.serialize(serializer),
            Self::Map(values) => {
                let mut map = serializer.serialize_map(None)?;
                let present = values.iter().filter(|(_, field)| field.value != Self::Absent);
                present.into_iter().try_for_each(|(name, field)| map.serialize_entry(name, &field.value))?;
                map.end()
            }
        }
    }
}

/// Implements the conversion from several types.
macro_rules! from {
    ($($type:ty, $value:ident => $converted:expr;)+) => {
        $(impl From<$type> for Value {
            fn from($value: $type) -> Self {
                $converted
            }
        }

        impl IntoValue for $type {})+
    };
}

from! {
    u64, number => Self::Number(number);
    u32, number => Self::Number(number.into());
    u16, number => Self::Number(number.into());
    u8, number => Self::Number(number.into());
    usize, number => Self::Number(number as u64);
    i128, difference => Self::Difference(difference);
    f64, fraction => Self::Fraction(fraction);
    bool, flag => Self::Flag(flag);
    String, text => Self::Text(text);
    &str, text => Self::Text(text.to_owned());
    &Path, path => Self::Text(path.display().to_string());
}

impl IntoValue for Value {}
impl<T: IntoValue> IntoValue for Vec<T> {}

impl<T: IntoValue> IntoValue for Option<T> {
    const IS_OPTIONAL: bool = true;
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Nothing, Into::into)
    }
}

impl<T: Into<Self>> From<Vec<T>> for Value {
    fn from(values: Vec<T>) -> Self {
        Self::List(values.into_iter().map(Into::into).collect())
    }
}
