# SPDX-License-Identifier: Apache-2.0
"""Process groups. Each test starts its ranks: on CPUs with gloo, and on simulated devices with nccl."""
import os
import pickle
import re
import socket
import unittest
from datetime import timedelta
from unittest import mock

from jobs import LIMIT, ranks
import phlox as torch
import phlox.distributed as dist


def collectives(r, n, device):
    def t(*values):
        return torch.tensor(values, dtype=torch.float32, device=device)

    x = t(r + 1)
    dist.all_reduce(x, dist.ReduceOp.PRODUCT)
    assert x.tolist() == [6]
    x = t(r + 1)
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
    assert x.tolist() == [2]
    x = t(r)
    dist.broadcast(x, 2)
    assert x.tolist() == [2]
    x = t(r)
    dist.reduce(x, group_dst=0)
    assert x.tolist() == [3 if r == 0 else r]
    out = [t(0, 0) for _ in range(n)]
    dist.all_gather(out, t(r, -r))
    assert [o.tolist() for o in out] == [[k, -k] for k in range(n)]
    whole = t(*[0] * n)
    dist.all_gather_into_tensor(whole, t(r))
    assert whole.tolist() == [0, 1, 2]
    part = t(0)
    dist.reduce_scatter_tensor(part, t(r, r + 10, r + 20))
    assert part.tolist() == [3 + 30 * r]
    dist.reduce_scatter(part, [t(k) for k in range(n)], dist.ReduceOp.MAX)
    assert part.tolist() == [r]
    out = [t(0) for _ in range(n)]
    dist.all_to_all(out, [t(10 * r + k) for k in range(n)])
    assert [o.item() for o in out] == [10 * k + r for k in range(n)]
    dist.scatter(part, [t(k + 5) for k in range(n)] if r == 1 else None, src=1)
    assert part.item() == r + 5
    dist.gather(part, out if r == 1 else None, dst=1)
    assert r != 1 or [o.item() for o in out] == [5, 6, 7]
    work = dist.all_reduce(part, async_op=True)
    assert work.wait() and part.item() == 18 and work.exception() is None
    dist.barrier()


def uneven_all_to_all(r, n, device):
    x = torch.full((3, 2), float(r), device=device)
    out = torch.empty(2 * (r + 1), 2, device=device)
    dist.all_to_all_single(out, x, [r + 1] * 2, [1, 2])
    assert out[:, 0].tolist() == [0] * (r + 1) + [1] * (r + 1)


def point_to_point(r, n, device):
    x, y = torch.tensor([float(r)], device=device), torch.zeros(1, device=device)
    ring = [dist.P2POp(dist.isend, x, (r + 1) % n), dist.P2POp(dist.irecv, y, (r - 1) % n)]
    for work in dist.batch_isend_irecv(ring):
        work.wait()
    assert y.item() == (r - 1) % n
    if r == 0 and device.type == "cpu":
        assert dist.recv(y) == int(y.item())
        assert dist.recv(y) == int(y.item())
    elif device.type == "cpu":
        dist.send(x, 0)


def objects(r, n, device):
    every = [None] * n
    dist.all_gather_object(every, {"rank": r, "text": "x" * r})
    assert [one["rank"] for one in every] == [0, 1, 2] and every[2]["text"] == "xx"
    some = [{"a": r}, r]
    dist.broadcast_object_list(some, src=1)
    assert some == [{"a": 1}, 1]
    mine = [None]
    dist.scatter_object_list(mine, ["a", "b", "c"] if r == 2 else None, src=2)
    assert mine == ["abc"[r]]
    every = [None] * n if r == 1 else None
    dist.gather_object(r, every, dst=1)
    assert r != 1 or every == [0, 1, 2]


def object_lists(r, n, device):
    if r == 0:
        dist.send_object_list(["a", {"b": 3}], dst=1)
    elif r == 1:
        got = [None, None]
        assert dist.recv_object_list(got, src=0) == 0 and got == ["a", {"b": 3}]
    lists = [[torch.zeros(2, device=device), torch.zeros(1, device=device)] for _ in range(n)]
    dist.all_gather_coalesced(lists, [torch.full((2,), float(r), device=device), torch.full((1,), -float(r), device=device)])
    assert [[t.tolist() for t in one] for one in lists] == [[[k, k], [-k]] for k in range(n)]


