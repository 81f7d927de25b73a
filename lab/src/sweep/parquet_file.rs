//! Rows as a parquet file of one row group: flat columns, empty cells null. Uses `row`; the parquet crate writes.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;

use super::row::{Cell, Row};

/// Every column of the rows: texts as UTF-8, whole numbers as INT64, numbers as DOUBLE, switches as BOOLEAN; all optional, snappy.
///
/// # Errors
/// What `out` says.
pub fn write_parquet(out: impl Write + Send, rows: &[Row]) -> io::Result<()> {
    written(out, rows).map_err(io::Error::other)
}

fn written(out: impl Write + Send, rows: &[Row]) -> Result<(), ParquetError> {
    let kinds = Row::default();
    let fields: Result<Vec<Arc<Type>>, ParquetError> =
        Row::COLUMNS.iter().zip(kinds.cells()).map(|(name, kind)| field(name, kind).map(Arc::new)).collect();
    let schema = Type::group_type_builder("sweep").with_fields(fields?).build()?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?;
    let cells: Vec<Vec<Cell<'_>>> = rows.iter().map(Row::cells).collect();
    let mut group = writer.next_row_group()?;
    for (index, kind) in kinds.cells().into_iter().enumerate() {
        let column = cells.iter().filter_map(|row| row.get(index).copied());
        match kind {
            Cell::Text(_) => append::<ByteArrayType>(
                &mut group,
                column.map(|cell| match cell {
                    Cell::Text(text) => text.map(ByteArray::from),
                    _ => None,
                }),
            )?,
            Cell::Count(_) => append::<Int64Type>(
                &mut group,
                column.map(|cell| match cell {
                    Cell::Count(count) => count.and_then(|count| i64::try_from(count).ok()),
                    _ => None,
                }),
            )?,
            Cell::Number(_) => append::<DoubleType>(
                &mut group,
                column.map(|cell| match cell {
                    Cell::Number(number) => number,
                    _ => None,
                }),
            )?,
            Cell::Switch(_) => append::<BoolType>(
                &mut group,
                column.map(|cell| match cell {
                    Cell::Switch(switch) => switch,
                    _ => None,
                }),
            )?,
        }
    }
    group.close()?;
    writer.close()?;
    Ok(())
}

fn field(name: &str, kind: Cell<'_>) -> Result<Type, ParquetError> {
    let (physical, logical) = match kind {
        Cell::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Cell::Count(_) => (Physical::INT64, None),
        Cell::Number(_) => (Physical::DOUBLE, None),
        Cell::Switch(_) => (Physical::BOOLEAN, None),
    };
    Type::primitive_type_builder(name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical)
        .build()
}

fn append<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    values: impl Iterator<Item = Option<T::T>>,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else { return Ok(()) };
    let values: Vec<Option<T::T>> = values.collect();
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let present: Vec<T::T> = values.into_iter().flatten().collect();
    column.typed::<T>().write_batch(&present, Some(&levels), None)?;
    column.close()
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let first = Row { status: "ok".to_owned(), gpus: 4, ttft_p99_ms: Some(12.5), ..Row::default() };
        let second = Row { enable_prefix_caching: Some(false), reason: Some("größer".to_owned()), ..Row::default() };
        let file = tempfile::tempfile().unwrap();
        write_parquet(file.try_clone().unwrap(), &[first, second]).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let rows: Vec<Vec<(String, Field)>> = reader
            .get_row_iter(None)
            .unwrap()
            .map(|row| row.unwrap().get_column_iter().map(|(name, field)| (name.clone(), field.clone())).collect())
            .collect();
        assert_eq!((rows.len(), rows[0].len()), (2, Row::COLUMNS.len()));
        let cell = |row: usize, name: &str| rows[row].iter().find(|(column, _)| column == name).unwrap().1.clone();
        assert_eq!((cell(0, "gpus"), cell(0, "ttft_p99_ms")), (Field::Long(4), Field::Double(12.5)));
        assert_eq!((cell(0, "reason"), cell(1, "reason")), (Field::Null, Field::Str("größer".to_owned())));
        assert_eq!((cell(1, "enable_prefix_caching"), cell(1, "ttft_p99_ms")), (Field::Bool(false), Field::Null));
    }

    #[test]
    fn no_rows_are_a_file_of_columns() {
        let file = tempfile::tempfile().unwrap();
        write_parquet(file.try_clone().unwrap(), &[]).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        assert_eq!(reader.metadata().file_metadata().num_rows(), 0);
        assert_eq!(reader.metadata().file_metadata().schema_descr().num_columns(), Row::COLUMNS.len());
    }
}
