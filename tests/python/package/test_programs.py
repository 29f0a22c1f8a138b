# SPDX-License-Identifier: Apache-2.0
"""Output and errors of short programs. Each is also run with PyTorch if it is installed."""
import contextlib
import io
import unittest
import warnings

import phlox
import peer
from peer import newest

LIBRARIES = [phlox] + [newest] * (newest is not None)


def outcome(library, program, **names):
    """The output of a program, and the error that ended it."""
    printed, error = io.StringIO(), ""
    library.manual_seed(0)
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exec(program, {"torch": library, "nn": library.nn, "F": library.nn.functional, **names})
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
    return printed.getvalue() + error


class Case(unittest.TestCase):
    def check(self, program, wanted):
        """Checks the output and the final error of a program; `...` abbreviates a long text."""
        for library in LIBRARIES:
            with self.subTest(program=program, library=library.__name__):
                got = outcome(library, program).rstrip("\n")
                self.assertEqual(got[:len(wanted) - 3] + "..." if wanted.endswith("...") else got, wanted)


class Gradients(Case):
    LIMITS = "x = torch.tensor([-2., -1., 0., 1., 2., float('nan')], requires_grad=True)\n"

    def test_clamp_gradient_with_number_bounds(self):
        for call, wanted in {"x.clamp(-1, 1)": "0., 0., 1., 0., 0., 0.", "x.clamp(min=-1)": "0., 0., 1., 1., 1., 0.", "x.clamp_max(1)": "1., 1., 1., 0., 0., 0.",
                             "x.clamp(1, -1)": "0., 0., 0., 0., 0., 0.", "x.clone().clamp_(-1, 1)": "0., 0., 1., 0., 0., 0."}.items():
            self.check(f"{self.LIMITS}{call}.sum().backward(); print(x.grad)", f"tensor([{wanted}])")

    def test_clamp_gradient_with_tensor_bounds(self):
        self.check(self.LIMITS + "a, b = (torch.full((6,), v, requires_grad=True) for v in (-1., 1.))\nx.clamp(a, b).sum().backward(); print(x.grad, a.grad, b.grad)",
                   "tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000, 1.0000]) tensor([1.0000, 0.5000, 0.0000, 0.0000, 0.0000, 0.0000]) "
                   "tensor([0.0000, 0.0000, 0.0000, 0.5000, 1.0000, 0.0000])")
        self.check(self.LIMITS + "a = torch.full((6,), -1., requires_grad=True)\nx.clamp_min(a).sum().backward(); print(x.grad, a.grad)",
                   "tensor([0.0000, 0.5000, 1.0000, 1.0000, 1.0000, 1.0000]) tensor([1.0000, 0.5000, 0.0000, 0.0000, 0.0000, 1.0000])")
        self.check(self.LIMITS + "a, b = (torch.full((6,), v, requires_grad=True) for v in (1., -1.))\nx.clamp(a, b).sum().backward(); print(x.grad, a.grad, b.grad)",
                   "tensor([0., 0., 0., 0., 0., 1.]) tensor([0., 0., 0., 0., 0., 0.]) tensor([1., 1., 1., 1., 1., 1.])")

    def test_backward_checks_grad_output_first(self):
        self.check("torch.ones(2).backward(torch.ones(3))",
                   "RuntimeError: Mismatch in shape: grad_output[0] has a shape of torch.Size([3]) and output[0] has a shape of torch.Size([2]).")
        self.check("x = torch.ones(2, requires_grad=True); torch.autograd.grad(x, [torch.ones(2)])", "RuntimeError: grad can be implicitly created only for scalar outputs")
        self.check("torch.autograd.grad(torch.ones(2), [torch.ones(2)])", "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn")
        for given, of in ("float32", "complex64"), ("complex64", "float32"):
            self.check(f"torch.ones(2, dtype=torch.{of}, requires_grad=True).backward(torch.ones(2, dtype=torch.{given}))",
                       "RuntimeError: For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in dtype: "
                       f"grad_output[0] has a dtype of torch.{given} and output[0] has a dtype of torch.{of}.")

    def test_flags_of_non_leaves_cannot_be_set(self):
        self.check("x = torch.ones(2, requires_grad=True) * 2\nx.requires_grad_(); x.requires_grad = True", "RuntimeError: you can only change requires_grad flags of leaf variables.")
        self.check("torch.ones(2, dtype=torch.int32).requires_grad = True", "RuntimeError: only Tensors of floating point and complex dtype can require gradients")
        self.check("x = torch.ones(2, requires_grad=True); x.grad = torch.ones(2).double()",
                   "RuntimeError: attempting to assign a gradient with dtype 'double' to a tensor with grad_dtype 'Float'. The gradient must match...")
        self.check("torch.ones(2)[:1].detach_()", "RuntimeError: Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel...")

    def test_func_transforms_under_no_grad(self):
        setup = "x = torch.ones(2, requires_grad=True); f = lambda v: (v * x).sum()\n"
        for call in ("torch.func.grad(f)(torch.ones(2))", "torch.func.vjp(f, torch.ones(2))[0]", "torch.func.vjp(f, torch.ones(2))[1](torch.tensor(1.))[0]",
                     "torch.func.grad_and_value(f)(torch.ones(2))[1]", "torch.func.grad(torch.func.grad(lambda v: (v ** 3 * x).sum()))(torch.tensor(1.))"):
            self.check(f"{setup}print({call}.requires_grad)", "True")
            self.check(f"{setup}torch.set_grad_enabled(False)\ntry: print({call}.requires_grad)\nfinally: torch.set_grad_enabled(True)", "False")
        self.check("torch.func.grad(torch.sum)(torch.ones(2, dtype=torch.complex64))",
                   "RuntimeError: grad can be implicitly created only for real scalar outputs but got torch.complex64")

    def test_numpy_under_no_grad(self):
        self.check("x = torch.ones(2, requires_grad=True)\nwith torch.no_grad(): print(x.numpy())\nx.numpy()",
                   "[1. 1.]\nRuntimeError: Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")


