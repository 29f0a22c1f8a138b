# SPDX-License-Identifier: Apache-2.0
"""torch.utils.flop_counter, as far as it is: a counter that has counted nothing."""


class FlopCounterMode:
    """What programs make before they know whether they will count: until it is entered, which
    raises NotImplementedError, it has counted nothing."""

    def __init__(self, mods=None, depth=2, display=True, custom_mapping=None):
        self.depth, self.display = depth, display

    def __enter__(self):
        raise NotImplementedError("torch.utils.flop_counter.FlopCounterMode is not implemented in Phlox: "
                                  "the operations of a model are not counted")

    def __exit__(self, *error):
        """Nothing was entered."""

    def get_total_flops(self):
        return 0

    def get_flop_counts(self):
        return {"Global": {}}
