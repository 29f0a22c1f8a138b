# SPDX-License-Identifier: Apache-2.0
"""The writers of tensorboardX, which are given arrays for tensors."""
import functools

import tensorboardX
from tensorboardX import FileWriter  # noqa: F401

from ._arrays import plain


def _adding(name, add):
    @functools.wraps(add)
    def method(self, *args, **options):
        if name == "add_graph":
            raise NotImplementedError("SummaryWriter.add_graph is not implemented in Phlox")
        return add(self, *map(plain, args), **plain(options))

    return method


SummaryWriter = type("SummaryWriter", (tensorboardX.SummaryWriter,), {
    name: _adding(name, add) for name, add in vars(tensorboardX.SummaryWriter).items()
    if name.startswith("add_")})
