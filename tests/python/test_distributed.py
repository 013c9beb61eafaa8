"""Ranks that run Python functions: how they start, what comes back, and what becomes of the others when one fails."""

import logging
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import everyo as eo
from everyo import distributed
from everyo.distributed import DistributedError, spawn

METHODS = ["fork", "spawn", "thread"]
PROCESSES = ["fork", "spawn"]


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = set(os.listdir("/proc/self/fd"))
    yield
    with pytest.raises(ChildProcessError):  # no child, running or ended
        os.waitpid(-1, os.WNOHANG)
    assert len(os.listdir("/proc/self/fd")) <= len(before)


def rank_and(group, *args, **kwargs):
    group.barrier()
    return group.rank, group.world_size, group.is_main, args, kwargs


def failing(group, culprit, fault):
    """Several collectives; before one of them a rank fails."""
    for i in range(6):
        if i == 3 and group.rank == culprit:
            fault(group)
        group.all_reduce(np.ones(5000, np.float32))


def raise_it(group):
    raise ValueError("an error of its own")


def exit_it(group):
    os._exit(3)


def kill_it(group):
    os.kill(os.getpid(), signal.SIGKILL)


def stop_it(group):
    os.kill(os.getpid(), signal.SIGSTOP)


def diverge(group):
    group.barrier()


def diverge_in_size(group):
    group.all_reduce(np.ones(4999, np.float32))


def sleep_long(group):
    time.sleep(60)


@pytest.mark.parametrize("method", [None, *METHODS])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_spawn_gives_results_in_rank_order(method, ranks):
    results = spawn(rank_and, ranks, args=(1, "two"), kwargs={"three": [3]}, start_method=method)
    assert results == [(r, ranks, r == 0, (1, "two"), {"three": [3]}) for r in range(ranks)]


def test_transports_have_names():
    assert spawn(lambda g: g.transport, 2) == ["shm"] * 2
    assert spawn(lambda g: g.transport, 2, start_method="thread") == ["threads"] * 2
    assert distributed.init_process_group().transport == "one"


@pytest.mark.parametrize("method", ["fork", "thread"])
def test_closures_and_what_the_parent_has_will_do(method):
    scale, model = 3.0, eo.Linear(4, 2, seed=0)

    def worker(group):
        return scale * (group.rank + 1), model(np.ones((1, 4), np.float32)).numpy()

    first, second = spawn(worker, 2, start_method=method)
    assert first[0] == 3.0 and second[0] == 6.0 and np.array_equal(first[1], second[1])


def test_results_are_anything_that_can_be_pickled():
    def worker(group):
        x = eo.tensor([1.0, 2.0]) * (group.rank + 1)
        return {"tensor": x, "array": x.numpy(), "none": None, "big": bytes(3_000_000)}

    result = spawn(worker, 2)[1]
    assert result["tensor"].numpy().tolist() == [2, 4] == result["array"].tolist()
    assert result["none"] is None and len(result["big"]) == 3_000_000


def test_threads_share_objects():
    seen = []
    results = spawn(lambda g: seen.append(g.rank) or seen, 2, start_method="thread")
    assert sorted(seen) == [0, 1] and results[0] is seen


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("ranks, culprit", [(2, 0), (2, 1), (3, 2)])
def test_a_workers_exception_comes_back(method, ranks, culprit):
    with pytest.raises(DistributedError, match=f"rank {culprit}: ValueError: an error of its own") as caught:
        spawn(failing, ranks, args=(culprit, raise_it), start_method=method)
    assert caught.value.rank == culprit and isinstance(caught.value, eo.EveryOError)
    trace = str(caught.value.__cause__)
    assert "in raise_it" in trace and "ranks.py" not in trace
    assert pickle.loads(pickle.dumps(caught.value)).rank == culprit


@pytest.mark.parametrize("method", PROCESSES)
@pytest.mark.parametrize(
    "fault, words",
    [(exit_it, "exited with status 3"), (kill_it, "killed by signal 9"), (stop_it, "was stopped")],
)
@pytest.mark.parametrize("ranks, culprit", [(2, 0), (3, 1)])
def test_a_lost_process_ends_the_run(method, fault, words, ranks, culprit):
    with pytest.raises(DistributedError, match=f"rank {culprit}.*{words}") as caught:
        spawn(failing, ranks, args=(culprit, fault), start_method=method)
    assert caught.value.rank == culprit
    assert len(spawn(rank_and, ranks)) == ranks


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("fault, words", [(diverge, "barrier"), (diverge_in_size, "4999 elements of float32")])
def test_ranks_that_call_different_things_are_told(method, ranks, fault, words):
    with pytest.raises(DistributedError, match=words) as caught:
        spawn(failing, ranks, args=(1, fault), start_method=method)
    assert "all_reduce number 4 (sum of 5000 elements of float32)" in str(caught.value)


