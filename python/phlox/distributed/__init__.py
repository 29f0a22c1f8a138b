# SPDX-License-Identifier: Apache-2.0
"""Processes that work together: groups of ranks and their collectives, over Gloo on the CPU, and on
simulated devices as NCCL orders them."""
import os
import pickle
import sys
import warnings
from datetime import timedelta
from enum import Enum, IntEnum
from urllib.parse import parse_qs, urlparse

from phlox import _C
from phlox._C import _FileStore as FileStore, _HashStore as HashStore, _PrefixStore as PrefixStore
from phlox._C import _Store as Store, _TCPStore as TCPStore, _Work as Work

torch = sys.modules[__name__.partition(".")[0]]
globals().update(_C._dist_errors)
QueueEmptyError = type("QueueEmptyError", (_C._dist_errors["DistStoreError"],), {"__module__": "torch.distributed", "__doc__": "Not raised by Phlox."})
ReduceOp = IntEnum("RedOpType", "SUM AVG PRODUCT MIN MAX BAND BOR BXOR PREMUL_SUM", start=0, module=__name__)
ReduceOp.__str__, ReduceOp.__doc__, RedOpType = Enum.__str__, "What becomes of the ranks' numbers.", ReduceOp
reduce_op = ReduceOp.RedOpType = ReduceOp
default_pg_timeout, default_pg_nccl_timeout = timedelta(minutes=30), timedelta(minutes=10)
_groups, _numbers = {}, {}  # groups by name; how often new_group was called with the same ranks


class Backend(str):
    """The name of what moves the bytes, in small letters."""
    UNDEFINED, GLOO, NCCL, MPI, UCC, XCCL = "undefined", "gloo", "nccl", "mpi", "ucc", "xccl"
    backend_list = [UNDEFINED, GLOO, NCCL]

    def __new__(cls, name):
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish: {name=}")
        devices = dict(part.split(":") for part in name.split(",")) if ":" in name else {}
        name = (devices.get("cuda") or devices.get("cpu") or name).lower()
        if name not in ("gloo", "nccl"):
            raise NotImplementedError(f"Phlox does not have the backend '{name}' of torch.distributed: it has gloo and nccl")
        return super().__new__(cls, name)


class ProcessGroup:
    """Some ranks, which call collectives together and in the same order."""

    def __init__(self, comm, backend, ranks, name, timeout, store):
        self._comm, self._backend, self._ranks, self._timeout, self._store = comm, backend, ranks, timeout, store
        self.group_name = self.group_desc = name

    def rank(self):
        """This process's rank in the group."""
        return self._comm.rank

    def size(self):
        """How many ranks the group has."""
        return self._comm.size

    def name(self):
        """The name of the backend."""
        return str(self._backend)

    def abort(self):
        """Ends what is under way, here and at the other ranks."""
        self._comm.abort()


class GroupMember:
    """What stands for a group to a rank that is not in it."""
    WORLD, NON_GROUP_MEMBER = None, -100


class group:
    """Holds the group of all ranks."""
    WORLD = None


def is_available():
    """Whether processes can work together: whether there is an engine for them."""
    return _C._engine_available("gloo")


is_gloo_available = is_available


def is_nccl_available():
    """Whether there are devices that the backend nccl serves: simulated ones."""
    return _C._engine_available("nccl")


def is_backend_available(backend):
    """Whether the backend of a name is there."""
    return backend.lower() in ("gloo", "nccl") and _C._engine_available(backend.lower())


def is_initialized():
    """Whether this process has joined the group of all."""
    return group.WORLD is not None


def _asked(name, url):
    if name not in os.environ:
        raise ValueError(f"Error initializing torch.distributed using {url} rendezvous: environment variable {name} expected, but not set")
    return os.environ[name]


