# SPDX-License-Identifier: Apache-2.0
"""What short programs give and print, and what they are refused: each is run with PyTorch too, where it is installed."""
import contextlib
import io
import unittest
import warnings

import phlox
import peer
from peer import newest

LIBRARIES = [phlox] + [newest] * (newest is not None)


def outcome(library, program, **names):
    """What a program prints, and the error that ends it."""
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
    def gives(self, program, wanted):
        """The program prints the lines and ends with the error; of a long text `...` stands for the rest."""
        for library in LIBRARIES:
            with self.subTest(program=program, library=library.__name__):
                got = outcome(library, program).rstrip("\n")
                self.assertEqual(got[:len(wanted) - 3] + "..." if wanted.endswith("...") else got, wanted)


class Gradients(Case):
    LIMITS = "x = torch.tensor([-2., -1., 0., 1., 2., float('nan')], requires_grad=True)\n"

    def test_a_limit_that_is_a_number_passes_no_gradient(self):
        for call, wanted in {"x.clamp(-1, 1)": "0., 0., 1., 0., 0., 0.", "x.clamp(min=-1)": "0., 0., 1., 1., 1., 0.", "x.clamp_max(1)": "1., 1., 1., 0., 0., 0.",
                             "x.clamp(1, -1)": "0., 0., 0., 0., 0., 0.", "x.clone().clamp_(-1, 1)": "0., 0., 1., 0., 0., 0."}.items():
            self.gives(f"{self.LIMITS}{call}.sum().backward(); print(x.grad)", f"tensor([{wanted}])")

    def test_a_limit_that_is_a_tensor_shares_the_gradient(self):
        self.gives(self.LIMITS + "a, b = (torch.full((6,), v, requires_grad=True) for v in (-1., 1.))\nx.clamp(a, b).sum().backward(); print(x.grad, a.grad, b.grad)",
                   "tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000, 1.0000]) tensor([1.0000, 0.5000, 0.0000, 0.0000, 0.0000, 0.0000]) "
                   "tensor([0.0000, 0.0000, 0.0000, 0.5000, 1.0000, 0.0000])")
        self.gives(self.LIMITS + "a = torch.full((6,), -1., requires_grad=True)\nx.clamp_min(a).sum().backward(); print(x.grad, a.grad)",
                   "tensor([0.0000, 0.5000, 1.0000, 1.0000, 1.0000, 1.0000]) tensor([1.0000, 0.5000, 0.0000, 0.0000, 0.0000, 1.0000])")
        self.gives(self.LIMITS + "a, b = (torch.full((6,), v, requires_grad=True) for v in (1., -1.))\nx.clamp(a, b).sum().backward(); print(x.grad, a.grad, b.grad)",
                   "tensor([0., 0., 0., 0., 0., 1.]) tensor([0., 0., 0., 0., 0., 0.]) tensor([1., 1., 1., 1., 1., 1.])")


class Printing(Case):
    def tearDown(self):
        for library in LIBRARIES:
            library.set_printoptions(profile="default")

    def test_a_forced_form_has_the_width_of_what_it_shows(self):
        self.gives("torch.set_printoptions(sci_mode=True); print(torch.arange(7.))",
                   "tensor([0.0000e+00, 1.0000e+00, 2.0000e+00, 3.0000e+00, 4.0000e+00, 5.0000e+00,\n        6.0000e+00])")
        self.gives("torch.set_printoptions(sci_mode=False); print(torch.tensor([1e-20]), torch.tensor([1e-20, 1e8]))",
                   "tensor([0.0000]) tensor([        0.0000, 100000000.0000])")


if __name__ == "__main__":
    unittest.main()
