"""Datasets, batches, splits and scaling, on NumPy arrays."""

from everyo.data.csv import load_csv_dataset
from everyo.data.dataset import ArrayDataset, Dataset, Subset, TransformDataset
from everyo.data.files import PackedDataset, TextDataset, Vocabulary, load_idx, pack, read_text
from everyo.data.loader import DataLoader
from everyo.data.preprocessing import (
    MinMaxScaler,
    StandardScaler,
    min_max_scale,
    normalize,
    one_hot_encode,
    standardize,
)
from everyo.data.splits import random_split, shuffle_arrays, stratified_split, train_test_split

__all__ = [
    "ArrayDataset",
    "DataLoader",
    "Dataset",
    "MinMaxScaler",
    "PackedDataset",
    "StandardScaler",
    "Subset",
    "TextDataset",
    "TransformDataset",
    "Vocabulary",
    "load_csv_dataset",
    "load_idx",
    "min_max_scale",
    "normalize",
    "one_hot_encode",
    "pack",
    "random_split",
    "read_text",
    "shuffle_arrays",
    "standardize",
    "stratified_split",
    "train_test_split",
]
