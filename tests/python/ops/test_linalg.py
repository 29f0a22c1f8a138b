# SPDX-License-Identifier: Apache-2.0
"""torch.linalg: values, layouts and gradients. Error texts, among them for a missing LAPACK."""
import math
import os
import subprocess
import sys
import unittest

import phlox as torch

L = torch.linalg
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


def definite(*sizes, device="cpu"):
    """Symmetric positive-definite matrices."""
    x = torch.randn(*sizes, dtype=torch.float64, device=device)
    return x @ x.mT + torch.eye(sizes[-1], dtype=torch.float64, device=device)


class Base(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)

    def near(self, a, b, most=1e-9):
        self.assertEqual(a.shape, b.shape)
        self.assertLess((a - b).abs().max().item() if a.numel() else 0, most)

    def refuses(self, error, text, function, *args, **keywords):
        with self.assertRaises(error) as caught:
            function(*args, **keywords)
        self.assertEqual(str(caught.exception), text)


class Solving(Base):
    def test_cholesky(self):
        for device in DEVICES:
            a = definite(2, 3, 3, device=device)
            lower, upper = L.cholesky(a), L.cholesky(a, upper=True)
            self.near(lower @ lower.mT, a)
            self.near(upper.mT @ upper, a)
            self.assertEqual(lower.triu(1).count_nonzero().item(), 0)
            self.assertEqual(lower.stride(), (9, 1, 3))

    def test_lu(self):
        for device in DEVICES:
            a = torch.randn(2, 4, 4, dtype=torch.float64, device=device)
            for matrices in (a, a[:, :, :3], a[:, 1:], a.mT, a[0]):
                p, lower, upper = L.lu(matrices)
                self.near(p @ lower @ upper, matrices)
            factors, pivots = L.lu_factor(a)
            b = torch.randn(2, 4, 3, dtype=torch.float64, device=device)
            self.near(a @ L.lu_solve(factors, pivots, b), b)
            self.near(a.mT @ L.lu_solve(factors, pivots, b, adjoint=True), b)
            self.near(L.lu_solve(factors, pivots, b.mT, left=False) @ a, b.mT)
            self.near(a.float() @ L.solve(a.float(), b.float()), b.float(), 1e-3)

    def test_solve_triangular_from_both_sides(self):
        for device in DEVICES:
            a = torch.randn(2, 3, 3, dtype=torch.float64, device=device) + 3 * torch.eye(3, dtype=torch.float64, device=device)
            b = torch.randn(2, 3, 3, dtype=torch.float64, device=device)
            ones = torch.eye(3, dtype=torch.float64, device=device)
            for upper, unit in ((False, False), (False, True), (True, False), (True, True)):
                triangle = a.triu(1 if unit else 0) if upper else a.tril(-1 if unit else 0)
                triangle = triangle + ones if unit else triangle
                self.near(triangle @ L.solve_triangular(a, b, upper=upper, unitriangular=unit), b)
                self.near(L.solve_triangular(a.mT, b, upper=not upper, left=False, unitriangular=unit) @ triangle.mT, b)

    def test_cholesky_solve_and_inverse(self):
        a, b = definite(2, 3, 3), torch.randn(3, 2, dtype=torch.float64)
        for upper in (False, True):
            factor = L.cholesky(a, upper=upper)
            self.near(a @ torch.cholesky_solve(b, factor, upper), b.expand(2, 3, 2))
            self.near(a @ torch.cholesky_inverse(factor, upper), torch.eye(3, dtype=torch.float64).expand(2, 3, 3))

    def test_solve_shapes_and_sides(self):
        for device in DEVICES:
            a = definite(2, 3, 3, device=device)
            for shape in ((3,), (2, 3), (3, 2), (2, 3, 4), (5, 1, 3, 2)):
                b = torch.randn(*shape, dtype=torch.float64, device=device)
                x = L.solve(a, b)
                vector = len(shape) == 1 or shape == (2, 3)
                back = (a @ x.unsqueeze(-1)).squeeze(-1) if vector else a @ x
                self.near(back, b.expand(back.shape))
            b = torch.randn(4, 3, dtype=torch.float64, device=device)
            self.near(L.solve(a, b, left=False) @ a, b.expand(2, 4, 3))

    def test_one_matrix_with_batched_right_sides(self):
        a, b = definite(3, 3), torch.randn(64, 3, 2, dtype=torch.float64)
        self.near(a @ L.solve(a, b), b)
        factor, pivots = L.lu_factor(a)
        self.near(a @ L.lu_solve(factor, pivots, b), b)

    def test_solve_triangular_ignores_other_half(self):
        a = torch.randn(3, 3, dtype=torch.float64) + 3 * torch.eye(3, dtype=torch.float64)
        b = torch.randn(2, 3, 4, dtype=torch.float64)
        self.near(a.triu() @ L.solve_triangular(a, b, upper=True), b)
        self.near(a.tril() @ L.solve_triangular(a, b, upper=False), b)
        ones = a.tril(-1) + torch.eye(3, dtype=torch.float64)
        self.near(L.solve_triangular(a, b.mT, upper=False, left=False, unitriangular=True) @ ones, b.mT)
        x, copy = torch.triangular_solve(b, a, transpose=True)
        self.near(a.triu().T @ x, b)
        self.near(copy, a.expand(2, 3, 3))

    def test_lu_reconstructs_matrix(self):
        for shape in ((3, 3), (2, 4, 3), (2, 5), (0, 3), (3, 0), (0, 2, 2)):
            a = torch.randn(*shape, dtype=torch.float64)
            p, lower, upper = L.lu(a)
            self.near(p @ lower @ upper, a)
            again = torch.lu_unpack(*L.lu_factor(a))
            for one, other in zip(again, (p, lower, upper)):
                self.assertTrue(torch.equal(one, other))
        self.assertEqual([t.numel() for t in torch.lu_unpack(*L.lu_factor(a), unpack_data=False)], [0, 0, 0])

    def test_inverse_and_determinants(self):
        for device in DEVICES:
            a = definite(2, 3, 3, device=device)
            self.near(a @ L.inv(a), torch.eye(3, dtype=torch.float64, device=device).expand(2, 3, 3))
            sign, logs = L.slogdet(-a)
            self.near(L.det(a), logs.exp())
            self.assertEqual(sign.tolist(), [-1, -1])
            self.near(torch.logdet(a), logs)
            self.assertTrue(torch.logdet(-a).isnan().all())
        self.assertEqual(L.det(torch.tensor([[0., 1.], [1., 0.]])).item(), -1)
        self.assertEqual(L.det(torch.zeros(0, 0)).item(), 1)
        self.assertEqual(L.slogdet(torch.zeros(2, 2)).logabsdet.item(), -torch.inf)

    def test_ldl_of_indefinite_matrix(self):
        for device in DEVICES:
            a = torch.randn(2, 4, 4, dtype=torch.float64).to(device)
            a = a + a.mT
            b = torch.randn(2, 4, 3, dtype=torch.float64).to(device)
            self.near(a @ L.ldl_solve(*L.ldl_factor(a), b), b, 1e-7)

    def test_batches_of_small_matrices(self):
        for device in DEVICES:
            for dtype, sizes in ((torch.float32, (70, 5, 5)), (torch.float64, (3, 7, 16, 16)), (torch.float64, (4, 1, 1)), (torch.float64, (5, 33, 33))):
                a = definite(*sizes).to(device, dtype)
                b = torch.randn(*sizes[:-1], 3, dtype=dtype).to(device)
                one = torch.eye(sizes[-1], dtype=dtype, device=device).expand(sizes)
                near = lambda x, y: torch.testing.assert_close(x, y, atol=1e-3 if dtype == torch.float32 else 1e-9, rtol=1e-4)
                for upper in (False, True):
                    c = torch.linalg.cholesky(a, upper=upper)
                    near(c.mT @ c if upper else c @ c.mT, a)
                near(a @ torch.linalg.inv(a), one)
                for left in (False, True):
                    x = torch.linalg.solve(a, b if left else b.mT, left=left)
                    near(a @ x if left else x @ a, b if left else b.mT)
                lu, pivots = torch.linalg.lu_factor(a + 1)
                for adjoint in (False, True):
                    near((a + 1).mT @ torch.linalg.lu_solve(lu, pivots, b, adjoint=True) if adjoint else (a + 1) @ torch.linalg.lu_solve(lu, pivots, b), b)
                strided = torch.stack([lu, lu], -3)[..., 0, :, :]  # a batch with gaps
                near(torch.linalg.lu_solve(strided, pivots, b), torch.linalg.lu_solve(lu, pivots, b))
                values, vectors = torch.linalg.eigh(a)
                near(vectors @ torch.diag_embed(values) @ vectors.mT, a)
                self.assertTrue((values.diff() >= 0).all())
                near(torch.linalg.eigvalsh(a), values)
        # Each matrix of a batch has its own status.
        a = torch.eye(3).repeat(6, 1, 1)
        a[2, 1, 1], a[4] = -1, 0
        for device in DEVICES:
            self.assertEqual(torch.linalg.cholesky_ex(a.to(device)).info.tolist(), [0, 0, 2, 0, 1, 0])
            self.assertEqual(torch.linalg.inv_ex(a.to(device)).info.tolist(), [0, 0, 0, 0, 1, 0])
            self.assertEqual(torch.linalg.lu_factor_ex(a.to(device)).info.tolist(), [0, 0, 0, 0, 1, 0])

    def test_strided_operands(self):
        a, b = definite(4, 4), torch.randn(4, 6, dtype=torch.float64)
        wide = torch.zeros(8, 8, dtype=torch.float64)
        wide[::2, ::2] = a
        self.near(L.solve(wide[::2, ::2], b[:, ::2]), L.solve(a, b[:, ::2].contiguous()))
        self.near(L.inv(a.T), L.inv(a).T)
        self.near(L.cholesky(wide[::2, ::2]), L.cholesky(a))

    def test_out_and_meta(self):
        a, out = definite(3, 3), torch.empty(0, dtype=torch.float64)
        self.assertIs(L.inv(a, out=out), out)
        self.near(out, L.inv(a))
        factor, info = torch.empty(0, dtype=torch.float64), torch.empty(0, dtype=torch.int32)
        L.cholesky_ex(a, out=(factor, info))
        self.near(factor, L.cholesky(a))
        meta = torch.empty(2, 3, 3, device="meta")
        self.assertEqual((L.solve(meta, meta).shape, L.inv(meta).stride(), L.det(meta).shape), ((2, 3, 3), (9, 1, 3), (2,)))

    def test_autocast_uses_float32(self):
        a = definite(3, 3).bfloat16()
        with torch.autocast("cpu", torch.bfloat16):
            self.assertEqual([f(a).dtype for f in (L.inv, L.cholesky, L.svdvals, L.cond, torch.inverse)], [torch.float32] * 5)

    def test_named_results(self):
        a = definite(2, 2)
        for result, name, fields in ((L.cholesky_ex(a), "linalg_cholesky_ex", ("L", "info")), (L.slogdet(a), "linalg_slogdet", ("sign", "logabsdet")),
                                     (L.lu(a), "linalg_lu", ("P", "L", "U")), (torch.slogdet(a), "slogdet", ("sign", "logabsdet"))):
            self.assertEqual((type(result).__name__, type(result).__module__), (name, "torch.return_types"))
            self.assertTrue(all(hasattr(result, field) for field in fields))


