# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers and cells, and torch.nn.utils.rnn: compared with explicit formulas on the CPU and on a simulated device, and with PyTorch if it is
installed, after a transfer of the weights through a file."""
import contextlib
import copy
import io
import itertools
import pickle
import unittest
import warnings

import phlox as torch

try:
    import torch as pytorch
    pytorch = None if "phlox" in pytorch.__file__ else pytorch
except ImportError:
    pytorch = None

nn, utils = torch.nn, torch.nn.utils.rnn
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
LAYERS = {"LSTM": {}, "GRU": {}, "RNN": {}, "RNN relu": {"nonlinearity": "relu"}}
OPTIONS = [dict(zip(("num_layers", "bidirectional", "bias", "batch_first"), row))
           for row in itertools.product((1, 2), (False, True), (True, False), (False, True))]
IN, SIZE, BATCH, TIMES = 3, 4, 2, 5


def cases():
    """(name, arguments) of each layer with each combination of options."""
    for name, more in LAYERS.items():
        for options in OPTIONS:
            yield name.split()[0], {**more, **options}
            if name == "LSTM":
                yield name, {**options, "proj_size": 2}


# ---- the formulas

def step(kind, x, states, w):
    """One time step of a cell, computed from its weights. Returns the next states."""
    h = states[0]
    a = x @ w["weight_ih"].t() + w.get("bias_ih", 0)
    b = h @ w["weight_hh"].t() + w.get("bias_hh", 0)
    if kind == "LSTM":
        i, f, g, o = (a + b).chunk(4, 1)
        c = f.sigmoid() * states[1] + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        return (h @ w["weight_hr"].t() if "weight_hr" in w else h), c
    if kind == "GRU":
        (ra, za, na), (rb, zb, nb) = a.chunk(3, 1), b.chunk(3, 1)
        r, z = (ra + rb).sigmoid(), (za + zb).sigmoid()
        return (1 - z) * (na + r * nb).tanh() + z * h,
    return ((a + b).tanh() if kind == "RNN" else (a + b).relu()),


def run(layer, x, states):
    """The layer's output and final states for an input (L, N, features), computed step by step."""
    kind = "RNN relu" if layer.mode == "RNN_RELU" else type(layer).__name__
    weights, ends = dict(layer.named_parameters()), []
    for k in range(layer.num_layers):
        outputs = []
        for d, suffix in enumerate(("", "_reverse")[:1 + layer.bidirectional]):
            tail = f"_l{k}{suffix}"
            w = {name[:-len(tail)]: value for name, value in weights.items() if name.endswith(tail)}
            now = [state[len(ends)] for state in states]
            rows = [None] * len(x)
            for t in reversed(range(len(x))) if d else range(len(x)):
                now = step(kind, x[t], now, w)
                rows[t] = now[0]
            outputs.append(torch.stack(rows))
            ends.append(now)
        x = torch.cat(outputs, 2)
    return x, [torch.stack(state) for state in zip(*ends)]


def initial_states(layer, batch=BATCH, **where):
    sizes = [getattr(layer, "proj_size", 0) or layer.hidden_size] + [layer.hidden_size] * isinstance(layer, nn.LSTM)
    return [torch.randn(layer.num_layers * (1 + layer.bidirectional), batch, size, **where) for size in sizes]


def as_argument(states):
    return tuple(states) if len(states) > 1 else states[0]


def flat(result):
    """Output and states as one list."""
    output, states = result
    return [output, *(states if isinstance(states, (tuple, list)) else [states])]


class Test(unittest.TestCase):
    def assert_close(self, mine, wanted, tolerance=1e-10):
        self.assertEqual(mine.shape, wanted.shape)
        self.assertLessEqual(((mine - wanted).abs() / wanted.abs().clamp(min=1)).max().item(), tolerance)

    def fails(self, error, text, call, *args, **kwargs):
        with self.assertRaises(error) as caught:
            call(*args, **kwargs)
        self.assertEqual(str(caught.exception), text)


