# SPDX-License-Identifier: Apache-2.0
"""Tensors in Python: construction, attributes, indexing, arithmetic and pickling."""
import array
import copy
import gc
import hashlib
import pickle
import re
import unittest
import warnings
import weakref

import phlox as torch


class Identity(unittest.TestCase):
    def test_no_op_methods_return_same_object(self):
        x = torch.ones(2)
        self.assertIs(x.add_(1), x)
        self.assertIs(x.contiguous(), x)
        self.assertIs(x.to("cpu"), x)
        self.assertIs(x.float(), x)
        self.assertIsNot(x.to(torch.float32, copy=True), x)

    def test_user_attributes(self):
        x = torch.ones(2)
        x.note = "mine"
        self.assertEqual(x.note, "mine")
        self.assertIsNone(getattr(torch.ones(2), "note", None))

    def test_weak_references_and_cycles(self):
        x = torch.ones(2)
        x.me = x
        ref = weakref.ref(x)
        del x
        gc.collect()
        self.assertIsNone(ref())

    def test_subclasses(self):
        class Sub(torch.Tensor):
            pass
        s = torch.ones(2).as_subclass(Sub)
        self.assertIsInstance(s, Sub)
        self.assertEqual(repr(s), "Sub([1., 1.])")
        p = torch.nn.Parameter(torch.ones(2))
        self.assertTrue(p.requires_grad and p.is_leaf)
        self.assertEqual(repr(p), "Parameter containing:\ntensor([1., 1.], requires_grad=True)")


class Arithmetic(unittest.TestCase):
    def test_unsupported_operand_types(self):
        with self.assertRaisesRegex(TypeError, "unsupported operand"):
            torch.ones(2) + "a"
        self.assertFalse(torch.ones(1) == "a")
        self.assertTrue(torch.ones(1) != None)  # noqa: E711

    def test_in_place_operators_keep_object(self):
        x = y = torch.ones(2)
        x += 1
        x *= 3
        x -= 1
        x /= 5
        self.assertIs(x, y)
        self.assertEqual(x.tolist(), [1., 1.])

    def test_conversion_to_numbers(self):
        x = torch.tensor(3)
        self.assertEqual([10, 20, 30, 40][x], 40)
        self.assertEqual((int(x), float(x), bool(x), f"{x}"), (3, 3.0, True, "3"))
        with self.assertRaisesRegex(TypeError, "only integer tensors of a single element"):
            [1, 2][torch.tensor(1.)]

    def test_contains_len_and_iteration(self):
        x = torch.arange(6).view(3, 2)
        self.assertTrue(5 in x and 6 not in x)
        self.assertEqual(len(x), 3)
        self.assertEqual([r.tolist() for r in x], [[0, 1], [2, 3], [4, 5]])
        self.assertEqual([r.tolist() for r in reversed(x)], [[4, 5], [2, 3], [0, 1]])
        with self.assertRaisesRegex(TypeError, "iteration over a 0-d tensor"):
            iter(torch.tensor(1))


    def test_pow_of_special_values(self):
        inf, nan = float("inf"), float("nan")
        base = [0.0, -0.0, 1.0, -1.0, inf, -inf, nan, 4.0]
        for exponent, want in ((2.5, [0.0, 0.0, 1.0, nan, inf, inf, nan, 32.0]), (-1.5, [inf, inf, 1.0, nan, 0.0, 0.0, nan, 0.125]),
                               (-3.0, [inf, -inf, 1.0, -1.0, 0.0, -0.0, nan, 1 / 64]), (0.0, [1.0] * 8),
                               (inf, [0.0, 0.0, 1.0, 1.0, inf, inf, nan, inf])):
            for dtype in torch.float32, torch.float64:
                for count in 1, 5:  # less than a vectorized block, and several blocks
                    x = torch.tensor(base * count, dtype=dtype)
                    self.assertEqual(str((x ** exponent).tolist()), str(want * count))