class Factoring(Base):
    def test_qr(self):
        for device in DEVICES:
            for shape in ((4, 3), (2, 3, 5), (3, 3), (0, 3), (3, 0)):
                a = torch.randn(*shape, dtype=torch.float64, device=device)
                for mode in ("reduced", "complete"):
                    q, r = L.qr(a, mode)
                    self.near(q @ r, a)
                    self.near(q.mT @ q, torch.eye(q.shape[-1], dtype=torch.float64, device=device).expand(*shape[:-2], -1, -1))
                    self.near(L.qr(a, "r").R, L.qr(a).R)
                self.assertEqual(r.tril(-1).count_nonzero().item(), 0)

    def test_householder_product_and_ormqr(self):
        for device in DEVICES:
            a, tau = torch.geqrf(torch.randn(2, 4, 3, dtype=torch.float64, device=device))
            q, c = L.householder_product(a, tau), torch.randn(2, 4, 2, dtype=torch.float64, device=device)
            self.near(torch.ormqr(a, tau, c, transpose=True)[:, :3], q.mT @ c)
            self.near(torch.ormqr(a, tau, c.mT, left=False)[..., :3], c.mT @ q)
        self.near(torch.orgqr(a, tau), q)

    def test_eigh(self):
        for device in DEVICES:
            a = torch.randn(2, 4, 4, dtype=torch.float64, device=device)
            a = a + a.mT
            for side in "LU":
                values, vectors = L.eigh(a.tril() if side == "L" else a.triu(), side)
                self.near(vectors * values.unsqueeze(-2) @ vectors.mT, a)
                self.near(L.eigvalsh(a, side), values)
            self.assertTrue((values.diff() >= 0).all())

    def test_svd(self):
        for device in DEVICES:
            for shape in ((4, 3), (2, 3, 5), (3, 3), (0, 3), (2, 3, 0)):
                a = torch.randn(*shape, dtype=torch.float64, device=device)
                for full in (True, False):
                    u, s, vh = L.svd(a, full)
                    k = s.shape[-1]
                    self.near(u[..., :k] * s.unsqueeze(-2) @ vh[..., :k, :], a)
                    self.near(u.mT @ u, torch.eye(u.shape[-1], dtype=torch.float64, device=device).expand(*shape[:-2], -1, -1))
                    self.near(L.svdvals(a), s)
                u, s, v = torch.svd(a)
                self.near(u * s.unsqueeze(-2) @ v.mT, a)

    def test_lstsq(self):
        a, b = torch.randn(2, 5, 3, dtype=torch.float64), torch.randn(2, 5, 2, dtype=torch.float64)
        for driver in (None, "gels", "gelsy", "gelsd", "gelss"):
            for x in (a, a.mT):
                result = L.lstsq(x, b[:, :x.shape[-2]], driver=driver)
                self.near(result.solution, L.pinv(x) @ b[:, :x.shape[-2]])
                if driver in ("gels", "gelsd", "gelss") and x is a:
                    self.near(result.residuals, (a @ result.solution - b).square().sum(-2))
        for device in DEVICES:
            for x in (a.to(device), a.mT.to(device)):
                sides = b[:, :x.shape[-2]].to(device)
                found = L.lstsq(x, sides, driver="gels")
                self.near(found.solution, L.pinv(x) @ sides)
                self.assertEqual(found.residuals.shape, (2, 2) if x.shape[-2] > x.shape[-1] else (0,))
        flat = torch.ones(3, 2, dtype=torch.float64)
        self.assertEqual(L.lstsq(flat, torch.ones(3, 1, dtype=torch.float64), driver="gelsd").rank.item(), 1)
        self.near(L.lstsq(a, b[..., 0]).solution, (L.pinv(a) @ b)[..., 0])

    def test_pinv_and_matrix_rank(self):
        low = torch.randn(2, 5, 2, dtype=torch.float64) @ torch.randn(2, 2, 4, dtype=torch.float64)
        p = L.pinv(low)
        self.near(low @ p @ low, low)
        self.near((p @ low).mT, p @ low)
        self.assertEqual(L.matrix_rank(low).tolist(), [2, 2])
        values = torch.tensor([3., 1., .01]).diag()
        self.assertEqual([L.matrix_rank(values, tol=bound).item() for bound in (0., .5, 2., 5.)], [3, 2, 1, 0])
        self.assertEqual(L.matrix_rank(values, rtol=torch.tensor(.1), hermitian=True).item(), 2)
        self.near(L.pinv(values, hermitian=True), L.inv(values), 1e-4)
        self.near(L.pinv(values, .1), torch.tensor([1 / 3, 1., 0.]).diag(), 1e-6)
        self.assertEqual((L.pinv(torch.zeros(3, 0)).shape, L.matrix_rank(torch.zeros(2, 0, 3)).tolist()), ((0, 3), [0, 0]))

    def test_matrix_norm_and_cond(self):
        a = torch.tensor([[3., 0.], [0., -4.]])
        self.assertEqual([L.matrix_norm(a, order).item() for order in (2, -2, "nuc")], [4, 3, 7])
        self.assertEqual([L.norm(a, order).item() for order in (2, "nuc")], [4, 7])
        self.assertEqual(L.matrix_norm(a.expand(5, 2, 2).movedim(0, 1), 2, (0, 2), True).shape, (1, 5, 1))
        for order in (None, 2, 1, torch.inf, "fro", "nuc"):
            expected = {"fro": 25 / 12, "nuc": 49 / 12}.get(order, 4 / 3)
            self.near(L.cond(a, order), torch.tensor(expected), 1e-5)
        self.assertEqual(L.cond(torch.ones(2, 2), 1).item(), torch.inf)

    def test_matrix_power_multi_dot_and_exp(self):
        a = torch.randn(2, 3, 3, dtype=torch.float64)
        self.near(L.matrix_power(a, 5), a @ a @ a @ a @ a)
        self.near(L.matrix_power(a, -2) @ a @ a, torch.eye(3, dtype=torch.float64).expand(2, 3, 3), 1e-7)
        whole = torch.tensor([[1, 1], [0, 1]])
        self.assertEqual(L.matrix_power(whole, 6).tolist(), [[1, 6], [0, 1]])
        parts = [torch.randn(*shape, dtype=torch.float64) for shape in ((9,), (9, 2), (2, 8), (8, 3), (3,))]
        self.near(L.multi_dot(parts), parts[0] @ parts[1] @ parts[2] @ parts[3] @ parts[4])
        turn = torch.tensor([[0., -1.], [1., 0.]], dtype=torch.float64)
        angle = 20.
        self.near(torch.matrix_exp(turn * angle), torch.eye(2, dtype=torch.float64) * math.cos(angle) + turn * math.sin(angle))
        self.near(L.matrix_exp(a.diagonal(dim1=-2, dim2=-1).diag_embed()), a.diagonal(dim1=-2, dim2=-1).exp().diag_embed())
        x = torch.randn(2, 3, 6, dtype=torch.float64)
        self.near(torch.tensordot(x, L.tensorsolve(x, x[..., 0]), 1), x[..., 0])
        self.near(torch.tensordot(L.tensorinv(x), x[..., 0], 2), L.tensorsolve(x, x[..., 0]))
        self.assertEqual(L.vander(torch.tensor([2, 3])).tolist(), [[1, 2], [1, 3]])
        self.assertEqual(torch.vander(torch.tensor([2, 3]), 3).tolist(), [[4, 2, 1], [9, 3, 1]])


    def test_lu_and_lowrank_functions(self):
        a = torch.randn(2, 3, 3, dtype=torch.float64)
        for made in (torch.lu(a), a.lu(), torch.lu(a, get_infos=True)[:2]):
            self.near(made[0], L.lu_factor(a).LU)
            self.assertTrue(torch.equal(made[1], L.lu_factor(a).pivots))
        low = torch.randn(2, 9, 2, dtype=torch.float64) @ torch.randn(2, 2, 5, dtype=torch.float64)
        for x in (low, low.mT):
            u, s, v = torch.svd_lowrank(x, q=3)
            self.near(u * s.unsqueeze(-2) @ v.mT, x)
            self.near(s, L.svdvals(x)[..., :3])
        u, s, v = torch.pca_lowrank(low)
        self.near(u * s.unsqueeze(-2) @ v.mT, low - low.mean(-2, keepdim=True))
        self.refuses(ValueError, "q(=7) must be non-negative integer and not greater than min(m, n)=5", torch.pca_lowrank, low, 7)


