"""Writes rows.parquet with pyarrow 26: python make.py"""
import pyarrow as pa
import pyarrow.parquet as pq

message = pa.struct([("role", pa.string()), ("content", pa.large_string())])
rows = [
    {"messages": [{"role": "user", "content": "one?"}, {"role": "assistant", "content": "zwei \u00e4"}], "n": 1, "x": 0.5},
    {"text": "a text\nof two lines", "n": -2, "flag": True},
    {"messages": [], "kind": "b", "n": 3},
]
schema = pa.schema([("messages", pa.list_(message)), ("text", pa.string()), ("n", pa.int32()), ("x", pa.float64()),
                    ("flag", pa.bool_()), ("kind", pa.dictionary(pa.int8(), pa.string()))])
pq.write_table(pa.Table.from_pylist(rows, schema=schema), "rows.parquet", compression="snappy", row_group_size=2)
