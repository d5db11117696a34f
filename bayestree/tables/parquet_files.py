"""The files of a Parquet data set: their order, footers, common columns and hive partitions."""

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bayestree._utils.wording import InputError, counted
from bayestree._utils.write import url_of
from bayestree.tables.columns import quote_columns

PARQUET = (".parquet", ".pq")
FOOTER = 2**16  # bytes at the end of a file, which hold most footers
WILDCARD = re.compile(r"[*?\[]")
UNNAMED_INDEX = re.compile(r"__index_level_\d+__")  # as pandas stores it
KEY = re.compile(r"([^/=]+)=([^/]*)/")  # a folder of a hive partition
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # the value of rows without one

Value = str | int | None


def is_dataset(path: str | Path) -> bool:
    """Return whether a path is a folder, a URL or a pattern such as ``data/*.parquet``."""
    if url_of(path):
        return True
    local = Path(path)
    return local.is_dir() or bool(not local.exists() and WILDCARD.search(str(path)))


def from_arrow(table: Any) -> pd.DataFrame:
    """Convert a table or batch of Arrow; an index is a column if it has a name, else left out."""
    frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    return frame.loc[:, [not UNNAMED_INDEX.fullmatch(str(name)) for name in frame]]


class Footer(NamedTuple):
    """What the end of a file says about it."""

    file: str
    size: int
    sha256: str
    schema: pa.Schema
    row_groups: list[tuple[int, int]]  # rows and bytes of each


def system(path: str) -> tuple[Any, str]:
    """Return the file system of a path or URL, and the path in it."""
    from fsspec.core import url_to_fs  # noqa: PLC0415 - slow to import

    try:
        system, place = url_to_fs(path)
    except (ImportError, ValueError) as error:
        raise InputError(f"{path!r} cannot be reached: {error}.") from error
    return system, str(place)


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Name the file in errors of the block."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{name!r} cannot be read as a Parquet file: {reason}") from error


def find(system: Any, place: str, path: str) -> dict[str, int]:
    """Return the sizes of the Parquet files of a file, folder or pattern, in order; refuse none."""
    matched = {place: None} if system.exists(place) else {}
    if not matched and WILDCARD.search(place):
        matched = system.glob(place, detail=True)
    found: dict[str, int] = {}
    for root in matched:
        for name, info in system.find(root, detail=True).items():
            inside = name[len(root) :].split("/")  # such as _temporary, and drafts
            if name.lower().endswith(PARQUET) and not any(one[:1] in ("_", ".") for one in inside):
                found[name] = info["size"]
    if found:
        return dict(sorted(found.items(), key=lambda item: (_natural(item[0]), item[0])))
    fault = "does not exist; specify a CSV or Parquet file"
    if matched:
        is_folder = len(matched) == 1 and system.isdir(place)
        fault = f"{'is a folder' if is_folder else 'leads to files, but'} without Parquet files"
    elif WILDCARD.search(place):
        fault = "matches no file; correct the pattern"
    endings = " or ".join(PARQUET)
    raise InputError(
        f"{path!r} {fault}. A data set is a folder of files that end in {endings}, or a pattern "
        "such as 'data/*.parquet'."
    )


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key for sorting, by which numbers in names count as numbers."""
    parts = re.split(r"(\d+)", name)
    return [(int(part or 0), "") if place % 2 else (0, part) for place, part in enumerate(parts)]


def footer(system: Any, name: str, size: int) -> Footer:
    """Read the end of a file: the magic number after the length of the metadata before it."""
    with naming(name):
        if size < 8:
            raise pa.ArrowInvalid(f"it has {counted(size, 'byte')}, too few for a footer.")
        end = system.cat_file(name, start=max(0, size - FOOTER))
        length = int.from_bytes(end[-8:-4], "little") + 8
        if len(end) < length <= size:
            end = system.cat_file(name, start=size - length)
        content = end[-length:]
        metadata = pq.read_metadata(pa.BufferReader(content))
        schema = metadata.schema.to_arrow_schema()
    if repeated := {column for column in schema.names if schema.names.count(column) > 1}:
        raise InputError(
            f"{name!r} has more than one of {quote_columns(sorted(repeated))}; rename them."
        )
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    return Footer(
        name,
        size,
        hashlib.sha256(content).hexdigest(),
        pa.schema([field for field in schema if not UNNAMED_INDEX.fullmatch(field.name)]),
        [(group.num_rows, group.total_byte_size) for group in groups],
    )


def common_schema(schemas: Mapping[str, pa.Schema]) -> pa.Schema:
    """Return the schema that the schemas of all files can be converted to; else name the file."""
    (first, common), *others = schemas.items()
    seen = [common]
    for name, schema in others:
        if any(schema.equals(one) for one in seen):
            continue
        seen.append(schema)
        for here, there in ((name, first), (first, name)):
            known = schemas[here].names
            if missing := [one for one in schemas[there].names if one not in known]:
                raise InputError(
                    f"{here!r} lacks {quote_columns(missing)} of {there!r}; all files of a data "
                    "set need the same columns."
                )
        for field in schema:
            mine = common.field(field.name)
            try:
                both = pa.unify_schemas(
                    [pa.schema([mine]), pa.schema([field])], promote_options="permissive"
                )
            except pa.ArrowException:
                raise InputError(
                    f"column {field.name!r} holds {field.type} in {name!r}, but {mine.type} in "
                    f"{first!r}; write it with one type in all files."
                ) from None
            common = common.set(common.get_field_index(field.name), both.field(0))
    return common


def partitions(names: Sequence[str], text: Collection[str]) -> list[dict[str, Value]]:
    """Return the keys and values of the hive partition of each file; whole numbers as such."""
    found: list[dict[str, Value]] = [
        {
            unquote(key): None if value == NO_VALUE else unquote(value)
            for key, value in KEY.findall(name)
        }
        for name in names
    ]
    for name, own in zip(names, found, strict=True):
        if own.keys() != found[0].keys():
            raise InputError(
                f"{name!r} lies in other partitions (key=value) than {names[0]!r}: "
                f"{[*own]} instead of {[*found[0]]}; all files need the same keys."
            )
    for key in found[0].keys() - set(text):
        try:
            numbers = pa.array([own[key] for own in found], pa.string()).cast(pa.int64())
        except pa.ArrowInvalid:
            continue
        for own, number in zip(found, numbers.to_pylist(), strict=True):
            own[key] = number
    return found