class Calls(unittest.TestCase):
    def test_aliases_accept_numbers(self):
        i = torch.tensor([1, 2, 3])
        for call, same in ((i.multiply(2), i * 2), (torch.subtract(i, 1), i - 1), (i.subtract(1, alpha=2), i - 2), (i.true_divide(2), i / 2),
                           (i.greater(2), i > 2), (torch.less_equal(i, 2), i <= 2), (i.not_equal(2), i != 2), (i.clip(2), i.clamp(2)),
                           (torch.clip(i, 1.5, 2), i.clamp(1.5, 2)), (i.multiply(1.5), i * 1.5)):
            self.assertEqual((call.tolist(), call.dtype), (same.tolist(), same.dtype))
        with self.assertRaisesRegex(TypeError, r"matmul\(\): argument 'other' \(position 1\) must be Tensor, not int"):
            i.matmul(2)

    def test_keyword_arguments(self):
        x = torch.ones(2, 3)
        self.assertEqual(torch.sum(input=x, axis=1, keepdims=True).shape, (2, 1))
        self.assertEqual(torch.add(x, other=x, alpha=2).tolist(), [[3.] * 3] * 2)
        out = torch.empty(0)
        self.assertIs(torch.add(x, 1, out=out), out)
        self.assertEqual(out.shape, (2, 3))

    def test_call_errors(self):
        x = torch.ones(2, 3)
        for call, text in (
                (lambda: torch.mm(x), 'mm() missing 1 required positional arguments: "mat2"'),
                (lambda: torch.mm(x, 3), "mm(): argument 'mat2' (position 2) must be Tensor, not int"),
                (lambda: torch.relu(x, foo=1), "relu() got an unexpected keyword argument 'foo'"),
                (lambda: torch.relu(x, x), "relu() takes 1 positional argument but 2 were given")):
            with self.assertRaises(TypeError) as caught:
                call()
            self.assertEqual(str(caught.exception), text)

    def test_dimension_errors_of_size_and_stride(self):
        zero, two = torch.tensor(1.0), torch.ones(2, 3)
        for call in ("size", "stride"):
            with self.assertRaisesRegex(IndexError, "^Dimension specified as -1 but tensor has no dimensions$"):
                getattr(zero, call)(-1)
            with self.assertRaisesRegex(IndexError, r"^Dimension out of range \(expected to be in range of \[-2, 1\], but got 2\)$"):
                getattr(two, call)(2)
        self.assertEqual((two.size(-1), two.stride(-2)), (3, 3))

    def test_number_as_first_operand(self):
        two = torch.tensor(2.0)
        results = torch.div(1.0, two), torch.add(1, 2), torch.mul(2, two), torch.sub(3, two), torch.div(7, two, rounding_mode="floor"), torch.floor_divide(7, 2), torch.true_divide(1, 2)
        self.assertEqual([(r.item(), r.dtype) for r in results],
                         [(.5, torch.float32), (3, torch.int64), (4, torch.float32), (1, torch.float32), (3, torch.float32), (3, torch.int64), (.5, torch.float32)])
        self.assertEqual(torch.add(1.0, torch.ones(1, dtype=torch.float16), alpha=2).dtype, torch.float16)
        two.requires_grad_()
        torch.div(1.0, two).backward()
        self.assertEqual(two.grad.item(), -.25)
        for call in (lambda: torch.relu(1.0), lambda: torch.add("x", 1), lambda: torch.atan2(1, two)):
            with self.assertRaisesRegex(TypeError, r"argument 'input' \(position 1\) must be Tensor"):
                call()

    def test_str_uses_overridden_repr(self):
        class Named:
            def __repr__(self):
                return "named"

        for made in (type("T", (Named, torch.Tensor), {})([1.]), type("P", (Named, torch.nn.Parameter), {})(torch.ones(1)),
                     type("M", (Named, torch.nn.ReLU), {})()):
            self.assertEqual((str(made), f"{made}", repr(made)), ("named",) * 3)

    def test_repr_of_storages(self):
        self.assertEqual(str(torch.tensor([1.0, 2.5]).storage()), " 1.0\n 2.5\n[torch.storage.TypedStorage(dtype=torch.float32, device=cpu) of size 2]")
        self.assertEqual(repr(torch.ones(1, dtype=torch.int16).untyped_storage()), " 1\n 0\n[torch.storage.UntypedStorage(device=cpu) of size 2]")

    def test_legacy_variable_and_types(self):
        with self.assertRaisesRegex(TypeError, "^Variable data has to be a tensor, but got list$"):
            torch.autograd.Variable([1, 2])
        with self.assertWarnsRegex(UserWarning, "volatile was removed and now has no effect"):
            torch.autograd.Variable(torch.ones(1), volatile=True)
        with self.assertWarns(UserWarning), self.assertRaisesRegex(AttributeError, "module 'torch' has no attribute 'NoTensor'"):
            torch.set_default_tensor_type("torch.NoTensor")
        with self.assertWarns(UserWarning), self.assertRaisesRegex(TypeError, "^invalid type object: only floating-point types are supported"):
            torch.set_default_tensor_type(torch.float32)
        self.assertEqual(torch.autograd.Variable().tolist(), [])

    def test_named_results(self):
        r = torch.tensor([[1., 3.], [4., 2.]]).max(1)
        self.assertEqual((r.values.tolist(), r.indices.tolist()), ([3., 4.], [1, 0]))
        values, indices = r
        self.assertTrue(repr(r).startswith("torch.return_types.max(\nvalues="))

    def test_missing_names(self):
        x = torch.ones(8)
        for owner, name, text in ((torch, "q_scale", "module 'torch' has no attribute 'q_scale': torch.q_scale is not implemented in Phlox"),
                                  (torch.nn.functional, "scaled_addmm", "module 'torch.nn.functional' has no attribute 'scaled_addmm': "
                                                                        "torch.nn.functional.scaled_addmm is not implemented in Phlox"),
                                  (x, "q_scale", "'Tensor' object has no attribute 'q_scale': torch.Tensor.q_scale is not implemented in Phlox"),
                                  (torch.Tensor, "q_scale", "type object 'Tensor' has no attribute 'q_scale': torch.Tensor.q_scale is not implemented in Phlox"),
                                  (torch, "no_such_name", "module 'torch' has no attribute 'no_such_name'"),
                                  (x, "no_such_name", "'Tensor' object has no attribute 'no_such_name'")):
            with self.assertRaisesRegex(AttributeError, f"^{text}$"):
                getattr(owner, name)
            self.assertFalse(hasattr(owner, name))
        x.q_scale = 3  # user-defined attributes can be set
        self.assertEqual(x.q_scale, 3)


