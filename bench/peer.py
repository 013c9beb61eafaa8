"""One run of a peer's program in bench/peers: peer.py PEER WORKLOAD THREADS BATCH PRECISION [--idle]. Prints its JSON line.

BATCH 0 is the workload's own. --idle stops where the first step would begin, and prints what memory that took."""

import json
import pathlib
import resource
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "peers"))
import workloads  # noqa: E402

peer, name, threads, batch = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
precision, idle = sys.argv[5], sys.argv[6:] == ["--idle"]
if batch:
    workloads.WORKLOADS[name] = (batch, *workloads.WORKLOADS[name][1:])
if peer == "jax":
    import jax_steps

    if idle:
        held = workloads.data(name), {key: jax_steps.jnp.asarray(value) for key, value in workloads.initial(name).items()}
    else:
        jax_steps.run(name)
else:
    import torch_steps

    if idle:
        torch_steps.torch.set_num_threads(threads)
        held = workloads.data(name), torch_steps.Model(name)
    else:
        torch_steps.run(name, threads, precision, peer == "torch-compile")
if idle:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"peer": peer, "workload": name, "peak_mb": peak}))
