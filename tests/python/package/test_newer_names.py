# SPDX-License-Identifier: Apache-2.0
"""Names of PyTorch 2.15, and calls that it takes: torch.foreach, func.rearrange, accelerator.Graph, einsum of lists, gradients by name."""
import collections
import io
import tempfile
import unittest
import warnings

import numpy as np

import phlox as torch

F = torch.nn.functional
NAN, INF = float("nan"), float("inf")
int8, uint16, uint64 = torch.int8, torch.uint16, torch.uint64


def has_device():
    return torch.cuda.device_count() > 0


class Names(unittest.TestCase):
    def test_foreach(self):
        a, b = [torch.ones(2), torch.zeros(3)], [torch.full((2,), 3.), torch.ones(3)]
        self.assertEqual([t.tolist() for t in torch.foreach.add(a, b, alpha=2)], [[7, 7], [2, 2, 2]])
        self.assertIs(torch.foreach.mul_(a, 4), a)
        self.assertEqual(a[0].tolist(), [4, 4])
        self.assertEqual({"foreach_" + name for name in torch.foreach.__all__} - {n[1:] for n in dir(torch) if n.startswith("_foreach_")}, set())
        self.assertRaisesRegex(AttributeError, "torch.foreach", lambda: torch.foreach.nothing)

    def test_rearrange(self):
        rearrange, x = torch.func.rearrange, torch.arange(24).reshape(2, 3, 4)
        for pattern, lengths, want in [
                ("a b c -> c a b", {}, x.permute(2, 0, 1)), ("a b c -> (a b) c", {}, x.reshape(6, 4)), ("a b c -> c (b a)", {}, x.permute(2, 1, 0).reshape(4, 6)),
                ("a b (c d) -> a d b c", {"d": 2}, x.reshape(2, 3, 2, 2).permute(0, 3, 1, 2)), ("... c -> c ...", {}, x.permute(2, 0, 1)),
                ("a b c -> a 1 b c", {}, x[:, None]), ("a b c -> a b c ()", {}, x[..., None]), ("a (b 1) c -> a b c", {}, x), ("... -> (...)", {}, x.flatten()),
                ("a ... -> ... a", {}, x.permute(1, 2, 0)), ("a ... -> (a ...)", {}, x.flatten()), ("a b (c d) -> a b c d", {"c": 2, "d": 2}, x.reshape(2, 3, 2, 2))]:
            with self.subTest(pattern):
                self.assertTrue(torch.equal(rearrange(x, pattern, **lengths), want))
        self.assertEqual(rearrange([x, x], "n a b c -> a n b c").shape, (2, 2, 3, 4))
        self.assertEqual(rearrange(x, "a b c -> c a b").data_ptr(), x.data_ptr())
        for pattern, lengths, text in [
                ("a b c -> a b", {}, r"only on one side of rearrange expression \(should be on both\): {'c'}"), ("a b -> b a", {}, r"in pattern \(2\) must be equal .* tensor \(3\)"),
                ("a a c -> c a", {}, "duplicate dimension 'a'"), ("a b c -> (... a) b c", {}, "Ellipsis found in right side"), ("(...) b -> ... b", {}, "Ellipsis is parenthesis"),
                ("(a d) b c -> a b c d", {"d": 3}, "2 is no multiple of 3"), ("a b c", {}, "single '->'"), ("a b c -> a b c", {"z": 3}, "not found in rearrange expression: {'z'}"),
                ("a b (c d) -> a b c d", {}, "cannot infer the sizes of two"), ("a b (c d) -> a b c d", {"c": 2, "d": 3}, "do not match"), ("1 a b -> a b", {}, r"do not match \(1 != 2\)"),
                ("a-1 b c -> b c", {}, "Unknown character '-'"), ("((a) b) c d -> a b c d", {}, "nested or not balanced"), ("(a b c -> a b c", {}, "not balanced"), ("2 b c -> b c", {}, "size other than 1")]:
            with self.subTest(pattern), self.assertRaisesRegex(ValueError, text):
                rearrange(x, pattern, **lengths)

    @unittest.skipUnless(has_device(), "requires a device")
    def test_accelerator_graph(self):
        x = torch.zeros(4, device="cuda")
        graph = torch.accelerator.Graph()
        with torch.cuda.Stream(), graph:
            x += 1
        graph.replay()
        graph.replay()
        self.assertEqual(x.tolist(), [2] * 4)
        other = torch.accelerator.Graph(pool=graph.pool(), capture_error_mode="relaxed")
        with torch.cuda.Stream(), other:
            y = x * 3
        other.replay()
        self.assertEqual((y.tolist(), other.pool()), ([6] * 4, graph.pool()))
        self.assertRaisesRegex(ValueError, "capture_error_mode", torch.accelerator.Graph, capture_error_mode="x")

    def test_int_mm(self):
        a, b = torch.full((5, 3), 127, dtype=int8), torch.full((3, 4), -128, dtype=int8)
        for device in ["cpu"] + ["cuda"] * has_device():
            out = torch._int_mm(a.to(device), b.to(device))
            self.assertEqual((out.dtype, out.tolist()), (torch.int32, [[-127 * 128 * 3] * 4] * 5))
            long = torch._int_mm(torch.full((1, 3000), 127, dtype=int8, device=device), torch.full((3000, 1), 127, dtype=int8, device=device))
            self.assertEqual(long.item(), 127 * 127 * 3000)
        self.assertRaisesRegex(RuntimeError, r"_int_mm: mat1 and mat2 shapes cannot be multiplied \(5x3 and 5x3\)", torch._int_mm, a, a)
        self.assertRaisesRegex(RuntimeError, "mat2 dtype to be of type int8 but got float", torch._int_mm, a, b.float())
        self.assertRaisesRegex(RuntimeError, "result dtype", torch._int_mm, a, b, out=torch.empty(5, 4, dtype=torch.int64))

    def test_warnings_given_once_may_be_repeated(self):
        x = torch.ones(3)
        counts = []
        self.assertFalse(torch.is_warn_always_enabled())
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for always in False, True:
                torch.set_warn_always(always)
                self.assertEqual(torch.is_warn_always_enabled(), always)
                for _ in range(3):
                    torch.cross(x, x)
                counts.append(len(seen))
        torch.set_warn_always(False)
        self.assertLessEqual(counts[0], 1)
        self.assertEqual(counts[1], counts[0] + 3)

    def test_predicates_and_generators(self):
        self.assertFalse(torch.autograd.kineto_available() or torch.autograd.profiler.kineto_available())
        self.assertEqual(torch.rand(2, generator=torch.thread_safe_generator()).shape, (2,))
        self.assertRaisesRegex(AttributeError, "torch.bcomplex32 is not implemented", lambda: torch.bcomplex32)