def test_every_rank_raises_and_goes_on_raising():
    def worker(group, report):
        try:
            failing(group, 1, kill_it)
        except DistributedError as error:
            with pytest.raises(DistributedError):
                group.barrier()
            os.write(report, b"%d" % error.rank)
            raise

    reader, writer = os.pipe()
    with pytest.raises(DistributedError):
        spawn(worker, 3, args=(writer,))
    os.close(writer)
    with open(reader, "rb") as file:
        assert file.read() == b"11"


def test_system_exit_is_a_failure_that_says_so():
    with pytest.raises(DistributedError, match="rank 0: SystemExit: 7"):
        spawn(lambda group: sys.exit(7), 1)


def test_a_result_that_cannot_be_pickled_is_named():
    with pytest.raises(DistributedError, match="rank 1: TypeError: the result, of type function, cannot be pickled"):
        spawn(lambda group: (lambda: 0) if group.rank == 1 else 0, 2)


class Unreadable:
    def __reduce__(self):
        return int, ("no number",)


def test_a_result_that_cannot_be_unpickled_is_named():
    with pytest.raises(DistributedError, match="rank 1: its result cannot be unpickled: ValueError: invalid literal") as raised:
        spawn(lambda group: Unreadable() if group.rank == 1 else 0, 2)
    assert raised.value.rank == 1


def raise_odd_text(group):
    if group.rank == 1:
        raise ValueError("before \0 and \udcff after")
    group.barrier()


@pytest.mark.parametrize("method", METHODS)
def test_a_message_of_any_text_comes_back_whole(method):
    with pytest.raises(DistributedError) as raised:
        spawn(raise_odd_text, 2, start_method=method)
    assert str(raised.value) == "[spawn] rank 1: ValueError: before \\x00 and \\udcff after"
    assert "raise_odd_text" in str(raised.value.__cause__)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_ends_after_its_timeout(method):
    function = sleep_long if method != "thread" else lambda group: group.barrier() if group.rank else time.sleep(1)
    with pytest.raises(DistributedError, match="took longer than 0.5 s|did not come to barrier"):
        spawn(function, 2, start_method=method, timeout=0.5)


@pytest.mark.parametrize("method", METHODS)
def test_control_c_ends_the_ranks(method):
    function = sleep_long if method != "thread" else lambda group: group.barrier() if group.rank else time.sleep(1)
    timer = threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        spawn(function, 2, start_method=method)
    timer.join()


@pytest.mark.parametrize("method", METHODS)
def test_arguments_are_checked(method):
    for ranks in (0, -1):
        with pytest.raises(DistributedError, match="at least 1"):
            spawn(rank_and, ranks, start_method=method)
    with pytest.raises(DistributedError, match="at most 256"):
        spawn(rank_and, 257, start_method=method)
    with pytest.raises(DistributedError, match=r"\[spawn\] world_size is 1099511627776; .* at most 256"):
        spawn(rank_and, 2**40, start_method=method)
    with pytest.raises(ValueError, match="timeout"):
        spawn(rank_and, 1, timeout=0, start_method=method)
    with pytest.raises(TypeError, match="whole number"):
        spawn(rank_and, 1.5, start_method=method)
    with pytest.raises(TypeError, match="give a function"):
        spawn("name", 1, start_method=method)
    with pytest.raises(ValueError, match="threads"):
        spawn(rank_and, 1, threads=-1, start_method=method)


def test_start_methods_are_checked():
    with pytest.raises(ValueError, match='"fork", "spawn" or "thread"'):
        spawn(rank_and, 1, start_method="forkserver")
    with pytest.raises(TypeError, match="cannot be pickled.*leave start_method at 'fork'"):
        spawn(lambda group: 0, 1, start_method="spawn")


def test_D15_D16_products_in_a_child_of_a_parent_that_used_threads():
    rng = np.random.default_rng(0)
    a, batched = rng.normal(size=(2, 300, 300)).astype(np.float32), rng.normal(size=(2, 6, 80, 80)).astype(np.float32)

    def products(group=None):
        return eo.matmul(a[0], a[1]).numpy(), eo.matmul(batched[0], batched[1]).numpy(), a[0] @ a[1]

    expected = products()
    stop = threading.Event()
    others = [threading.Thread(target=lambda: stop.wait(60)) for _ in range(3)]
    for thread in others:
        thread.start()
    try:
        for ours in spawn(products, 2, timeout=60):
            assert np.array_equal(ours[0], expected[0]) and np.array_equal(ours[1], expected[1])
        assert spawn(lambda group: threading.active_count(), 1) == [1]  # Python's own handlers have run
    finally:
        stop.set()
        for thread in others:
            thread.join()