class Errors(Base):
    def test_singular_matrices(self):
        zero, batch, b = torch.zeros(2, 2), torch.stack([torch.eye(2), torch.zeros(2, 2)]), torch.ones(2, 1)
        self.assertTrue(issubclass(L.LinAlgError, RuntimeError))
        for device in DEVICES:
            zero, batch, b = zero.to(device), batch.to(device), b.to(device)
            self.refuses(L.LinAlgError, "linalg.inv: The diagonal element 1 is zero, the inversion could not be completed because the input matrix is "
                         "singular.", L.inv, zero)
            self.refuses(L.LinAlgError, "linalg.inv: (Batch element 1): The diagonal element 1 is zero, the inversion could not be completed because "
                         "the input matrix is singular.", L.inv, batch)
            self.refuses(L.LinAlgError, "torch.linalg.solve: (Batch element 1): The solver failed because the input matrix is singular.", L.solve, batch, b)
            self.refuses(L.LinAlgError, "linalg.cholesky: The factorization could not be completed because the input is not positive-definite (the "
                         "leading minor of order 1 is not positive-definite).", L.cholesky, zero)
            self.assertEqual(L.inv_ex(batch).info.tolist(), [0, 1])
            self.assertEqual(L.solve_ex(batch, b).info.tolist(), [0, 1])
            self.assertEqual(L.cholesky_ex(-batch).info.tolist(), [1, 1])

    def test_nan_and_inf(self):
        text = "The algorithm failed to converge because the input matrix contained non-finite values."
        for number in (torch.nan, torch.inf):
            self.refuses(L.LinAlgError, "linalg.svd: " + text, L.svd, torch.full((2, 2), number))
            self.refuses(L.LinAlgError, "linalg.eigh: (Batch element 1): " + text, L.eigh, torch.stack([torch.eye(2), torch.full((2, 2), number)]))

    def test_pivot_batch_mismatch(self):
        with self.assertRaisesRegex(RuntimeError, "do not match"):
            torch.lu_unpack(torch.ones(3, 2, 2), torch.ones(0, 2, dtype=torch.int32))

    def test_decomposition_arguments(self):
        a = torch.eye(3)
        self.refuses(RuntimeError, "qr received unrecognized mode 'x' but expected one of 'reduced' (default), 'r', or 'complete'", L.qr, a, "x")
        self.refuses(RuntimeError, "Expected UPLO argument to be 'L' or 'U', but got x", L.eigh, a, "x")
        self.refuses(RuntimeError, "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)", L.lstsq, a, a, driver="x")
        self.refuses(RuntimeError, "multi_dot(): tensors 0 and 1 with shapes [3, 3] and [2, 3] cannot be multiplied", L.multi_dot, [a, a[:2]])
        self.refuses(ValueError, "linalg.cond got an invalid norm type: 3", L.cond, a, 3)
        self.refuses(RuntimeError, "linalg.pinv(Long{[2, 2]}): expected a tensor with 2 or more dimensions of float, double, cfloat or cdouble types",
                     L.pinv, torch.ones(2, 2, dtype=torch.int64))
        self.refuses(RuntimeError, "Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got 5 != 6",
                     L.tensorinv, torch.zeros(2, 3, 5))
        b = a.clone().requires_grad_()
        with self.assertRaisesRegex(RuntimeError, "^The derivative of linalg.qr depends on Q, which is not computed when mode='r'"):
            L.qr(b, "r").R.sum().backward()
        with self.assertRaisesRegex(RuntimeError, "^The QR decomposition is not differentiable when mode='complete' and nrows > ncols$"):
            L.qr(b[:, :2], "complete").Q.sum().backward()

    def test_shapes_and_dtypes(self):
        wide, whole, half, vector = torch.ones(2, 3), torch.ones(2, 2, dtype=torch.int64), torch.ones(2, 2).half(), torch.ones(3)
        self.refuses(RuntimeError, "linalg.inv: A must be batches of square matrices, but they are 2 by 3 matrices", L.inv, wide)
        self.refuses(RuntimeError, "linalg.det: The input tensor A must have at least 2 dimensions.", L.det, vector)
        self.refuses(NotImplementedError, "linalg.inv: Expected a floating point or complex tensor as input. Got Long", L.inv, whole)
        self.refuses(NotImplementedError, "linalg.inv: Low precision dtypes not supported. Got Half", L.inv, half)
        self.refuses(NotImplementedError, '"cholesky_cpu" not implemented for \'Half\'', L.cholesky, half)
        self.refuses(RuntimeError, "linalg.solve: Incompatible shapes of A and B for the equation AX = B (2x2 and 3x1)", L.solve, torch.eye(2), vector)
        self.refuses(RuntimeError, "linalg.solve: Expected A and B to have the same dtype, but found A of type Float and B of type Double instead",
                     L.solve, torch.eye(2), torch.eye(2).double())
        self.refuses(RuntimeError, "linalg.lu_factor: LU without pivoting is not implemented on the CPU", L.lu_factor, torch.eye(2), pivot=False)

    def test_out_of_range_pivots(self):
        factor, pivots = L.lu_factor(torch.eye(3))
        for bad in (pivots + 1, pivots - 1, pivots * 1000000):
            for call in (lambda: torch.lu_unpack(factor, bad), lambda: L.lu_solve(factor, bad, torch.eye(3))):
                with self.assertRaisesRegex(RuntimeError, "pivots passed to lu_unpack must be between 1 and LU.size"):
                    call()
        factor, pivots = L.ldl_factor(torch.eye(3))
        with self.assertRaisesRegex(RuntimeError, "pivots"):
            L.ldl_solve(factor, torch.full((3,), -7, dtype=torch.int32), torch.eye(3))

    def test_missing_lapack(self):
        def run(library):
            code = "import phlox as torch\ntry: torch.linalg.inv(torch.eye(2))\nexcept RuntimeError as e: print(e)\nprint(torch.linalg.inv(torch.ones(2, 2, device='meta')).shape)"
            return subprocess.run([sys.executable, "-c", code], env={**os.environ, "PHLOX_LAPACK": library}, capture_output=True, text=True).stdout
        self.assertRegex(run("nowhere.so"), r"^Linear algebra on the CPU needs LAPACK, and PHLOX_LAPACK names 'nowhere.so', which cannot be opened: .*\ntorch.Size\(\[2, 2\]\)")
        self.assertRegex(run("libm.so.6"), "^Linear algebra on the CPU needs LAPACK, and the library libm.so.6 lacks its function spotrf_\n")


