"""DataLoader's threads and state, packed files, text."""

import itertools
import json
import pickle
import threading

import numpy as np
import pytest

import everyo as eo
from everyo import data


def numbered(count):
    return data.ArrayDataset(np.arange(count, dtype=np.float32)[:, None], np.arange(count))


class Slow(data.Dataset):
    """Samples one by one, each noted when it is read."""

    def __init__(self, count, fails=()):
        self.count, self.fails, self.read, self.lock = count, fails, [], threading.Lock()

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        with self.lock:
            self.read.append(index)
        if index in self.fails:
            raise KeyError(f"no {index}")
        return np.float32(index), index


def labels(batches):
    return [y.tolist() for _, y in batches]


@pytest.mark.parametrize("workers, prefetch", [(1, 0), (3, 0), (2, 1), (4, 9)])
def test_workers_change_no_bit(workers, prefetch):
    alone = data.DataLoader(Slow(50), 8, shuffle=True, seed=3)
    loader = data.DataLoader(Slow(50), 8, shuffle=True, seed=3, workers=workers, prefetch=prefetch)
    for _ in range(3):
        for (x, y), (x2, y2) in zip(alone, loader, strict=True):
            assert x.tobytes() == x2.tobytes() and y.tobytes() == y2.tobytes()


def test_workers_make_no_more_than_prefetch_ahead():
    dataset = Slow(100)
    batches = iter(data.DataLoader(dataset, 4, workers=2, prefetch=3))
    next(batches)
    batches.close()  # waits for what is being made
    assert len(dataset.read) <= 4 * (1 + 3)


def test_an_error_comes_with_its_batch_and_names_the_sample():
    for workers in (0, 2):
        batches = iter(data.DataLoader(Slow(12, fails=[6]), 4, workers=workers))
        assert next(batches)[1].tolist() == [0, 1, 2, 3]
        with pytest.raises(KeyError, match="no 6") as caught:
            next(batches)
        assert caught.value.__notes__ == ["[DataLoader] in sample 6"]


def test_no_thread_is_left():
    before = threading.active_count()
    for given in range(4):
        for _ in itertools.islice(data.DataLoader(Slow(40), 4, workers=3), given):
            pass
    assert threading.active_count() == before


@pytest.mark.parametrize("shuffle, drop_last", [(True, False), (False, True), (True, True)])
def test_L03_state_goes_on_at_the_next_unseen_sample(shuffle, drop_last):
    options = dict(batch_size=4, shuffle=shuffle, drop_last=drop_last, seed=5)
    whole = data.DataLoader(numbered(18), **options)
    expected = [batch for _ in range(3) for batch in labels(whole)]
    for stop in range(len(expected)):
        first = data.DataLoader(numbered(18), **options, workers=2)
        given = itertools.chain.from_iterable(first for _ in range(3))
        for _ in range(stop):
            next(given)
        state = json.loads(json.dumps(first.state_dict()))
        second = data.DataLoader(numbered(18), **options, workers=stop % 3)
        second.load_state_dict(state)
        rest = []
        while len(rest) < len(expected) - stop:
            rest += labels(second)
        assert rest == expected[stop:], stop


def test_state_may_be_read_with_another_batch_size():
    first = data.DataLoader(numbered(12), 4, shuffle=True, seed=1)
    order = np.concatenate([y for _, y in data.DataLoader(numbered(12), 12, shuffle=True, seed=1)])
    next(iter(first))
    second = data.DataLoader(numbered(12), 3, shuffle=True, seed=9)
    second.load_state_dict(first.state_dict())
    assert labels(second) == [order[4:7].tolist(), order[7:10].tolist(), order[10:].tolist()]


def test_loader_refuses_other_states_and_bad_arguments():
    loader = data.DataLoader(numbered(12), 4, shuffle=True, seed=1)
    state = loader.state_dict()
    for change in ({"samples": 11}, {"shuffle": False}, {"position": -1}, {"position": 13}, {"position": 1.5}, {"generator": {}}, {"generator": 3}):
        with pytest.raises(eo.EveryOSerializationError):
            loader.load_state_dict({**state, **change})
    with pytest.raises(eo.EveryOSerializationError, match="no samples"):
        loader.load_state_dict({})
    with pytest.raises(ValueError, match="workers is 257"):
        data.DataLoader(numbered(3), workers=257)
    for name in ("workers", "prefetch"):
        with pytest.raises(ValueError, match=f"{name} is -1"):
            data.DataLoader(numbered(3), **{name: -1})
        with pytest.raises(TypeError, match=name):
            data.DataLoader(numbered(3), **{name: 1.5})