def test_the_interpreter_is_free_while_a_rank_waits():
    reader, writer = os.pipe()

    def worker(group):
        if group.rank == 0:
            thread = threading.Thread(target=lambda: (time.sleep(0.1), os.write(writer, b"x")))
            thread.start()  # it can run only if barrier() lets it
        else:
            os.read(reader, 1)
        group.barrier()
        return True

    assert spawn(worker, 2, timeout=30) == [True, True]
    os.close(reader)
    os.close(writer)


def test_threads_of_a_rank_are_waited_for(tmp_path):
    def worker(group):
        threading.Thread(target=lambda: (time.sleep(0.2), (tmp_path / "late").write_text("done"))).start()

    spawn(worker, 1)
    assert (tmp_path / "late").read_text() == "done"


def test_output_is_written_once_and_input_is_empty(tmp_path):
    program = (
        "import sys\nfrom everyo.distributed import spawn\n"
        "def worker(group):\n    sys.stdout.write(f'rank {group.rank} {sys.stdin.read()!r}\\n')\n"
        "sys.stdout.write('before\\n')\nspawn(worker, 2)\nprint('after')\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, input="typed")
    lines = ran.stdout.splitlines()
    assert lines[0] == "before" and lines[3] == "after" and sorted(lines[1:3]) == ["rank 0 ''", "rank 1 ''"]


def test_spawn_warns_when_other_libraries_may_take_all_processors(monkeypatch, caplog):
    for name in [name for name in os.environ if name.endswith("_NUM_THREADS")]:
        monkeypatch.delenv(name)
    with caplog.at_level(logging.WARNING, "everyo"):
        spawn(rank_and, 1)
        assert caplog.text == ""
        spawn(rank_and, 2)
        assert "_NUM_THREADS" in caplog.text
        caplog.clear()
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        spawn(rank_and, 2)
    assert caplog.text == ""


def test_available_workers_are_this_process_own():
    assert distributed.available_workers() == len(os.sched_getaffinity(0)) >= 1


def program_with(tmp_path, text):
    file = tmp_path / "program.py"
    file.write_text("import everyo as eo\nfrom everyo.distributed import *\n" + text)
    return str(file)


def test_functions_of_a_program_can_be_spawned_fresh(tmp_path):
    text = "def worker(group, x):\n    return group.rank + x\n"
    guarded = text + "if __name__ == '__main__':\n    print(spawn(worker, 2, args=(10,), start_method='spawn'))\n"
    ran = subprocess.run([sys.executable, program_with(tmp_path, guarded)], capture_output=True, text=True)
    assert ran.stdout == "[10, 11]\n", ran.stderr
    bare = text + "print(spawn(worker, 2, args=(10,), start_method='spawn'))\n"
    ran = subprocess.run([sys.executable, program_with(tmp_path, bare)], capture_output=True, text=True)
    assert ran.returncode == 1 and "if __name__ == '__main__':" in ran.stderr


BUILT = pathlib.Path(eo._core.__file__).parents[2] / "everyo"


def launched(tmp_path, ranks, text):
    # What a sanitized interpreter is started with is not for the command, which brings its own.
    variables = dict(os.environ)
    preload = ["env", f"LD_PRELOAD={variables.pop('LD_PRELOAD')}"] if "LD_PRELOAD" in variables else []
    command = [BUILT, "launch", "-n", str(ranks), "--", *preload, sys.executable, program_with(tmp_path, text)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=variables)


def test_launch_gives_a_python_program_its_group(tmp_path):
    text = (
        "import sys\nimport numpy as np\nwith init_process_group() as group:\n    x = np.full(3, group.rank + 1.0)\n"
        "    group.all_reduce(x)\n    sys.stdout.write(f'{group.rank} {group.world_size} {x[0]}\\n')\n"
    )
    ran = launched(tmp_path, 3, text)
    assert ran.returncode == 0 and sorted(ran.stdout.splitlines()) == ["0 3 6.0", "1 3 6.0", "2 3 6.0"], ran.stderr


def test_launch_ends_when_a_python_rank_fails(tmp_path):
    text = (
        "group = init_process_group()\nif group.rank == 1:\n    raise ValueError('mine')\n"
        "try:\n    group.barrier()\nexcept DistributedError as error:\n    print(error.rank)\n    raise\n"
    )
    ran = launched(tmp_path, 2, text)
    assert ran.returncode == 1 and ran.stdout == "1\n" and "ValueError: mine" in ran.stderr


def test_Y08_AWorkerThatRaisesIsHeardAtOnce():
    def worker(group):
        if group.rank == 1:
            raise KeyError("lost")
        group.barrier()

    start = time.monotonic()
    with pytest.raises(DistributedError, match="rank 1: KeyError: 'lost'") as caught:
        spawn(worker, 3)
    assert time.monotonic() - start < 60  # not the 600 s of the timeout: a bound, not a timing
    assert caught.value.rank == 1 and "in worker" in str(caught.value.__cause__)
