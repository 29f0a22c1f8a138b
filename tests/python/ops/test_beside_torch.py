# SPDX-License-Identifier: Apache-2.0
"""Phlox and PyTorch in one process on one GPU: memory is shared in both directions, and random numbers are equal."""
import unittest

import phlox

try:
    import torch
    torch = None if "phlox" in (torch.__file__ or "") else torch
except ImportError:
    torch = None


def missing():
    if torch is None: return "PyTorch is not installed for this Python"
    if not torch.cuda.is_available(): return "this PyTorch has no CUDA device"
    if phlox.cuda._backend_name() != "cuda": return "Phlox has no NVIDIA GPU"
    return None


REASON = missing()
DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
FLOATS = DTYPES[6:]
BIG = 1 << 26


def queue_work(library, count=200):
    """Queues about ten milliseconds of work on the library's current stream."""
    x = library.ones(BIG, device="cuda")
    for _ in range(count):
        x.mul_(1.0)
    return x


@unittest.skipIf(REASON, REASON)
class Sharing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for library in (phlox, torch):  # the first use loads the kernels, which may synchronize the device
            x = library.ones(1000, device="cuda")
            x.mul_(1.0).fill_(2), (x + 1).clone().min().item(), x.max().item()

    def setUp(self):
        phlox.cuda.synchronize()
        torch.cuda.synchronize()

    def test_every_dtype_is_shared(self):
        for giver, taker in ((phlox, torch), (torch, phlox)):
            for name in DTYPES:
                with self.subTest(giver=giver.__name__, dtype=name):
                    a = giver.arange(6, device="cuda").to(getattr(giver, name)).view(2, 3)
                    b = taker.from_dlpack(a)
                    self.assertEqual((b.data_ptr(), b.dtype), (a.data_ptr(), getattr(taker, name)))
                    self.assertEqual((tuple(b.shape), b.stride(), str(b.device)), ((2, 3), (3, 1), "cuda:0"))
                    self.assertEqual(b.tolist(), a.tolist())
                    b[1, 2] = 0
                    taker.cuda.synchronize()
                    self.assertEqual(a[1, 2].item(), 0)

    def test_views_keep_strides_and_offset(self):
        for giver, taker in ((phlox, torch), (torch, phlox)):
            base = giver.arange(24.0, device="cuda").view(4, 6)
            for view in (base.t(), base[1:, 2:5], base[2], base[:, ::2], base[1, 1], base[:0]):
                got = taker.from_dlpack(view)
                self.assertEqual((tuple(got.shape), got.tolist()), (tuple(view.shape), view.tolist()))
                if view.numel():
                    self.assertEqual((got.data_ptr(), got.stride()), (view.data_ptr(), view.stride()))

    def test_pytorch_waits_for_phlox_stream(self):
        for side in (False, True):
            for side_of_torch in (False, True):
                mine = phlox.cuda.Stream() if side else phlox.cuda.default_stream()
                theirs = torch.cuda.Stream() if side_of_torch else torch.cuda.default_stream()
                with self.subTest(phlox=side, torch=side_of_torch), phlox.cuda.stream(mine):
                    a = phlox.zeros(1000, device="cuda")
                    queue_work(phlox)
                    a.fill_(7)
                    with torch.cuda.stream(theirs):
                        got = torch.from_dlpack(a) + 1
                    self.assertFalse(mine.query())  # the host did not wait
                    theirs.synchronize()
                    self.assertEqual(got.unique().tolist(), [8])

    def test_phlox_waits_for_pytorch_stream(self):
        for side in (False, True):
            for side_of_torch in (False, True):
                mine = phlox.cuda.Stream() if side else phlox.cuda.default_stream()
                theirs = torch.cuda.Stream() if side_of_torch else torch.cuda.default_stream()
                with self.subTest(phlox=side, torch=side_of_torch), torch.cuda.stream(theirs):
                    a = torch.zeros(1000, device="cuda")
                    queue_work(torch)
                    a.fill_(7)
                    with phlox.cuda.stream(mine):
                        got = phlox.from_dlpack(a) + 1
                    self.assertFalse(theirs.query())
                    mine.synchronize()
                    self.assertEqual((got.min().item(), got.max().item()), (8, 8))

    def test_memory_lives_until_last_reference(self):
        for giver, taker in ((phlox, torch), (torch, phlox)):
            giver.cuda.synchronize()
            before = giver.cuda.memory_allocated()
            a = giver.full((1 << 20,), 3.0, device="cuda")
            b = taker.from_dlpack(a)
            del a
            self.assertEqual(giver.cuda.memory_allocated(), before + (4 << 20))
            self.assertEqual(b.sum().item(), 3 << 20)
            view = b[5:10]
            del b
            self.assertEqual(view.tolist(), [3.0] * 5)
            del view
            self.assertEqual(giver.cuda.memory_allocated(), before)

    def test_unused_capsule_frees_memory(self):
        before = phlox.cuda.memory_allocated()
        capsule = phlox.ones(1000, device="cuda").__dlpack__()
        self.assertGreater(phlox.cuda.memory_allocated(), before)
        del capsule
        self.assertEqual(phlox.cuda.memory_allocated(), before)

    def test_memory_is_not_reused_during_pytorch_work(self):
        a = phlox.full((BIG,), 5.0, device="cuda")
        address = a.data_ptr()
        b = torch.from_dlpack(a)
        queue_work(torch)
        copy = b.clone()
        del a, b
        again = phlox.zeros(BIG, device="cuda")
        torch.cuda.synchronize()
        phlox.cuda.synchronize()
        self.assertEqual((copy.min().item(), copy.max().item()), (5, 5))
        del again
        self.assertNotEqual(address, 0)

    def test_memory_is_not_reused_during_phlox_work(self):
        a = torch.full((BIG,), 5.0, device="cuda")
        b = phlox.from_dlpack(a)
        queue_work(phlox)
        copy = b.clone()
        del a, b
        again = torch.zeros(BIG, device="cuda")
        torch.cuda.synchronize()
        phlox.cuda.synchronize()
        self.assertEqual((copy.min().item(), copy.max().item()), (5, 5))
        del again

    def test_dlpack_arguments(self):
        a = phlox.ones(2, device="cuda")
        self.assertEqual(a.__dlpack_device__(), (2, 0))
        self.assertRaisesRegex(AssertionError, "unsupported stream", a.__dlpack__, stream=0)
        self.assertRaises(TypeError, a.__dlpack__, stream="1")
        for stream in (None, -1, 1, 2, torch.cuda.Stream().cuda_stream, phlox.cuda.Stream().cuda_stream):
            a.__dlpack__(stream=stream)
        self.assertEqual(torch.from_dlpack(a.__dlpack__(dl_device=(1, 0))).device.type, "cpu")
        self.assertNotEqual(torch.from_dlpack(a.__dlpack__(copy=True)).data_ptr(), a.data_ptr())
        self.assertRaises(BufferError, phlox.ones(1, device="cuda", requires_grad=True).__dlpack__)

    def test_autograd_on_shared_tensors(self):
        w = torch.ones(3, device="cuda") * 2
        x = phlox.from_dlpack(w).requires_grad_()
        (x * x).sum().backward()
        self.assertEqual(torch.from_dlpack(x.grad).tolist(), [4, 4, 4])