def test_pack_and_read(tmp_path):
    x = np.arange(60, dtype=np.float32).reshape(10, 2, 3)
    packed = data.pack(data.ArrayDataset(x, np.arange(10)), tmp_path / "set")
    assert len(packed) == 10 and packed.feature_shape == (2, 3)
    assert (packed[3][0] == x[3]).all() and packed[-1][1] == 9
    features, targets = packed[[7, 0]]
    assert (features == x[[7, 0]]).all() and targets.tolist() == [7, 0] and targets.dtype == np.int64
    assert packed[2:8:3][1].tolist() == [2, 5] and packed[np.arange(10) > 7][1].tolist() == [8, 9]
    assert packed[[]][0].shape == (0, 2, 3)
    packed.verify()
    assert pickle.loads(pickle.dumps(packed)).digests == packed.digests
    assert labels(data.DataLoader(data.Subset(packed, [4, 2]), 2)) == [[4, 2]]
    shuffled = dict(shuffle=True, seed=2, workers=2)
    assert labels(data.DataLoader(packed, 4, **shuffled)) == labels(data.DataLoader(numbered(10), 4, **shuffled))
    transformed = data.TransformDataset(numbered(3), lambda sample: sample * 2)
    assert data.pack(transformed, tmp_path / "other")[:][0].ravel().tolist() == [0, 2, 4]


def test_packed_files_refuse_what_is_wrong(tmp_path):
    path = tmp_path / "set"
    with pytest.raises(FileNotFoundError):
        data.PackedDataset(path)
    path.write_bytes(b"1,2,3\n")
    with pytest.raises(eo.EveryOSerializationError, match="does not begin as"):
        data.PackedDataset(path)
    with pytest.raises(TypeError, match="without targets"):
        data.pack(data.ArrayDataset(np.zeros((3, 1))), path)
    with pytest.raises(ValueError, match="no samples"):
        data.pack(numbered(0), path)
    with pytest.raises(KeyError, match="no 2"):
        data.pack(Slow(3, fails=[2]), path)
    assert path.read_bytes() == b"1,2,3\n"
    packed = data.pack(numbered(4), path)
    for index in (4, -5, [0, 4]):
        with pytest.raises(IndexError, match="outside the dataset of 4 samples"):
            packed[index]
    with pytest.raises(TypeError, match="whole numbers"):
        packed[0.5]
    whole = bytearray(path.read_bytes())
    whole[256] ^= 1
    path.write_bytes(whole)
    with pytest.raises(eo.EveryOSerializationError, match="damaged"):
        data.PackedDataset(path).verify()


def test_text_as_windows_of_tokens(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("für €\r\n".encode())
    text = data.read_text(path)
    assert text == "für €\r\n"
    vocabulary = data.Vocabulary(text)
    tokens = vocabulary.encode(text)
    assert len(vocabulary) == 7 and tokens.dtype == np.uint8 and vocabulary.decode(tokens) == text
    again = pickle.loads(pickle.dumps(vocabulary))
    assert again.known == vocabulary.known == "".join(sorted(set(text))) and again.encode(text).tolist() == tokens.tolist()
    assert len(pickle.loads(pickle.dumps(data.Vocabulary.bytes()))) == 256
    assert data.Vocabulary.bytes().encode(text).tolist() == list(text.encode())
    assert data.Vocabulary.bytes().decode([0x66, 0xFF]) == "f\ufffd"
    windows = data.TextDataset(tokens, 3, stride=1)
    assert len(windows) == 4
    x, y = windows[1]
    assert x.dtype == np.int64 and x.tolist() == tokens[1:4].tolist() and y.tolist() == tokens[2:5].tolist()
    assert next(iter(data.DataLoader(data.TextDataset(tokens, 3), 2)))[0].shape == (2, 3)
    for wrong in (lambda: vocabulary.encode("x"), lambda: data.TextDataset(tokens, 7), lambda: data.TextDataset(tokens, 0),
                  lambda: vocabulary.decode([7]), lambda: data.Vocabulary("")):
        with pytest.raises(ValueError):
            wrong()


def test_idx_files(tmp_path):
    path = tmp_path / "images"
    path.write_bytes(bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3, 4]))
    assert data.load_idx(path).tolist() == [[1, 2], [3, 4]]
    with pytest.raises(FileNotFoundError):
        data.load_idx(tmp_path / "none")
