# SPDX-License-Identifier: Apache-2.0
"""torch.accelerator.Graph: a graph that captures the current stream within a `with` statement."""
from __future__ import annotations

from typing import Any

from phlox import accelerator, cuda


class Graph(cuda.CUDAGraph):
    """Captures work of the current stream, and replays it.

    Args:
        keep_graph (bool): keeps the captured graph after capture_end; the first replay instantiates it
        pool (tuple of int): a memory pool to share, as from `pool()`
        capture_error_mode (str): "default", "global", "thread_local" or "relaxed"; see torch.cuda.graph

    Example::

        >>> x = torch.zeros(2000, device="cuda")
        >>> graph = torch.accelerator.Graph()
        >>> with torch.cuda.Stream(), graph:
        ...     x += 1
        >>> graph.replay()
    """

    def __new__(cls, keep_graph: bool = False, *, pool: tuple[int, int] | None = None, capture_error_mode: str = "default") -> Graph:
        return super().__new__(cls, keep_graph)

    def __init__(self, keep_graph: bool = False, *, pool: tuple[int, int] | None = None, capture_error_mode: str = "default") -> None:
        super().__init__()
        if capture_error_mode not in ("default", "global", "thread_local", "relaxed"):
            raise ValueError(f"capture_error_mode must be 'default', 'global', 'thread_local' or 'relaxed', but got {capture_error_mode!r}")
        self.graph_pool, self.capture_error_mode = pool, capture_error_mode

    def capture_begin(self) -> None:  # type: ignore[override]
        """Begins the capture of the current stream."""
        mode = "global" if self.capture_error_mode == "default" else self.capture_error_mode
        super().capture_begin(pool=self.graph_pool, capture_error_mode=mode)

    def __enter__(self) -> None:
        accelerator.synchronize()
        cuda.empty_cache()
        cuda._empty_host_cache()
        self.capture_begin()

    def __exit__(self, *exc_info: Any) -> None:
        self.capture_end()