class Calls(unittest.TestCase):
    def test_einsum_of_lists(self):
        a, b = torch.arange(6.).reshape(2, 3), torch.arange(12.).reshape(3, 4)
        self.assertTrue(torch.equal(torch.einsum(a, [0, 1], b, [1, 2], [0, 2]), a @ b))
        self.assertTrue(torch.equal(torch.einsum(a, [0, 1], b, [1, 2]), a @ b))
        self.assertTrue(torch.equal(torch.einsum(a, [..., 1], b, (1, 2), [..., 2]), a @ b))
        self.assertEqual(torch.einsum(a, [51, 0], [0, 51]).shape, (3, 2))
        self.assertRaisesRegex(ValueError, r"valid range \[0, 52\)", torch.einsum, a, [0, 52])
        self.assertRaisesRegex(ValueError, "must specify the equation string", torch.einsum, a)
        self.assertRaises(TypeError, torch.einsum, a, 5)
        self.assertRaises(TypeError, torch.einsum, a, ["x", 0])

    def test_gradients_by_name(self):
        x, y = torch.ones(2, requires_grad=True), torch.full((2,), 3., requires_grad=True)
        grads = torch.autograd.grad((x * y).sum(), {"x": x, "y": y})
        self.assertEqual({k: g.tolist() for k, g in grads.items()}, {"x": [3, 3], "y": [1, 1]})
        self.assertEqual(torch.autograd.grad((x * 2).sum(), {"a": y, "b": x}, allow_unused=True)["a"], None)
        self.assertRaisesRegex(TypeError, "must be a dict, not collections.OrderedDict", torch.autograd.grad, x.sum(), collections.OrderedDict(x=x))
        self.assertRaisesRegex(RuntimeError, "cannot be empty", torch.autograd.grad, x.sum(), {})

    def test_assigned_values_lose_leading_ones(self):
        for index in (torch.tensor([True, False, True]), torch.tensor([0, 2])):
            for shape in (1, 2), (1, 1), (1, 1, 2), (2,):
                x = torch.zeros(3)
                x[index] = torch.ones(shape)
                self.assertEqual(x.tolist(), [1, 0, 1])
            with self.assertRaisesRegex(RuntimeError, "shape mismatch"):
                torch.zeros(3)[index] = torch.ones(2, 1)

    def test_integers_beyond_int64(self):
        big = 2**64 - 1
        u = torch.tensor([big, 5], dtype=uint64)
        self.assertEqual((u == big).tolist(), [True, False])
        self.assertEqual(torch.full((1,), big, dtype=uint64).item(), big)
        self.assertEqual(u.clone().fill_(2**63 + 1).tolist(), [2**63 + 1] * 2)
        self.assertEqual((torch.ones(1) * big).item(), 2.0**64)
        for call in lambda: torch.full((1,), big), lambda: torch.arange(2**63, 2**63 + 3):
            self.assertRaisesRegex(RuntimeError, "int64_t without overflow", call)
        self.assertRaisesRegex(ValueError, "Overflow when unpacking long long", torch.tensor, [big])
        self.assertRaisesRegex(OverflowError, "int too big to convert", lambda: torch.ones(1) + 2**64)

    def test_unsigned_numbers_without_dimensions_do_not_decide_the_dtype(self):
        for device in ["cpu"] + ["cuda"] * has_device():
            vector, number = torch.ones(2, dtype=int8, device=device), torch.tensor(3, dtype=uint16, device=device)
            for sum_ in vector + number, number + vector:
                self.assertEqual((sum_.tolist(), sum_.dtype), ([4, 4], int8))
        self.assertRaises(RuntimeError, lambda: torch.ones(2, dtype=int8) + torch.ones(2, dtype=uint16))

    def test_complex_numbers_of_numpy(self):
        for number in np.complex128(2j), np.complex64(2j):
            for product in torch.ones(2) * number, number * torch.ones(2):
                self.assertEqual((product.dtype, product.tolist()), (torch.complex64, [2j, 2j]))

    def test_a_saved_temporary_file_can_be_loaded_by_its_name(self):
        with tempfile.NamedTemporaryFile() as file:
            torch.save({"a": torch.ones(2)}, file)
            self.assertEqual(torch.load(file.name)["a"].tolist(), [1, 1])
        torch.save(torch.ones(2), io.BytesIO())

    def test_learning_rates_that_are_tensors(self):
        for kind in torch.optim.SGD, torch.optim.RMSprop, torch.optim.Adagrad, torch.optim.Adadelta:
            p = torch.nn.Parameter(torch.ones(2))
            p.grad = torch.ones(2)
            kind([p], lr=torch.tensor(0.5), foreach=True).step()
            self.assertLess(p[0].item(), 1)
        for kind in torch.optim.Adam, torch.optim.AdamW:
            self.assertRaisesRegex(ValueError, "lr as a Tensor", kind, [p], lr=torch.tensor(0.5), foreach=True)

    def test_gradcheck_warns_of_other_dtypes(self):
        with self.assertWarnsRegex(UserWarning, "Input #0 requires gradient and is not a double precision"):
            self.assertTrue(torch.autograd.gradcheck(lambda x: x * x, torch.ones(2, requires_grad=True), eps=1e-2, atol=0.1))
        with self.assertWarns(UserWarning), self.assertRaises(torch.autograd.gradcheck.__globals__["GradcheckError"]):
            torch.autograd.gradcheck(lambda x: x * x, torch.ones(2, requires_grad=True))

    def test_masks_may_not_overlap_in_part(self):
        x = torch.zeros(4, dtype=torch.bool)
        for value in True, torch.tensor(True):
            self.assertRaisesRegex(RuntimeError, "refer to a single memory location", x[:3].masked_fill_, x[1:], value)
        self.assertEqual(torch.tensor([True, False]).masked_fill_(x[:2], True).tolist(), [True, False])

    def test_gradients_of_distances_at_nan_and_ties(self):
        rows = torch.tensor([[NAN, 1], [2, 2]], dtype=torch.float64, requires_grad=True)
        origin = torch.zeros(1, 2, dtype=torch.float64)
        for p, want in (0., [[0, 0], [0, 0]]), (1., [["nan", 1], [1, 1]]), (INF, [["nan", 0], [1, 1]]):
            grad, = torch.autograd.grad(torch.cdist(rows, origin, p=p).sum(), rows)
            self.assertEqual([["nan" if v != v else v for v in row] for row in grad.tolist()], want)
            grad, = torch.autograd.grad(F.pdist(torch.cat([rows, origin])[1:], p=p).sum(), rows)
            self.assertEqual(grad[1].tolist(), want[1])
        self.assertTrue(torch.cdist(rows, origin, p=0.)[0].isnan().item())

    def hook_log(self, make):
        log = []
        x = torch.ones(4, dtype=torch.float64, requires_grad=True)
        for part in make(x):
            part.register_hook(lambda g: log.append(None if g is None else g.tolist()))
        return x, log

    def test_hooks_of_results_without_a_gradient_get_none(self):
        kept = []
        for make, want in ((lambda x: kept.extend((x * 1).unbind()) or kept, [2.0, None, None, None]), (lambda x: kept.extend((x * 1).split(2)) or kept, [[2, 2], None])):
            kept.clear()
            x, log = self.hook_log(make)
            (kept[0] * 2).sum().backward()
            self.assertEqual(log, want)
        x = torch.ones(2, requires_grad=True)
        a, b = (x * 1).unbind()
        b.register_hook(lambda g: torch.ones(()))
        self.assertRaisesRegex(RuntimeError, "can't replace a None gradient with a non-None value", a.backward)

    def test_backward_to_inputs_runs_their_nodes_and_hooks(self):
        x = torch.ones(2, requires_grad=True)
        b, log = x * 2, []
        b.register_hook(lambda g: log.append("b"))
        b.grad_fn.register_hook(lambda gi, go: log.append("node"))
        b.grad_fn.register_prehook(lambda go: log.append("before"))
        x.register_hook(lambda g: log.append("x"))
        c = b * 3
        c.register_hook(lambda g: log.append("c"))
        c.sum().backward(inputs=[b], retain_graph=True)
        self.assertEqual((log, b.grad.tolist(), x.grad), (["c", "b", "before", "node"], [3, 3], None))
        c.sum().backward(inputs=[b, x])
        self.assertEqual((b.grad.tolist(), x.grad.tolist()), ([6, 6], [6, 6]))
        seen = []
        y = torch.ones(2, requires_grad=True)
        y.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.tolist()))
        (y * 2).sum().backward(inputs=[y])
        self.assertEqual(seen, [[2, 2]])
        self.assertRaisesRegex(RuntimeError, "cannot be empty", (x * 2).sum().backward, inputs=[])
        self.assertRaisesRegex(RuntimeError, "does not require grad", (x * 2).sum().backward, inputs=[torch.ones(2)])

    def test_running_statistics_count_no_versions(self):
        norm = torch.nn.BatchNorm1d(2)
        x = torch.randn(4, 2, requires_grad=True)
        norm.eval()
        loss, before = norm(x).sum(), norm.running_mean._version
        norm.train()
        norm(x.detach())
        loss.backward()
        self.assertEqual((norm.running_mean._version, norm.num_batches_tracked.item()), (before, 1))

    def test_attention_draws_dropout_as_dropout_does_on_the_cpu(self):
        x = torch.randn(2, 2, 5, 4)
        torch.manual_seed(4)
        out = F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)
        after = torch.randint(0, 2**40, (1,)).item()
        torch.manual_seed(4)
        weights = F.dropout((x @ x.mT / 2).softmax(-1), 0.5)
        torch.testing.assert_close(out, weights @ x)
        self.assertEqual(torch.randint(0, 2**40, (1,)).item(), after)

    def test_states_of_schedules_have_pytorchs_names(self):
        kinds = torch.optim.lr_scheduler
        for make, names in ((lambda o: kinds.StepLR(o, 2), "step_size gamma"), (lambda o: kinds.OneCycleLR(o, 0.5, total_steps=9), "_schedule_phases _anneal_func_type use_beta1"),
                            (lambda o: kinds.CyclicLR(o, 0.01, 0.1), "max_lrs total_size step_ratio base_momentums max_momentums use_beta1 _scale_fn_custom"),
                            (lambda o: torch.optim.swa_utils.SWALR(o, 0.05), "_anneal_strategy")):
            optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1, momentum=0.9)
            state = make(optimizer).state_dict()
            common = "base_lrs last_epoch _step_count _is_initial _get_lr_called_within_step _last_lr"
            self.assertEqual({*common.split(), *names.split()} - set(state), set())
            if "use_beta1" in names:
                self.assertEqual(state["use_beta1"], False)
        self.assertEqual([phase["end_step"] for phase in kinds.OneCycleLR(optimizer, 0.5, total_steps=10, three_phase=True, pct_start=0.3).state_dict()["_schedule_phases"]],
                         [2, 4, 9])

    def test_texts(self):
        a, d = torch.ones(2, 2), torch.ones(2, 2).double()
        for text, call in (("expected m1 and m2 to have the same dtype, but got: float != double", lambda: a @ d), ("self and mat2 must have the same dtype", lambda: torch.addmm(a, a, d)),
                           ("addmv input tensors must have the same dtype, but got Double, Float, and Double", lambda: a @ d[0]),
                           ("got input1: float, input2: double, weight: float", lambda: F.bilinear(a, d, torch.ones(1, 2, 2)))):
            self.assertRaisesRegex(RuntimeError, text, call)
        y = torch.ones(2, requires_grad=True).exp()
        y.add_(1)
        self.assertRaisesRegex(RuntimeError, "which is output 0 of Exp, is at version 1", y.sum().backward)


