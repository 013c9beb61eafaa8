"""Datasets, loaders, splits and scalers against NumPy. Letters: N samples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import everyo as eo
from everyo import data

COUNTS = st.integers(2, 60)
SEEDS = st.integers(0, 2**32 - 1)


def numbered(count):
    """A dataset whose sample i holds i."""
    return data.ArrayDataset(np.arange(count, dtype=np.float32).reshape(count, 1), np.arange(count))


def test_array_dataset_gives_samples_and_their_shape():
    x, y = np.zeros((5, 4, 3), np.float32), np.arange(5)
    pairs, alone = data.ArrayDataset(x, y), data.ArrayDataset(x)
    assert len(pairs) == 5 and pairs.feature_shape == (4, 3)
    features, target = pairs[3]
    assert features.shape == (4, 3) and target == 3
    assert alone.targets is None and alone[0].shape == (4, 3)


def test_Y12_DatasetsKeepWholeNumbersWhole():
    ids = np.array([[16777217]])
    dataset = data.ArrayDataset(ids, ids[:, 0])
    features, targets = next(iter(data.DataLoader(dataset)))
    assert features[0, 0] == 16777217 and targets[0] == 16777217 and targets.dtype == np.int64


def test_array_dataset_refuses_lengths_that_differ():
    with pytest.raises(eo.EveryOShapeError, match="same number of samples"):
        data.ArrayDataset(np.zeros((3, 1)), np.zeros(4))
    with pytest.raises(eo.EveryOShapeError, match="axis must be that of the samples"):
        data.ArrayDataset(1.0)


def test_a_dataset_without_methods_says_which():
    for call in (len, lambda dataset: dataset[0]):
        with pytest.raises(NotImplementedError):
            call(data.Dataset())


def test_transform_dataset_changes_what_is_read():
    dataset = data.TransformDataset(numbered(3), lambda x: x * 2, lambda y: y + 1)
    x, y = dataset[2]
    assert (x[0], y) == (4, 3) and len(dataset) == 3
    assert data.TransformDataset(data.ArrayDataset(np.ones((2, 1))), lambda x: x + 1)[0] == 2
    x, y = next(iter(data.DataLoader(dataset, 3)))
    assert x.tolist() == [[0], [2], [4]] and y.tolist() == [1, 2, 3]


def test_subset_takes_indices_in_order():
    subset = data.Subset(numbered(6), [4, 0, -1])
    assert [int(subset[i][1]) for i in range(3)] == [4, 0, 5] and len(subset) == 3
    _, y = next(iter(data.DataLoader(data.Subset(subset, [2, 0]), 5)))
    assert y.tolist() == [5, 4]
    with pytest.raises(IndexError, match="6"):
        data.Subset(numbered(6), [0, 6])


@given(count=st.integers(1, 60), batch=st.integers(1, 70), drop_last=st.booleans(), shuffle=st.booleans(), seed=SEEDS)
def test_loader_gives_each_sample_once(count, batch, drop_last, shuffle, seed):
    loader = data.DataLoader(numbered(count), batch, shuffle=shuffle, drop_last=drop_last, seed=seed)
    batches = [y for _, y in loader]
    assert len(batches) == len(loader) and loader.num_samples == count
    expected = np.random.default_rng(seed).permutation(count) if shuffle else np.arange(count)
    if drop_last:
        expected = expected[: count // batch * batch]
    assert np.concatenate([np.empty(0, np.int64), *batches]).tolist() == expected.tolist()
    assert all(len(y) == batch for y in batches[:-1])


def test_loader_draws_every_epoch_from_one_generator():
    loader, generator = data.DataLoader(numbered(20), 20, shuffle=True, seed=7), np.random.default_rng(7)
    for _ in range(3):
        assert next(iter(loader))[1].tolist() == generator.permutation(20).tolist()


def test_loader_refuses_bad_arguments():
    for size in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="batch_size"):
            data.DataLoader(numbered(3), size)
    for other in (np.zeros((3, 1)), [1, 2], 3):
        with pytest.raises(TypeError, match="ArrayDataset"):
            data.DataLoader(other)


@given(count=COUNTS, size=st.floats(0.01, 0.99), seed=SEEDS, shuffle=st.booleans())
def test_train_test_split_parts_the_rows(count, size, seed, shuffle):
    x = np.arange(count)
    train, test, train2, test2 = data.train_test_split(x, x * 2, test_size=size, seed=seed, shuffle=shuffle)
    assert sorted([*train, *test]) == list(x) and (train * 2 == train2).all() and (test * 2 == test2).all()
    assert len(test) == min(max(round(count * size), 1), count - 1)
    again = data.train_test_split(x, test_size=size, seed=seed, shuffle=shuffle)
    assert again[1].tolist() == test.tolist()
    if not shuffle:
        assert train.tolist() == list(range(len(train)))


def test_splits_refuse_bad_arguments():
    x = np.arange(10)
    for size in (0, 1, -0.1, 1.5):
        with pytest.raises(ValueError, match="test_size"):
            data.train_test_split(x, test_size=size)
        with pytest.raises(ValueError, match="test_size"):
            data.stratified_split(x, x, test_size=size)
    with pytest.raises(eo.EveryOShapeError, match="same number of samples"):
        data.train_test_split(x, x[:-1])
    with pytest.raises(ValueError, match="sum to 1"):
        data.random_split(numbered(4), [0.5, 0.4])
    with pytest.raises(ValueError, match="positive"):
        data.random_split(numbered(4), [1.5, -0.5])


@given(count=st.integers(1, 60), seed=SEEDS)
def test_random_split_parts_the_dataset(count, seed):
    parts = data.random_split(numbered(count), [0.5, 0.3, 0.2], seed=seed)
    rows = [int(part[i][1]) for part in parts for i in range(len(part))]
    assert sorted(rows) == list(range(count)) and len(parts) == 3
    assert abs(len(parts[0]) - count * 0.5) <= 0.5


def test_stratified_split_keeps_shares():
    labels = np.array([0] * 80 + [1] * 20 + [2])
    x_train, x_test, y_train, y_test = data.stratified_split(np.arange(101), labels, test_size=0.25, seed=3)
    assert np.bincount(y_test, minlength=3).tolist() == [20, 5, 0] and np.bincount(y_train).tolist() == [60, 15, 1]
    assert sorted([*x_train, *x_test]) == list(range(101)) and (labels[x_test] == y_test).all()


def test_shuffle_arrays_keeps_rows_together():
    a, b = data.shuffle_arrays(np.arange(9), np.arange(9) * 3, seed=5)
    assert (a * 3 == b).all() and a.tolist() == np.random.default_rng(5).permutation(9).tolist()


TABLE = np.array([[1.0, 10.0, 5.0], [2.0, 30.0, 5.0], [6.0, 20.0, 5.0]], np.float32)


def test_standard_scaler_matches_numpy():
    scaler = data.StandardScaler().fit(TABLE)
    assert np.allclose(scaler.mean_, TABLE.mean(0)) and np.allclose(
        scaler.std_, [TABLE[:, 0].std(), TABLE[:, 1].std(), 1]
    )
    scaled = scaler.transform(TABLE)
    # float32 of float64 statistics: one rounding of values near 1.
    assert (
        scaled.dtype == np.float32
        and np.allclose(scaled.mean(0), 0, atol=1e-6)
        and np.allclose(scaled.std(0), [1, 1, 0], atol=1e-6)
    )
    assert np.allclose(scaler.inverse_transform(scaled), TABLE, rtol=1e-6)
    assert np.array_equal(scaled, data.StandardScaler().fit_transform(TABLE)) and np.array_equal(
        scaled, data.standardize(TABLE)
    )


def test_min_max_scaler_reaches_both_ends():
    scaler = data.MinMaxScaler((-1, 1))
    scaled = scaler.fit_transform(TABLE)
    assert (
        np.allclose(scaled[:, :2].min(0), -1) and np.allclose(scaled[:, :2].max(0), 1) and np.allclose(scaled[:, 2], -1)
    )
    assert np.allclose(scaler.inverse_transform(scaled)[:, :2], TABLE[:, :2], rtol=1e-6)
    assert np.array_equal(data.min_max_scale(TABLE, (-1, 1)), scaled)


def test_normalize_gives_rows_of_norm_one():
    rows = data.normalize(np.array([[3.0, 4.0], [0.0, 0.0]]))
    assert np.allclose(rows, [[0.6, 0.8], [0, 0]]) and rows.dtype == np.float64
    assert np.allclose(data.normalize(TABLE, order=1).sum(1), 1)


def test_scalers_refuse_bad_arguments():
    for scaler in (data.StandardScaler(), data.MinMaxScaler()):
        for call in (scaler.transform, scaler.inverse_transform):
            with pytest.raises(eo.EveryOShapeError, match="before fit"):
                call(TABLE)
    for bounds in ((1, 1), (2, 0)):
        with pytest.raises(ValueError, match="increasing"):
            data.MinMaxScaler(bounds)
    with pytest.raises(eo.EveryOShapeError, match="was fit to"):
        data.StandardScaler().fit(TABLE).transform(TABLE[:, :2])


def test_N12_StatisticsOfHalvesAreTakenWide():
    # The sum of 70,000 float16 ones is infinite in float16.
    column = np.ones((70000, 1), np.float16)
    column[::2] = 3
    scaled = data.StandardScaler().fit_transform(column)
    assert scaled.dtype == np.float16 and np.array_equal(np.unique(scaled.astype(np.float64)), [-1, 1])


def test_one_hot_encode():
    rows = data.one_hot_encode([2, 0, 1])
    assert rows.dtype == np.float32 and np.array_equal(rows, np.eye(3)[[2, 0, 1]])
    assert data.one_hot_encode(np.array([[1.0]]), 4).tolist() == [[0, 1, 0, 0]]
    for labels in ([3], [-1]):
        with pytest.raises(eo.EveryOShapeError, match="out of range"):
            data.one_hot_encode(labels, 3)
    with pytest.raises(eo.EveryOShapeError, match="whole numbers"):
        data.one_hot_encode([0.5])


def write(folder, text):
    path = folder / "table.csv"
    path.write_text(text)
    return path


def test_csv_finds_header_and_target(tmp_path):
    path = write(tmp_path, "a, b ,label\n1,2,0\n3.5,-4e1,1\n\n")
    dataset = data.load_csv_dataset(path)
    assert dataset.features.tolist() == [[1, 2], [3.5, -40]] and dataset.features.dtype == np.float32
    assert dataset.targets.tolist() == [0, 1] and dataset.targets.dtype == np.float32
    assert data.load_csv_dataset(path, target_column="a").features.tolist() == [[2, 0], [-40, 1]]
    assert data.load_csv_dataset(path, target_column=None).targets is None
    assert data.load_csv_dataset(path, target_column=0, skip_columns=["b"]).features.tolist() == [[0], [1]]
    assert data.load_csv_dataset(write(tmp_path, "1;2\n3;4\n"), delimiter=";").features.tolist() == [[1], [3]]
    assert len(data.load_csv_dataset(write(tmp_path, "1,2\n3,4\n"), has_header=True)) == 1


@pytest.mark.parametrize("content", [b"a,b\n1,\xff\n", b"\xff\xfe1\x00,\x002\x00", b"1,2\n3,\x004\n", b"1,'" + b"2" * 200_000])
def test_csv_of_other_bytes_is_no_numeric_table(tmp_path, content):
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(eo.EveryOShapeError, match="numeric table"):
        data.load_csv_dataset(path)


def test_csv_names_what_is_wrong(tmp_path):
    for text, words in (
        ("1,2\n3,x\n", "table.csv:2, column 1: 'x'.*numeric table"),
        ("1,2\n3\n", ":2 has 1 columns.*numeric table"),
        ("", "no rows.*numeric table"),
        ("a,b\n", "no rows.*numeric table"),
    ):
        with pytest.raises(eo.EveryOShapeError, match=words):
            data.load_csv_dataset(write(tmp_path, text))
    path = write(tmp_path, "a,b\n1,2\n")
    for column in (2, "c"):
        with pytest.raises(ValueError, match="no column"):
            data.load_csv_dataset(path, target_column=column)
    with pytest.raises(FileNotFoundError):
        data.load_csv_dataset(tmp_path / "gone.csv")
    assert data.load_csv_dataset(
        write(tmp_path, "name,v\nbob,1\nann,2\n"), skip_columns=["name"], target_column=None
    ).features.tolist() == [[1], [2]]


def test_numbers_that_python_wrote_are_float32():
    dataset = data.ArrayDataset([[0.5], [1.5]], [1, 2])
    assert dataset.features.dtype == np.float32 and dataset.targets.dtype == np.int64
    assert data.ArrayDataset(np.array([[0.5]])).features.dtype == np.float64

    class Squares(data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return [float(index)], float(index) ** 2

    x, y = next(iter(data.DataLoader(Squares())))
    assert x.dtype == y.dtype == np.float32 and x.shape == (4, 1) and y.tolist() == [0, 1, 4, 9]


class Turned(data.ArrayDataset):
    def __getitem__(self, index):
        features, target = super().__getitem__(index)
        return np.flip(features, axis=0), target


class Scaled(data.Subset):
    def __getitem__(self, index):
        features, target = super().__getitem__(index)
        return features * 100, target


def test_a_subclass_is_read_by_its_own_getitem():
    values, labels = np.arange(6, dtype=np.float32).reshape(3, 2), np.arange(3)
    turned = Turned(values, labels)
    for dataset in (turned, Scaled(turned, [2, 0]), data.Subset(Scaled(turned, [2, 0, 1]), [0, 2])):
        features, targets = next(iter(data.DataLoader(dataset, 3)))
        samples = [dataset[i] for i in range(len(dataset))]
        assert features.tolist() == [sample.tolist() for sample, _ in samples]
        assert targets.tolist() == [target for _, target in samples]


def test_a_constant_column_stays_small_whatever_its_mean_rounds_to():
    column = np.full((7, 1), 0.1)
    assert column.std() != 0  # the mean of seven tenths rounds
    scaler = data.StandardScaler()
    scaled = scaler.fit_transform(column)
    assert scaler.std_.tolist() == [1.0]
    for result in (scaled, data.standardize(column)):
        assert np.abs(result).max() <= 2**-53  # one rounding of the mean
    wide = np.array([[0.1, 1.0], [0.1, 3.0], [0.1, np.nan]])
    assert np.isnan(data.standardize(wide)[:, 1]).all()