class Indices(Case):
    def test_out_of_range_index_names_dimension(self):
        x = "torch.ones(2, 3)"
        for index, text in {"[0, 5]": "index 5 is out of bounds for dimension 1 with size 3", "[-3]": "index -3 is out of bounds for dimension 0 with size 2",
                            "[..., torch.tensor(3)]": "index 3 is out of bounds for dimension 1 with size 3", "[None, 2]": "index 2 is out of bounds for dimension 1 with size 2",
                            ".select(1, -4)": "select(): index -4 out of range for tensor of size [2, 3] at dimension 1"}.items():
            self.check(x + index, f"IndexError: {text}")
        self.check("torch.tensor(1.)[0:1]", "IndexError: slice() cannot be applied to a 0-dim tensor.")

    def test_only_integers_are_indices(self):
        for t in "1j", "1.", "[1, 2]":
            self.check(f"range(torch.tensor({t}))", "TypeError: only integer tensors of a single element can be converted to an index")


    def test_list_indices_with_tensors_are_tuples(self):
        x = "x = torch.arange(9).view(3, 3); "
        for index, wanted in {"[[torch.tensor([0, 1]), torch.tensor([1, 0])]]": "tensor([1, 3])", "[[0, torch.tensor(1)]]": "tensor(1)", "[[slice(0, 1)]]": "tensor([[0, 1, 2]])",
                              "[[[0, 1], [1, 2]]]": "tensor([1, 5])", "[[0, 1]]": "tensor([[0, 1, 2],\n        [3, 4, 5]])"}.items():
            self.check(f"{x}print(x{index})", wanted)
        self.check(x + "x[[[0, 1], [1, 2]]] = 0; print(x.tolist())", "[[0, 0, 2], [3, 4, 0], [6, 7, 8]]")