def _meet(url, rank, size, timeout):
    """The store that a URL means, and the rank and number of ranks that it or the environment says."""
    parts = urlparse(url)
    query = {name: int(values[0]) for name, values in parse_qs(parts.query).items() if name in ("rank", "world_size")}
    rank, size = query.get("rank", rank), query.get("world_size", size)
    if parts.scheme == "env":
        rank, size = (int(_asked(n, "env://")) if v == -1 else v for n, v in (("RANK", rank), ("WORLD_SIZE", size)))
        host, port = _asked("MASTER_ADDR", "env://"), int(_asked("MASTER_PORT", "env://"))
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
    # torchrun's store outlives a start of the ranks: what an earlier one left is not for this one.
    return PrefixStore(f"/worker/attempt_{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store) if agent else store, rank, size


def init_process_group(backend=None, init_method=None, timeout=None, world_size=-1, rank=-1, store=None,
                       group_name="", pg_options=None, device_id=None, **others):
    """Joins the group of all processes of a job. Without a store, by init_method: env://, which is
    the default, tcp://host:port or file:///path."""
    if is_initialized():
        raise ValueError("trying to initialize the default process group twice!")
    if pg_options is not None or others:
        raise NotImplementedError(f"init_process_group({'pg_options' if not others else next(iter(others))}=) is not implemented in Phlox")
    if store is not None and init_method is not None:
        raise AssertionError("Cannot specify both init_method and store.")
    if store is not None and (world_size <= 0 or rank < 0):
        raise AssertionError("world_size must be positive if using store" if world_size <= 0 else "rank must be non-negative if using store")
    backend, timeout = Backend(backend or ("nccl" if is_nccl_available() else "gloo")), timeout or default_pg_timeout
    if store is None:
        store, rank, world_size = _meet(init_method or "env://", rank, world_size, timeout)
    comm = _C._Comm(str(backend), PrefixStore("default_pg", store), rank, world_size, timeout)
    group.WORLD = GroupMember.WORLD = _groups["0"] = ProcessGroup(comm, backend, list(range(world_size)), "0", timeout, store)


def destroy_process_group(group=None):
    """Leaves a group, or, without one, all."""
    group = _group(group)
    for name in [name for name, one in _groups.items() if one is group or group is GroupMember.WORLD]:
        del _groups[name]
    if group is GroupMember.WORLD:
        globals()["group"].WORLD = GroupMember.WORLD = None
        _numbers.clear()


def _group(group):
    group = GroupMember.WORLD if group is None else group
    if group is None:
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
    return group


def _is_member(group):
    return _group(group) != GroupMember.NON_GROUP_MEMBER


def get_rank(group=None):
    """The rank in a group; -1 if this process is not in it."""
    return _group(group).rank() if _is_member(group) else -1


def get_world_size(group=None):
    """How many ranks a group has; -1 if this process is not in it."""
    return _group(group).size() if _is_member(group) else -1


def get_backend(group=None):
    """The name of a group's backend."""
    if not _is_member(group):
        raise ValueError("Invalid process group specified")
    return _group(group)._backend


def get_process_group_ranks(group):
    """The ranks of all that are in a group."""
    return list(_group(group)._ranks)


def get_group_rank(group, global_rank):
    """The rank in a group of one of all ranks."""
    ranks = _group(group)._ranks
    if global_rank not in ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}")
    return ranks.index(global_rank)


def get_global_rank(group, group_rank):
    """The rank of all of one in a group."""
    ranks = _group(group)._ranks
    if not 0 <= group_rank < len(ranks):
        raise ValueError(f"Group rank {group_rank} is not part of group {group}")
    return ranks[group_rank]


def get_node_local_rank(fallback_rank=None):
    """The rank among the processes of this host, as the environment tells it."""
    if "LOCAL_RANK" in os.environ or fallback_rank is not None:
        return int(os.environ.get("LOCAL_RANK", fallback_rank))
    raise RuntimeError("LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow `get_node_local_rank` to work, "
                       "assuming you are not running in a multi-device context and want the code to run locally instead.")


def new_group(ranks=None, timeout=None, backend=None, pg_options=None, use_local_synchronization=False,
              group_desc=None, device_id=None):
    """A group of some ranks. All processes call it, in the same order."""
    world = _group(None)
    ranks = sorted(ranks) if ranks is not None else list(world._ranks)
    if pg_options is not None:
        raise NotImplementedError("new_group(pg_options=) is not implemented in Phlox")
    if len(set(ranks)) < len(ranks) or not set(ranks) <= set(world._ranks) or not ranks:
        raise ValueError(f"the new group's ranks {ranks} should be different ones of the world's {world.size()}")
    key = tuple(ranks) if use_local_synchronization else ()
    _numbers[key] = _numbers.get(key, 0) + 1
    if world.rank() not in ranks:
        return GroupMember.NON_GROUP_MEMBER
    backend, timeout = Backend(backend or world._backend), timeout or default_pg_timeout
    name = f"{'_'.join(map(str, key))}#{_numbers[key]}"
    comm = _C._Comm(str(backend), PrefixStore(name, world._store), ranks.index(world.rank()), len(ranks), timeout)
    _groups[name] = made = ProcessGroup(comm, backend, ranks, group_desc or name, timeout, world._store)
    return made


# ---- collectives

