# SPDX-License-Identifier: Apache-2.0
"""ZeroRedundancyOptimizer: optimiser state partitioned over the ranks."""
import sys

from phlox import _C
from phlox.distributed.algorithms.join import Join, Joinable, JoinHook
from phlox.utils._pytree import tree_map_only

torch = sys.modules[__name__.partition(".")[0]]


class ZeroRedundancyOptimizer(torch.optim.Optimizer, Joinable):
    """Steps a subset of the parameters on each rank with an optimizer_class, then broadcasts the updated parameters.

    params: must be the same on all ranks. process_group: None is all ranks. parameters_as_bucket_view:
    a rank's parameters become views of one buffer, which is broadcast without copies. Gradients must
    be equal on all ranks, as after DistributedDataParallel's backward."""

    def __init__(self, params, optimizer_class, process_group=None, parameters_as_bucket_view=False, overlap_with_ddp=False, **defaults):
        if overlap_with_ddp:
            raise NotImplementedError("ZeroRedundancyOptimizer(overlap_with_ddp=) is not implemented in Phlox")
        self.process_group = process_group or torch.distributed.group.WORLD
        self.rank, self.world_size = self.process_group.rank(), self.process_group.size()
        self.parameters_as_bucket_view, self._optim_defaults, self._class, self._all_state_dicts = parameters_as_bucket_view, defaults, optimizer_class, []
        self._buckets = self.optim = None
        Joinable.__init__(self)
        super().__init__(params, defaults)
        self._repartition()

    def _repartition(self):
        """Partitions the parameters again. Existing parameters keep their owner, since new groups are appended."""
        groups = [group["params"] for group in self.param_groups]
        self._owners = _C._partition(groups, self.world_size)
        mine = [{**group, "params": [p for p, owner in zip(group["params"], owners) if owner == self.rank]}
                for group, owners in zip(self.param_groups, self._owners)]
        if self.optim is None:
            self.optim = self._class(mine, **self._optim_defaults)
        else:
            self.optim.add_param_group(mine[-1])
        for group, own in zip(self.param_groups, self.optim.param_groups):  # the optimiser's options
            group.update((key, value) for key, value in own.items() if key != "params")
        self._flat = [(p, owner) for group, owners in zip(groups, self._owners) for p, owner in zip(group, owners)]
        self._buckets = self._make_buckets() if self.parameters_as_bucket_view else None

    def _make_buckets(self):
        buckets = []
        for owner in range(self.world_size):
            for dtype in {p.dtype: None for p, rank in self._flat if rank == owner}:
                own = [p for p, rank in self._flat if rank == owner and p.dtype == dtype]
                whole = torch.cat([p.detach().reshape(-1) for p in own])
                for p, part in zip(own, whole.split([p.numel() for p in own])):
                    p.data = part.view_as(p)
                buckets.append((whole, owner))
        return buckets

    def add_param_group(self, param_group):
        """Adds a parameter group and partitions it over the ranks."""
        super().add_param_group(param_group)
        if self.optim is not None:
            self._repartition()

    def step(self, closure=None, **kwargs):
        """Steps this rank's parameters, then broadcasts them."""
        Join.notify_join_context(self)
        for group, own in zip(self.param_groups, self.optim.param_groups):
            own.update((key, value) for key, value in group.items() if key != "params")
        loss = self.optim.step(closure=closure, **kwargs) if closure is not None else self.optim.step(**kwargs)
        tensors, owners = zip(*(self._buckets or [(p.detach(), owner) for p, owner in self._flat]))
        _C._share_owned(self.process_group, tensors, owners)
        return loss

    def join_hook(self, **kwargs):
        """Returns the join hook: a rank without inputs still steps, with gradients set by an earlier joinable."""
        hook = JoinHook()
        hook.main_hook = self.step
        return hook

    join_device = property(lambda self: self._flat[0][0].device, doc="The device for the join context's collectives.")
    join_process_group = property(lambda self: self.process_group, doc="The group for the join context's collectives.")

    def consolidate_state_dict(self, to=0):
        """Gathers the states of all ranks on rank `to`. Must be called by all ranks before state_dict()."""
        state = tree_map_only(torch.Tensor, lambda t: t.cpu(), self.optim.state_dict())
        self._all_state_dicts = [None] * self.world_size if self.rank == to else []
        torch.distributed.gather_object(state, self._all_state_dicts if self.rank == to else None, group=self.process_group, group_dst=to)

    def state_dict(self):
        """Returns the consolidated state. Requires consolidate_state_dict on this rank."""
        if not self._all_state_dicts:
            raise RuntimeError("Optimizer state has not been consolidated on this rank. Please call `consolidate_state_dict(to=...)` on all ranks "
                               "beforehand if you meant to save the global state.")
        whole, at = super().state_dict(), 0
        whole["state"], counts = {}, [0] * self.world_size
        for _, owner in self._flat:
            saved = self._all_state_dicts[owner]["state"]
            if counts[owner] in saved:
                whole["state"][at] = saved[counts[owner]]
            at, counts[owner] = at + 1, counts[owner] + 1
        return whole

    def load_state_dict(self, state_dict):
        """Loads this rank's part of a consolidated state. The number of ranks may differ."""
        mine, positions = {}, [i for i, (_, owner) in enumerate(self._flat) if owner == self.rank]
        for i, position in enumerate(positions):
            if position in state_dict["state"]:
                mine[i] = state_dict["state"][position]
        groups = [{**saved, "params": own["params"]} for saved, own in zip(state_dict["param_groups"], self.optim.state_dict()["param_groups"])]
        self.optim.load_state_dict({"state": mine, "param_groups": groups})
        for group, saved in zip(self.param_groups, state_dict["param_groups"]):
            group.update((key, value) for key, value in saved.items() if key != "params")
