"""What each epoch came to."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]


class History:
    """One row of values an epoch: iteration gives the rows, `history["loss"]` the series of a value."""

    def __init__(self) -> None:
        self._rows: list[Row] = []

    def append(self, **values: Any) -> Row:
        """Adds a row and returns it; without an `epoch` of its own it gets the next number from 1."""
        row = {"epoch": len(self._rows) + 1, **values}
        self._rows.append(row)
        return row

    def __repr__(self) -> str:
        if not self._rows:
            return "History(no epochs)"
        values = ((key, f"{value:.6g}" if isinstance(value, float) else value) for key, value in self.last().items())
        last = ", ".join(f"{key}={value}" for key, value in values)
        return f"History({len(self)} epochs, the last: {last})"

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __contains__(self, key: object) -> bool:
        return key in self.keys()

    def __getitem__(self, key: str) -> list[Any]:
        """The value of each row that has it. Raises KeyError "No metric"."""
        series = [row[key] for row in self._rows if key in row]
        if not series:
            raise KeyError(f"[History] No metric {key!r}; there are {', '.join(self.keys()) or 'none yet'}")
        return series

    def get(self, key: str, default: Any = None) -> Any:
        """The series of a value, or `default`."""
        return self[key] if key in self else default

    def keys(self) -> list[str]:
        """Names of the values, in the order in which they appeared; "epoch" is not among them."""
        return list(dict.fromkeys(key for row in self._rows for key in row if key != "epoch"))

    @property
    def epochs(self) -> list[int]:
        """The number of each row's epoch."""
        return [row["epoch"] for row in self._rows]

    def last(self) -> Row:
        """The newest row. Raises IndexError when there is none."""
        if not self._rows:
            raise IndexError("[History] there is no row yet")
        return self._rows[-1]

    def best(self, key: str = "val_loss", mode: str = "min") -> Row:
        """The row whose value is least ("min") or greatest ("max"), the first of equals; NaN is best only where all are.

        Raises KeyError, ValueError.
        """
        if mode not in ("min", "max"):
            raise ValueError(f'[History] mode is {mode!r}; it must be "min" or "max"')
        self[key]
        rows = [row for row in self._rows if key in row]
        rows = [row for row in rows if row[key] == row[key]] or rows
        return (min if mode == "min" else max)(rows, key=lambda row: row[key])

    def to_dict(self) -> dict[str, list[Any]]:
        """The series of each value."""
        return {key: self[key] for key in self.keys()}

    def to_json(self, path: str | Path) -> None:
        """Writes the series as a JSON object."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=2, default=float) + "\n", encoding="utf-8")

    def to_csv(self, path: str | Path) -> None:
        """Writes a line an epoch, below a header."""
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["epoch", *self.keys()], restval="")
            writer.writeheader()
            writer.writerows(self._rows)