class Formulas(Test):
    def both(self, layer, x, states, wanted):
        """Checks the layer's results and gradients against those of another computation."""
        tensors = [x, *states, *layer.parameters()]
        results = []
        for call in (lambda: flat(layer(x, as_argument(states))), wanted):
            parts = call()
            loss = sum((part * torch.arange(part.numel(), device=x.device).reshape(part.shape)).sum() for part in parts)
            results.append([*parts, *torch.autograd.grad(loss, tensors)])
        for mine, other in zip(*results, strict=True):
            self.assert_close(mine, other, 1e-9)

    def test_layers(self):
        for device in DEVICES:
            for name, options in cases():
                with self.subTest(name, device=device, **options):
                    torch.manual_seed(2)
                    layer = getattr(nn, name)(IN, SIZE, **options).double().to(device)
                    x = torch.randn(TIMES, BATCH, IN, dtype=torch.float64, device=device)
                    first = layer.batch_first
                    given = (x.transpose(0, 1) if first else x).contiguous().requires_grad_()
                    states = [s.requires_grad_() for s in initial_states(layer, dtype=torch.float64, device=device)]

                    def wanted():
                        output, ends = run(layer, given.transpose(0, 1) if first else given, states)
                        return [output.transpose(0, 1) if first else output, *ends]
                    self.both(layer, given, states, wanted)

    def test_packed_sequences(self):
        lengths = [3, 5, 1]
        for device in DEVICES:
            for name, options in cases():
                if options["batch_first"]:
                    continue
                with self.subTest(name, device=device, **options):
                    torch.manual_seed(2)
                    layer = getattr(nn, name)(IN, SIZE, **options).double().to(device)
                    x = torch.randn(max(lengths), 3, IN, dtype=torch.float64, device=device, requires_grad=True)
                    states = [s.requires_grad_() for s in initial_states(layer, 3, dtype=torch.float64, device=device)]
                    tensors = [x, *states, *layer.parameters()]

                    def packed():
                        output, ends = layer(utils.pack_padded_sequence(x, lengths, enforce_sorted=False), as_argument(states))
                        return flat((utils.pad_packed_sequence(output)[0], ends))

                    def alone():
                        parts = [run(layer, x[:n, k:k + 1], [s[:, k:k + 1] for s in states]) for k, n in enumerate(lengths)]
                        output = utils.pad_sequence([output[:, 0] for output, _ in parts])
                        return [output, *(torch.cat(ends, 1) for ends in zip(*(ends for _, ends in parts)))]
                    results = []
                    for call in (packed, alone):
                        parts = call()
                        loss = sum((part * torch.arange(part.numel(), device=device).reshape(part.shape)).sum() for part in parts)
                        results.append([*parts, *torch.autograd.grad(loss, tensors)])
                    for mine, other in zip(*results, strict=True):
                        self.assert_close(mine, other, 1e-9)

    def test_large_hidden_sizes(self):
        """Weights large enough to be packed for the products of all time steps; sizes not divisible by the panel width."""
        for device, (name, more), dtype in itertools.product(DEVICES, LAYERS.items(), (torch.float32, torch.float64)):
            with self.subTest(name, device=device, dtype=dtype):
                torch.manual_seed(2)
                size, kind = {"LSTM": 97, "GRU": 131}.get(name, 201), getattr(nn, name.split()[0])
                layer = kind(IN, size, bidirectional=True, **more).to(device, dtype)
                x = torch.randn(TIMES, 9, IN, dtype=dtype, device=device, requires_grad=True)
                states = [s.requires_grad_() for s in initial_states(layer, 9, dtype=dtype, device=device)]
                results = []
                with cudnn(allow_tf32=False):
                    whole = layer(x, as_argument(states))
                for output, ends in (whole, run(layer, x, states)):
                    parts = flat((output, ends))
                    results.append([*parts, *torch.autograd.grad(sum((part * part).sum() for part in parts), [x, *states, *layer.parameters()])])
                for mine, other in zip(*results, strict=True):
                    scale = other.abs().max().item()
                    # Values close to zero may be clipped by relu in only one of the two.
                    near = 1e-12 if dtype == torch.float64 else 1e-3 if "relu" in name else 1e-5
                    self.assert_close(mine / scale, other / scale, near)

    def test_cells(self):
        for device in DEVICES:
            for name, more in LAYERS.items():
                for bias in (True, False):
                    torch.manual_seed(2)
                    cell = getattr(nn, name.split()[0] + "Cell")(IN, SIZE, bias, **more).double().to(device)
                    x = torch.randn(BATCH, IN, dtype=torch.float64, device=device)
                    states = [torch.randn(BATCH, SIZE, dtype=torch.float64, device=device) for _ in range(1 + (name == "LSTM"))]
                    result = cell(x, as_argument(states))
                    wanted = step(name, x, states, dict(cell.named_parameters()))
                    for mine, other in zip(result if name == "LSTM" else [result], wanted, strict=True):
                        self.assert_close(mine, other)
                    single = cell(x[0], as_argument([s[0] for s in states]))
                    self.assert_close((single[0] if name == "LSTM" else single), wanted[0][0])
                    absent = step(name, x, [s * 0 for s in states], dict(cell.named_parameters()))
                    self.assert_close((cell(x)[0] if name == "LSTM" else cell(x)), absent[0])

    def test_gradcheck(self):
        for name, more in LAYERS.items():
            layer = getattr(nn, name.split()[0])(2, 2, bidirectional=True, **more).double()
            x = torch.rand(3, 2, 2, dtype=torch.float64, requires_grad=True)
            states = [s.abs().requires_grad_() for s in initial_states(layer, dtype=torch.float64)]
            self.assertTrue(torch.autograd.gradcheck(lambda x, *states: torch.cat([part.flatten() for part in flat(layer(x, as_argument(states)))]), (x, *states)))

    def test_double_backward(self):
        for name, more in LAYERS.items():
            torch.manual_seed(4)
            layer = getattr(nn, name.split()[0])(2, 2, **more).double()
            x = torch.rand(3, 2, 2, dtype=torch.float64, requires_grad=True)
            penalties = []
            for call in (layer, lambda x: run(layer, x, [s * 0 for s in initial_states(layer, dtype=torch.float64)])):
                slope, = torch.autograd.grad(flat(call(x))[0].tanh().sum(), x, create_graph=True)
                penalties.append(torch.autograd.grad((slope ** 2).sum(), [x, *layer.parameters()]))
            for mine, other in zip(*penalties, strict=True):
                self.assert_close(mine, other)