class Errors(unittest.TestCase):
    def check(self, call, text, kind=RuntimeError):
        with self.assertRaisesRegex(kind, text):
            call()

    def test_bool_subtraction(self):
        mask = torch.ones(2) > 0
        for call in (lambda: 1 - mask, lambda: mask - 1, lambda: torch.ones(2) - mask, lambda: torch.ones(2) - True,
                     lambda: torch.ones(2).sub_(mask), lambda: torch.rsub(mask, 1)):
            self.check(call, "^Subtraction, the `-` operator, with a bool tensor is not supported.", NotImplementedError)
        self.assertEqual((torch.ones(2) - mask.float()).tolist(), [0, 0])

    def test_assignment_shape_mismatch(self):
        x = torch.zeros(2, 3)
        wide = r"The expanded size of the tensor \(3\) must match the existing size \(4\) at non-singleton dimension 0.  "
        self.check(lambda: x.__setitem__(0, torch.ones(4)), wide + r"Target sizes: \[3\].  Tensor sizes: \[4\]$")
        self.check(lambda: x.__setitem__(0, torch.ones(2, 3)), r"^expand\(torch.FloatTensor\{\[2, 3\]\}, size=\[3\]\): the number of sizes "
                   r"provided \(1\) must be greater or equal to the number of dimensions in the tensor \(2\)$")
        self.check(lambda: x.__setitem__(torch.tensor([0]), torch.ones(5)),
                   r"^shape mismatch: value tensor of shape \[5\] cannot be broadcast to indexing result of shape \[1, 3\]$")
        self.assertEqual(x.sum().item(), 0)
        x[0] = torch.ones(1, 1, 3)
        x[:, 1:] = torch.full((2, 1), 2.)
        self.assertEqual(x.tolist(), [[1, 2, 2], [0, 2, 2]])

    def test_data_setter_checks_dtype(self):
        p = torch.nn.Parameter(torch.ones(2))
        self.check(lambda: setattr(p, "data", torch.tensor([1])),
                   "data set to a tensor that requires gradients must be floating point or complex dtype")
        self.assertEqual(p.tolist(), [1, 1])


