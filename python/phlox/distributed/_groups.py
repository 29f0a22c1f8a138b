# SPDX-License-Identifier: Apache-2.0
"""The part of torch.distributed written in Python: rendezvous, creation of groups, and collectives on
pickled objects."""
from __future__ import annotations

import os
import pickle
import sys
from datetime import timedelta
from enum import Enum, IntEnum
from urllib.parse import parse_qs, urlparse

from phlox import _C

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

torch, dist = sys.modules["phlox"], sys.modules["phlox.distributed"]
DistError, DistBackendError, DistNetworkError, DistStoreError = (_C._dist_errors[f"Dist{name}Error"] for name in ("", "Backend", "Network", "Store"))
QueueEmptyError = type("QueueEmptyError", (DistStoreError,), {"__module__": "torch.distributed", "__doc__": "Not raised by Phlox."})
ReduceOp = IntEnum("RedOpType", "SUM AVG PRODUCT MIN MAX BAND BOR BXOR PREMUL_SUM", start=0, module="phlox.distributed", qualname="ReduceOp")
ReduceOp.__str__, ReduceOp.__doc__, RedOpType = Enum.__str__, "Reduction operations of collectives.", ReduceOp
reduce_op = ReduceOp.RedOpType = ReduceOp
BuiltinCommHookType = IntEnum("BuiltinCommHookType", "ALLREDUCE FP16_COMPRESS", start=0, module="phlox.distributed")
BuiltinCommHookType.__doc__ = "Built-in communication hooks of DistributedDataParallel."
default_pg_timeout, default_pg_nccl_timeout = timedelta(minutes=30), timedelta(minutes=10)
FileStore, HashStore, PrefixStore, Store, TCPStore, Work = (getattr(_C, f"_{name}") for name in "FileStore HashStore PrefixStore Store TCPStore Work".split())


class Backend(str):
    """The name of a backend, in lower case."""
    UNDEFINED, GLOO, NCCL, MPI, UCC, XCCL = "undefined", "gloo", "nccl", "mpi", "ucc", "xccl"
    backend_list = [UNDEFINED, GLOO, NCCL, MPI]

    def __new__(cls, name):
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish: {name=}")
        devices = dict(part.split(":") for part in name.split(",")) if ":" in name else {}
        name = (devices.get("cuda") or devices.get("cpu") or name).lower()
        if name not in ("gloo", "nccl", "mpi"):
            raise NotImplementedError(f"Phlox does not have the backend '{name}' of torch.distributed: it has gloo, nccl and mpi")
        return super().__new__(cls, name)


class _World(type):
    WORLD = property(lambda cls: dist._world(), lambda cls, group: dist._set_world(group), doc="The group of all ranks.")


class group(metaclass=_World):
    """The owner of WORLD, the group of all ranks."""


class GroupMember(metaclass=_World):
    """NON_GROUP_MEMBER is the value of a group on ranks outside it."""
    NON_GROUP_MEMBER = -100


def is_available() -> bool:
    """Returns True if torch.distributed is available: if a collective backend is."""
    return _C._engine_available("gloo")


is_gloo_available = is_available


def is_nccl_available() -> bool:
    """Returns True if the backend nccl is available: it requires devices, and NCCL for GPUs."""
    return _C._engine_available("nccl")


def is_mpi_available() -> bool:
    """Returns True if the MPI backend is available."""
    return _C._engine_available("mpi")


def is_backend_available(backend: str) -> bool:
    """Returns True if the named backend is available."""
    return backend.lower() in ("gloo", "nccl", "mpi") and _C._engine_available(backend.lower())


def _variable(name):
    return os.environ.get(name, "")


def _required(name, url):
    if name not in os.environ:
        raise ValueError(f"Error initializing torch.distributed using {url} rendezvous: environment variable {name} expected, but not set")
    return os.environ[name]