@contextlib.contextmanager
def cudnn(**settings):
    before = {name: getattr(torch.backends.cudnn, name) for name in settings}
    for name, value in settings.items(): setattr(torch.backends.cudnn, name, value)
    try:
        yield
    finally:
        for name, value in before.items(): setattr(torch.backends.cudnn, name, value)


@unittest.skipUnless(torch.cuda.is_available() and torch.backends.cudnn.is_available(), "no cuDNN")
class CudnnNetworks(Test):
    """Networks run by cuDNN as a whole, compared with the same networks run layer by layer on the device."""
    TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5, torch.float16: 1e-2, torch.bfloat16: 8e-2}

    def setUp(self):
        was, torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.allow_tf32, False
        self.addCleanup(setattr, torch.backends.cudnn, "allow_tf32", was)

    def results(self, layer, x, states, whole, wanted=None, twice=False):
        """Output, states and gradients, with or without cuDNN, and whether cuDNN ran, according to the output's node."""
        with cudnn(enabled=whole):
            output, ends = layer(x, as_argument(states))
            parts = flat((getattr(output, "data", output) if isinstance(output, utils.PackedSequence) else output, ends))
            names, nodes = set(), [part.grad_fn for part in parts]
            while nodes:
                node = nodes.pop()
                if node is not None and node.name() not in names:
                    names.add(node.name())
                    nodes += [after for after, _ in node.next_functions]
            loss = sum((part * torch.linspace(-1, 1, part.numel(), device="cuda", dtype=part.dtype).reshape(part.shape)).sum() for part in parts)
            tensors = wanted or [x.data if isinstance(x, utils.PackedSequence) else x, *states, *layer.parameters()]
            grads = torch.autograd.grad(loss, tensors, retain_graph=twice)
            if twice:
                for a, b in zip(grads, torch.autograd.grad(loss, tensors), strict=True):
                    self.assert_close(a, b, 0)
        return [*parts, *grads], any("Whole" in name for name in names)

    def both(self, layer, x, states, tolerance, **more):
        mine, by_library = self.results(layer, x, states, True, **more)
        other, by_layers = self.results(layer, x, states, False, **more)
        self.assertEqual((by_library, by_layers), (True, False))
        for k, (a, b) in enumerate(zip(mine, other, strict=True)):
            self.assertEqual((a.shape, a.dtype), (b.shape, b.dtype))
            difference = ((a - b).abs().max() / b.abs().max().clamp(min=1)).item()
            self.assertLessEqual(difference, tolerance, f"part {k}")

    def net(self, name, options, dtype=torch.float64, lengths=None, sizes=(IN, SIZE)):
        torch.manual_seed(2)
        layer = getattr(nn, name)(*sizes, **options).to("cuda", dtype)
        first = options.get("batch_first", False)
        batch = len(lengths) if lengths else BATCH
        x = torch.randn(*((batch, TIMES) if first else (TIMES, batch)), sizes[0], dtype=dtype, device="cuda")
        if lengths:
            x = utils.pack_padded_sequence(x, lengths, first)
            x.data.requires_grad_()
        else:
            x.requires_grad_()
        return layer, x, [s.requires_grad_() for s in initial_states(layer, batch, dtype=dtype, device="cuda")]

    def test_all_options(self):
        for (name, options), dtype in itertools.product(cases(), self.TOLERANCE):
            with self.subTest(name, dtype=dtype, **options):
                self.both(*self.net(name, options, dtype), self.TOLERANCE[dtype])

    def test_packed_sequences(self):
        for (name, options), dtype in itertools.product(cases(), (torch.float64, torch.float32)):
            with self.subTest(name, dtype=dtype, **options):
                self.both(*self.net(name, options, dtype, lengths=[5, 3, 3, 1]), self.TOLERANCE[dtype])

    def test_realistic_sizes(self):
        for name, dtype in itertools.product(("LSTM", "GRU"), (torch.float32, torch.bfloat16)):
            with self.subTest(name, dtype=dtype):
                self.both(*self.net(name, {"num_layers": 2}, dtype, sizes=(65, 130)), 4 * self.TOLERANCE[dtype])

    def test_partial_gradients_and_second_backward(self):
        for name, wanted in itertools.product(("LSTM", "GRU", "RNN"), ("x", "states", "weights", "one")):
            with self.subTest(name, wanted=wanted):
                layer, x, states = self.net(name, {"num_layers": 2})
                tensors = {"x": [x], "states": states, "weights": list(layer.parameters()), "one": [layer.bias_hh_l1]}[wanted]
                for t in [x, *states, *layer.parameters()]:
                    t.requires_grad_(any(t is w for w in tensors))
                self.both(layer, x, states, 1e-10, wanted=tensors, twice=True)

    def test_eval_mode_and_dropout(self):
        layer, x, states = self.net("LSTM", {"num_layers": 2, "dropout": 0.5})
        self.assertFalse(self.results(layer, x, states, True)[1])  # random numbers are Phlox's, so cuDNN is not used
        layer.eval()
        self.both(layer, x, states, 1e-10)
        outputs = []
        with torch.no_grad():
            for whole in (True, False):
                with cudnn(enabled=whole):
                    outputs.append(layer(x, as_argument(states))[0])
        self.assert_close(*outputs, 1e-10)

    def test_double_backward(self):
        for name in ("LSTM", "GRU", "RNN"):
            layer, x, states = self.net(name, {"num_layers": 2, "bidirectional": True})
            penalties = []
            for whole in (True, False):
                with cudnn(enabled=whole):
                    slope, = torch.autograd.grad(layer(x, as_argument(states))[0].tanh().sum(), x, create_graph=True)
                    penalties.append([slope, *torch.autograd.grad((slope ** 2).sum(), [x, *states, *layer.parameters()], allow_unused=True)])
            for mine, other in zip(*penalties, strict=True):
                self.assertEqual(mine is None, other is None)
                if mine is not None: self.assert_close(mine, other, 1e-9)

    def test_weight_modified_before_backward_raises(self):
        layer, x, states = self.net("GRU", {})
        output = layer(x, states[0])[0]
        with torch.no_grad(): layer.weight_hh_l0.mul_(2)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            output.sum().backward()

    def test_settings_changed_between_passes(self):
        layer, x, states = self.net("LSTM", {}, torch.float32)
        wanted = self.results(layer, x, states, True)[0][3]
        output, ends = layer(x, as_argument(states))
        parts = flat((output, ends))
        loss = sum((part * torch.linspace(-1, 1, part.numel(), device="cuda").reshape(part.shape)).sum() for part in parts)
        with cudnn(enabled=False, allow_tf32=True):
            self.assert_close(torch.autograd.grad(loss, x)[0], wanted, 0)

    def test_alternating_streams(self):
        layer, x, states = self.net("GRU", {"num_layers": 2})
        wanted = self.results(layer, x, states, False)[0]
        for _ in range(3):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                mine = self.results(layer, x, states, True)[0]
            torch.cuda.current_stream().wait_stream(stream)
            for a, b in zip(mine, wanted, strict=True): self.assert_close(a, b, 1e-9)

    def test_deterministic_algorithms_avoid_cudnn(self):
        layer, x, states = self.net("LSTM", {})
        torch.use_deterministic_algorithms(True)
        self.addCleanup(torch.use_deterministic_algorithms, False)
        self.assertFalse(self.results(layer, x, states, True)[1])


