"""Reads the tables of a recording with pyarrow, pandas or Polars. The program writes them as Parquet."""

from __future__ import annotations

import contextlib
import glob
import importlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from . import _binary

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

Table = Literal["blocks", "events"]
_TABLES = ("blocks", "events")
# Files of a folder of ranks lack this column: their folders are named for it.
_RANK = "rank"


def to_arrow(path: str, table: Table, columns: Sequence[str] | None) -> pyarrow.Table:
    pyarrow, parquet = _import("to_arrow", "pyarrow", "pyarrow.parquet")
    with _written(path, table) as files:
        return _read(pyarrow, parquet, files, _chosen(parquet.read_schema(files[0][1]).names, columns))


def to_pandas(path: str, table: Table, columns: Sequence[str] | None) -> pandas.DataFrame:
    pandas, pyarrow, parquet = _import("to_pandas", "pandas", "pyarrow", "pyarrow.parquet")
    # NumPy has no nulls: float64, in their place, would round numbers.
    types = {pyarrow.int64(): pandas.Int64Dtype()}.get
    with _written(path, table) as files:
        names = _chosen(parquet.read_schema(files[0][1]).names, columns)
        # One column after the other: only one is in memory twice.
        read = [_read(pyarrow, parquet, files, [name]).to_pandas(types_mapper=types) for name in names]
    return pandas.concat(read, axis=1)


def to_polars(path: str, table: Table, columns: Sequence[str] | None) -> polars.DataFrame:
    (polars,) = _import("to_polars", "polars")
    with _written(path, table) as files:
        names = _chosen(polars.read_parquet_schema(files[0][1]), columns)
        scanned = polars.concat([_scan(polars, file, rank) for rank, file in files])
        # One column after the other: only one is in memory twice.
        read = [scanned.select(name).collect(engine="streaming") for name in names]
    return polars.concat(read, how="horizontal")


def _import(method: str, *names: str) -> list[Any]:
    try:
        return [importlib.import_module(name) for name in names]
    except ImportError as error:
        packages = list(dict.fromkeys(name.partition(".")[0] for name in names))
        needed, command = " and ".join(packages), f"pip install {' '.join(packages)}"
        raise ImportError(f"Snapshot.{method} needs {needed}: run `{command}`", name=error.name) from error


@contextlib.contextmanager
def _written(path: str, table: str) -> Iterator[list[tuple[int | None, str]]]:
    """Writes a table of a recording, or of a folder of recordings. Yields the files, each with the rank of its
    folder."""
    if table not in _TABLES:
        raise ValueError(f"table={table!r}: expected 'blocks' or 'events'")
    with tempfile.TemporaryDirectory(prefix="highwater-") as folder:
        if not os.path.isdir(path):
            file = os.path.join(folder, f"{table}.parquet")
            _binary.run(["convert", path, file, "--table", table])
            yield [(None, file)]
            return
        ranks = os.path.join(folder, "ranks")
        _binary.run(["convert", path, ranks, "--to", "parquet", "--table", table])
        files = glob.glob(os.path.join(glob.escape(ranks), table, f"{_RANK}=*", "*.parquet"))
        yield sorted(((_rank(file), file) for file in files), key=lambda file: (file[0] is None, file))


def _rank(file: str) -> int | None:
    """Returns the rank in the name of a file's folder; None for the folder of recordings without a rank."""
    rank = os.path.basename(os.path.dirname(file)).partition("=")[2]
    return int(rank) if rank.isdecimal() else None


def _chosen(names: Iterable[str], columns: Sequence[str] | None) -> list[str]:
    """Returns the columns to read of a file with the columns `names`: the requested ones, or otherwise all, with the
    rank first."""
    known = [_RANK, *(name for name in names if name != _RANK)]
    if columns is None:
        return known
    if isinstance(columns, str) or not columns:
        raise ValueError(f"columns={columns!r}: expected a list of names")
    for name in columns:
        if name not in known:
            raise ValueError(f"columns={columns!r}: the table has no {name!r}; it has {', '.join(known)}")
    return list(dict.fromkeys(columns))


def _read(pyarrow: Any, parquet: Any, files: list[tuple[int | None, str]], names: list[str]) -> pyarrow.Table:
    read = []
    for rank, path in files:
        schema = parquet.read_schema(path)
        texts = [field.name for field in schema if field.type == pyarrow.string()]
        # A buffer would hold the whole file.
        with parquet.ParquetFile(path, read_dictionary=texts, pre_buffer=False) as file:
            part = file.read([name for name in names if name in schema.names])
            if _RANK not in schema.names:
                ranks = pyarrow.repeat(pyarrow.scalar(rank, pyarrow.int64()), file.metadata.num_rows)
                part = part.append_column(_RANK, ranks)
            read.append(part.select(names))
    # Each row group has dictionaries of its own, by which pyarrow cannot group.
    return pyarrow.concat_tables(read).unify_dictionaries()


def _scan(polars: Any, path: str, rank: int | None) -> polars.LazyFrame:
    scanned = polars.scan_parquet(path, hive_partitioning=False)
    schema = scanned.collect_schema()
    if _RANK not in schema:
        scanned = scanned.with_columns(polars.lit(rank, dtype=polars.Int64).alias(_RANK))
    return scanned.with_columns(polars.col(polars.String).cast(polars.Categorical))