def _rendezvous(url, rank, size, timeout):
    """Performs the rendezvous of a URL. Returns (store, rank, number of ranks); the URL and the environment override defaults."""
    parts = urlparse(url)
    if parts.scheme == "env" and (cluster := _C._cluster()):
        return cluster
    query = {name: int(values[0]) for name, values in parse_qs(parts.query).items() if name in ("rank", "world_size")}
    rank, size = query.get("rank", rank), query.get("world_size", size)
    if parts.scheme == "env":
        rank, size = (int(_required(n, "env://")) if v == -1 else v for n, v in (("RANK", rank), ("WORLD_SIZE", size)))
        host, port = _required("MASTER_ADDR", "env://"), int(_required("MASTER_PORT", "env://"))
    elif rank == -1 or size == -1:
        raise ValueError(f"Error initializing torch.distributed using {parts.scheme}:// rendezvous: rank and world_size are expected")
    if parts.scheme == "file":
        return FileStore(parts.path, size), rank, size
    if parts.scheme == "tcp":
        host, port = parts.hostname, parts.port
    elif parts.scheme != "env":
        raise RuntimeError(f"No rendezvous handler for {parts.scheme}://")
    agent = parts.scheme == "env" and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = TCPStore(host, port, size, rank == 0 and not agent, timeout, False)
    # torchrun's store survives restarts of the ranks: the prefix hides keys of earlier attempts.
    return PrefixStore(f"/worker/attempt_{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store) if agent else store, rank, size


def init_process_group(backend: str | None = None, init_method: str | None = None, timeout: timedelta | None = None, world_size: int = -1, rank: int = -1,
                       store: Store | None = None, group_name: str = "", pg_options: Any = None, device_id: Any = None, **others: Any) -> None:
    """Initializes the default process group. Without a store, init_method selects the rendezvous:
    env:// (the default), tcp://host:port or file:///path."""
    if dist.is_initialized():
        raise ValueError("trying to initialize the default process group twice!")
    if pg_options is not None or others:
        raise NotImplementedError(f"init_process_group({'pg_options' if not others else next(iter(others))}=) is not implemented in Phlox")
    if store is not None and init_method is not None:
        raise AssertionError("Cannot specify both init_method and store.")
    if store is not None and (world_size <= 0 or rank < 0):
        raise AssertionError("world_size must be positive if using store" if world_size <= 0 else "rank must be non-negative if using store")
    backend, timeout = Backend(backend or ("nccl" if is_nccl_available() else "gloo")), timeout or default_pg_timeout
    if store is None and backend == "mpi" and not _C._cluster():
        store, rank, world_size = _C._mpi(timeout)
    elif store is None:
        store, rank, world_size = _rendezvous(init_method or "env://", rank, world_size, timeout)
    made = dist.ProcessGroup(backend, PrefixStore("default_pg", store), rank, range(world_size), timeout, "0", "default_pg")
    made.bound_device_id = device_id
    dist._set_world(made)


def simulate(fn: Any, args: Sequence[Any] = (), nprocs: int = 1) -> list[Any]:
    """Runs fn(rank, *args) in one thread per rank of a simulated cluster, like mp.spawn with processes.
    Returns the results of all ranks. Raises the lowest rank's error; errors caused by another rank's
    failure (DistBackendError) come last."""
    results, errors = [None] * nprocs, {}

    def run(rank):
        try:
            results[rank] = fn(rank, *args)
        except BaseException as error:  # raised below
            errors[rank] = error
        if dist.is_initialized():
            dist.destroy_process_group()

    _C._cluster_run(run, nprocs)
    try:
        for rank in sorted(errors, key=lambda rank: (isinstance(errors[rank], DistBackendError), rank)):
            raise errors[rank]
    finally:
        errors.clear()  # the traceback refers to this frame: no cycle
    return results


def new_group(ranks: Sequence[int] | None = None, timeout: timedelta | None = None, backend: str | None = None, pg_options: Any = None,
              use_local_synchronization: bool = False, group_desc: str | None = None, device_id: Any = None, sort_ranks: bool = True) -> Any:
    """Creates a group of the given ranks. Must be called by all processes, in the same order."""
    world = dist._group(None)
    ranks = (sorted if sort_ranks else list)(ranks) if ranks is not None else list(range(world.size()))
    if pg_options is not None:
        raise NotImplementedError("new_group(pg_options=) is not implemented in Phlox")
    if len(set(ranks)) < len(ranks) or not set(ranks) <= set(range(world.size())) or not ranks:
        raise ValueError(f"the new group's ranks {ranks} should be different ones of the world's {world.size()}")
    key, numbers = tuple(ranks) if use_local_synchronization else (), world._numbers
    numbers[key] = numbers.get(key, 0) + 1
    if world.rank() not in ranks:
        return GroupMember.NON_GROUP_MEMBER
    name = f"{'_'.join(map(str, key))}#{numbers[key]}"
    return dist.ProcessGroup(Backend(backend or world._backend), PrefixStore(name, world._store), ranks.index(world.rank()), ranks,
                             timeout or default_pg_timeout, name, group_desc)


def new_subgroups_by_enumeration(ranks_per_subgroup_list: Sequence[Sequence[int]], timeout: timedelta | None = None, backend: str | None = None,
                                 pg_options: Any = None, group_desc: str | None = None) -> tuple[Any, list[Any]]:
    """Creates disjoint groups. Returns this process's group and the list of all. Must be called by all processes."""
    if not ranks_per_subgroup_list:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    seen = {}
    for ranks in ranks_per_subgroup_list:
        for rank in ranks:
            if seen.setdefault(rank, ranks) is not ranks:
                raise ValueError(f"Rank {rank} has appeared in both subgroup {seen[rank]} and {ranks}")
    groups = [new_group(ranks, timeout, backend, pg_options, group_desc=group_desc) for ranks in ranks_per_subgroup_list]
    return next((one for one in groups if one != GroupMember.NON_GROUP_MEMBER), None), groups


def new_subgroups(group_size: int | None = None, group: Any = None, timeout: timedelta | None = None, backend: str | None = None, pg_options: Any = None,
                  group_desc: str | None = None) -> tuple[Any, list[Any]]:
    """Creates groups of group_size consecutive ranks. Default: one group per host. Must be called by all processes."""
    size, world = group_size or torch.cuda.device_count(), dist.get_world_size()
    if size <= 0:
        raise ValueError(f"The arg 'group_size' ({size}) must be positive")
    if world < size or world % size:
        raise ValueError(f"The arg 'group_size' ({size}) must not exceed the world size ({world})" if world < size else
                         f"The world size ({world}) must be divisible by '{group_size=}'")
    return new_subgroups_by_enumeration([range(i, i + size) for i in range(0, world, size)], timeout, backend, pg_options, group_desc)


def split_group(parent_pg: Any = None, split_ranks: Sequence[Sequence[int]] | None = None, timeout: timedelta | None = None, pg_options: Any = None,
                group_desc: str | None = None, backend: str | None = None) -> Any:
    """Splits a group. Returns the new group of this process, or None. Must be called by all ranks of the
    parent group."""
    parent = dist._group(parent_pg)
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    if pg_options is not None:
        raise NotImplementedError("split_group(pg_options=) is not implemented in Phlox")
    mine = next((sorted(ranks) for ranks in split_ranks if parent.rank() in ranks), None)
    numbers = parent._numbers
    numbers["split"] = numbers.get("split", 0) + 1
    if mine is None:
        return None
    name = f"{parent.group_name}/split#{numbers['split']}/{mine[0]}"
    return dist.ProcessGroup(Backend(backend or parent._backend), PrefixStore(name, parent._store), mine.index(parent.rank()),
                             [dist.get_global_rank(parent, rank) for rank in mine], timeout or parent._timeout, name, group_desc)


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """Returns the rank of this process on its host, from LOCAL_RANK."""
    if "LOCAL_RANK" in os.environ or fallback_rank is not None:
        return int(os.environ.get("LOCAL_RANK", fallback_rank))
    raise RuntimeError("LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow `get_node_local_rank` to work, "
                       "assuming you are not running in a multi-device context and want the code to run locally instead.")


class P2POp:
    """A send or receive for batch_isend_irecv."""

    def __init__(self, op, tensor, peer=None, group=None, tag=0, group_peer=None):
        if op not in (dist.isend, dist.irecv):
            raise ValueError("Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or ``torch.distributed.irecv``.")
        self.op, self.tensor, self.peer, self.group, self.tag, self.group_peer = op, tensor, peer, group, tag, group_peer


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Starts several sends and receives."""
    if not p2p_op_list or not all(isinstance(op, P2POp) for op in p2p_op_list):
        raise ValueError("Invalid ``p2p_op_list``. Each op is expected to to be of type ``torch.distributed.P2POp``.")
    if any(op.group is not p2p_op_list[0].group for op in p2p_op_list):
        raise ValueError("All ops need to use the same group.")
    return dist._pairs(p2p_op_list[0].group, [(op.op is dist.isend, op.tensor, op.peer, op.group_peer, op.tag) for op in p2p_op_list])


# ---- objects

def _to_tensor(object, group):
    data, home = pickle.dumps(object), "cuda" if dist.get_backend(group) == "nccl" else "cpu"
    return _C._bytes_tensor(data).to(home), torch.tensor([len(data)]).to(home)


def _from_tensor(tensor, size):
    return pickle.loads(_C._tensor_bytes(tensor.cpu(), int(size)))


def _root(group, rank, group_rank):
    """Returns the root's rank in the group, given its global or its group rank."""
    return group_rank if group_rank is not None else dist.get_group_rank(group, rank or 0)


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Gathers picklable objects from all ranks. Unpickling executes code: ranks must trust each other."""
    if dist.get_rank(group) < 0:
        return
    data, size = _to_tensor(obj, group)
    sizes = [torch.zeros_like(size) for _ in range(dist.get_world_size(group))]
    dist._exchange(group, "all_gather", size, sizes)
    longest = max(map(int, sizes))
    every = [data.new_empty(longest) for _ in sizes]
    dist._exchange(group, "all_gather", torch.cat([data, data.new_zeros(longest - len(data))]), every)
    object_list[:len(every)] = map(_from_tensor, every, sizes)


def gather_object(obj: Any, object_gather_list: list[Any] | None = None, dst: int | None = None, group: Any = None, group_dst: int | None = None) -> None:
    """Gathers picklable objects in the root's list."""
    every = [None] * max(0, dist.get_world_size(group))
    all_gather_object(every, obj, group)
    if every and dist.get_rank(group) == _root(group, dst, group_dst):
        object_gather_list[:] = every


def broadcast_object_list(object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None, group_src: int | None = None) -> None:
    """Broadcasts the root's picklable objects to all ranks."""
    if dist.get_rank(group) < 0:
        return
    root = _root(group, src, group_src)
    data, size = _to_tensor(list(object_list), group)
    dist._exchange(group, "broadcast", None, [size], root)
    data = data if dist.get_rank(group) == root else data.new_empty(int(size))
    dist._exchange(group, "broadcast", None, [data], root)
    if dist.get_rank(group) != root:
        object_list[:] = _from_tensor(data, size)


def scatter_object_list(scatter_object_output_list: list[Any], scatter_object_input_list: list[Any] | None = None, src: int | None = None, group: Any = None,
                        group_src: int | None = None) -> None:
    """Scatters the root's picklable objects, one to each rank."""
    every = [scatter_object_input_list]
    broadcast_object_list(every, src, group, None, group_src)
    if dist.get_rank(group) >= 0:
        scatter_object_output_list[0] = every[0][dist.get_rank(group)]


def send_object_list(object_list: Sequence[Any], dst: int | None = None, group: Any = None, device: Any = None, group_dst: int | None = None,
                     use_batch: bool = False) -> None:
    """Sends picklable objects to a rank."""
    for tensor in reversed(_to_tensor(list(object_list), group)):
        dist._exchange(group, "send", tensor, [], _root(group, dst, group_dst))


def recv_object_list(object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None, group_src: int | None = None,
                     use_batch: bool = False) -> int:
    """Receives objects from send_object_list. Returns the sender's rank."""
    (data, size), root = _to_tensor(None, group), _root(group, src, group_src)
    dist._exchange(group, "recv", None, [size], root)
    data = data.new_empty(int(size))
    dist._exchange(group, "recv", None, [data], root)
    object_list[:] = _from_tensor(data, size)
    return dist.get_global_rank(group, root)


def is_torchelastic_launched() -> bool:
    """Returns True if torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ
