# SPDX-License-Identifier: Apache-2.0
"""The mpi backend: ranks started by mpirun call each collective, and the C example trains as with forked ranks. Skipped if mpirun or the backend
is missing."""
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import phlox as torch
import phlox.distributed as dist

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
EXAMPLE = os.path.join(ROOT, "build", "examples", "ddp")


def run_rank(done):
    dist.init_process_group("mpi")
    r, n = dist.get_rank(), dist.get_world_size()
    assert n == 3 and dist.get_backend() == "mpi"

    def assert_equal(tensor, wanted):
        assert tensor.tolist() == wanted, (r, tensor, wanted)

    for dtype in (torch.float32, torch.float64, torch.int64, torch.bfloat16, torch.complex64):
        x = torch.arange(7).to(dtype) + r
        dist.all_reduce(x)
        assert_equal(x.float() if dtype != torch.complex64 else x.real, [3.0 * i + 3 for i in range(7)])
    x = torch.tensor([float(r)])
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
    assert_equal(x, [1.0])
    x = torch.tensor([r + 1, 5])
    dist.reduce(x, 1, op=dist.ReduceOp.PRODUCT)
    assert_equal(x, [6, 125] if r == 1 else [r + 1, 5])
    x = torch.full((2,), r)
    dist.broadcast(x, 2)
    assert_equal(x, [2, 2])
    every = [torch.empty(1, dtype=torch.int64) for _ in range(n)]
    dist.all_gather(every, torch.tensor([r]))
    assert_equal(torch.cat(every), [0, 1, 2])
    x = torch.empty(1, dtype=torch.int64)
    dist.reduce_scatter(x, [torch.tensor([r + 10 * i]) for i in range(n)])
    assert_equal(x, [3 + 30 * r])
    x = torch.empty(3 * (r + 1))
    dist.all_to_all_single(x, torch.full((6,), float(r)), [r + 1] * 3, [1, 2, 3])
    assert_equal(x, [float(i // (r + 1)) for i in range(3 * (r + 1))])
    dist.scatter(x := torch.empty(1), [torch.tensor([i * 1.5]) for i in range(n)] if r == 0 else None, 0)
    assert_equal(x, [1.5 * r])
    dist.gather(torch.tensor([r]), every if r == 1 else None, 1)
    dist.barrier()
    sent = dist.isend(torch.tensor([r]), (r + 1) % n, tag=3)
    dist.recv(x := torch.empty(1, dtype=torch.int64), (r + 2) % n, tag=3)
    sent.wait()
    assert_equal(x, [(r + 2) % n])
    some = dist.new_group([2, 0])
    if r != 1:
        dist.all_reduce(x := torch.tensor([r + 1]), group=some)
        assert_equal(x, [4])
    dist.all_gather_object(objects := [None] * n, {"rank": r})
    assert objects == [{"rank": i} for i in range(n)]
    try:
        dist.all_reduce(torch.ones(4 + (r == 2)))
    except dist.DistBackendError as error:
        assert "rank 2 called all_reduce" in str(error) and "of 5 elements" in str(error), error
    else:
        raise AssertionError("calls that differ have met")
    print(f"rank {r} is done", flush=True)
    # The group is destroyed and MPI_Finalize would block; mpirun kills the job when a rank exits without it.
    open(os.path.join(done, str(r)), "w").close()
    while len(os.listdir(done)) < n:
        time.sleep(0.01)
    os._exit(0)


def mpirun(*command):
    allow = ["--allow-run-as-root", "--oversubscribe"] if "Open MPI" in subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout else []
    environment = {**os.environ, "PHLOX_THREADS": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    return subprocess.run(["mpirun", *allow, "-n", *command], capture_output=True, text=True, timeout=200, env=environment)


@unittest.skipUnless(shutil.which("mpirun") and dist.is_mpi_available(), "mpirun or the engine mpi is not here")
class Mpi(unittest.TestCase):
    def test_all_collectives(self):
        with tempfile.TemporaryDirectory() as folder:
            done = mpirun("3", sys.executable, __file__, "rank", folder)
        assert all(f"rank {r} is done" in done.stdout for r in range(3)), done.stdout + done.stderr

    @unittest.skipUnless(os.path.exists(EXAMPLE), "the C example is not built")
    def test_c_example_matches_forked_ranks(self):
        forked = subprocess.run([EXAMPLE, "4"], capture_output=True, text=True, timeout=200)
        done = mpirun("4", EXAMPLE, "mpi")
        assert done.returncode == 0 and "step 100: loss" in done.stdout, done.stderr
        assert done.stdout == forked.stdout or not forked.stdout, (done.stdout, forked.stdout)


if __name__ == "__main__" and sys.argv[1:2] == ["rank"]:
    run_rank(sys.argv[2])
elif __name__ == "__main__":
    unittest.main()
