# SPDX-License-Identifier: Apache-2.0
"""A model of the rules by which PyTorch's caching allocator places blocks, as its documentation and comments publish them, without expandable segments:
two pools, free blocks of each stream, best fit, blocks that are split and joined, segments that go back to the device whole and only when memory is short.
Work is done as soon as it is issued, so a block that the program lets go of is free at once."""
import bisect

MiB = 1 << 20


class Block:
    def __init__(self, address, size, stream, small):
        self.address, self.size, self.stream, self.small = address, size, stream, small
        self.before = self.after = None  # in its segment
        self.free = False

    def key(self):
        return self.size, self.address


class Allocator:
    def __init__(self, limit=float("inf")):
        self.limit, self.reserved, self.most, self.live, self.most_live = limit, 0, 0, 0, 0
        self.next, self.free, self.blocks = 0, {}, {}  # free: sorted (size, address) by stream and pool; blocks: those, by address

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
            self.give_back()
        if self.reserved + whole > self.limit:
            return None
        self.reserved += whole
        self.most = max(self.most, self.reserved)
        at, self.next = self.next, self.next + whole
        return Block(at, whole, stream, small)

    def give_back(self):
        """Segments of which nothing is in use."""
        for listed in self.free.values():
            for _, address in list(listed):
                block = self.blocks[address]
                if block.before is None and block.after is None:
                    self._unlist(block)
                    self.reserved -= block.size

    def take(self, size, stream):
        """A block, or None where memory is short."""
        size = max(512, -(-size // 512) * 512)
        small = size <= MiB
        block = self._fit(size, stream, small) or self._segment(size, stream, small)
        if block is None:
            return None
        left = block.size - size
        if left >= 512 if small else left > MiB:
            rest = Block(block.address + size, left, stream, small)
            rest.before, rest.after, block.after = block, block.after, rest
            if rest.after:
                rest.after.before = rest
            block.size = size
            self._list(rest)
        self.live += block.size
        self.most_live = max(self.most_live, self.live)
        return block

    def let(self, block):
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
    """The allocator after a trace (bench/record.py), or None where the limit did not do."""
    allocator, live = Allocator(limit), {}
    for key, size, stream in events:
        if size is None:
            if key in live:
                allocator.let(live.pop(key))
        elif (block := allocator.take(size, stream)) is None:
            return None
        else:
            live[key] = block
    return allocator