class Creation(Case):
    def test_random_fill_follows_memory_order(self):
        expressions = {"torch.zeros(3, 2).t()": "[[0.496, 0.088, 0.307], [0.768, 0.132, 0.634]]", "torch.zeros(2, 6)[:, ::2]": "[[0.496, 0.768, 0.088], [0.132, 0.307, 0.634]]",
                "torch.zeros(2, 1, 3).transpose(0, 2)": "[[[0.496, 0.132]], [[0.768, 0.307]], [[0.088, 0.634]]]"}
        for expression, wanted in expressions.items():
            self.check(f"torch.manual_seed(0); x = {expression}.uniform_(); print(torch.round(x, decimals=3).double().mul(1000).round().div(1000).tolist())", wanted)
        for draw in "normal_()", "exponential_()", "random_(100)", "bernoulli_(0.5)", "log_normal_()", "cauchy_()", "geometric_(0.5)":
            for library in LIBRARIES:  # below 16 elements, layouts draw the same numbers as contiguous memory
                names = {"torch": library}
                library.manual_seed(3)
                line = eval(f"torch.zeros(12).{draw}", names).view(2, 3, 2)
                library.manual_seed(3)
                self.assertEqual(eval(f"torch.zeros(3, 2, 2).transpose(0, 1).{draw}", names).transpose(0, 1).flatten().tolist(), line.flatten().tolist())

    def test_half_precision_draws_are_rounded_float32(self):
        for dtype in "float16", "bfloat16":
            for library in LIBRARIES:
                short = getattr(library, dtype)
                library.manual_seed(1)
                wide = library.zeros(5000).uniform_(2, 5).to(short)
                library.manual_seed(1)
                got = library.zeros(5000, dtype=short).uniform_(2, 5)
                self.assertEqual(got.tolist(), wide.where(wide != 5, 2).tolist())  # the upper bound is excluded
                self.assertTrue(bool((wide == 5).any()))
        self.check("torch.manual_seed(0); print(torch.randn(20, dtype=torch.bfloat16)[[0, 3, 4, 19]].tolist(), torch.rand(1).tolist())", "[-1.125, -0.43359375, -1.3515625, -0.84375] [0.17591017484664917]")

    def test_init_of_channels_last_weights(self):
        self.check("torch.manual_seed(0); w = nn.init.kaiming_uniform_(torch.zeros(2, 3, 2, 2).to(memory_format=torch.channels_last)); print(w.permute(0, 2, 3, 1).flatten()[:4])",
                   "tensor([-0.0053,  0.3793, -0.5820, -0.5204])")

    def test_tensor_from_list_of_tensors(self):
        self.check("a = torch.ones(1); print(torch.tensor([a, 2.]), torch.tensor([[a], [torch.ones(1, 1)]]), torch.tensor([torch.tensor(1), 2]))",
                   "tensor([1., 2.]) tensor([[1.],\n        [1.]]) tensor([1, 2])")
        for data in "[torch.ones(2), torch.ones(2)]", "[torch.ones(0)]", "[2., torch.ones(2)]":
            for call in "tensor", "as_tensor":
                self.check(f"torch.{call}({data})", "ValueError: only one element tensors can be converted to Python scalars")


