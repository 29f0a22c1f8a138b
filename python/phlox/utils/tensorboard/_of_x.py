# SPDX-License-Identifier: Apache-2.0
"""Wraps tensorboardX's writers: tensors are converted to arrays."""
import functools

import tensorboardX
from tensorboardX import FileWriter  # noqa: F401

from ._arrays import to_arrays


def _converting(name, add):
    @functools.wraps(add)
    def method(self, *args, **options):
        if name == "add_graph":
            raise NotImplementedError("SummaryWriter.add_graph is not implemented in Phlox")
        return add(self, *map(to_arrays, args), **to_arrays(options))

    return method


SummaryWriter = type("SummaryWriter", (tensorboardX.SummaryWriter,), {
    name: _converting(name, add) for name, add in vars(tensorboardX.SummaryWriter).items()
    if name.startswith("add_")})