class Gradients(Base):
    def test_determinant_of_singular_matrix(self):
        a = torch.tensor([[1., 2.], [2., 4.]], requires_grad=True)
        L.det(a).backward()
        again, = torch.autograd.grad(L.det(a), a, create_graph=True)
        self.near(again.detach(), torch.tensor([[4., -2.], [-2., 1.]]), 1e-5)
        low = torch.randn(3, 3, dtype=torch.float64)
        low[2] = low[0]
        self.assertTrue(torch.autograd.gradgradcheck(L.det, (low.requires_grad_(),), atol=1e-3))
        self.near(a.grad, torch.tensor([[4., -2.], [-2., 1.]]), 1e-5)

    def test_gradcheck_of_solvers(self):
        a = torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)
        b = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
        eye = torch.eye(3, dtype=torch.float64)
        whole = lambda x: x @ x.mT + eye
        for function in (lambda x, y: L.solve(x, y), lambda x, y: L.solve(x, y.mT, left=False), lambda x, y: L.cholesky(whole(x)) @ y,
                         lambda x, y: L.inv(x) @ y, lambda x, y: L.lu_solve(*L.lu_factor(x), y, adjoint=True), lambda x, y: L.lu(x).L @ y,
                         lambda x, y: torch.cholesky_solve(y, L.cholesky(whole(x))), lambda x, y: L.det(x), lambda x, y: L.slogdet(x).logabsdet):
            self.assertTrue(torch.autograd.gradcheck(function, (a, b)))
            self.assertTrue(torch.autograd.gradgradcheck(function, (a, b)))

    def test_gradcheck_of_decompositions(self):
        tall = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
        square = torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)
        sides = torch.randn(2, 4, 2, dtype=torch.float64, requires_grad=True)
        both = lambda x: x + x.mT
        checks = [(lambda x: L.qr(x), tall), (lambda x: L.qr(x.mT), tall), (lambda x: L.qr(x, "complete"), square),
                  (lambda x: L.eigh(both(x)).eigenvalues, square), (lambda x: L.eigh(both(x)).eigenvectors.square(), square),
                  (lambda x: L.eigvalsh(both(x)), square), (lambda x: L.svdvals(x), tall), (lambda x: L.svd(x, False).U.square(), tall),
                  (lambda x: L.svd(x.mT, False).Vh.square(), tall), (lambda x: L.svd(x)[1], tall), (lambda x: L.pinv(x), tall), (lambda x: L.pinv(x.mT), tall),
                  (lambda x: L.pinv(both(x), hermitian=True), square), (lambda x: L.matrix_norm(x, "nuc"), tall), (lambda x: L.cond(x, -2), tall),
                  (lambda x: torch.matrix_exp(x), square), (lambda x: L.matrix_power(x, -2), square), (lambda x: L.multi_dot([x[0], x[1].mT, x[0]]), tall)]
        for function, x in checks:
            self.assertTrue(torch.autograd.gradcheck(function, (x,)))
            self.assertTrue(torch.autograd.gradgradcheck(function, (x,)))
        self.assertTrue(torch.autograd.gradcheck(lambda x, b: L.lstsq(x, b).solution, (tall, sides)))
        self.assertTrue(torch.autograd.gradgradcheck(lambda x, b: L.lstsq(x, b).solution, (tall, sides)))