class Training(Case):
    def test_state_dict_without_version(self):
        self.check("m = nn.Sequential(nn.BatchNorm1d(3)); s = dict(m.state_dict()); del s['0.num_batches_tracked']; print(m.load_state_dict(s), m[0].num_batches_tracked)",
                   "<All keys matched successfully> tensor(0)")
        self.check("print(nn.BatchNorm1d(3).load_state_dict({}, strict=False))", "_IncompatibleKeys(missing_keys=['weight', 'bias', 'running_mean', 'running_var'], unexpected_keys=[])")
        self.check("m = nn.BatchNorm1d(3); s = m.state_dict(); del s['num_batches_tracked']; m.load_state_dict(s)",
                   'RuntimeError: Error(s) in loading state_dict for BatchNorm1d:\n\tMissing key(s) in state_dict: "num_batches_tracked". ')

    def test_order_of_group_options(self):
        for kind, options in {"Adam": "lr betas eps weight_decay amsgrad maximize foreach capturable differentiable fused decoupled_weight_decay", "SGD": "lr momentum dampening weight_decay nesterov maximize "
                              "foreach differentiable fused", "RMSprop": "lr momentum alpha eps centered weight_decay capturable foreach maximize differentiable",
                              "Rprop": "lr etas step_sizes foreach maximize differentiable capturable"}.items():
            self.check(f"print(*list(torch.optim.{kind}([torch.ones(1, requires_grad=True)]).param_groups[0])[1:])", options)

    def test_module_and_optimizer_errors(self):
        setup = "o = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1.); S = torch.optim.lr_scheduler; "
        self.check("nn.ReLU().add_module('a.b', None)", "KeyError: 'module name can\\'t contain \".\", got: a.b'")
        self.check(setup + "o.add_param_group([1])", "TypeError: param_group must be a dict, but got <class 'list'>")
        self.check(setup + "S.SequentialLR(o, [], [])", "ValueError: SequentialLR expects at least one scheduler, but got no scheduler.")
        self.check(setup + "S.ReduceLROnPlateau(o).step()", "TypeError: ReduceLROnPlateau.step() missing 1 required positional argument: 'metrics'")
        for schedule in "S.StepLR(o, 2, last_epoch=0)", "S.LambdaLR(o, lambda e: 1, last_epoch=0)":
            self.check(setup + schedule, 'KeyError: "param \'initial_lr\' is not specified in param_groups[0] when resuming scheduler with last_epoch >= 0.\\nThis typically happens when:...')

    def test_layers_report_functional_name(self):
        for layer, function in {"nn.Linear(2, 2)": "linear", "nn.LayerNorm(2)": "layer_norm", "nn.RMSNorm(2)": "rms_norm", "nn.LeakyReLU()": "leaky_relu", "nn.PReLU()": "prelu",
                                "nn.MaxPool2d(2)": "max_pool2d", "nn.GELU()": "gelu"}.items():
            self.check(f"{layer}([1.])", f"TypeError: {function}(): argument 'input' (position 1) must be Tensor, not list")

    def test_missing_keys_before_unexpected_keys(self):
        self.check("nn.BatchNorm1d(3).load_state_dict({'weight': torch.ones(3), 'zz': 1})",
                   'RuntimeError: Error(s) in loading state_dict for BatchNorm1d:\n\tMissing key(s) in state_dict: "bias", "running_mean", "running_var". \n\t'
                   'Unexpected key(s) in state_dict: "zz". ')

    def test_iterable_loader_options(self):
        setup = "from torch.utils.data import DataLoader, IterableDataset\nclass I(IterableDataset):\n    def __iter__(self): return iter(range(3))\n"
        for options, text in {"batch_size=0": "batch_size should be a positive integer value, but got batch_size=0",
                              "shuffle=True, sampler=[1]": "DataLoader with IterableDataset: expected unspecified shuffle option, but got shuffle=True",
                              "batch_sampler=[[1]], sampler=[1]": "DataLoader with IterableDataset: expected unspecified sampler option, but got sampler=[1]"}.items():
            for library in LIBRARIES:
                data = __import__(library.__name__ + ".utils.data", fromlist=["data"])
                got = outcome(library, setup.replace("from torch.utils.data import DataLoader, IterableDataset\n", "") + f"DataLoader(I(), {options})",
                              DataLoader=data.DataLoader, IterableDataset=data.IterableDataset)
                self.assertEqual(got, f"ValueError: {text}")


