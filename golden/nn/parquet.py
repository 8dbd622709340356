"""Makes golden/nn/table.parquet (numbers of every kind, some missing, in two row groups), table.csv with the same values, and
texts.parquet, which is refused.

Run: python golden/nn/parquet.py (with pyarrow)
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent
ROWS = 50
columns = {
    "small": pa.array([i % 7 - 3 for i in range(ROWS)], pa.int32()),
    "large": pa.array([None if i % 11 == 5 else i * i for i in range(ROWS)], pa.int64()),
    "single": pa.array([i / 8 for i in range(ROWS)], pa.float32()),
    "double": pa.array([None if i == 3 else 0.1 * i for i in range(ROWS)], pa.float64()),
    "flag": pa.array([i % 3 == 0 for i in range(ROWS)], pa.bool_()),
}
table = pa.table(columns)
pq.write_table(table, HERE / "table.parquet", compression="snappy", row_group_size=30)
shown = lambda v: "" if v is None else repr(float(v))
lines = [",".join(columns)] + [",".join(shown(c[i].as_py()) for c in columns.values()) for i in range(ROWS)]
(HERE / "table.csv").write_text("\n".join(lines) + "\n")
pq.write_table(pa.table({"name": ["a", "b"]}), HERE / "texts.parquet")
