# SPDX-License-Identifier: Apache-2.0
"""Mixed precision: the dtypes of every sampled op under autocast; regions, decorators and threads; custom functions; gradient scaling. Compared
with PyTorch if a recent one is installed. A PyTorch without CUDA predicts its dtypes on CUDA with fake tensors."""
import copy
import itertools
import logging
import math
import pickle
import random
import threading
import unittest
import warnings

import peer
import phlox
import phlox as torch
import samples
from peer import newest as pytorch
from phlox import nn

if pytorch:
    from torch._subclasses.fake_tensor import FakeTensorMode
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)

F = nn.functional
SIMULATED = torch.cuda.device_count() > 0
LOWER = {"cuda": "float16", "cpu": "bfloat16"}
DEVICES = ["cpu"] + ["cuda"] * SIMULATED
# On the CPU, PyTorch's roll is a cat of parts; native_layer_norm returns statistics of the input's dtype; local_response_norm pools images as
# volumes; and recurrent networks promote a product in the lower dtype with a state in another.
OTHERS = {"roll", "native_layer_norm", "local_response_norm", "lstm"}
PROMOTED = {"gru", "gru_cell", "lstm_cell"}


def map_tensors(value, change):
    """Applies `change` to the tensors of an argument."""
    if isinstance(value, list): return [map_tensors(item, change) for item in value]
    return change(value) if hasattr(value, "dtype") else value


def result_dtypes(library, name, sample, dtype, device):
    """The dtypes of the results under autocast, or the error; None if the library lacks the op."""
    args, keywords = samples.arguments(library, *sample, dtype)
    mode = FakeTensorMode(allow_non_fake_inputs=True) if library is pytorch and device == "cuda" else None
    if mode: args, keywords = (map_tensors(args, mode.from_tensor), {key: map_tensors(value, mode.from_tensor) for key, value in keywords.items()})
    if mode: mode.__enter__()
    try:
        args, keywords = map_tensors(args, lambda t: t.to(device)), {key: map_tensors(value, lambda t: t.to(device)) for key, value in keywords.items()}
        return call_op(library, name, args, keywords, device)
    finally:
        if mode: mode.__exit__(None, None, None)


def call_op(library, name, args, keywords, device):
    error = None
    for namespace in (library.nn.functional, library, args[0] if args else library):
        function = getattr(namespace, name, None)
        if function is None: continue
        method = args and namespace is args[0]
        library.set_autocast_enabled(device, True)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = function(*args[bool(method):], **keywords)
            results = result if isinstance(result, (tuple, list)) else [result]
            return [str(one.dtype) for one in results if isinstance(one, library.Tensor)]
        except Exception as e:
            error = error or e
        finally:
            library.set_autocast_enabled(device, False)
    return error


