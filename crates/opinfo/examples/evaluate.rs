//! Calls every row of a table and writes what came out: `evaluate ROWS.json DATA OUT`. Run by
//! `cargo xtask conformance accuracy`, which draws the rows and compares the results with PyTorch's.
//!
//! Rows are those of `golden/opinfo`, but their tensors list no elements: they follow each other in DATA, eight bytes each
//! (f64 or i64, little-endian), in the order of arguments, named arguments, seeds. OUT has for every row the number of
//! results and gradients, then each one's number of elements and the elements as f64 (none for what is not a float
//! tensor); a row that failed has the number -1, and says why on stderr.

use firebrand_core::dispatch::{Op, Value};
use firebrand_core::{DType, Tensor};
use firebrand_opinfo::{Argument, Numbers, Row, TensorData, evaluate, read_rows};
use std::io::{BufWriter, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

struct Data<'a>(&'a [u8]);

impl Data<'_> {
    fn word(&mut self) -> [u8; 8] {
        let (word, rest) = self.0.split_first_chunk().expect("DATA has the elements of every tensor");
        self.0 = rest;
        *word
    }

    fn fill(&mut self, t: &mut TensorData) {
        let n = t.shape.iter().product::<usize>();
        t.data = Some(if t.dtype.is_floating_point() {
            Numbers::Floats((0..n).map(|_| f64::from_le_bytes(self.word())).collect())
        } else {
            Numbers::Ints((0..n).map(|_| i64::from_le_bytes(self.word())).collect())
        });
    }

    fn fill_row(&mut self, row: &mut Row) {
        for a in row.args.iter_mut().chain(row.kwargs.iter_mut().map(|(_, a)| a)) {
            match a {
                Argument::Tensor(t) => self.fill(t),
                Argument::Tensors(list) => list.iter_mut().flatten().for_each(|t| self.fill(t)),
                _ => {}
            }
        }
        row.seeds.iter_mut().flatten().for_each(|t| self.fill(t));
    }
}

fn results(row: &Row) -> Result<Vec<Option<Tensor>>, String> {
    let op = Op::from_name(&row.op).ok_or("no such op")?;
    let (out, grads) = evaluate(op, row)?;
    let out = out.into_iter().map(|v| if let Value::Tensor(t) = v { Some(t) } else { None });
    Ok(out.chain(grads).collect())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [rows, data, out] =
        std::env::args().skip(1).collect::<Vec<_>>().try_into().map_err(|_| "ROWS.json DATA OUT")?;
    let data = std::fs::read(data)?;
    let (mut data, mut out) = (Data(&data), BufWriter::new(std::fs::File::create(out)?));
    for (n, mut row) in read_rows(&std::fs::read_to_string(rows)?).into_iter().enumerate() {
        data.fill_row(&mut row);
        let found = catch_unwind(AssertUnwindSafe(|| results(&row))).unwrap_or_else(|_| Err("panicked".to_string()));
        match found {
            Err(e) => {
                eprintln!("row {n}, {}: {e}", row.op);
                out.write_all(&(-1i64).to_le_bytes())?;
            }
            Ok(found) => {
                out.write_all(&(found.len() as i64).to_le_bytes())?;
                for t in found {
                    let values =
                        t.filter(|t| matches!(t.dtype(), DType::F32)).map_or(Vec::new(), |t| t.to_vec::<f64>());
                    out.write_all(&(values.len() as i64).to_le_bytes())?;
                    for v in values {
                        out.write_all(&v.to_le_bytes())?;
                    }
                }
            }
        }
    }
    Ok(out.flush()?)
}