class Methods(Case):
    def test_copy_number(self):
        self.check("print(torch.ones(3).copy_(2), torch.ones(2, dtype=torch.int64).copy_(2.7), torch.ones(2, dtype=torch.uint8).copy_(-1))",
                   "tensor([2., 2., 2.]) tensor([2, 2]) tensor([255, 255], dtype=torch.uint8)")

    def test_assign_real_and_imag(self):
        self.check("x = torch.zeros(2, dtype=torch.complex64); x.real = torch.ones(2); x.imag = 2; print(x)\ny = torch.zeros(2); y.real = 3; print(y); y.imag = 2",
                   "tensor([1.+2.j, 1.+2.j])\ntensor([3., 3.])\nTypeError: imag is not implemented for tensors with non-complex dtypes.")

    def test_expand_errors_start_at_last_dimension(self):
        self.check("torch.ones(2).expand(-1, 3)", "RuntimeError: The expanded size of the tensor (3) must match the existing size (2) at non-singleton dimension 1.  "
                   "Target sizes: [-1, 3].  Tensor sizes: [2]")

    def test_transpose_of_zero_dim_matrix(self):
        self.check("x = torch.tensor(1 + 2j); print(x.mT, x.mH, x.adjoint())", "tensor(1.+2.j) tensor(1.-2.j) tensor(1.-2.j)")
        self.check("torch.ones(2).adjoint()", "RuntimeError: tensor.adjoint() is only supported on matrices or batches of matrices. Got 1-D tensor.")
        self.check("torch.ones(1, 2, 3).H", "RuntimeError: tensor.H is only supported on matrices (2-D tensors). Got 3-D tensor. For batches of matrices, consider using tensor.mH")

    def test_unsupported_dtypes(self):
        self.check("+torch.tensor(True)", "NotImplementedError: The `+` operator, on a bool tensor is not supported.")
        self.check("torch.tensor(True).relu()", "NotImplementedError: Boolean inputs not supported for relu")
        self.check("torch.tensor([1, 2]).std()", "NotImplementedError: std and var only support floating point and complex dtypes")
        for call, name in {"max()": "max_all", "min()": "min_all", "amax()": "max_values_cpu", "amin()": "min_values_cpu"}.items():
            self.check(f"torch.ones(2, dtype=torch.complex64).{call}", f"NotImplementedError: \"{name}\" not implemented for 'ComplexFloat'")
        self.check("torch.iinfo(torch.bool)", "TypeError: torch.bool is not supported by torch.iinfo")
        self.check("torch.iinfo(torch.complex64)", "TypeError: torch.iinfo() requires an integer input type. Use torch.finfo to handle 'torch.iinfo'")


class Arguments(Case):
    def test_argument_count_is_checked_before_types(self):
        for call, text in {"torch.relu(torch.ones(1), 'a')": "relu() takes 1 positional argument but 2 were given", "torch.ones(1).flatten('a', 1, 2)": "flatten() takes from 0 to 2 positional arguments but 3 were given",
                           "torch.ones(1).repeat('a', 1)": "repeat() takes 1 positional argument but 2 were given", "torch.ones(1).contiguous(1)": "contiguous() takes 0 positional arguments but 1 was given"}.items():
            self.check(call, f"TypeError: {text}")

    def test_invalid_integer_in_list_names_position(self):
        for call, argument in {"torch.ones(6).view(2, 1.5)": "view(): argument 'size'", "torch.ones(6).reshape((2, 1.5))": "reshape(): argument 'shape'", "torch.zeros(2, 1.5)": "zeros(): argument 'size'",
                               "torch.ones(2).expand(2, 1.5)": "expand(): argument 'size'", "torch.ones(2, 3).mean((0, 1.5))": "mean(): argument 'dim'"}.items():
            self.check(call, f'TypeError: {argument} failed to unpack the object at pos 2 with error "type must be tuple of ints,but got float"')
        self.check("torch.zeros((1.5,))", "TypeError: zeros(): argument 'size' (position 1) must be tuple of ints, but found element of type float at pos 0")

    def test_single_matching_overload_reports_its_error(self):
        self.check("torch.ones(2, 3).max((1, 2), [3])", "TypeError: max(): argument 'dim' (position 1) must be int, not tuple")
        self.check("torch.ones(2, 3).sum(1, foo=2)", "TypeError: sum() got an unexpected keyword argument 'foo'")

    def test_overload_mismatch_lists_reasons(self):
        self.check("torch.ones(2).max(foo=1)", "TypeError: max() received an invalid combination of arguments - got (foo=int, ), but expected one of:\n * ()\n"
                   "      didn't match because some of the keywords were incorrect: foo\n * (Tensor other)\n      didn't match because some of the keywords were incorrect: foo\n"
                   " * (int dim, bool keepdim = False)")
        self.check("torch.ones(2).max(torch.float32)", "TypeError: max() received an invalid combination of arguments - got (torch.dtype), but expected one of:\n * ()\n"
                   "      didn't match because some of the arguments have invalid types: (!torch.dtype!)\n * (Tensor other)\n"
                   "      didn't match because some of the arguments have invalid types: (!torch.dtype!)\n * (int dim, bool keepdim = False)")


