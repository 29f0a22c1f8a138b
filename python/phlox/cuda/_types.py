# SPDX-License-Identifier: Apache-2.0
"""torch.cuda.FloatTensor and the like."""
from phlox._legacy import types

globals().update(types("torch.cuda", "cuda"))
