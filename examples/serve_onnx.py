"""Serve an exported tree by HTTP, without torch and bayestree.

It needs fastapi, uvicorn, onnxruntime and NumPy only. Columns that are missing, unknown or of the
wrong type are refused by name (status 422); a missing value is null:

    bayestree export results/tumours --out tree.onnx --columns
    bayestree export results/tumours --out tree.json
    TREE=tree.onnx uvicorn serve_onnx:app
    curl localhost:8000/predict -H 'Content-Type: application/json' -d '{"mean radius": 14.1, ...}'
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from fastapi import FastAPI
from pydantic import ConfigDict, Field, create_model

PLACE = Path(os.environ.get("TREE", "tree.onnx"))
SESSION = onnxruntime.InferenceSession(PLACE, providers=["CPUExecutionProvider"])
TREE = json.loads(PLACE.with_suffix(".json").read_text(encoding="utf-8"))
FACETS = {one["path"]: one["facets"] for one in TREE["trees"][0]["nodes"]}
LEAVES = TREE["trees"][0]["leaves"]
TYPES: dict[str, Any] = {"tensor(double)": float | None, "tensor(string)": str | None}
MISSING = {"tensor(double)": np.nan, "tensor(string)": ""}
FIELDS: dict[str, Any] = {
    f"column_{k}": (TYPES[column.type], Field(alias=column.name))
    for k, column in enumerate(SESSION.get_inputs())
}
CHECKS = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
Row = create_model("Row", __config__=CHECKS, **FIELDS)
app = FastAPI(title="bayestree")


def rule(path: str) -> str:
    """Return the conditions that lead to a leaf, rounded for readers."""
    terms = []
    for depth, side in enumerate(path.removeprefix("root")):
        inside = " and ".join(facet["text"] for facet in FACETS[path[:depth] or "root"])
        terms.append(inside if side == "L" else f"not ({inside})")
    return "; ".join(terms) or "all rows"


@app.post("/predict")
def predict(row: Row) -> dict[str, Any]:  # type: ignore[valid-type]  # made of the model's inputs
    """Return the class and its probabilities, or the mean, of a row, and the rule that it meets."""
    given = row.model_dump(by_alias=True)  # type: ignore[attr-defined]
    values = {
        column.name: np.array([MISSING[column.type] if (v := given[column.name]) is None else v])
        for column in SESSION.get_inputs()
    }
    names = [one.name for one in SESSION.get_outputs()]
    found = dict(zip(names, (one.tolist()[0] for one in SESSION.run(names, values)), strict=True))
    if "probabilities" in found:
        found["probabilities"] = dict(zip(TREE["classes"], found["probabilities"], strict=True))
    return found | {"rule": rule(LEAVES[found["leaf"]]["path"])}
