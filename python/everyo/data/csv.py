"""Tables of numbers in text files."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from everyo._core import EveryOShapeError
from everyo.data.dataset import ArrayDataset


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _column(which: int | str, header: list[str], width: int, path: Path) -> int:
    if isinstance(which, str):
        if which not in header:
            raise ValueError(
                f"[load_csv_dataset] {path} has no column {which!r}; its columns are {header or 'without names'}"
            )
        return header.index(which)
    if not -width <= which < width:
        raise ValueError(f"[load_csv_dataset] {path} has no column {which}; it has {width} columns")
    return which % width


def load_csv_dataset(
    path: str | Path,
    *,
    target_column: int | str | None = -1,
    delimiter: str = ",",
    has_header: bool | None = None,
    skip_columns: Sequence[int | str] = (),
) -> ArrayDataset:
    """Features float32 [N, D] and targets float32 [N] of a file of numbers; without a target column, features alone.

    Columns are given by number, from the last when negative, or by name. Without `has_header`, the first line is a header
    when no field of it is a number. Raises FileNotFoundError; ValueError for a column that the file has not; EveryOShapeError
    "numeric table" naming line and column of a field that is no number, a line of another length, a file without rows, or one
    that is no UTF-8 text.
    """
    path = Path(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, delimiter=delimiter, skipinitialspace=True)
            lines = [(reader.line_num, [field.strip() for field in row]) for row in reader if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise EveryOShapeError(
            f"[load_csv_dataset] {path} is no UTF-8 text of a table: {error}; it must be a numeric table"
        ) from error
    if has_header is None:
        has_header = bool(lines) and not any(_is_number(field) for field in lines[0][1])
    header = lines.pop(0)[1] if has_header and lines else []
    if not lines:
        raise EveryOShapeError(f"[load_csv_dataset] {path} has no rows; it must be a numeric table")

    width = len(lines[0][1])
    left_out = {_column(which, header, width, path) for which in skip_columns}
    target = None if target_column is None else _column(target_column, header, width, path)
    columns = [i for i in range(width) if i not in left_out and i != target]
    values = np.empty((len(lines), width), dtype=np.float64)
    for row, (line, fields) in enumerate(lines):
        if len(fields) != width:
            raise EveryOShapeError(
                f"[load_csv_dataset] {path}:{line} has {len(fields)} columns, the first row has {width}; "
                "it must be a numeric table"
            )
        for column, field in enumerate(fields):
            if column in left_out:
                continue
            if not _is_number(field):
                raise EveryOShapeError(
                    f"[load_csv_dataset] {path}:{line}, column {column}: {field!r} is no number; it must be a numeric table"
                )
            values[row, column] = float(field)
    features = values[:, columns].astype(np.float32)
    return ArrayDataset(features, None if target is None else values[:, target].astype(np.float32))
