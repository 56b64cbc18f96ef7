//! Writes the rows of one table as a Parquet file, in batches.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;

use super::Rows;
use super::column::{Column, Values, schema};

/// Number of rows in a row group. Engines read groups in parallel, and writing needs memory for one column of one
/// group.
pub(super) const GROUP: usize = 1 << 18;

const BATCH: usize = 1 << 13;

/// Maximum bytes of a group's dictionary of texts; further texts are stored without the dictionary.
const MAX_TEXT: usize = 64 << 20;

/// Maximum bytes of a text in the column statistics.
const MAX_STATISTICS_TEXT: usize = 64;

pub(super) struct TableFile<W: Write + Send> {
    file: SerializedFileWriter<W>,
}

impl<W: Write + Send> TableFile<W> {
    pub(super) fn new<V>(out: W, columns: &[Column<V>], metadata: Vec<KeyValue>) -> Result<Self> {
        let properties = Arc::new(properties(columns, metadata)?);
        Ok(Self { file: SerializedFileWriter::new(out, schema(columns)?, properties)? })
    }

    /// `columns` must be those with which the table was created.
    pub(super) fn append<V: Rows>(&mut self, mut rows: V, columns: &[Column<V>]) -> Result<()> {
        let whole = rows.len();
        for start in (0..whole).step_by(GROUP) {
            let range = start..whole.min(start + GROUP);
            rows.enter(range.clone());
            let mut group = self.file.next_row_group()?;
            for column in columns {
                let Some(mut writer) = group.next_column()? else {
                    return Err(ParquetError::General(format!("the schema has no column '{}'", column.name)));
                };
                for batch in range.clone().step_by(BATCH) {
                    let batch = batch..range.end.min(batch + BATCH);
                    column.write(writer.untyped(), &mut rows, batch)?;
                }
                writer.close()?;
            }
            group.close()?;
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<()> {
        self.file.close().map(|_| ())
    }
}

fn properties<V>(columns: &[Column<V>], metadata: Vec<KeyValue>) -> Result<WriterProperties> {
    let mut properties = WriterProperties::builder()
        .set_created_by(format!("highwater {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(metadata))
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_statistics_truncate_length(Some(MAX_STATISTICS_TEXT))
        .set_max_row_group_row_count(Some(GROUP))
        .set_dictionary_page_size_limit(MAX_TEXT);
    for column in columns {
        if let Some(encoding) = column.encoding() {
            let path = ColumnPath::from(column.name);
            properties = properties.set_column_dictionary_enabled(path.clone(), false);
            properties = properties.set_column_encoding(path, encoding);
        }
    }
    Ok(properties.build())
}

impl<V> Column<V> {
    fn write(&self, writer: &mut ColumnWriter<'_>, rows: &mut V, batch: std::ops::Range<usize>) -> Result<()> {
        match (&self.values, writer) {
            (Values::Repeating(value) | Values::Running(value), ColumnWriter::Int64ColumnWriter(writer)) => {
                let (values, levels) = self.collect(batch, |row| value(rows, row));
                writer.write_batch(&values, levels.as_deref(), None)?;
            }
            (Values::Texts(value), ColumnWriter::ByteArrayColumnWriter(writer)) => {
                let (values, levels): (Vec<ByteArray>, _) = self.collect(batch, |row| value(rows, row));
                writer.write_batch(&values, levels.as_deref(), None)?;
            }
            _ => return Err(ParquetError::General(format!("the column '{}' has another type", self.name))),
        }
        Ok(())
    }

    /// Returns the values that are present and, if the column is optional, for each row 1 if it has a value and 0 if
    /// not.
    fn collect<T: Default>(
        &self,
        batch: std::ops::Range<usize>,
        mut value: impl FnMut(usize) -> Option<T>,
    ) -> (Vec<T>, Option<Vec<i16>>) {
        if !self.is_optional {
            return (batch.map(|row| value(row).unwrap_or_default()).collect(), None);
        }
        let mut values = Vec::with_capacity(batch.len());
        let levels = batch.map(|row| {
            let value = value(row);
            let level = i16::from(value.is_some());
            values.extend(value);
            level
        });
        let levels = levels.collect();
        (values, Some(levels))
    }
}
