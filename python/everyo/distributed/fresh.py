"""A rank that is an interpreter of its own: what spawn(start_method="spawn") starts."""

from __future__ import annotations

import os
import pickle
from typing import Optional

from .. import _core
from . import ranks
from .ranks import Answer


def main(descriptor: int) -> None:
    """Runs the call that the file holds, and reports what came of it."""
    group: Optional[_core.ProcessGroup] = None
    answer: Answer
    try:
        preparation, call = pickle.loads(_read(descriptor))
        _import_program(preparation)
        function, args, kwargs = pickle.loads(call)
        group = _core.init_process_group()
        answer = ranks._answer((function, args, kwargs), group)
    except BaseException as error:
        answer = ranks.described(error)
    if group is not None:
        if isinstance(answer, tuple):
            group.end(f"rank {group.rank} raised {answer[0]}")
        group.close()
    ranks._flush()
    _core.report(answer)


def _read(descriptor: int) -> bytes:
    """All of a file whose place other ranks move, too."""
    data = bytearray()
    while piece := os.pread(descriptor, 1 << 20, len(data)):
        data += piece
    os.close(descriptor)
    return bytes(data)


def _import_program(preparation: dict[str, object]) -> None:
    """What multiprocessing does: sys.path, the working folder, and the parent's program as __main__."""
    from multiprocessing import spawn as preparing

    ranks._importing = True
    try:
        preparing.prepare(preparation)
    finally:
        ranks._importing = False