def groups(r, n, device):
    first, last = dist.new_group([0, 1]), dist.new_group([2])
    if r < 2:
        x = torch.tensor([r + 1.0], device=device)
        dist.all_reduce(x, group=first)
        assert x.item() == 3 and dist.get_world_size(first) == 2 and dist.get_rank(first) == r
        assert dist.get_process_group_ranks(first) == [0, 1] and last == dist.GroupMember.NON_GROUP_MEMBER
        assert dist.get_rank(last) == -1
    else:
        assert dist.get_rank(last) == 0 and dist.get_group_rank(last, 2) == 0 and dist.get_global_rank(last, 0) == 2


def coalesced_collectives(r, n, device):
    def t(*values):
        return torch.tensor(values, dtype=torch.float32, device=device)

    some = [t(r, 1), t(10 * r)]
    dist.all_reduce_coalesced(some)
    assert [x.tolist() for x in some] == [[3, 3], [30]]
    with dist._coalescing_manager():
        for x in some:
            assert dist.all_reduce(x, async_op=True) is None
    assert [x.tolist() for x in some] == [[9, 9], [90]]
    parts = t(*range(n)), t(*[1] * n)
    out = t(0), t(0)
    with dist._coalescing_manager(async_ops=True) as manager:
        for o, x in zip(out, parts):
            dist.reduce_scatter_tensor(o, x)
    assert len(manager.works) == 2
    manager.wait()
    assert out[0].item() == 3 * r and out[1].item() == 3
    x = t(r + 1, 2)
    dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
    assert x.tolist() == [3, 3]
    x = t(r + 1)
    dist.reduce(x, 0, op=dist._make_nccl_premul_sum(torch.tensor(2.0)))
    assert x.item() == (12 if r == 0 else r + 1)
    o, x = t(0), t(1, 2, 3)
    dist.reduce_scatter_tensor(o, x, dist._make_nccl_premul_sum(3))
    assert o.item() == 9 * (r + 1) and x.tolist() == [1, 2, 3]


def subgroups(r, n, device):
    assert list(torch.utils.data.DistributedSampler(range(10), shuffle=False)) == [r, r + 4, (r + 8) % 10]
    mine, both = dist.new_subgroups(2)
    assert dist.get_process_group_ranks(mine) == ([0, 1] if r < 2 else [2, 3]) and len(both) == 2
    assert (both[1] is mine) == (r > 1) and (both[0] is mine) == (r < 2)
    x = torch.ones(1, device=device) * r
    dist.all_reduce(x, group=mine)
    assert x.item() == (1 if r < 2 else 5)
    mine, _ = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]], group_desc="odd and even")
    assert dist.get_process_group_ranks(mine) == [r % 2, r % 2 + 2] and mine.group_desc == "odd and even"
    inner = dist.split_group(mine, [[1]])
    assert (inner is None) == (r < 2) and (inner is None or dist.get_process_group_ranks(inner) == [r])
    count = dist.get_pg_count()
    dist.destroy_process_group(mine)
    assert dist.get_pg_count() == count - 1


