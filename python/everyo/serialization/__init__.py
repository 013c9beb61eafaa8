"""Models in files."""

from everyo.serialization.archive import load, load_metadata, save

__all__ = ["load", "load_metadata", "save"]