def _tensors(name, given, is_list):
    if is_list and not (isinstance(given, (list, tuple)) and all(isinstance(t, torch.Tensor) for t in given)):
        raise TypeError(f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor]\n             but got {type(given)} instead.")
    if not is_list and not isinstance(given, torch.Tensor):
        raise TypeError(f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor\n             but got {type(given)} instead.")
    return list(given) if is_list else [given]


def _run(op, group, inputs=(), outputs=(), wait=True, own=False, **how):
    """Begins a collective of this process's group, and waits for it; None where it is in none. `own`:
    on the CPU whatever the backend."""
    if not _is_member(group):
        warnings.warn(f"Running {op} on global rank {get_rank()} which does not belong to the given group.")
        return None
    group = _group(group)
    if how.get("reduce") == ReduceOp.PREMUL_SUM:
        raise NotImplementedError("ReduceOp.PREMUL_SUM is not implemented in Phlox")
    if group._backend == "nccl" and not own and any(not t.is_cuda for t in (*inputs, *outputs)):
        raise RuntimeError("No backend type associated with device type cpu")
    work = group._comm.run(op, inputs, outputs, **how)
    return work.wait() and None if wait else work


def _root(group, rank, group_rank, least=0):
    """The root in a group, of which either rank is given."""
    if rank is not None and group_rank is not None:
        raise ValueError("Can't specify both group_src and src")
    if not _is_member(group) or (rank is None and group_rank is None and least == -1):
        return least
    return group_rank if group_rank is not None else get_group_rank(group, rank or 0)


def broadcast(tensor, src=None, group=None, async_op=False, group_src=None):
    """Gives all ranks the root's tensor, in place."""
    return _run("broadcast", group, (), _tensors("tensor", tensor, False), not async_op, peer=_root(group, src, group_src))


def all_reduce(tensor, op=ReduceOp.SUM, group=None, async_op=False):
    """Reduces the tensors of all ranks, in place."""
    return _run("all_reduce", group, (), _tensors("tensor", tensor, False), not async_op, reduce=op)


def reduce(tensor, dst=None, op=ReduceOp.SUM, group=None, async_op=False, group_dst=None):
    """Reduces the tensors of all ranks into the root's."""
    return _run("reduce", group, (), _tensors("tensor", tensor, False), not async_op, reduce=op, peer=_root(group, dst, group_dst))


def all_gather(tensor_list, tensor, group=None, async_op=False):
    """Gathers the tensors of all ranks in a list."""
    return _run("all_gather", group, _tensors("tensor", tensor, False), _tensors("tensor_list", tensor_list, True), not async_op)


def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
    """Gathers the tensors of all ranks in one."""
    return _run("all_gather", group, _tensors("input_tensor", input_tensor, False), _tensors("output_tensor", output_tensor, False), not async_op)


def reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None, async_op=False):
    """Reduces lists of tensors, of which each rank gets one."""
    return _run("reduce_scatter", group, _tensors("input_list", input_list, True), _tensors("output", output, False), not async_op, reduce=op)


def reduce_scatter_tensor(output, input, op=ReduceOp.SUM, group=None, async_op=False):
    """Reduces tensors, of which each rank gets a part."""
    return _run("reduce_scatter", group, _tensors("input", input, False), _tensors("output", output, False), not async_op, reduce=op)


def all_to_all(output_tensor_list, input_tensor_list, group=None, async_op=False):
    """Gives each rank one tensor of each other's list."""
    return _run("all_to_all", group, _tensors("input_tensor_list", input_tensor_list, True), _tensors("output_tensor_list", output_tensor_list, True), not async_op)


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None, async_op=False):
    """Gives each rank a part of each other's tensor, cut along the first dimension."""
    def counts(tensor, sizes):
        row = tensor.numel() // tensor.size(0) if tensor.dim() and tensor.size(0) else 1
        return [size * row for size in sizes] if sizes else None
    how = {"input_counts": counts(input, input_split_sizes), "output_counts": counts(output, output_split_sizes)}
    return _run("all_to_all", group, _tensors("input", input, False), _tensors("output", output, False), not async_op, **how)