class Interface(Test):
    def test_unbatched_input_and_default_states(self):
        for name, options in cases():
            with self.subTest(name, **options):
                layer = getattr(nn, name)(IN, SIZE, **options)
                x, states = torch.randn(TIMES, IN), [s[:, 0] for s in initial_states(layer)]
                batched = layer(x.unsqueeze(0 if layer.batch_first else 1), as_argument([s.unsqueeze(1) for s in states]))
                for mine, wanted in zip(flat(layer(x, as_argument(states))), flat(batched), strict=True):
                    self.assert_close(mine, wanted.squeeze(1 if mine.dim() == 2 and not layer.batch_first or wanted.shape[0] != 1 else 0), 1e-6)
                zeros = layer(x, as_argument([s * 0 for s in states]))
                for mine, wanted in zip(flat(layer(x)), flat(zeros), strict=True):
                    self.assert_close(mine, wanted, 0)

    def test_batch_first_output_is_strided(self):
        output, h = nn.GRU(IN, SIZE, batch_first=True)(torch.randn(2, 5, IN))
        self.assertEqual((output.shape, output.stride(), h.shape), ((2, 5, 4), (4, 8, 1), (1, 2, 4)))

    def test_dropout_between_layers_in_training(self):
        torch.manual_seed(3)
        layer, x = nn.LSTM(IN, SIZE, 2, dropout=0.5), torch.randn(TIMES, BATCH, IN)
        self.assertFalse(torch.equal(layer(x)[0], layer(x)[0]))
        layer.eval()
        self.assertTrue(torch.equal(layer(x)[0], layer(x)[0]))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            nn.LSTM(IN, SIZE, dropout=0.5)
            nn.GRU(IN, SIZE, 2, dropout=0.5)
        self.assertEqual([str(w.message) for w in caught],
                         ["dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers "
                          "greater than 1, but got dropout=0.5 and num_layers=1"])

    def test_replaced_weights_are_used(self):
        layer, x = nn.LSTM(IN, SIZE), torch.randn(TIMES, BATCH, IN)
        raw = layer.weight_hh_l0
        del layer._parameters["weight_hh_l0"]
        layer.raw = raw
        layer.weight_hh_l0 = raw * 2
        output = layer(x)[0]
        output.sum().backward()
        self.assertIsNotNone(raw.grad)
        other = nn.LSTM(IN, SIZE)
        other.load_state_dict({name: raw.detach() * 2 if name == "weight_hh_l0" else getattr(layer, name).detach() for name in other.state_dict()})
        self.assert_close(output, other(x)[0], 1e-6)

    def test_hooks_and_subclasses_receive_tuples(self):
        seen = []

        class Own(nn.LSTM):
            def forward(self, x, hx=None):
                output, states = super().forward(x, hx)
                return output * 2, states
        layer, x = Own(IN, SIZE), torch.randn(TIMES, BATCH, IN)
        layer.register_forward_hook(lambda module, args, result: seen.append((len(args), type(result), len(result[1]))))
        layer(x, tuple(initial_states(layer)))
        self.assertEqual(seen, [(2, tuple, 2)])
        self.assert_close(layer(x)[0], 2 * nn.LSTM.forward(layer, x)[0], 0)

    def test_functional_forms(self):
        layer, x = nn.LSTM(IN, SIZE, 2, bidirectional=True), torch.randn(TIMES, BATCH, IN)
        states = initial_states(layer)
        for mine, wanted in zip(torch.lstm(x, states, layer._flat_weights, True, 2, 0.0, False, True, False), flat(layer(x, as_argument(states))), strict=True):
            self.assert_close(mine, wanted, 0)
        packed = utils.pack_padded_sequence(x, [5, 2])
        for mine, wanted in zip(torch.lstm(packed.data, packed.batch_sizes, states, layer._flat_weights, True, 2, 0.0, False, True),
                                flat(layer(packed, as_argument(states))), strict=True):
            self.assert_close(mine, getattr(wanted, "data", wanted), 0)
        cell = nn.GRUCell(IN, SIZE)
        h = torch.randn(BATCH, SIZE)
        self.assert_close(torch.gru_cell(x[0], h, cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh), cell(x[0], h), 0)

    def test_errors_match_pytorch(self):
        lstm, gru, x = nn.LSTM(IN, SIZE), nn.GRU(IN, SIZE), torch.randn(TIMES, BATCH, IN)
        h, wide = torch.randn(1, BATCH, SIZE), torch.randn(1, BATCH + 1, SIZE)
        for error, text, call in (
                (ValueError, "LSTM: Expected input to be 2D or 3D, got 4D instead", lambda: lstm(x[None])),
                (ValueError, "RNN: Expected input to be 2D or 3D, got 1D tensor instead", lambda: nn.RNN(IN, SIZE)(x[0, 0])),
                (RuntimeError, "input.size(-1) must be equal to input_size. Expected 3, got 4", lambda: lstm(h)),
                (RuntimeError, "Expected hidden[0] size (1, 2, 4), got [1, 3, 4]", lambda: lstm(x, (wide, h))),
                (RuntimeError, "Expected hidden[1] size (1, 2, 4), got [1, 3, 4]", lambda: lstm(x, (h, wide))),
                (RuntimeError, "Expected hidden size (1, 2, 4), got [1, 3, 4]", lambda: gru(x, wide)),
                (RuntimeError, "For batched 3-D input, hx and cx should also be 3-D but got (2-D, 3-D) tensors", lambda: lstm(x, (h[0], h))),
                (RuntimeError, "For unbatched 2-D input, hx should also be 2-D but got 3-D tensor", lambda: gru(x[0], h)),
                (ValueError, "RNN input dtype (torch.float64) does not match weight dtype (torch.float32). Convert input: "
                             "input.to(torch.float32), or convert model: model.to(torch.float64)", lambda: lstm(x.double())),
                (RuntimeError, "Expected sequence length to be larger than 0 in RNN", lambda: gru(x[:0])),
                (ValueError, "LSTMCell: Expected hx[1] to be 1D or 2D, got 3D instead", lambda: nn.LSTMCell(IN, SIZE)(x[0], (h[0], h))),
                (RuntimeError, "input has inconsistent input_size: got 4 expected 3", lambda: nn.GRUCell(IN, SIZE)(h[0])),
                (RuntimeError, "Unknown nonlinearity: relu6", lambda: nn.RNNCell(IN, SIZE, nonlinearity="relu6")(x[0])),
                (ValueError, "Unknown nonlinearity 'relu6'. Select from 'tanh' or 'relu'.", lambda: nn.RNN(IN, SIZE, nonlinearity="relu6")),
                (ValueError, "proj_size has to be smaller than hidden_size", lambda: nn.LSTM(IN, SIZE, proj_size=SIZE)),
                (ValueError, "hidden_size must be greater than zero", lambda: nn.GRU(IN, 0)),
                (ValueError, "Unrecognized RNN mode: SRU", lambda: nn.RNNBase("SRU", IN, SIZE)),
                (NotImplementedError, 'Module [RNNBase] is missing the required "forward" function', lambda: nn.RNNBase("GRU", IN, SIZE)(x)),
                (TypeError, "LSTM.forward(): argument 'hx' must be a tuple of 2 Tensors, not Tensor", lambda: lstm(x, h))):
            with self.subTest(text):
                self.fails(error, text, call)


