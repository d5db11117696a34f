"""The files that a fit leaves and a prediction reads."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from bayestree.tables import Encoding

MODEL, COLUMNS, FACETS = "model.safetensors", "columns.json", "facets.csv"


def check_folder(folder: Path, *, force: bool) -> None:
    from bayestree.tables import InputError

    if folder.is_dir():
        if any(folder.iterdir()) and not force:
            raise InputError(
                f"--out {str(folder)!r} is not empty; name another folder, or add --force."
            )
    elif folder.exists():
        raise InputError(f"--out {str(folder)!r} is a file; name a folder.")
    ground = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not (ground.is_dir() and os.access(ground, os.W_OK)):
        raise InputError(f"--out {str(folder)!r} cannot be written: {str(ground)!r} is closed.")


def check_output(out: Path, data: Path, *, force: bool) -> None:
    from bayestree.tables import InputError

    if out.suffix not in (".csv", ".parquet"):
        raise InputError(f"--out {str(out)!r} must end in .csv or .parquet.")
    if out.exists() and (not force or out.is_dir() or (data.exists() and out.samefile(data))):
        remedy = "name another file" if force else "name another file, or add --force"
        raise InputError(f"--out {str(out)!r} exists; {remedy}.")
    if not out.absolute().parent.is_dir():
        raise InputError(f"--out {str(out)!r} is in a folder that does not exist; make it first.")


def read_folder(folder: Path) -> "tuple[Any, dict[str, Any], Encoding]":
    """The model, what columns.json says, and the encoding of the columns."""
    from bayestree import load
    from bayestree.tables import Encoding, InputError

    for name in (MODEL, COLUMNS):
        if not (folder / name).is_file():
            raise InputError(
                f"{str(folder)!r} has no {name}; give a folder that `bayestree fit` wrote."
            )
    estimator: Any = load(folder / MODEL)
    try:
        columns = json.loads((folder / COLUMNS).read_text(encoding="utf-8"))
        encoding = Encoding.from_json(columns["columns"])
        names = encoding.feature_names
        columns = {"target": str(columns["target"]), "is_text": bool(columns["target_is_text"])}
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"{str(folder / COLUMNS)!r} was changed after it was written; fit again."
        ) from error
    if names != list(getattr(estimator, "feature_names_in_", ())):
        raise InputError(
            f"{COLUMNS} and {MODEL} in {str(folder)!r} are not of the same fit; fit again."
        )
    return estimator, columns, encoding


def write_table(table: "pd.DataFrame", out: Path) -> None:
    from bayestree._write import write_whole

    if out.suffix == ".csv":
        write_whole(out, table.to_csv(index=False))
    else:
        write_whole(out, table.to_parquet(index=False))


def json_text(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