class NormDtypes(unittest.TestCase):
    def test_dtype_is_of_the_same_kind_and_as_wide(self):  # the texts of PyTorch 2.15
        x, m = torch.ones(2), torch.ones(2, 2)
        vectors = (torch.norm, L.vector_norm, L.norm, torch.Tensor.norm)
        matrices = (L.matrix_norm, lambda m, **k: L.matrix_norm(m, 1, **k), lambda m, **k: L.matrix_norm(m, "nuc", **k), lambda m, **k: L.norm(m, 2, **k))
        for calls, given, name in (vectors, x, "vector"), (matrices, m, "matrix"):
            for call in calls:
                for own, dtype, kind, text in (
                        (torch.float32, torch.complex64, RuntimeError, "dtype should be real for real inputs, but got ComplexFloat"),
                        (torch.complex64, torch.float32, RuntimeError, "dtype should be complex for complex inputs, but got Float"),
                        (torch.float32, torch.int64, RuntimeError, "dtype should be floating point or complex, but got Long"),
                        (torch.float64, torch.float32, RuntimeError, r"the dtype of the input \(Double\) should be convertible without narrowing to the specified dtype \(Float\)"),
                        (torch.float16, torch.bfloat16, RuntimeError, "without narrowing"), (torch.complex128, torch.complex64, RuntimeError, "without narrowing"),
                        (torch.int64, torch.float32, NotImplementedError, "Expected a floating point or complex tensor as input. Got Long")):
                    with self.assertRaisesRegex(kind, f"linalg.{name}_norm: {text}" if "without" not in text or "the" in text else text):
                        call(given.to(own), dtype=dtype)
                self.assertEqual(call(given, dtype=torch.float64).dtype, torch.float64)

if __name__ == "__main__":
    unittest.main()
