# SPDX-License-Identifier: Apache-2.0
"""torch.testing: assert_close reports differences and their position; make_tensor."""
import unittest

import phlox as torch
from phlox.testing import assert_close, make_tensor

T = torch.tensor
NAN = float("nan")


class AssertClose(unittest.TestCase):
    def refused(self, text, *values, kind=AssertionError, **options):
        with self.assertRaises(kind) as caught:
            assert_close(*values, **options)
        self.assertEqual(str(caught.exception).replace("phlox", "torch"), text)

    def test_close_values_pass(self):
        for values in ((T([1., 2.]), T([1., 2 + 1e-6])), (T([]), T([])), (3, 3), (3., 3 + 1e-8), (None, None), (True, True), ((1, [T(2)]), (1, [T(2)])),
                       ({"a": {"b": T([1.])}}, {"a": {"b": T([1.])}})):
            assert_close(*values)
        assert_close(T([NAN]), T([NAN]), equal_nan=True)
        assert_close(T([1.]), T([1.5]), rtol=0.5, atol=0)
        assert_close(T([1.]), T([1.]).double(), check_dtype=False)
        assert_close(T([1.]).to("cuda"), T([1.]), check_device=False)
        assert_close(1, 1., check_dtype=False)

    def test_mismatch_position_and_size(self):
        self.refused("Tensor-likes are not close!\n\nMismatched elements: 1 / 4 (25.0%)\nGreatest absolute difference: 1.0 at index (1, 0) (up to 1e-05 "
                     "allowed)\nGreatest relative difference: 0.25 at index (1, 0) (up to 1.3e-06 allowed)", T([[1., 2.], [3., 4.]]), T([[1., 2.], [4., 4.]]))
        self.refused("Tensor-likes are not equal!\n\nMismatched elements: 1 / 2 (50.0%)\nGreatest absolute difference: 1 at index (1,)\n"
                     "Greatest relative difference: 0.5 at index (1,)", T([1, 1]), T([1, 2]))
        self.refused("Tensor-likes are not close!\n\nMismatched elements: 1 / 1 (100.0%)\nGreatest absolute difference: nan at index (0,) (up to 1e-05 "
                     "allowed)\nGreatest relative difference: nan at index (0,) (up to 1.3e-06 allowed)", T([NAN]), T([NAN]))
        self.refused("Scalars are not close!\n\nExpected 4.0 but got 3.0.\nAbsolute difference: 1.0 (up to 1e-07 allowed)\nRelative difference: 0.25 "
                     "(up to 1e-07 allowed)", 3., 4.)

    def test_attribute_mismatch(self):
        self.refused("The values for attribute 'shape' do not match: torch.Size([1]) != torch.Size([2]).", T([1.]), T([1., 2.]))
        self.refused("The values for attribute 'dtype' do not match: torch.float32 != torch.float64.", T([1.]), T([1.]).double())
        self.refused("The values for attribute 'device' do not match: cuda:0 != cpu.", T([1.]).to("cuda"), T([1.]))
        self.refused("The values for attribute 'stride()' do not match: (1, 2) != (2, 1).", T([[1., 2], [3, 4]]).t(), T([[1., 3], [2, 4]]), check_stride=True)
        self.refused("The (d)types do not match: <class 'int'> != <class 'float'>.", 1, 1.)

    def test_mismatch_in_container(self):
        self.refused("Booleans mismatch: True is not False\n\nThe failure occurred for item ['a'][1]", {"a": [0, True]}, {"a": [0, False]})
        self.refused("The length of the sequences mismatch: 1 != 2", [1], [1, 2])
        self.refused("The keys of the mappings do not match:\nMissing keys in the actual mapping: ['b']\nAdditional keys in the actual mapping: ['a']",
                     {"a": 1}, {"b": 1})
        self.refused("None mismatch: None is not 3", None, 3)

    def test_msg_and_argument_errors(self):
        self.refused("mine", T([1.]), T([2.]), msg="mine")
        self.refused("H None mismatch: None is not 3", None, 3, msg=lambda text: "H " + text)
        self.refused("Both 'rtol' and 'atol' must be either specified or omitted, but got no atol.", 1, 1, rtol=1., kind=ValueError)
        self.refused("No comparison pair was able to handle inputs of type <class 'str'> and <class 'str'>.", "a", "a", kind=TypeError)


class MakeTensor(unittest.TestCase):
    def test_ranges_and_layouts(self):
        for dtype in (torch.float32, torch.float16, torch.int64, torch.uint8, torch.bool):
            made = make_tensor((40, 50), dtype=dtype, device="cpu")
            low, high = made.double().min().item(), made.double().max().item()
            self.assertTrue((0 if dtype in (torch.uint8, torch.bool) else -9) <= low < high <= (1 if dtype is torch.bool else 9), dtype)
            self.assertEqual((made.dtype, made.shape), (dtype, (40, 50)))
        made = make_tensor(5, 4, dtype=torch.int32, device="cuda", low=0, high=2, noncontiguous=True, exclude_zero=True)
        self.assertEqual((made.is_contiguous(), made.shape, made.unique().tolist()), (False, (5, 4), [1]))
        self.assertTrue(make_tensor(3, dtype=torch.float64, device="cpu", requires_grad=True).requires_grad)

    def test_argument_errors(self):
        for options, text in (({"low": 3, "high": 2, "dtype": torch.float32}, "`low` must be less than `high`, but got 3 >= 2"),
                              ({"dtype": torch.int32, "requires_grad": True}, "`requires_grad=True` is not supported for boolean and integral dtypes"),
                              ({"dtype": torch.float32, "noncontiguous": True, "memory_format": torch.contiguous_format}, "are mutually exclusive")):
            with self.assertRaisesRegex(ValueError, text):
                make_tensor(3, device="cpu", **options)


if __name__ == "__main__":
    unittest.main()