@unittest.skipUnless(pytorch and samples.os.path.exists(samples.PATH), peer.NOT_NEWEST + ", or there are no samples")
class ComparedWithPyTorch(unittest.TestCase):
    maxDiff = None

    def test_dtypes_of_all_ops(self):
        wrong, compared, cast = [], 0, set()
        for (op, name, sample), device in itertools.product(samples.samples(), DEVICES):
            if name in OTHERS and (device == "cpu" or name == "rms_norm"): continue
            for dtype in ("float32", "float16", "bfloat16", "float64"):
                if name in PROMOTED and (dtype, device) == ("float16", "cpu"): continue
                wanted = result_dtypes(pytorch, name, sample, dtype, device)
                refused = wanted is not None and "autocast" in str(wanted)
                if not isinstance(wanted, list) and not refused: continue
                got, compared = result_dtypes(phlox, name, sample, dtype, device), compared + 1
                if isinstance(got, AttributeError) or got is None: continue
                if refused: wanted, got = str(wanted), str(got)
                if wanted != got: wrong.append(f"{name}({sample[0]}) of {dtype} on {device}: {got!r}, not {wanted!r}")
                elif refused or any(one != f"torch.{dtype}" for one in wanted): cast.add((op, device))
        self.assertEqual(wrong, [])
        self.assertGreater(compared, 1000 * len(DEVICES))
        self.assertGreater(len(cast), 60 * len(DEVICES))

    def test_interpolate_modes(self):
        for device, mode in itertools.product(DEVICES, ("nearest", "nearest-exact", "bilinear", "bicubic", "area")):
            seen = []
            for library in (pytorch, phlox):
                fake = FakeTensorMode() if library is pytorch and device == "cuda" else warnings.catch_warnings()
                library.set_autocast_enabled(device, True)
                with fake:
                    x = library.ones(1, 1, 4, 4, device=device).to(getattr(library, LOWER[device]))
                    seen.append(str(library.nn.functional.interpolate(x, scale_factor=2, mode=mode).dtype))
                library.set_autocast_enabled(device, False)
            self.assertEqual(seen[1], seen[0], (device, mode))

    def test_errors_and_warnings(self):
        calls = ("autocast('nonsense')", "autocast(3)", "autocast('meta')", "autocast('cpu', torch.float32)", "cpu.amp.autocast()",
                 "is_autocast_enabled(3)", "set_autocast_enabled(1)", "set_autocast_enabled('cpu', 1)", "set_autocast_enabled('meta', True)",
                 "set_autocast_dtype('cpu', 3)", "get_autocast_dtype('meta')", "is_autocast_enabled('nonsense')", "amp.custom_fwd(device_type=3)",
                 "amp.custom_bwd(device_type=3)", "amp.custom_fwd(len)", "amp.GradScaler('cpu', growth_factor=1.0)", "amp.GradScaler('cpu', backoff_factor=1.0)",
                 "amp.GradScaler('cpu').scale(3)", "cpu.amp.GradScaler()", "amp.GradScaler('cpu').load_state_dict({})", "amp.GradScaler('cpu').update()",
                 "amp.GradScaler('cpu').step(None)", "amp.GradScaler('cpu').unscale_(None)", "amp.is_autocast_available('nonsense')",
                 "cuda.amp.custom_fwd(len)", "cuda.amp.custom_bwd(len)", "get_autocast_cpu_dtype()", "set_autocast_cpu_enabled(False)",
                 "_amp_foreach_non_finite_check_and_unscale_(torch.ones(2), torch.ones(1), torch.ones(1))",
                 "_amp_update_scale_(torch.ones(1), torch.ones(1), torch.ones(1), 2., .5, 2)")
        for text in calls:
            recorded = []
            for library in (pytorch, phlox):
                with warnings.catch_warnings(record=True) as seen:
                    warnings.simplefilter("always")
                    try: eval("torch." + text, {"torch": library})
                    except Exception as e: recorded.append((type(e).__name__, str(e)))
                    else: recorded.append(None)
                recorded[-1] = (recorded[-1], [(w.category.__name__, str(w.message).partition(" (Triggered")[0]) for w in seen])
            self.assertEqual(recorded[1], recorded[0], text)

    def test_scale_sequence(self):
        for seed in range(20):
            numbers, recorded = random.Random(seed), []
            steps = [numbers.choice([1.0, 2.0, 3.0, math.inf, math.nan, -1.0, 2.5]) for _ in range(40)]
            interval, growth, backoff = numbers.choice([1, 2, 5]), numbers.choice([2.0, 1.5]), numbers.choice([0.5, 0.25])
            for library in (pytorch, phlox):
                p = [library.nn.Parameter(library.ones(3)) for _ in range(2)]
                optimizers = [library.optim.SGD([one], lr=0.001) for one in p]
                scaler = library.amp.GradScaler("cpu", 1024.0, growth, backoff, interval)
                recorded.append([])
                for k, factor in enumerate(steps):
                    for one in optimizers: one.zero_grad()
                    scaler.scale((p[0] * factor).sum() + p[1].sum()).backward()
                    if k % 3 == 0: scaler.unscale_(optimizers[0])
                    for one in optimizers: scaler.step(one)
                    scaler.update()
                    recorded[-1].append((scaler.state_dict(), [one.tolist() for one in p]))
            self.assertEqual(recorded[1], recorded[0])


