//! Numeric columns of Parquet files. Nested and repeated columns, texts and dates are refused by name.

use firebrand_core::{Error, Result, Tensor};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::path::Path;

fn refused(message: impl std::fmt::Display) -> Error {
    Error::argument("read_parquet", message.to_string())
}

/// Reads a table of numbers: names of the columns and an f64 tensor `[rows, columns]`. Missing values are NaN.
pub fn read_parquet(path: impl AsRef<Path>) -> Result<(Vec<String>, Tensor)> {
    super::read_file(path.as_ref(), parse_parquet)
}

/// As [`read_parquet`], from bytes.
pub fn parse_parquet(bytes: &[u8]) -> Result<(Vec<String>, Tensor)> {
    let budget = super::budget(bytes);
    let file = SerializedFileReader::new(bytes::Bytes::copy_from_slice(bytes)).map_err(refused)?;
    let metadata = file.metadata();
    let schema = metadata.file_metadata().schema_descr();
    let names: Vec<String> = schema.columns().iter().map(|c| c.path().string()).collect();
    if let Some(column) = schema.columns().iter().find(|c| c.max_rep_level() > 0 || c.max_def_level() > 1) {
        return Err(refused(format!(
            "column `{}` holds lists or structures; expected one number per row: store its parts as columns of their own",
            firebrand_io::plain(&column.path().string())
        )));
    }
    let claimed = |n: i64| u64::try_from(n).map_err(|_| refused("a negative number of rows"));
    let rows = claimed(metadata.file_metadata().num_rows())?;
    // Values of a column as they are stored and as numbers, and the table twice.
    let cells = rows.checked_mul(names.len() as u64).and_then(|n| n.checked_mul(32));
    budget.take(cells.ok_or_else(|| refused("the table is too large"))?).map_err(refused)?;
    let (rows, width) = (rows as usize, names.len());
    let mut table = vec![f64::NAN; rows * width];
    let mut first = 0;
    for group in 0..file.num_row_groups() {
        let reader = file.get_row_group(group).map_err(refused)?;
        let count = claimed(reader.metadata().num_rows())? as usize;
        if first + count > rows {
            return Err(refused("the row groups have more rows than the table"));
        }
        for (k, name) in names.iter().enumerate() {
            let column = reader.get_column_reader(k).map_err(refused)?;
            let values = numbers(column, count, schema.column(k).max_def_level())
                .map_err(|e| refused(format!("column `{}`: {e}", firebrand_io::plain(name))))?;
            values.into_iter().enumerate().for_each(|(row, v)| table[(first + row) * width + k] = v);
        }
        first += count;
    }
    if first != rows {
        return Err(refused(format!("the table says {rows} rows, its row groups have {first}")));
    }
    Ok((names, Tensor::try_from_vec(table, [rows, width])?))
}

/// The values of a column of one row group.
fn numbers(column: ColumnReader, rows: usize, optional: i16) -> std::result::Result<Vec<f64>, String> {
    match column {
        ColumnReader::BoolColumnReader(r) => values(r, rows, optional, |v| f64::from(u8::from(*v))),
        ColumnReader::Int32ColumnReader(r) => values(r, rows, optional, |v| f64::from(*v)),
        ColumnReader::Int64ColumnReader(r) => values(r, rows, optional, |v| *v as f64),
        ColumnReader::FloatColumnReader(r) => values(r, rows, optional, |v| f64::from(*v)),
        ColumnReader::DoubleColumnReader(r) => values(r, rows, optional, |v| *v),
        _ => Err("expected numbers, found texts or dates; leave it out or convert it".to_string()),
    }
}

fn values<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    rows: usize,
    optional: i16,
    number: impl Fn(&T::T) -> f64,
) -> std::result::Result<Vec<f64>, String> {
    let (mut stored, mut levels) = (Vec::new(), Vec::new());
    while (if optional > 0 { levels.len() } else { stored.len() }) < rows {
        let left = rows - if optional > 0 { levels.len() } else { stored.len() };
        let wanted = (optional > 0).then_some(&mut levels);
        let (records, _, _) = reader.read_records(left, wanted, None, &mut stored).map_err(|e| e.to_string())?;
        if records == 0 {
            return Err(format!("it ends {left} rows early"));
        }
    }
    let mut stored = stored.iter().map(number);
    if optional == 0 {
        return Ok(stored.collect());
    }
    // A level below the highest stands for a missing value, which is not stored.
    let value = |level: &i16| if *level == optional { stored.next() } else { Some(f64::NAN) };
    levels.iter().map(value).collect::<Option<Vec<f64>>>().ok_or_else(|| "it has fewer values than it says".into())
}
