# SPDX-License-Identifier: Apache-2.0
"""A model of PyTorch's caching allocator without expandable segments, from its documentation and comments: two pools, free lists per stream, best fit,
splitting and merging of blocks. Segments are released only as a whole, and only if memory is short. Work completes immediately: a freed block is reusable
at once."""
import bisect

MiB = 1 << 20


class Block:
    def __init__(self, address, size, stream, small):
        self.address, self.size, self.stream, self.small = address, size, stream, small
        self.before = self.after = None  # neighbours in the segment
        self.free = False

    def key(self):
        return self.size, self.address


class Allocator:
    def __init__(self, limit=float("inf")):
        self.limit, self.reserved, self.peak, self.live, self.peak_live = limit, 0, 0, 0, 0
        self.next, self.free, self.blocks = 0, {}, {}  # free: (stream, pool) -> sorted list of (size, address); blocks: free blocks by address

    def _list(self, block):
        block.free = True
        bisect.insort(self.free.setdefault((block.stream, block.small), []), block.key())
        self.blocks[block.address] = block

    def _unlist(self, block):
        listed = self.free[block.stream, block.small]
        del listed[bisect.bisect_left(listed, block.key())]
        block.free = False

    def _fit(self, size, stream, small):
        listed = self.free.get((stream, small), ())
        at = bisect.bisect_left(listed, (size, 0))
        if at == len(listed):
            return None
        block = self.blocks[listed[at][1]]
        self._unlist(block)
        return block

    def _segment(self, size, stream, small):
        whole = 2 * MiB if small else 20 * MiB if size < 10 * MiB else -(-size // (2 * MiB)) * 2 * MiB
        if self.reserved + whole > self.limit:
            self.release_cached()
        if self.reserved + whole > self.limit:
            return None
        self.reserved += whole
        self.peak = max(self.peak, self.reserved)
        at, self.next = self.next, self.next + whole
        return Block(at, whole, stream, small)

    def release_cached(self):
        """Releases segments without live blocks."""
        for listed in self.free.values():
            for _, address in list(listed):
                block = self.blocks[address]
                if block.before is None and block.after is None:
                    self._unlist(block)
                    self.reserved -= block.size

    def allocate(self, size, stream):
        """Returns a block, or None if memory is short."""
        size = max(512, -(-size // 512) * 512)
        small = size <= MiB
        block = self._fit(size, stream, small) or self._segment(size, stream, small)
        if block is None:
            return None
        left = block.size - size
        if left >= 512 if small else left > MiB:
            remainder = Block(block.address + size, left, stream, small)
            remainder.before, remainder.after, block.after = block, block.after, remainder
            if remainder.after:
                remainder.after.before = remainder
            block.size = size
            self._list(remainder)
        self.live += block.size
        self.peak_live = max(self.peak_live, self.live)
        return block

    def release(self, block):
        self.live -= block.size
        for other in block.before, block.after:
            if other and other.free:
                self._unlist(other)
                block.address, block.size = min(block.address, other.address), block.size + other.size
                if other is block.before:
                    block.before = other.before
                    if block.before:
                        block.before.after = block
                else:
                    block.after = other.after
                    if block.after:
                        block.after.before = block
        self._list(block)


def run(events, limit=float("inf")):
    """Replays a trace (bench/record.py). Returns the allocator, or None if the limit was exceeded."""
    allocator, live = Allocator(limit), {}
    for key, size, stream in events:
        if size is None:
            if key in live:
                allocator.release(live.pop(key))
        elif (block := allocator.allocate(size, stream)) is None:
            return None
        else:
            live[key] = block
    return allocator