# n: one thread, one block and its neighbours, and more than one pass of the largest grid on an H200.
SIZES = [1, 2, 5, 255, 256, 257, 1023, 1025, 4097, 270336, 1081343, 1081344, 1081345, 3000001]


@unittest.skipIf(REASON, REASON)
class Philox(unittest.TestCase):
    def seed(self, number=3):
        for library in (phlox, torch):
            library.cuda.manual_seed(number)

    def check(self, draw, tolerance=0.0, **what):
        """Checks that draw(library) returns equal numbers on a CUDA device and leaves the generators in equal states."""
        with self.subTest(**what):
            wanted = draw(torch)
            got = torch.from_dlpack(draw(phlox))
            self.assertEqual((got.dtype, got.shape), (wanted.dtype, wanted.shape))
            if tolerance:
                apart = (got.double() - wanted.double()).abs() / wanted.double().abs().clamp(min=1)
                self.assertLessEqual(apart.max().item(), tolerance)
            else:
                where = (got != wanted).nonzero().flatten().tolist()
                self.assertEqual(len(where), 0, f"first at {where[:4]}: {got.flatten()[where[:4]].tolist()}, not "
                                                f"{wanted.flatten()[where[:4]].tolist()}")
        states = [library.cuda.get_rng_state().tolist() for library in (phlox, torch)]
        self.assertEqual(*states, what)
        self.assertEqual(len(states[0]), 16)

    def each(self, name, make, dtypes=("float32",), tolerance=None, sizes=SIZES):
        self.seed()
        for dtype in dtypes:
            for n in sizes:
                self.check(lambda library: make(library, n, getattr(library, dtype)),
                           (tolerance or {}).get(dtype, 0.0), name=name, dtype=dtype, n=n)

    def empty(self, library, n, dtype):
        return library.empty(n, dtype=dtype, device="cuda")

    NEAR = {"float32": 1e-6, "float64": 1e-12, "float16": 1e-3, "bfloat16": 8e-3}

    def test_rand(self):
        self.each("rand", lambda lib, n, dtype: lib.rand(n, dtype=dtype, device="cuda"), FLOATS)

    def test_uniform(self):
        self.each("uniform_", lambda lib, n, dtype: self.empty(lib, n, dtype).uniform_(-2, 5), FLOATS)

    def test_randn(self):
        self.each("randn", lambda lib, n, dtype: lib.randn(n, dtype=dtype, device="cuda"), FLOATS, self.NEAR)

    def test_normal(self):
        near = {k: 4 * v for k, v in self.NEAR.items()}
        self.each("normal_", lambda lib, n, dtype: self.empty(lib, n, dtype).normal_(1, 3), FLOATS, near)

    def test_randint(self):
        whole = ("uint8", "int8", "int16", "int32", "int64", "float32", "float16")
        self.each("randint", lambda lib, n, dtype: lib.randint(0, 100, (n,), dtype=dtype, device="cuda"), whole)
        self.each("wide randint", lambda lib, n, dtype: lib.randint(-5, 1 << 40, (n,), dtype=dtype, device="cuda"),
                  ("int64",))
        self.each("negative randint", lambda lib, n, dtype: lib.randint(-50, -3, (n,), dtype=dtype, device="cuda"),
                  ("int64", "int32"))

    def test_random(self):
        self.each("random_", lambda lib, n, dtype: self.empty(lib, n, dtype).random_(), DTYPES)
        self.each("random_(to)", lambda lib, n, dtype: self.empty(lib, n, dtype).random_(100), DTYPES[1:])
        self.each("random_(from, to)", lambda lib, n, dtype: self.empty(lib, n, dtype).random_(3, 17), DTYPES[1:])

    def test_bernoulli(self):
        self.each("bernoulli_", lambda lib, n, dtype: self.empty(lib, n, dtype).bernoulli_(0.3), FLOATS + ["int64", "bool"])
        self.each("bernoulli", lambda lib, n, dtype: lib.bernoulli(lib.full((n,), 0.7, dtype=dtype, device="cuda")), FLOATS)

    def test_dropout(self):
        for p in (0.1, 0.5):
            self.each(f"dropout {p}", lambda lib, n, dtype: lib.nn.functional.dropout(
                lib.ones(n, dtype=dtype, device="cuda"), p), FLOATS)

    def test_dropout_of_non_contiguous(self):
        self.seed()
        for shape in ((5, 7), (300, 1001), (1030, 1050)):
            self.check(lambda lib: lib.nn.functional.dropout(lib.ones(shape, device="cuda").t(), 0.5).contiguous(),
                       shape=shape)

    def test_randperm(self):
        self.each("randperm", lambda lib, n, dtype: lib.randperm(n, dtype=dtype, device="cuda"), ("int64",),
                  sizes=[1, 2, 5, 100, 1000, 29999, 30000, 30001, 100000, 1000003])

    def test_exponential(self):
        self.each("exponential_", lambda lib, n, dtype: self.empty(lib, n, dtype).exponential_(0.5), ("float32", "float64"),
                  {"float32": 4e-6, "float64": 1e-12})

    def test_like(self):
        self.seed()
        self.check(lambda lib: lib.rand_like(lib.zeros(3, 70, device="cuda")), name="rand_like")
        self.check(lambda lib: lib.randn_like(lib.zeros(3, 70, device="cuda")), 1e-6, name="randn_like")
        self.check(lambda lib: lib.normal(1.0, 2.0, (3, 70), device="cuda"), 4e-6, name="normal")

    def test_layer_initialization(self):
        for kind, arguments in (("Linear", (784, 100)), ("Conv2d", (3, 16, 3)), ("Embedding", (100, 20))):
            self.seed(11)
            mine, theirs = (getattr(lib.nn, kind)(*arguments, device="cuda") for lib in (phlox, torch))
            for a, b in zip(mine.parameters(), theirs.parameters()):
                apart = (torch.from_dlpack(a.detach()) - b.detach()).abs().max().item()
                self.assertLessEqual(apart, 1e-6 if kind == "Embedding" else 0, kind)

    def test_sequences_advance_offset_equally(self):
        self.seed(5)
        for n in (3, 4096, 2000003):
            for draw in (lambda lib: lib.rand(n, device="cuda"), lambda lib: lib.randint(9, (n,), device="cuda"),
                         lambda lib: lib.nn.functional.dropout(lib.ones(n, device="cuda")),
                         lambda lib: self.empty(lib, n, lib.float32).bernoulli_(0.5)):
                self.check(draw, n=n)
            self.check(lambda lib: lib.randn(n, device="cuda"), 1e-6, n=n)

    def test_states_transfer_between_libraries(self):
        self.seed(8)
        phlox.rand(1000, device="cuda")
        torch.cuda.set_rng_state(torch.tensor(phlox.cuda.get_rng_state().tolist(), dtype=torch.uint8))
        self.check(lambda lib: lib.rand(1000, device="cuda"))
        phlox.cuda.set_rng_state(phlox.tensor(torch.cuda.get_rng_state().tolist(), dtype=phlox.uint8))
        self.check(lambda lib: lib.rand(1000, device="cuda"))

    def test_generators(self):
        def draw(lib):
            generator = lib.Generator("cuda")
            generator.manual_seed(77)
            return lib.rand(500, device="cuda", generator=generator)
        self.check(draw)


if __name__ == "__main__":
    unittest.main()