class Indexing(unittest.TestCase):
    def setUp(self):
        self.x = torch.arange(12.).view(3, 4)

    def test_views_share_memory(self):
        self.x[1][2] = 100
        self.x[0, ::2] = torch.tensor([7., 8.])
        self.assertEqual(self.x.tolist(), [[7, 1, 8, 3], [4, 5, 100, 7], [8, 9, 10, 11]])

    def test_assignment(self):
        x = self.x
        x[x > 8] = 0
        x[[0, 1], [0, 1]] = -1
        x[2] = torch.ones(1, 1, 4)
        self.assertEqual(x.tolist(), [[-1, 1, 2, 3], [4, -1, 6, 7], [1, 1, 1, 1]])
        with self.assertRaisesRegex(TypeError, "can't assign a str to a torch.FloatTensor"):
            x[0] = "a"

    def test_mixed_indexing(self):
        x = self.x
        self.assertEqual(x[None, :, [0, 2], None].shape, (1, 3, 2, 1))
        self.assertEqual(x[..., torch.tensor(1)].tolist(), [1, 5, 9])
        self.assertEqual(x[True].shape, (1, 3, 4))
        self.assertEqual(x[()].shape, (3, 4))

    def test_sequences_are_indices(self):
        x = torch.arange(6).view(2, 3)
        self.assertEqual((x[range(1)].tolist(), x[:, range(0, 3, 2)].tolist()), ([[0, 1, 2]], [[0, 2], [3, 5]]))
        x[:, range(2)] = 9
        self.assertEqual(x.tolist(), [[9, 9, 2], [9, 9, 5]])
        for bad in ("x", b"x", {1}, 1.5):
            with self.assertRaisesRegex(IndexError, "only integers, slices"):
                x[bad]

    def test_index_put_accumulates_duplicates(self):
        x = torch.zeros(3)
        x.index_put_((torch.tensor([0, 0, 2]),), torch.ones(3), accumulate=True)
        self.assertEqual(x.tolist(), [2, 0, 1])