class Modules(Test):
    def test_state_repr_and_attributes(self):
        layer = nn.LSTM(IN, SIZE, 2, batch_first=True, dropout=0.5, bidirectional=True, proj_size=2)
        self.assertEqual(repr(layer), "LSTM(3, 4, proj_size=2, num_layers=2, batch_first=True, dropout=0.5, bidirectional=True)")
        names = [f"{kind}_l{k}{suffix}" for k in (0, 1) for suffix in ("", "_reverse")
                 for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")]
        self.assertEqual((list(layer.state_dict()), layer._flat_weights_names), (names, names))
        self.assertEqual([[w.shape for w in ws] for ws in layer.all_weights][2], [(16, 4), (16, 2), (16,), (16,), (2, 4)])
        self.assertEqual([isinstance(kind(IN, SIZE), nn.RNNBase) for kind in (nn.RNN, nn.LSTM, nn.GRU)], [True] * 3)
        self.assertEqual([nn.RNN(IN, SIZE).mode, nn.RNN(IN, SIZE, nonlinearity="relu").mode, nn.GRU(IN, SIZE).mode, layer.mode],
                         ["RNN_TANH", "RNN_RELU", "GRU", "LSTM"])
        self.assertFalse(hasattr(nn.GRU(IN, SIZE, bias=False), "bias_ih_l0"))
        self.assertIsNone(nn.GRUCell(IN, SIZE, bias=False).bias_ih)
        self.assertEqual(repr(nn.RNNCell(IN, SIZE, bias=False, nonlinearity="relu")), "RNNCell(3, 4, bias=False, nonlinearity=relu)")
        self.assertIsNone(layer.flatten_parameters())

    def test_initial_weight_range(self):
        for layer in (nn.GRU(IN, 100), nn.LSTMCell(IN, 100)):
            for again in (False, True):
                before = layer.state_dict(), [p.detach().clone() for p in layer.parameters()]
                if again:
                    layer.reset_parameters()
                for weight, old in zip(layer.parameters(), before[1], strict=True):
                    self.assertTrue(0.09 < weight.abs().max().item() <= 0.1)
                    self.assertEqual(torch.equal(weight, old), not again)

    def test_copies_pickles_and_files(self):
        layer, x = nn.LSTM(IN, SIZE, 2, bidirectional=True, proj_size=2), torch.randn(TIMES, BATCH, IN)
        file = io.BytesIO()
        torch.save(layer.state_dict(), file)
        file.seek(0)
        other = nn.LSTM(IN, SIZE, 2, bidirectional=True, proj_size=2)
        other.load_state_dict(torch.load(file))
        for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), other):
            self.assertEqual((repr(twin), twin.mode), (repr(layer), "LSTM"))
            self.assert_close(twin(x)[0], layer(x)[0], 0)

    def test_data_parallel(self):
        if torch.cuda.device_count() < 2:
            self.skipTest("requires two devices")
        layer, x = nn.LSTM(IN, SIZE, batch_first=True).cuda(), torch.randn(4, TIMES, IN, device="cuda")
        output, (h, c) = nn.DataParallel(layer, [0, 1], dim=0)(x)
        self.assert_close(output, layer(x)[0], 1e-6)
        self.assertEqual(h.shape, (2, 2, SIZE))  # states are gathered along dimension 0, as in PyTorch