def meshes(r, n, device):
    from phlox.distributed.device_mesh import DeviceMesh, init_device_mesh
    mesh = init_device_mesh(device.type, (2, 2), mesh_dim_names=("dp", "tp"))
    assert repr(mesh) == f"DeviceMesh((dp=2, tp=2), '{device.type}', stride=(2, 1))" and mesh.shape == (2, 2) and mesh.ndim == 2
    assert mesh.mesh.tolist() == [[0, 1], [2, 3]] and mesh.get_coordinate() == (r // 2, r % 2) and mesh.size() == 4 and mesh.size(1) == 2
    dp, tp = mesh["dp"], mesh["tp"]
    assert dp.mesh.tolist() == [r % 2, r % 2 + 2] and mesh["dp", "tp"] is mesh and dp == mesh["dp"] != tp and hash(dp) == hash(mesh["dp"])
    assert dp.get_group() is mesh.get_group("dp") and tp.get_local_rank() == mesh.get_local_rank("tp") == r % 2
    x = torch.ones(1, device=device) * r
    dist.all_reduce(x, group=tp.get_group())
    assert x.item() == (1 if r < 2 else 5)
    flat = mesh._flatten()
    assert flat is mesh._flatten() and flat.mesh_dim_names == ("dp_tp",) and flat.get_group() is dist.group.WORLD and mesh["dp_tp"] == flat
    over = DeviceMesh.from_group([mesh.get_group(0), mesh.get_group(1)], device.type, mesh.mesh, mesh_dim_names=("a", "b"))
    assert over.get_group("b") is mesh.get_group("tp") and DeviceMesh.from_group(dp.get_group(), device.type).mesh.tolist() == dp.mesh.tolist()
    some = DeviceMesh(device.type, torch.tensor([0, 3]))
    assert some.get_coordinate() == {0: (0,), 3: (1,)}.get(r) and some.mesh.tolist() == [0, 3]
    deep = init_device_mesh(device.type, (2, 1, 2), mesh_dim_names=("dp", "cp", "tp"))
    assert deep["dp", "cp"]._flatten().mesh.tolist() == dp.mesh.tolist() and DeviceMesh._concatenate([dp, tp]) == mesh

    def assert_raises(error, text, call, *args, **options):
        try:
            call(*args, **options)
        except error as e:
            assert text in str(e), e
        else:
            raise AssertionError(text)
    assert_raises(KeyError, "Invalid mesh_dim_names ('x',) specified. Valid mesh_dim_names are ['dp', 'tp', 'dp_tp'].", lambda: mesh["x"])
    assert_raises(KeyError, "Mesh dim indices should be in ascending order.", lambda: mesh["tp", "dp"])
    assert_raises(KeyError, "Mesh dimension 'x' does not exist.", mesh.get_group, "x")
    assert_raises(RuntimeError, "Optional kwarg `mesh_dim` needs to be specified when device_mesh.ndim > 1.", mesh.get_group)
    assert_raises(RuntimeError, "Found repeated mesh_dim_name in mesh_dim_names ('a', 'a')", init_device_mesh, "cpu", (2, 2), mesh_dim_names=("a", "a"))
    assert_raises(RuntimeError, "Found len(mesh_dim_names): 1 and len(mesh_shape):2.", init_device_mesh, "cpu", (2, 2), mesh_dim_names=("a",))
    assert_raises(RuntimeError, "Device type with index is not supported but got cpu:0.", init_device_mesh, "cpu:0", (2, 2))
    assert_raises(RuntimeError, "Mesh should not be bigger than default world size 4, but found 8 ranks!", init_device_mesh, "cpu", (2, 4))
    assert_raises(ValueError, "dp already exists for submesh of the", tp._flatten, "dp")
    assert_raises(ValueError, "Must pass mesh if passing multiple ProcessGroups", DeviceMesh.from_group, [dp.get_group()], "cpu")


def futures(r, n, device):
    x, order = torch.full((1 << 12,), r + 1.0, device=device), []
    work = dist.all_reduce(x, async_op=True)
    future = work.get_future()
    assert future is work.get_future()
    double = future.then(lambda f: order.append("then") or 2 * f.value()[0])
    chained = double.then(lambda f: f.value().sum())
    assert chained.wait().item() == 6 * (1 << 12) and order == ["then"] and future.done() and future.wait()[0].data_ptr() == x.data_ptr()
    work.synchronize()
    assert work.result()[0].data_ptr() == x.data_ptr() and work.wait() and work.is_completed() is not None
    # A callback may start a collective and wait for it, on the thread that completed the first.
    again = dist.all_reduce(x, async_op=True).get_future().then(lambda f: dist.all_reduce(f.value()[0]) or f.value()[0].max())
    assert again.wait().item() == 12
    out = [torch.zeros(1, device=device) for _ in range(n)]
    assert [o.item() for o in dist.all_gather(out, torch.ones(1, device=device) * r, async_op=True).get_future().wait()] == list(range(n))
    fails = dist.all_reduce(x, async_op=True).get_future().then(lambda f: 1 // 0)
    try:
        fails.wait()
    except RuntimeError as e:
        assert "Got the following error when running the callback: ZeroDivisionError" in str(e), e
    else:
        raise AssertionError("no error")


def streams(r, n, device):
    """A collective runs after the earlier work of its stream, and before the work of waiting streams."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        x = torch.ones(1 << 16, device=device) * (r + 1)
        work = dist.all_reduce(x, async_op=True)
    work.wait()
    assert x.sum().item() == 3 * (1 << 16)


def strided_and_sparse_tensors(r, n, device):
    for strided in (lambda: torch.arange(6.).reshape(2, 3).t(), lambda: torch.arange(12.).reshape(2, 6)[:, ::2], lambda: torch.arange(24.).reshape(2, 3, 4).permute(2, 0, 1)):
        total, sent, work = strided(), strided() + r, None
        dist.all_reduce(total)
        assert torch.equal(total, strided() * n), total
        dist.broadcast(sent, 1)
        assert torch.equal(sent, strided() + 1), sent
        parts = [torch.zeros_like(total) for _ in range(n)]
        work = dist.all_gather(parts, strided() + r, async_op=True)
        work.wait()
        assert all(torch.equal(part, strided() + i) for i, part in enumerate(parts)), parts
    sparse = torch.sparse_coo_tensor([[r, 0]], [1.0 + r, 2.0], (n + 1,))
    dist.all_reduce(sparse)
    assert sparse.to_dense().tolist() == [1.0 + 2 * n] + [1.0 + i for i in range(1, n)] + [0.0] and sparse.is_coalesced(), sparse
    empty = torch.sparse_coo_tensor(torch.zeros(1, 0, dtype=torch.int64), torch.zeros(0), (3,))
    dist.all_reduce(empty)
    assert empty._nnz() == 0


def invalid_calls(r, n, device):
    def assert_raises(error, text, call, *args, **options):
        try:
            call(*args, **options)
        except error as e:
            assert text in str(e), e
        else:
            raise AssertionError(text)

    sparse = torch.sparse_coo_tensor([[r]], [1.0], (3,))
    assert_raises(RuntimeError, "only works with ReduceOp.SUM", dist.all_reduce, sparse, dist.ReduceOp.MAX)
    assert_raises(NotImplementedError, "async_op=True", dist.all_reduce, sparse, None, None, True)
    x = torch.ones(2, 3)
    assert_raises(ValueError, "twice", dist.init_process_group, "gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert_raises(RuntimeError, "more than one element of the written-to tensor", dist.all_reduce, torch.ones(1).expand(3))
    assert_raises(TypeError, "Expected parameter `tensor` of type torch.Tensor", dist.all_reduce, [x])
    assert_raises(RuntimeError, "group of 2", dist.all_gather, [x], x)
    assert_raises(ValueError, "Invalid usage of tensors with different dtypesFound torch.float32 and  torch.float64", dist.all_gather, [x, x.double()], x)
    assert_raises(ValueError, "Global rank 7 is not part of group", dist.broadcast, x, 7)
    assert_raises(ValueError, "Invalid destination rank", dist.send, x, r)
    assert_raises(ValueError, "PREMUL_SUM needs a factor", dist.all_reduce, x, dist.ReduceOp.PREMUL_SUM)
    assert_raises(RuntimeError, "Cannot use ReduceOp.PREMUL_SUM with int64", dist.all_reduce, torch.ones(2, dtype=torch.int64), dist._make_nccl_premul_sum(2))
    assert_raises(ValueError, "Can't specify both group_rank and global_rank", dist.broadcast, x, 0, group_src=1)
    assert_raises(ValueError, "must be divisible by 'group_size=", dist.new_subgroups, 3) if n == 4 else assert_raises(ValueError, "must not exceed", dist.new_subgroups, 3)
    assert_raises(ValueError, "has appeared in both subgroup", dist.new_subgroups_by_enumeration, [[0], [0, 1]])
    assert_raises(ValueError, "ProcessGroup has non-empty op list", lambda: dist._coalescing_manager().__enter__() and dist._coalescing_manager().__enter__())
    assert_raises(ValueError, "Invalid ``op``", dist.P2POp, print, x, 0)
    assert_raises(ValueError, "should be different ones", dist.new_group, [0, 0])
    assert_raises(NotImplementedError, "'ucc'", dist.new_group, backend="ucc")
    dist.barrier()


def peer_exits(r, n, device):
    dist.group.WORLD._monitored_barrier(LIMIT, True)  # all ranks have joined
    if r == 1:
        os._exit(0)
    try:
        dist.all_reduce(torch.ones(3, device=device))
        if device.type == "cuda":
            torch.cuda.synchronize()  # reports an error of the stream
    except dist.DistBackendError as e:
        # The collective was in flight, or the peer's exit was already known.
        begun = "[Rank 0] all_reduce number 1 of 3 elements float32, SUM" in str(e)
        assert begun or "[Rank 0] cannot start all_reduce number 1" in str(e), e
        assert "lost the connection to rank 1" in str(e), e
        os._exit(0)
    raise AssertionError("no error")


class Stores(unittest.TestCase):
    def test_tcp_store(self):
        server = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=LIMIT)
        other = dist.TCPStore("127.0.0.1", server.port, timeout=LIMIT)
        other.set("a", "one")
        self.assertEqual(server.get("a"), b"one")
        self.assertEqual((server.add("n", 2), other.add("n", 3), other.get("n")), (2, 5, b"5"))
        self.assertEqual(other.compare_set("a", "one", "two"), b"two")
        self.assertEqual((other.check(["a", "n"]), other.check(["a", "b"])), (True, False))
        self.assertEqual((other.delete_key("a"), other.delete_key("a"), other.num_keys()), (True, False, 1))
        with self.assertRaisesRegex(dist.DistStoreError, "wait timeout after 10ms, keys: /b"):
            other.wait(["b"], timedelta(milliseconds=10))
        self.assertTrue(issubclass(dist.DistStoreError, RuntimeError))

    def test_a_call_above_a_limit_is_a_runtime_error(self):
        with mock.patch.dict(os.environ, PHLOX_STORE_KEYS="1"):
            store = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=LIMIT)
        store.set("a", "one")
        with self.assertRaisesRegex(RuntimeError, "the store has reached its limit of 1 keys; PHLOX_STORE_KEYS"):
            store.set("b", "two")
        self.assertEqual(store.get("a"), b"one")

    def test_prefix_store(self):
        store = dist.HashStore()
        dist.PrefixStore("p", store).set("k", b"\0v")
        self.assertEqual(store.get("p/k"), b"\0v")
        self.assertEqual(store.timeout, timedelta(minutes=5))
        with self.assertRaises(TypeError):
            dist.PrefixStore("p", 3)
        with self.assertRaises(TypeError):
            store.set("k", 3)

    def test_unreachable_server(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
            with self.assertRaisesRegex(dist.DistNetworkError, f"timed out after 20ms while trying to connect to .127.0.0.1, {port}"):
                dist.TCPStore("127.0.0.1", port, timeout=timedelta(milliseconds=20))

    def test_endless_timeouts_are_the_longest_timedelta(self):
        endless = type("Endless", (), {"total_seconds": lambda self: float("inf")})()
        for timeout in (endless, timedelta.max):
            store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timeout)
            store.set("k", b"v")
            self.assertEqual((store.get("k"), store.timeout.days), (b"v", timedelta.max.days))


class Api(unittest.TestCase):
    def test_uninitialized_errors(self):
        self.assertFalse(dist.is_initialized())
        with self.assertRaisesRegex(ValueError, "Default process group has not been initialized"):
            dist.all_reduce(torch.ones(1))
        with self.assertRaisesRegex(ValueError, "environment variable RANK expected, but not set"):
            dist.init_process_group("gloo")
        with self.assertRaisesRegex(NotImplementedError, "'ucc'"):
            dist.init_process_group("ucc")

    def test_reduce_op_names(self):
        self.assertEqual((str(dist.ReduceOp.SUM), repr(dist.ReduceOp.AVG)), ("RedOpType.SUM", "<RedOpType.AVG: 1>"))
        self.assertIs(pickle.loads(pickle.dumps(dist.ReduceOp.MAX)), dist.ReduceOp.MAX)

    def test_placement_repr(self):
        from phlox.distributed.tensor import Partial, Placement, Replicate, Shard
        from phlox.distributed.tensor.placement_types import _StridedShard
        shown = {"Shard(dim=1) S(1)": Shard(1), "Replicate() R": Replicate(), "Partial(sum) P(sum)": Partial(), "Partial(max) P(max)": Partial("max"),
                 "_StridedShard(dim=0, sf=2) _S(0, 2)": _StridedShard(0, split_factor=2)}
        for text, placement in shown.items():
            self.assertEqual(f"{placement!r} {placement}", text)
            self.assertIsInstance(placement, Placement)
        self.assertTrue(Shard(1).is_shard() and Shard(1).is_shard(1) and Partial().is_partial("sum") and Replicate().is_replicate())
        self.assertFalse(Shard(1).is_shard(0) or Shard(1).is_replicate() or Partial().is_partial("max") or _StridedShard(0, 2).is_shard())
        self.assertEqual({Shard(1): "a"}[Shard(1)], "a")
        self.assertNotEqual(Shard(0), _StridedShard(0, 2))
        with self.assertRaises(AttributeError):
            Shard(1).dim = 2

    def test_default_backend_of_device(self):
        self.assertEqual([dist.get_default_backend_for_device(d) for d in ("cpu", torch.device("cpu"), "cuda:1")], ["gloo", "gloo", "nccl"])
        with self.assertRaisesRegex(ValueError, "Default backend not registered for device : meta"):
            dist.get_default_backend_for_device("meta")
        self.assertTrue(dist.supports_complex(dist.ReduceOp.SUM) and not dist.supports_complex(dist.ReduceOp.MAX))

    def test_missing_functions(self):
        with self.assertRaisesRegex(NotImplementedError, "shrink_group is not implemented in Phlox"):
            dist.shrink_group()


def mismatched_collective(r, n, device):
    dist.monitored_barrier()  # all ranks have joined
    x = torch.ones(3)
    dist.all_reduce(x)
    try:
        if r == 2:
            dist.all_gather([torch.empty(3) for _ in range(n)], x)
        dist.all_reduce(x, dist.ReduceOp.MAX)
    except dist.DistBackendError as e:
        here = r"\(.*test_distributed.py:\d+\)"
        mismatch = rf"rank 2 called all_gather number 2 of 3 elements float32 {here}, and rank 0 called all_reduce number 2 of 3 elements float32, MAX {here}"
        assert re.search(rf"^\[Rank {r}\] .* number 2 .*{mismatch}", str(e)), e
        try:
            dist.barrier()
        except dist.DistBackendError as again:
            assert f"[Rank {r}] cannot start barrier number 3: the group is no longer usable" in str(again), again
            os._exit(0)
    raise AssertionError("no error")


def destroy_during_collective(r, n, device):
    """A destroyed but referenced group completes its pending work."""
    held, kept, store = dist.new_group(), [], dist.PrefixStore("meet", dist.GroupMember.WORLD._store)
    dist.all_reduce(torch.ones(1, device=device), group=held)  # over NCCL a group's first call blocks until all ranks join
    if r == 0:
        store.wait(["given"])
    works = [dist.all_reduce(torch.ones(1000, device=device), group=held, async_op=True) for _ in range(20)]
    kept.append(held)
    if r == 1:
        store.set("given", "")
    dist.destroy_process_group(held)
    assert all(work.is_completed() for work in works) and kept


def destruction_order(r, n, device):
    """Groups are destroyed in the order of their creation, the same on each rank: over NCCL, destruction on a rank waits for the others."""
    ended = []

    class Finalizer:
        def __init__(self, number):
            self.number = number

        def __del__(self):
            ended.append(self.number)

    for i in range(20):
        dist.new_group().bound_device_id = Finalizer(i)
    dist.destroy_process_group()
    assert ended == [*range(20)], ended
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # destroyed by the code that started the rank


@unittest.skipUnless(dist.is_available(), "the gloo backend is not built")
class Ranks(unittest.TestCase):
    def both(self, body, size):
        ranks(body, size=size)
        if torch.cuda.device_count() >= size and dist.is_nccl_available():
            ranks(body, size=size, backend="nccl")

    def test_collectives(self):
        self.both(collectives, 3)

    def test_uneven_all_to_all(self):
        self.both(uneven_all_to_all, 2)

    def test_point_to_point(self):
        self.both(point_to_point, 3)

    def test_object_collectives(self):
        self.both(objects, 3)

    def test_object_lists(self):
        self.both(object_lists, 3)

    def test_groups(self):
        self.both(groups, 3)

    def test_coalesced_collectives(self):
        self.both(coalesced_collectives, 3)

    def test_destroyed_group_completes_its_work(self):
        self.both(destroy_during_collective, 2)

    def test_groups_are_destroyed_in_creation_order(self):
        self.both(destruction_order, 2)

    def test_futures(self):
        self.both(futures, 2)

    def test_subgroups(self):
        self.both(subgroups, 4)

    def test_device_meshes(self):
        self.both(meshes, 4)

    def test_collectives_are_ordered_by_streams(self):
        if torch.cuda.device_count() >= 2 and dist.is_nccl_available():
            ranks(streams, backend="nccl")

    def test_strided_and_sparse_tensors(self):
        ranks(strided_and_sparse_tensors)

    def test_invalid_calls_do_not_break_group(self):
        ranks(invalid_calls)

    def test_first_mismatch_is_reported_with_both_lines(self):
        ranks(mismatched_collective, size=3)

    def test_exited_rank_is_reported(self):
        self.both(peer_exits, 2)


if __name__ == "__main__":
    unittest.main()
