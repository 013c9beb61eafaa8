"""Datasets, batches, splits and scaling, on NumPy arrays."""

from everyo.data.csv import load_csv_dataset
from everyo.data.dataset import ArrayDataset, Dataset, Subset, TransformDataset
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
    "StandardScaler",
    "Subset",
    "TransformDataset",
    "load_csv_dataset",
    "min_max_scale",
    "normalize",
    "one_hot_encode",
    "random_split",
    "shuffle_arrays",
    "standardize",
    "stratified_split",
    "train_test_split",
]