class PackedSequences(Test):
    def setUp(self):
        self.rows = [torch.tensor([[1., 2.], [3., 4.]]), torch.tensor([[5., 6.], [7., 8.], [9., 10.]]), torch.tensor([[11., 12.]])]

    def test_pack_and_unpack_list(self):
        packed = utils.pack_sequence(self.rows, enforce_sorted=False)
        self.assertEqual(packed.data[:, 0].tolist(), [5, 1, 11, 7, 3, 9])
        self.assertEqual([x.tolist() for x in packed[1:]], [[3, 2, 1], [1, 0, 2], [1, 0, 2]])
        for mine, wanted in zip(utils.unpack_sequence(packed), self.rows, strict=True):
            self.assertTrue(torch.equal(mine, wanted))
        data, batch_sizes, order, back = packed
        self.assertTrue(data is packed.data and back is packed.unsorted_indices and isinstance(packed, tuple))

    def test_sorted_sequences_have_no_indices(self):
        packed = utils.pack_padded_sequence(utils.pad_sequence(self.rows[1:]), torch.tensor([3, 1]))
        self.assertEqual((packed.sorted_indices, packed.unsorted_indices), (None, None))
        self.assertEqual(packed.batch_sizes.tolist(), [2, 1, 1])

    def test_padding(self):
        padded = utils.pad_sequence(self.rows, batch_first=True, padding_value=-1)
        self.assertEqual(padded[2].tolist(), [[11, 12], [-1, -1], [-1, -1]])
        self.assertEqual(utils.pad_sequence(self.rows, padding_side="left")[:, 2, 0].tolist(), [0, 0, 11])
        packed = utils.pack_padded_sequence(padded, [2, 3, 1], batch_first=True, enforce_sorted=False)
        again, lengths = utils.pad_packed_sequence(packed, batch_first=True, padding_value=-1, total_length=4)
        self.assertEqual(lengths.tolist(), [2, 3, 1])
        self.assertTrue(torch.equal(again[:, :3], padded) and bool((again[:, 3] == -1).all()))
        for mine, wanted in zip(utils.unpad_sequence(padded.transpose(0, 1), lengths), self.rows, strict=True):
            self.assertTrue(torch.equal(mine, wanted))

    def test_gradients(self):
        for row in self.rows:
            row.requires_grad_()
        packed = utils.pack_sequence(self.rows, enforce_sorted=False)
        (utils.pad_packed_sequence(packed)[0] * 3).sum().backward()
        for row in self.rows:
            self.assertEqual(row.grad.tolist(), [[3, 3]] * len(row))

    def test_moves_and_conversions(self):
        packed = utils.pack_sequence(self.rows, enforce_sorted=False)
        self.assertIs(packed.cpu(), packed)
        self.assertEqual([getattr(packed, name)().data.dtype for name in ("double", "half", "long", "int", "short", "char", "byte")],
                         [torch.float64, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
        self.assertFalse(packed.is_cuda)
        if torch.cuda.is_available():
            there = packed.cuda()
            self.assertTrue(there.is_cuda and there.sorted_indices.is_cuda and not there.batch_sizes.is_cuda)
            self.assertTrue(packed.pin_memory().is_pinned())
            self.assertEqual(there.to("cpu", torch.float64).data.tolist(), packed.data.tolist())
            self.assertEqual([x.device.type for x in utils.unpack_sequence(there)], ["cuda"] * 3)

    def test_errors_match_pytorch(self):
        padded = utils.pad_sequence(self.rows)
        pack = utils.pack_padded_sequence
        self.fails(RuntimeError, "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
                   "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement if you do not need ONNX "
                   "exportability.", pack, padded, [2, 3, 1])
        self.fails(RuntimeError, "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0",
                   pack, padded, [3, 2, 0])
        self.fails(RuntimeError, "Expected `len(lengths)` to be equal to batch_size, but got 2 (batch_size=3)", pack, padded, [3, 2])
        self.fails(RuntimeError, "Expected lengths of at most 3, the size of the input, but got 9", pack, padded, [9, 2, 1])
        self.fails(RuntimeError, "received an empty list of sequences", utils.pad_sequence, [])
        self.fails(RuntimeError, "Expected padding_side to be one of left or right, but got up.", utils.pad_sequence, self.rows, padding_side="up")
        self.fails(RuntimeError, "The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension 1",
                   utils.pad_sequence, [torch.ones(1, 2), torch.ones(1, 3)])
        self.fails(ValueError, "Expected total_length to be at least the length of the longest sequence in input, but got total_length=2 and max "
                   "sequence length being 3", utils.pad_packed_sequence, utils.pack_sequence(self.rows, False), total_length=2)
        self.assertRaisesRegex(RuntimeError, "batch_sizes", utils.pad_packed_sequence, utils.PackedSequence(padded[0], torch.tensor([9, 1])))
        if torch.cuda.is_available():
            self.assertRaisesRegex(ValueError, "batch_sizes should always be on CPU", utils.PackedSequence, padded[0].cuda(), torch.tensor([3]).cuda())


@unittest.skipIf(pytorch is None, "PyTorch is not installed")
class ComparedWithPyTorch(Test):
    def pair(self, name, options):
        """PyTorch's layer, and Phlox's with the same weights, transferred through a file."""
        theirs, mine = getattr(pytorch.nn, name)(IN, SIZE, **options), getattr(nn, name)(IN, SIZE, **options)
        self.assertEqual(repr(mine), repr(theirs))
        file = io.BytesIO()
        pytorch.save(theirs.state_dict(), file)
        file.seek(0)
        mine.load_state_dict(torch.load(file))
        return mine, theirs

    def agree(self, mine, theirs, inputs, packs):
        values = []
        for library, layer in ((torch, mine), (pytorch, theirs)):
            x, *states = [library.tensor(value, requires_grad=True) for value in inputs]
            rnn = library.nn.utils.rnn
            given = rnn.pack_padded_sequence(x, [5, 2], layer.batch_first) if packs else x
            parts = flat(layer(given, as_argument(states)))
            if packs:
                parts[0] = parts[0].data
            sum((part * part).sum() for part in parts).backward()
            values.append([t.tolist() for t in (*parts, x.grad, *(s.grad for s in states), *(p.grad for p in layer.parameters()))])
        for a, b in zip(*values, strict=True):
            self.assert_close(torch.tensor(a), torch.tensor(b), 1e-5)

    def test_results_and_gradients_with_all_options(self):
        for name, options in cases():
            for packs in (False, True):
                with self.subTest(name, packs=packs, **options), warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # PyTorch reports its implementation
                    mine, theirs = self.pair(name, options)
                    torch.manual_seed(6)
                    x = torch.randn(*((BATCH, TIMES) if mine.batch_first else (TIMES, BATCH)), IN)
                    self.agree(mine, theirs, [t.tolist() for t in (x, *initial_states(mine))], packs)

    def test_initial_weights(self):
        for name in ("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell"):
            layers = []
            for library in (torch, pytorch):
                library.manual_seed(8)
                layers.append(getattr(library.nn, name)(IN, SIZE))
            for mine, wanted in zip(*(layer.parameters() for layer in layers), strict=True):
                self.assert_close(mine.detach(), torch.tensor(wanted.tolist()), 1e-7)


if __name__ == "__main__":
    unittest.main()