class ViewCopies(Case):
    def test_view_copy_ops(self):
        self.check("x = torch.arange(6.); print(torch.select_copy(x, -1, -2), torch.slice_copy(x, 0, -4, -1, 2), torch.slice_copy(x)); print(torch.select_copy(x, 0, 1)._base)",
                   "tensor(4.) tensor([2., 4.]) tensor([0., 1., 2., 3., 4., 5.])\nNone")
        self.check("x = torch.ones(2) * 1j; print(torch.view_as_real_copy(x), torch.view_as_complex_copy(torch.ones(1, 2)))", "tensor([[0., 1.],\n        [0., 1.]]) tensor([1.+1.j])")
        self.check("x = torch.ones(2); y = torch.detach_copy(x); y += 1; print(x, y)", "tensor([1., 1.]) tensor([2., 2.])")
        self.check("x = torch.arange(4.); a = torch.zeros(2); print(torch.slice_copy(x, 0, 2, out=a) is a, a)", "True tensor([2., 3.])")

    def test_split_copy(self):
        self.check("print(*torch.split_copy(torch.arange(5), 2)); print(torch.split_copy(torch.ones(0), 2))", "tensor([0, 1]) tensor([2, 3]) tensor([4])\n(tensor([]),)")
        self.check("x = torch.arange(4.); a, b = torch.zeros(2), torch.zeros(2); print(torch.split_copy(x, 2, out=[a, b]), a, b)", "None tensor([0., 1.]) tensor([2., 3.])")
        self.check("x = torch.ones(3, requires_grad=True); torch.split_copy(x, 2)[0].sum().backward(); print(x.grad)", "tensor([1., 1., 0.])")

    def test_view_copy_errors(self):
        for call, text in {"split_copy(x, -1)": "RuntimeError: split expects split_size be non-negative, but got split_size=-1", "split_copy(x, 2, out=[x])": "RuntimeError: split_copy_Tensor_out() expected an out= argument of size 3, got size 1",
                           "split_copy(x, 2, 1)": "IndexError: Dimension out of range (expected to be in range of [-1, 0], but got 1)", "slice_copy(x, 0, 0, 3, 0)": "RuntimeError: slice step must be positive",
                           "slice_copy(x, 1)": "IndexError: Dimension out of range (expected to be in range of [-1, 0], but got 1)", "select_copy(x, 0, 9)": "IndexError: select(): index 9 out of range for tensor of size [6] at dimension 0",
                           "view_as_real_copy(x)": "TypeError: view_as_real is only supported for complex tensors", "view_as_complex_copy(torch.ones(3))": "RuntimeError: Tensor must have a last dimension of size 2"}.items():
            self.check(f"x = torch.arange(6.); torch.{call}", text)


class Names(Case):
    def test_typename(self):
        self.check("print(*map(torch.typename, (torch.ones(1), torch.ones(1).half(), torch.ones(1, dtype=torch.complex64), nn.Parameter(torch.ones(1)))))",
                   "torch.FloatTensor torch.HalfTensor torch.ComplexFloatTensor torch.FloatTensor")
        self.check("print(*map(torch.typename, (1, 'a', [1], None, int, len, torch.float32, torch.Size([1]), torch.device('cpu'), torch.Tensor, F.relu, torch.finfo(torch.float32))))",
                   "int str list NoneType int len torch.dtype torch.Size torch.device torch.Tensor torch.nn.functional.relu torch.finfo")