class Regions(unittest.TestCase):
    def product(self, device="cpu"):
        a = torch.ones(2, 2, device=device)
        return (a @ a).dtype

    def test_exception_exits_region(self):
        with self.assertRaises(ZeroDivisionError):
            with torch.autocast("cpu"), torch.autocast("cpu", torch.float16):
                1 / 0
        self.assertEqual((self.product(), torch.get_autocast_dtype("cpu")), (torch.float32, torch.bfloat16))

    def test_context_is_reentrant(self):
        region = torch.autocast("cpu")
        with region as same, region:
            self.assertIs(same, region)
            self.assertEqual(self.product(), torch.bfloat16)
        self.assertEqual(self.product(), torch.float32)
        self.assertRaisesRegex(RuntimeError, "not entered", region.__exit__, None, None, None)
        self.assertEqual((region.device, region.fast_dtype), ("cpu", torch.bfloat16))

    def test_decorators(self):
        @torch.autocast("cpu", dtype=torch.float16)
        def f(a, scale=1):
            "Products."
            return (a @ a) * scale if scale else f(a)

        @torch.autocast("cpu")
        def steps(a):
            while a is not None: a = yield a @ a

        a = torch.ones(2, 2)
        self.assertEqual((f(a).dtype, f(a, scale=0).dtype, f.__name__, f.__doc__), (torch.float16, torch.float16, "f", "Products."))
        generator = steps(a)
        self.assertEqual((next(generator).dtype, self.product(), generator.send(a).dtype), (torch.bfloat16, torch.float32, torch.bfloat16))

        class M(nn.Linear):
            @torch.autocast("cpu")
            def forward(self, x): return super().forward(x)
        self.assertEqual(M(2, 2)(a).dtype, torch.bfloat16)

    def test_autocast_subclasses(self):
        class Half(torch.autocast):
            def __init__(self, on=True): super().__init__("cpu", torch.float16, on)
        with Half(): self.assertEqual(self.product(), torch.float16)
        with Half(on=False): self.assertEqual(self.product(), torch.float32)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            old = torch.cpu.amp.autocast(dtype=torch.float16)
        self.assertIsInstance(old, torch.autocast)
        with old: self.assertEqual(self.product(), torch.float16)

    def test_settings_are_thread_local(self):
        seen = []
        def work():
            seen.append(self.product())
            with torch.autocast("cpu", torch.float16): seen.append(self.product())
        with torch.autocast("cpu"):
            thread = threading.Thread(target=work)
            thread.start(), thread.join()
            self.assertEqual((seen, self.product()), ([torch.float32, torch.float16], torch.bfloat16))

    def test_settings(self):
        self.assertEqual((torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled(), torch.is_autocast_cache_enabled()), (False, False, True))
        torch.set_autocast_dtype("cpu", torch.float16), torch.set_autocast_enabled("cpu", True)
        try: self.assertEqual((self.product(), torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")), (torch.float16, True, False))
        finally: torch.set_autocast_enabled("cpu", False), torch.set_autocast_dtype("cpu", torch.bfloat16)
        torch.set_autocast_enabled(True)
        self.assertTrue(torch.is_autocast_enabled())
        torch.set_autocast_enabled(False)
        with torch.autocast("cpu", cache_enabled=False): self.assertFalse(torch.is_autocast_cache_enabled())
        self.assertEqual((torch.autocast_increment_nesting(), torch.autocast_increment_nesting()), (1, 2))
        self.assertEqual((torch.autocast_decrement_nesting(), torch.autocast_decrement_nesting()), (1, 0))
        self.assertTrue(torch.amp.is_autocast_available("cpu") and not torch.amp.is_autocast_available("meta"))

    def test_deprecated_settings_warn(self):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            dtypes = torch.get_autocast_gpu_dtype(), torch.get_autocast_cpu_dtype()
            torch.set_autocast_gpu_dtype(torch.bfloat16), torch.set_autocast_cpu_dtype(torch.float16)
            other = torch.get_autocast_dtype("cuda"), torch.get_autocast_dtype("cpu")
            torch.set_autocast_gpu_dtype(torch.float16), torch.set_autocast_cpu_dtype(torch.bfloat16)
            torch.set_autocast_cpu_enabled(True)
            on = torch.is_autocast_cpu_enabled()
            torch.set_autocast_cpu_enabled(False)
        self.assertEqual((dtypes, other, on, len(seen)), ((torch.float16, torch.bfloat16), (torch.bfloat16, torch.float16), True, 9))
        self.assertTrue(all(w.category is DeprecationWarning and w.filename == __file__ for w in seen))

    def test_cast_of_parameter_is_cached(self):
        w, x = nn.Parameter(torch.ones(2, 2)), torch.ones(2, 2)
        def cast(): return torch.mm(x, w).grad_fn.next_functions[1][0]
        with torch.autocast("cpu"):
            first = cast()
            self.assertEqual(first, cast())
            torch.clear_autocast_cache()
            self.assertNotEqual(first, cast())
        with torch.autocast("cpu", cache_enabled=False): self.assertNotEqual(cast(), cast())

    def test_no_grad_cast_does_not_block_gradients(self):
        m, x = nn.Linear(2, 2), torch.ones(1, 2)
        with torch.autocast("cpu"):
            with torch.no_grad(): m(x)
            with torch.inference_mode(): m(x)
            m(x).sum().backward()
        self.assertEqual((m.weight.grad.dtype, m.weight.grad.tolist()), (torch.float32, [[1.0, 1.0]] * 2))

    def test_gradients_match_float32(self):
        for device in DEVICES:
            torch.manual_seed(0)
            m = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.LayerNorm(36), nn.Linear(36, 3)).to(device)
            x, y, recorded = torch.randn(6, 1, 5, 5, device=device), torch.tensor([0, 1, 2, 0, 1, 2], device=device), []
            for on in (False, True):
                m.zero_grad()
                with torch.autocast(device, enabled=on): loss = F.cross_entropy(m(x), y)
                loss.backward()
                self.assertEqual({p.grad.dtype for p in m.parameters()}, {torch.float32})
                recorded.append([p.grad.clone() for p in m.parameters()])
            for a, b in zip(*recorded): self.assertTrue(torch.allclose(a, b, atol=0.05, rtol=0.05), (a - b).abs().max())

    @unittest.skipIf(torch.cuda.device_count() < 2, "there are not two devices")
    def test_replicas_inherit_settings(self):
        m = nn.DataParallel(nn.Linear(2, 2).cuda(), [0, 1])
        with torch.autocast("cuda"): y = m(torch.ones(4, 2, device="cuda"))
        self.assertEqual(y.dtype, torch.float16)
        y.float().sum().backward()
        self.assertEqual(m.module.weight.grad.dtype, torch.float32)


class Functions(unittest.TestCase):
    def double(self, cast_inputs, seen):
        class Double(torch.autograd.Function):
            @staticmethod
            @torch.amp.custom_fwd(device_type="cpu", cast_inputs=cast_inputs)
            def forward(ctx, x, others, name):
                seen.append((x.dtype, [t.dtype for t in others["list"]], name, torch.is_autocast_enabled("cpu")))
                return x * 2

            @staticmethod
            @torch.amp.custom_bwd(device_type="cpu")
            def backward(ctx, grad):
                seen.append((torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")))
                return grad * 2, None, None
        return Double

    def test_custom_bwd_uses_forward_settings(self):
        for on in (False, True):
            seen, x = [], torch.ones(2, requires_grad=True)
            with torch.autocast("cpu", torch.float16, on): y = self.double(None, seen).apply(x, {"list": [x]}, "n")
            y.sum().backward()
            self.assertEqual(seen, [(torch.float32, [torch.float32], "n", on), (on, torch.float16)])

    def test_recomputation_uses_forward_settings(self):
        for form in (True, False):
            seen, m, x = [], nn.Linear(2, 2), torch.ones(1, 2, requires_grad=True)
            def run(x):
                y = m(x)
                seen.append(y.dtype)
                return torch.tanh(y)
            with torch.autocast("cpu"): y = torch.utils.checkpoint.checkpoint(run, x, use_reentrant=form)
            y.sum().backward()
            self.assertEqual((seen, x.grad.dtype, m.weight.grad.dtype), ([torch.bfloat16] * 2, torch.float32, torch.float32))

    def test_custom_fwd_cast_inputs(self):
        seen, x = [], torch.ones(2, requires_grad=True).bfloat16()
        i, d = torch.ones(1, dtype=torch.int64), torch.ones(1, dtype=torch.float64)
        double = self.double(torch.float32, seen)
        double.apply(x, {"list": [x]}, "n")
        with torch.autocast("cpu"): y = double.apply(x, {"list": (x, i, d)}, "n")
        self.assertEqual(seen, [(torch.bfloat16, [torch.bfloat16], "n", False),
                                (torch.float32, [torch.float32, torch.int64, torch.float64], "n", False)])
        y.sum().backward()
        self.assertEqual(seen[2][0], False)


class Scaler(unittest.TestCase):
    def setUp(self):
        self.device = DEVICES[-1]
        self.p = nn.Parameter(torch.ones(2, device=self.device))
        self.optimizer = torch.optim.SGD([self.p], lr=0.5)
        self.scaler = torch.amp.GradScaler(self.device, init_scale=4.0)

    def test_scale_nested_outputs(self):
        one, pair = torch.ones(1), (torch.ones(2), [torch.ones(1)])
        self.assertEqual(self.scaler.scale(one).tolist(), [4.0])
        scaled = self.scaler.scale(pair)
        self.assertEqual((type(scaled), scaled[0].tolist(), scaled[1][0].tolist()), (tuple, [4.0, 4.0], [4.0]))
        self.assertEqual([t.item() for t in self.scaler.scale(t for t in (one, one))], [4.0, 4.0])

    def test_only_step_synchronizes(self):
        if not SIMULATED: self.skipTest("requires a device")
        loss = self.p.sum()
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.optimizer)
            self.assertRaisesRegex(RuntimeError, "synchronizing", self.scaler.step, self.optimizer)
            torch.cuda.set_sync_debug_mode("default")
            self.scaler.step(self.optimizer)
            torch.cuda.set_sync_debug_mode("error")
            self.scaler.update()
        finally: torch.cuda.set_sync_debug_mode("default")
        self.assertEqual(self.p.tolist(), [0.5, 0.5])

    @unittest.skipIf(torch.cuda.device_count() < 2, "there are not two devices")
    def test_multiple_devices(self):
        q = nn.Parameter(torch.ones(2, device="cuda:1"))
        optimizer = torch.optim.SGD([self.p, q], lr=0.5)
        for factor, wanted in ((1.0, [0.5, 0.5]), (math.inf, [0.5, 0.5])):
            optimizer.zero_grad()
            self.scaler.scale(self.p.sum() + (q * factor).sum().to("cuda:0")).backward()
            self.scaler.unscale_(optimizer)
            self.assertEqual(set(self.scaler._found_inf_per_device(optimizer)), {torch.device("cuda:0"), torch.device("cuda:1")})
            self.scaler.step(optimizer), self.scaler.update()
            self.assertEqual((self.p.tolist(), q.tolist()), (wanted, wanted))
        self.assertEqual(self.scaler.get_scale(), 2.0)

    def test_call_order_is_checked(self):
        s, o = self.scaler, self.optimizer
        for name in ("step", "unscale_", "update"):
            with self.assertRaisesRegex(AssertionError, f"Attempted {name} but _scale is None"): getattr(s, name)(*[o] * (name != "update"))
        s.scale(self.p.sum()).backward()
        self.assertRaisesRegex(RuntimeError, "Closure use is not currently supported", s.step, o, closure=len)
        self.assertRaisesRegex(AssertionError, "No inf checks were recorded prior to update", s.update)
        s.step(o)
        self.assertRaisesRegex(RuntimeError, r"unscale_\(\) is being called after step\(\)", s.unscale_, o)
        self.assertRaisesRegex(AssertionError, "may only be pickled at the beginning of an iteration", pickle.dumps, s)
        o.zero_grad(), s.update()
        self.assertRaisesRegex(AssertionError, "No inf checks were recorded for this optimizer", s.step, o)
        half = nn.Parameter(torch.ones(2, device=self.device).half())
        half.grad = half.detach()
        self.assertRaisesRegex(ValueError, "Attempting to unscale FP16 gradients", s.unscale_, torch.optim.SGD([half], 0.1))

    def test_set_scale(self):
        self.scaler.scale(self.p.sum()).backward()
        for new, wanted in ((8.0, 8.0), (torch.tensor(2.0, device=self.device), 2.0)):
            self.scaler.step(self.optimizer), self.scaler.update(new)
            self.assertEqual(self.scaler.get_scale(), wanted)
        for bad in (torch.ones(2, device=self.device), torch.ones(1, device=self.device, requires_grad=True), torch.ones(1, device="meta")):
            self.assertRaisesRegex(AssertionError, "new_scale should be a float", self.scaler.update, bad)
        self.scaler.set_growth_factor(3.0), self.scaler.set_backoff_factor(0.25), self.scaler.set_growth_interval(7)
        self.assertEqual((self.scaler.get_growth_factor(), self.scaler.get_backoff_factor(), self.scaler.get_growth_interval()), (3.0, 0.25, 7))

    def test_state_dict_and_copies(self):
        self.scaler.scale(self.p.sum()).backward()
        self.scaler.step(self.optimizer), self.scaler.update()
        state = self.scaler.state_dict()
        self.assertEqual(state, {"scale": 4.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 1})
        for other in (copy.deepcopy(self.scaler), pickle.loads(pickle.dumps(self.scaler)), torch.amp.GradScaler(self.device)):
            other.load_state_dict(state)
            self.assertEqual(other.state_dict(), state)
        running = torch.amp.GradScaler(self.device)
        running.scale(self.p.sum())
        running.load_state_dict({**state, "scale": 32.0})
        self.assertEqual((running.get_scale(), running.scale(torch.ones(1)).item()), (32.0, 32.0))
        self.assertRaises(KeyError, running.load_state_dict, {"scale": 1.0})
        self.assertEqual(running.state_dict(), {**state, "scale": 32.0})

    def test_disabled(self):
        off = torch.amp.GradScaler(self.device, enabled=False)
        loss = self.p.sum()
        self.assertIs(off.scale(loss), loss)
        loss.backward()
        off.unscale_(self.optimizer), off.step(self.optimizer), off.update(), off.load_state_dict({})
        self.assertEqual((self.p.tolist(), off.state_dict(), off.get_scale(), off.is_enabled()), ([0.5, 0.5], {}, 1.0, False))
        pickle.loads(pickle.dumps(off))

    def test_step_supports_amp_scaling(self):
        class Own(torch.optim.SGD):
            _step_supports_amp_scaling = True
            def step(self, closure=None):
                self.recorded = self.grad_scale if self.grad_scale is None else self.grad_scale.item(), self.found_inf.item()
        own = Own([self.p], lr=0.5)
        for unscaled, factor, wanted in ((False, 1.0, (4.0, 0.0)), (True, 1.0, (None, 0.0)), (False, math.inf, (4.0, 1.0))):
            own.zero_grad()
            self.scaler.scale((self.p * factor).sum()).backward()
            if unscaled: self.scaler.unscale_(own)
            self.scaler.step(own), self.scaler.update()
            self.assertEqual(own.recorded, wanted)
            self.assertFalse(hasattr(own, "grad_scale") or hasattr(own, "found_inf"))
        self.assertEqual(self.scaler.get_scale(), 2.0)

    def test_subclasses_and_deprecated_names(self):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            old = torch.cpu.amp.GradScaler(init_scale=2.0)
        self.assertEqual((len(seen), seen[0].category, seen[0].filename, old.get_scale()), (1, FutureWarning, __file__, 2.0))
        self.assertIsInstance(old, torch.amp.GradScaler)
        self.assertIs(torch.amp.grad_scaler.GradScaler, torch.amp.GradScaler)
        self.assertIs(torch.amp.autocast_mode.autocast, torch.autocast)

    def test_default_dtype(self):
        torch.set_default_dtype(torch.float64)
        try:
            self.scaler.scale(self.p.sum()).backward()
            self.scaler.step(self.optimizer), self.scaler.update()
        finally: torch.set_default_dtype(torch.float32)
        self.assertEqual((self.p.tolist(), self.scaler.get_scale()), ([0.5, 0.5], 4.0))


if __name__ == "__main__":
    unittest.main()
