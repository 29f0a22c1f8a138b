# SPDX-License-Identifier: Apache-2.0
"""The part of torch.distributed.elastic used by torchrun's ranks."""