class Optimizers(Case):
    MADE = "p = torch.ones(2, requires_grad=True); p.grad = torch.ones(2); rates = torch.optim.lr_scheduler\no = torch.optim.{}\n"

    def test_integer_learning_rates(self):
        step = "print(s.base_lrs, s.get_last_lr(), o.param_groups[0]['initial_lr'])\nfor _ in range(2): o.step(); s.step(); print(s.get_last_lr(), o.param_groups[0]['lr'])"
        for schedule, wanted in {"StepLR(o, 2)": "[2] [2] 2\n[2] 2\n[0.2] 0.2", "ExponentialLR(o, 0.5)": "[2] [2] 2\n[1.0] 1.0\n[0.5] 0.5", "LambdaLR(o, lambda e: 1)": "[2] [2] 2\n[2] 2\n[2] 2",
                                 "LambdaLR(o, lambda e: 0.5 ** e)": "[2] [2.0] 2\n[1.0] 1.0\n[0.5] 0.5", "MultiplicativeLR(o, lambda e: 3)": "[2] [2] 2\n[6] 6\n[18] 18",
                                 "CosineAnnealingLR(o, 2)": "[2] [2] 2\n[1.0] 1.0\n[0.0] 0.0", "CosineAnnealingWarmRestarts(o, 2)": "[2] [2.0] 2\n[1.0] 1.0\n[2.0] 2.0",
                                 "PolynomialLR(o, 2)": "[2] [2] 2\n[1.0] 1.0\n[0.0] 0.0", "ConstantLR(o, 0.5, 1)": "[2] [1.0] 2\n[2.0] 2.0\n[2.0] 2.0"}.items():
            self.check(self.MADE.format("SGD([p], lr=2)") + f"s = rates.{schedule}\n{step}", wanted)

    def test_adagrad_initial_state(self):
        self.check(self.MADE.format("Adagrad([p], initial_accumulator_value=0.5)") + "print(dict(o.state[p])); print(o.state_dict()['state']); o.step(); print(dict(o.state[p]))",
                   "{'step': tensor(0.), 'sum': tensor([0.5000, 0.5000])}\n{0: {'step': tensor(0.), 'sum': tensor([0.5000, 0.5000])}}\n{'step': tensor(1.), 'sum': tensor([1.5000, 1.5000])}")

    def test_foreach_in_place_rejects_leaves_first(self):
        for view, text in {"": "a leaf", "[:]": "a view of a leaf"}.items():
            self.check(f"a = [torch.ones(2), torch.ones(3, requires_grad=True){view}, torch.ones(2)]\ntry: torch._foreach_mul_(a, 2)\nfinally: print(a[0])",
                       f"tensor([1., 1.])\nRuntimeError: {text} Variable that requires grad is being used in an in-place operation.")
        self.check("a = [torch.ones(2, requires_grad=True)]\nwith torch.no_grad(): torch._foreach_mul_(a, 2)\nprint(a[0].detach())", "tensor([2., 2.])")


class RReLU(Case):
    GIVEN = "a = torch.tensor([-1., 2., -3., -4., 0., float('nan')]"

    def test_one_draw_per_non_positive_element(self):
        self.check(f"{self.GIVEN}); print(F.rrelu(a, training=True)); print(torch.rand(2))", "tensor([-0.3271,  2.0000, -0.8174, -0.8828,  0.0000,     nan])\ntensor([0.4556, 0.6323])")
        self.check(f"{self.GIVEN}, dtype=torch.float64); print(F.rrelu_(a.clone(), 0.1, 0.2, True))", "tensor([-0.1970,  2.0000, -0.5123, -0.5838,  0.0000,     nan],\n       dtype=torch.float64)")
        self.check("a = -torch.ones(2, 3).t(); print(F.rrelu(a, training=True))", "tensor([[-0.3271, -0.2725],\n        [-0.2207, -0.3168],\n        [-0.2594, -0.2898]])")

    def test_gradient_is_slope(self):
        self.check("a = (-torch.ones(4)).requires_grad_(); y = F.rrelu(a, training=True); y.sum().backward(); print(y, a.grad)",
                   "tensor([-0.3271, -0.2725, -0.2207, -0.3168], grad_fn=<RreluWithNoiseBackward0>) tensor([0.3271, 0.2725, 0.2207, 0.3168])")


class Printing(Case):
    def tearDown(self):
        for library in LIBRARIES:
            library.set_printoptions(profile="default")

    def test_sci_mode_sets_width(self):
        self.check("torch.set_printoptions(sci_mode=True); print(torch.arange(7.))",
                   "tensor([0.0000e+00, 1.0000e+00, 2.0000e+00, 3.0000e+00, 4.0000e+00, 5.0000e+00,\n        6.0000e+00])")
        self.check("torch.set_printoptions(sci_mode=False); print(torch.tensor([1e-20]), torch.tensor([1e-20, 1e8]))",
                   "tensor([0.0000]) tensor([        0.0000, 100000000.0000])")


if __name__ == "__main__":
    unittest.main()