class Precisions(unittest.TestCase):
    def setUp(self):
        self.addCleanup(self.reset)

    def reset(self):
        b = torch.backends
        torch.set_float32_matmul_precision("highest")
        b.cudnn.allow_tf32 = True
        b.fp32_precision = b.cudnn.fp32_precision = "none"

    def test_parts_inherit(self):
        b = torch.backends
        b.cudnn.conv.fp32_precision = b.cudnn.rnn.fp32_precision = b.cuda.matmul.fp32_precision = "none"
        b.fp32_precision = "tf32"
        self.assertEqual([p.fp32_precision for p in (b, b.cuda.matmul, b.cudnn, b.cudnn.conv, b.cudnn.rnn)], ["tf32"] * 5)
        b.cudnn.fp32_precision = "ieee"
        self.assertEqual([p.fp32_precision for p in (b, b.cuda.matmul, b.cudnn, b.cudnn.conv, b.cudnn.rnn)], ["tf32"] + ["ieee"] * 4)
        b.cudnn.rnn.fp32_precision = "tf32"
        self.assertEqual((b.cudnn.conv.fp32_precision, b.cudnn.rnn.fp32_precision), ("ieee", "tf32"))

    def test_older_settings_refuse_a_mix(self):
        b = torch.backends
        b.cuda.matmul.fp32_precision = "tf32"
        self.assertRaisesRegex(RuntimeError, "mix of the legacy and new APIs to set the TF32 status", lambda: b.cuda.matmul.allow_tf32)
        self.assertRaisesRegex(RuntimeError, "mix of the legacy and new APIs to set the matmul precision", torch.get_float32_matmul_precision)
        b.cuda.matmul.allow_tf32 = True
        self.assertEqual((b.cuda.matmul.allow_tf32, torch.get_float32_matmul_precision()), (True, "high"))
        torch.set_float32_matmul_precision("medium")
        self.assertEqual((b.cuda.matmul.fp32_precision, b.cuda.matmul.allow_tf32), ("tf32", True))
        b.cudnn.conv.fp32_precision = "ieee"
        self.assertRaisesRegex(RuntimeError, "cuDNN conv and cuDNN RNN have different TF32 flags", lambda: b.cudnn.allow_tf32)
        b.cudnn.allow_tf32 = False
        self.assertEqual((b.cudnn.allow_tf32, b.cudnn.rnn.fp32_precision), (False, "none"))
        for value, text in ("x", "Unknown precision: x"), ("bf16", "backend 'cuda' does not support precision 'bf16'"):
            with self.assertRaisesRegex(RuntimeError, text):
                b.cuda.matmul.fp32_precision = value


if __name__ == "__main__":
    unittest.main()