def gather(tensor, gather_list=None, dst=None, group=None, async_op=False, group_dst=None):
    """Gathers the tensors of all ranks in the root's list."""
    root = _root(group, dst, group_dst)
    if _is_member(group) and (get_rank(group) == root) != bool(gather_list):
        raise ValueError("Argument ``gather_list`` must be specified on destination rank." if not gather_list
                         else "Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    return _run("gather", group, _tensors("tensor", tensor, False), gather_list or (), not async_op, peer=root)


def scatter(tensor, scatter_list=None, src=None, group=None, async_op=False, group_src=None):
    """Gives each rank one tensor of the root's list."""
    root = _root(group, src, group_src)
    if _is_member(group) and (get_rank(group) == root) != bool(scatter_list):
        raise ValueError("Argument ``scatter_list`` must be specified on source rank." if not scatter_list
                         else "Argument ``scatter_list`` must NOT be specified on non-source ranks.")
    return _run("scatter", group, scatter_list or (), _tensors("tensor", tensor, False), not async_op, peer=root)


def isend(tensor, dst=None, group=None, tag=0, group_dst=None):
    """Begins to send a tensor to a rank."""
    return _run("send", group, _tensors("tensor", tensor, False), (), False, peer=_root(group, dst, group_dst), tag=tag)


def irecv(tensor, src=None, group=None, tag=0, group_src=None):
    """Begins to receive a tensor from a rank, or from any."""
    return _run("recv", group, (), _tensors("tensor", tensor, False), False, peer=_root(group, src, group_src, -1), tag=tag)


def send(tensor, dst=None, group=None, tag=0, group_dst=None):
    """Sends a tensor to a rank."""
    work = isend(tensor, dst, group, tag, group_dst)
    work and work.wait()


def recv(tensor, src=None, group=None, tag=0, group_src=None):
    """Receives a tensor, and gives the rank that it came from."""
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    rank = work.source_rank()
    return get_global_rank(group, rank) if rank >= 0 else src


class P2POp:
    """A send or receive of batch_isend_irecv."""

    def __init__(self, op, tensor, peer=None, group=None, tag=0, group_peer=None):
        if op not in (isend, irecv):
            raise ValueError("Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or ``torch.distributed.irecv``.")
        self.op, self.tensor, self.peer, self.group, self.tag, self.group_peer = op, tensor, peer, group, tag, group_peer


def batch_isend_irecv(p2p_op_list):
    """Begins several sends and receives."""
    if not p2p_op_list or not all(isinstance(op, P2POp) for op in p2p_op_list):
        raise ValueError("Invalid ``p2p_op_list``. Each op is expected to to be of type ``torch.distributed.P2POp``.")
    return [op.op(op.tensor, op.peer, op.group, op.tag, op.group_peer) for op in p2p_op_list]


def barrier(group=None, async_op=False, device_ids=None):
    """Waits for all ranks of a group."""
    if _is_member(group) and get_backend(group) == "nccl":
        torch.cuda.current_stream().synchronize()
    return _run("barrier", group, wait=not async_op)


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """Waits for all ranks of a group; rank 0 says which did not come in time."""
    if _is_member(group):
        if get_backend(group) != "gloo":
            raise ValueError("monitored_barrier is only implemented for GLOO backend.")
        _group(group)._comm.monitored_barrier(timeout or _group(group)._timeout, wait_all_ranks)


# ---- objects

def _packed(object):
    data = pickle.dumps(object)
    return _C._bytes_tensor(data), torch.tensor([len(data)])


def _unpacked(tensor, size):
    return pickle.loads(_C._tensor_bytes(tensor, int(size)))


def _all_packed(object, group):
    """What all ranks have packed, in tensors of one size, with the sizes."""
    data, size = _packed(object)
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(get_world_size(group))]
    _run("all_gather", group, [size], sizes, own=True)
    longest = max(map(int, sizes))
    return torch.cat([data, torch.zeros(longest - len(data), dtype=torch.uint8)]), sizes, longest


def all_gather_object(object_list, obj, group=None):
    """Gathers objects that can be pickled. Unpickling runs code: ranks trust each other."""
    if not _is_member(group):
        return
    data, sizes, longest = _all_packed(obj, group)
    every = [torch.empty(longest, dtype=torch.uint8) for _ in sizes]
    _run("all_gather", group, [data], every, own=True)
    object_list[:len(every)] = map(_unpacked, every, sizes)


def gather_object(obj, object_gather_list=None, dst=None, group=None, group_dst=None):
    """Gathers objects in the root's list."""
    if not _is_member(group):
        return
    every = [None] * get_world_size(group)
    all_gather_object(every, obj, group)
    if get_rank(group) == _root(group, dst, group_dst):
        object_gather_list[:] = every


def broadcast_object_list(object_list, src=None, group=None, device=None, group_src=None):
    """Gives all ranks the root's objects."""
    if not _is_member(group):
        return
    root = _root(group, src, group_src)
    data, size = _packed(list(object_list))
    _run("broadcast", group, (), [size], own=True, peer=root)
    data = data if get_rank(group) == root else torch.empty(int(size), dtype=torch.uint8)
    _run("broadcast", group, (), [data], own=True, peer=root)
    if get_rank(group) != root:
        object_list[:] = _unpacked(data, size)


def scatter_object_list(scatter_object_output_list, scatter_object_input_list=None, src=None, group=None, group_src=None):
    """Gives each rank one of the root's objects."""
    every = [scatter_object_input_list]
    broadcast_object_list(every, src, group, None, group_src)
    if _is_member(group):
        scatter_object_output_list[0] = every[0][get_rank(group)]


def is_torchelastic_launched():
    """Whether torchrun has started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


_C._name_missing(__name__)
