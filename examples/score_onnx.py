"""Score a Parquet data set file by file with an exported tree, without torch and bayestree.

It needs onnxruntime, pyarrow and NumPy only. For each file of the data set, it writes one with the
predictions of its rows, in their order, and in memory are 10,000 rows at a time:

    bayestree export results/tumours --out tree.onnx --columns
    python score_onnx.py tree.onnx rows/ scored/
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq


def portable(column: pa.Array, kind: str) -> np.ndarray:
    """Return a column as the model takes it: text, numbers, or days since 1970."""
    if kind == "tensor(string)":
        return column.cast(pa.string()).fill_null("").to_numpy(zero_copy_only=False)
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.timestamp("us")).cast(pa.int64())
        return column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) / 86_400e6
    column = column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column
    return column.cast(pa.float64()).to_numpy(zero_copy_only=False)


model, data, out = sys.argv[1], sys.argv[2], Path(sys.argv[3])
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
inputs = {one.name: one.type for one in session.get_inputs()}
outputs = [one.name for one in session.get_outputs()]
dataset = ds.dataset(data, partitioning="hive")  # folders key=value are columns
for file in dataset.get_fragments():
    target = out / Path(file.path).relative_to(Path(data).absolute())
    target.parent.mkdir(parents=True, exist_ok=True)
    draft, writer = target.with_name(f".{target.name}"), None  # renamed once it is complete
    for batch in file.to_batches(dataset.schema, columns=[*inputs], batch_size=10_000):
        rows = {name: portable(batch[name], kind) for name, kind in inputs.items()}
        found = dict(zip(outputs, session.run(outputs, rows), strict=True))
        found |= {f"p{k}": p for k, p in enumerate(found.pop("probabilities", np.empty((0, 0))).T)}
        table = pa.table({name: pa.array(values) for name, values in found.items()})
        writer = writer or pq.ParquetWriter(draft, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()
        draft.replace(target)
        print(target)