class Construction(unittest.TestCase):
    def test_copy_construction_warns(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.tensor(torch.ones(2))
        self.assertIn("To copy construct from a tensor", str(caught[0].message))

    def test_as_tensor_shares_memory(self):
        x = torch.ones(2)
        self.assertIs(torch.as_tensor(x), x)
        self.assertEqual(torch.as_tensor([1, 2], dtype=torch.float64).dtype, torch.float64)

    def test_overflow_and_ragged_lists(self):
        with self.assertRaisesRegex(ValueError, "Overflow when unpacking long long"):
            torch.tensor(2 ** 63)
        with self.assertRaisesRegex(ValueError, r"expected sequence of length 2 at dim 1 \(got 1\)"):
            torch.tensor([[1, 2], [3]])

    def test_legacy_typed_constructors(self):
        self.assertEqual(torch.LongTensor([1.5]).tolist(), [1])
        self.assertIsInstance(torch.ones(1), torch.FloatTensor)
        self.assertNotIsInstance(torch.ones(1).long(), torch.FloatTensor)
        self.assertEqual(repr(torch.cuda.FloatTensor), "<class 'torch.cuda.FloatTensor'>")
        with self.assertRaisesRegex(RuntimeError, "legacy constructor expects device type: cpu"):
            torch.FloatTensor(2, device="cuda")

    def test_new_methods(self):
        x = torch.ones(2, dtype=torch.float64)
        self.assertEqual(x.new(2, 3).dtype, torch.float64)
        self.assertEqual(x.new([1, 2.]).tolist(), [1, 2])
        self.assertEqual(x.new_zeros(2, 3, dtype=torch.int32).dtype, torch.int32)
        self.assertEqual(torch.ones(1).long().new_full((2,), 0.3).tolist(), [0, 0])

    def test_default_dtype(self):
        torch.set_default_dtype(torch.float64)
        try:
            self.assertEqual(torch.tensor([1.]).dtype, torch.float64)
        finally:
            torch.set_default_dtype(torch.float32)
        with self.assertRaisesRegex(TypeError, "only floating-point types"):
            torch.set_default_dtype(torch.int64)


class Pickles(unittest.TestCase):
    def test_pickles(self):
        for x in (torch.arange(6).view(2, 3), torch.ones(2, 3).t(), torch.zeros(0, 3),
                  torch.tensor([True]), torch.ones(2, requires_grad=True)):
            y = pickle.loads(pickle.dumps(x))
            self.assertEqual((y.tolist(), y.dtype, y.shape, y.requires_grad),
                             (x.tolist(), x.dtype, x.shape, x.requires_grad))
        for value in (torch.float32, torch.device("cuda:1"), torch.Size([1, 2])):
            self.assertEqual(pickle.loads(pickle.dumps(value)), value)
        p = pickle.loads(pickle.dumps(torch.nn.Parameter(torch.ones(1))))
        self.assertIsInstance(p, torch.nn.Parameter)

    def test_deepcopy(self):
        x = torch.ones(2, requires_grad=True)
        both = copy.deepcopy([x, x])
        self.assertIs(both[0], both[1])
        self.assertTrue(both[0].requires_grad)
        with self.assertRaisesRegex(RuntimeError, "graph leaves"):
            copy.deepcopy(x * 2)


class Values(unittest.TestCase):
    def test_size(self):
        s = torch.Size([2, 3])
        self.assertEqual(repr(s), "torch.Size([2, 3])")
        self.assertEqual(repr(s[1:]), "torch.Size([3])")
        self.assertEqual((s.numel(), s + (1,), s == (2, 3)), (6, (2, 3, 1), True))

    def test_device(self):
        d = torch.device("cuda", 1)
        self.assertEqual((repr(d), str(d), d.type, d.index),
                         ("device(type='cuda', index=1)", "cuda:1", "cuda", 1))
        self.assertEqual(len({d, torch.device("cuda:1")}), 1)
        with self.assertRaisesRegex(AttributeError, "'index' of 'torch.device' objects is not writable"):
            d.index = 2
        for text, message in (("", "Device string must not be empty"),
                              ("cuda:-1", "Invalid device string: 'cuda:-1'"),
                              ("gpu", "Expected one of cpu, cuda")):
            with self.assertRaisesRegex(RuntimeError, message):
                torch.device(text)
        with self.assertRaises(RuntimeError):
            torch.device("cuda:300000")

    def test_storage(self):
        x = torch.arange(4.)
        s = x.storage()
        self.assertEqual((len(s), s[1], s.tolist()), (4, 1.0, [0, 1, 2, 3]))
        self.assertEqual(x[1:].untyped_storage().data_ptr(), x.untyped_storage().data_ptr())

    def test_sci_mode_ends_at_next_call(self):
        torch.set_printoptions(sci_mode=True)
        self.assertEqual(repr(torch.tensor([2.5])), "tensor([2.5000e+00])")
        torch.set_printoptions(precision=3)
        self.assertEqual(repr(torch.tensor([2.5])), "tensor([2.500])")
        torch.set_printoptions(profile="default")

    def test_print_options(self):
        torch.set_printoptions(precision=2)
        try:
            self.assertEqual(repr(torch.tensor([0.5])), "tensor([0.50])")
        finally:
            torch.set_printoptions(profile="default")


class Unique(unittest.TestCase):
    def check(self, x):
        y = x.flatten()
        values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
        self.assertEqual(values.tolist(), sorted(set(y.tolist())))
        self.assertTrue(torch.equal(values[inverse], x))
        self.assertEqual(counts.tolist(), [y.tolist().count(v) for v in values.tolist()])

    def test_elements(self):
        devices = ["cpu"] + ["cuda"] * torch.cuda.is_available()
        torch.manual_seed(0)
        for device in devices:
            for dtype in (torch.int64, torch.float32, torch.bool, torch.uint8, torch.bfloat16):
                self.check(torch.randint(0, 5, (4, 6)).to(device=device, dtype=dtype))
            self.check(torch.tensor(3, device=device))
            self.check(torch.zeros(0, 3, device=device))

    def test_optional_results(self):
        x = torch.tensor([3, 1, 3])
        self.assertIsInstance(torch.unique(x), torch.Tensor)
        self.assertEqual([t.tolist() for t in torch.unique(x, return_inverse=True)], [[1, 3], [1, 0, 1]])
        self.assertEqual([t.tolist() for t in x.unique(return_counts=True)], [[1, 3], [1, 2]])
        self.assertEqual(len(x.unique(True, True, True)), 3)
        nan = float("nan")
        self.assertEqual(str(torch.unique(torch.tensor([nan, 1.0, nan]))), "tensor([1., nan, nan])")
        self.assertEqual(torch.unique(torch.ones(2, requires_grad=True)).grad_fn.name(), "Unique2Backward0")

    def test_unique_along_dimension(self):
        x = torch.tensor([[2, 1], [1, 2], [2, 1]])
        self.assertEqual([t.tolist() for t in torch.unique(x, dim=0, return_inverse=True, return_counts=True)],
                         [[[1, 2], [2, 1]], [1, 0, 1], [1, 2]])
        self.assertEqual(torch.unique(x, dim=-1).tolist(), [[1, 2], [2, 1], [1, 2]])
        torch.manual_seed(1)
        y = torch.randint(0, 2, (3, 40, 2))
        values, inverse = torch.unique(y, dim=1, return_inverse=True)
        self.assertTrue(torch.equal(values[:, inverse], y))
        rows = values.transpose(0, 1).flatten(1).tolist()
        self.assertEqual(rows, sorted(rows))
        self.assertEqual(torch.unique(torch.zeros(0, 2), dim=0).shape, (0, 2))
        with self.assertRaisesRegex(RuntimeError, "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied"):
            torch.unique(torch.zeros(2, 0), dim=0)
        with self.assertRaisesRegex(IndexError, r"Dimension out of range \(expected to be in range of \[-2, 1\], but got 5\)"):
            torch.unique(x, dim=5)

    def test_errors_name_called_function(self):
        x = torch.ones(2)
        for f in (torch.unique, torch.unique_consecutive):
            with self.assertRaisesRegex(TypeError, rf"^{f.__name__}\(\): argument 'dim' must be int, not str$"):
                f(x, dim="a")
            with self.assertRaisesRegex(TypeError, rf"^{f.__name__}\(\): argument 'input' must be Tensor, not list$"):
                f([1])

    def test_unique_consecutive(self):
        x = torch.tensor([1, 1, 2, 2, 3, 1, 1, 2])
        self.assertEqual([t.tolist() for t in torch.unique_consecutive(x, return_inverse=True, return_counts=True)],
                         [[1, 2, 3, 1, 2], [0, 0, 1, 1, 2, 3, 3, 4], [2, 2, 1, 2, 1]])
        self.assertEqual(x.reshape(4, 2).unique_consecutive(dim=0).tolist(), [[1, 1], [2, 2], [3, 1], [1, 2]])
        self.assertEqual(torch.unique_consecutive(torch.zeros(0)).shape, (0,))


class Copies(unittest.TestCase):
    def test_deepcopy_preserves_aliasing(self):
        x = torch.arange(6.).view(2, 3)
        y, row, transposed = copy.deepcopy([x, x[1], x.t()])
        y.zero_()
        self.assertEqual((row.tolist(), transposed.tolist(), x.sum().item()), ([0] * 3, [[0, 0]] * 3, 15))
        self.assertEqual((row.storage_offset(), transposed.stride()), (3, (1, 3)))
        part = copy.deepcopy(x[1:, 1:])
        self.assertEqual((part.tolist(), part.stride(), part.storage().size()), ([[4, 5]], (3, 1), 6))

    def test_deepcopy_of_leaf(self):
        x = torch.ones(2, requires_grad=True)
        (x * 2).sum().backward()
        y = copy.deepcopy(x)
        self.assertTrue(y.is_leaf and y.requires_grad and y.grad is not x.grad)
        y.sum().backward()
        self.assertEqual((x.grad.tolist(), y.grad.tolist()), ([2, 2], [3, 3]))
        with torch.no_grad():
            y.add_(1)
        self.assertEqual(x.tolist(), [1, 1])

    def test_deepcopy_of_parameter_drops_gradient(self):
        p = torch.nn.Parameter(torch.ones(2))
        p.sum().backward()
        q = copy.deepcopy(p)
        self.assertEqual((type(q), q.requires_grad, q.grad), (torch.nn.Parameter, True, None))

    def test_shallow_copy_shares_memory(self):
        x = torch.ones(2)
        copy.copy(x).zero_()
        self.assertEqual(x.tolist(), [0, 0])
        y = copy.copy(torch.ones(2, requires_grad=True) * 2)
        self.assertTrue(y.requires_grad and y.is_leaf)

    def test_contiguous_format_is_row_major(self):
        t, packed = torch.ones(2, 3).t(), {"memory_format": torch.contiguous_format}
        for made in (t.clone(**packed), t.to(torch.float64, **packed), t.to(torch.float32, copy=True, **packed),
                     t.double(**packed), torch.zeros_like(t, **packed), torch.rand_like(t, **packed)):
            self.assertEqual(made.stride(), (2, 1))
        self.assertEqual(t.clone(memory_format=torch.preserve_format).stride(), (1, 3))
        self.assertTrue(torch.ones_like(t, requires_grad=True, **packed).is_leaf)


class RandomNumbers(unittest.TestCase):
    @staticmethod
    def digest(t):
        return hashlib.md5(array.array("f", t.tolist()).tobytes()).hexdigest()

    def test_normal_matches_pytorch_exactly(self):
        if " fma " not in open("/proc/cpuinfo").read():
            self.skipTest("PyTorch uses vectorized loops only with fused multiply-add")
        torch.manual_seed(5)
        self.assertEqual(self.digest(torch.randn(1003)), "04a186d65580dc2826196feea79d751f")
        self.assertEqual(self.digest(torch.normal(2.0, 3.0, (40,))), "2249556f115decc8eeb70f1ecaa3229d")

    def test_multinomial_matches_pytorch(self):
        for dtype in torch.float32, torch.float64:
            torch.manual_seed(5)
            weights = torch.rand(41, 300).to(dtype)
            for n, replacement, want in ((200, True, "b605ad5b4d478cfebbe9e6c929a5c53a"), (1, True, "e718c7acf2a73759adec80f4d9499971"),
                                         (7, False, "32a32d9d37006e978dd8e26f881e6296")):
                self.assertEqual(self.digest(torch.multinomial(weights, n, replacement).flatten()), want)

    def test_multinomial_reports_invalid_row(self):
        none, below = "(sum of probabilities <= 0)", "(encountering probability entry < 0)"
        infinite, either = "(encountering probability entry = infinity or NaN)", "either `inf`, `nan` or element < 0"
        for value, again, once in ((0.0, none, none), (-1.0, below, either), (float("nan"), below, either),
                                   (float("inf"), infinite, either)):
            for row in (0, 3, 6):
                weights = torch.ones(7, 20)
                weights[row] = value
                for replacement, text in ((True, again), (False, once)):
                    with self.subTest(row=row, value=value, replacement=replacement):
                        with self.assertRaisesRegex(RuntimeError, re.escape(text)):
                            torch.multinomial(weights, 3, replacement)

    def test_draws_of_any_size_share_one_stream(self):
        torch.manual_seed(5)
        whole = torch.rand(2000)
        torch.manual_seed(5)
        pieces = [torch.rand(n) for n in (1, 622, 1, 1, 623, 0, 624, 128)]
        self.assertTrue(torch.equal(torch.cat(pieces), whole))
        torch.manual_seed(5)
        self.assertEqual([torch.rand(()).item() for _ in range(2000)], whole.tolist())


class InvalidWrites(unittest.TestCase):
    def test_overlapping_in_place_operands(self):
        for change in (lambda x: x[1:].add_(x[:-1]), lambda x: x[:-1].mul_(x[1:]), lambda x: x.view(2, 2).add_(x.view(2, 2).t())):
            x = torch.arange(4.)
            with self.assertRaisesRegex(RuntimeError, "some elements of the input tensor and the written-to tensor refer"):
                change(x)
            self.assertEqual(x.tolist(), [0, 1, 2, 3])
        x = torch.arange(4.)
        x.mul_(x)
        x[:2].add_(x[2:])
        self.assertEqual(x.tolist(), [4, 10, 4, 9])

    def test_out_of_range_values(self):
        x = torch.zeros(2, dtype=torch.int8)
        mask = torch.tensor([True, False])
        for make in (lambda: x.fill_(300), lambda: x.masked_fill(mask, -129), lambda: torch.full((2,), 2**31, dtype=torch.int32),
                     lambda: x.index_fill_(0, torch.tensor([0]), 1e9), lambda: torch.full((1,), float("nan"), dtype=torch.int64),
                     lambda: torch.zeros(2).half().masked_fill(mask, -1e9), lambda: torch.tensor([1, 256], dtype=torch.uint8),
                     lambda: torch.tensor(float("inf"), dtype=torch.int64), lambda: torch.full((1,), 1e39)):
            self.assertRaisesRegex(RuntimeError, "value cannot be converted to type .* without overflow", make)
        self.assertEqual(x.tolist(), [0, 0])
        self.assertEqual(torch.tensor(-1, dtype=torch.uint8).item(), 255)
        self.assertEqual(torch.full((1,), float("-inf")).half().item(), float("-inf"))


class InPlaceViewOps(unittest.TestCase):
    def test_in_place_shapes(self):
        x = torch.arange(6.).view(2, 3)
        self.assertIs(x.unsqueeze_(0), x)
        self.assertEqual((x.shape, x._version, x.squeeze_().shape, x.t_().shape, x.stride()), ((1, 2, 3), 1, (2, 3), (3, 2), (1, 3)))
        self.assertEqual((x.transpose_(0, 1).shape, x.swapaxes_(0, 1).shape, x.swapdims_(0, 1).shape), ((2, 3), (3, 2), (2, 3)))
        self.assertEqual((x.unsqueeze_(1).squeeze_((0, 1)).shape, torch.ones([1] * 8).unsqueeze_(3).dim()), ((2, 3), 9))
        with self.assertRaisesRegex(IndexError, "Dimension out of range"):
            x.unsqueeze_(5)
        self.assertEqual((x.shape, x.tolist()), ((2, 3), [[0, 1, 2], [3, 4, 5]]))

    def test_gradients(self):
        w = torch.ones(2, 3, requires_grad=True)
        y = w * 2
        y.t_().unsqueeze_(0).squeeze_(0)
        (y * torch.arange(6.).view(3, 2)).sum().backward()
        self.assertEqual(w.grad.tolist(), [[0, 4, 8], [2, 6, 10]])
        saved = (y := w * 2).pow(2)
        y.unsqueeze_(0)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            saved.sum().backward()
        with self.assertRaisesRegex(RuntimeError, "a leaf Variable that requires grad is being used in an in-place operation"):
            w.t_()
        self.assertEqual(w.shape, (2, 3))

    def test_view_keeps_base(self):
        w = torch.ones(2, 3, requires_grad=True)
        y = w * 2
        v = y[0]
        v.unsqueeze_(1).mul_(3)
        self.assertEqual((v.shape, y.tolist()), ((3, 1), [[6, 6, 6], [2, 2, 2]]))
        (v.sum() + (y * y).sum()).backward()
        self.assertEqual(w.grad.tolist(), [[78, 78, 78], [8, 8, 8]])
        z = torch.zeros(3)
        z[1:].unsqueeze_(0).fill_(4)
        self.assertEqual(z.tolist(), [0, 4, 4])

    def test_tensor_of_device_scalars_with_default_device(self):
        scalar = torch.tensor(5, device="cuda:0")
        torch.set_default_device("cuda")
        try:
            made = torch.tensor([[scalar, 6]])
        finally:
            torch.set_default_device(None)
        assert (made.tolist(), made.device) == ([[5, 6]], scalar.device)


if __name__ == "__main__":
    unittest.main()
