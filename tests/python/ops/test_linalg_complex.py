# SPDX-License-Identifier: Apache-2.0
"""torch.linalg of complex matrices: decompositions, linear systems, eigenvalues, gradients and errors."""
import unittest

import phlox as torch

L = torch.linalg
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
GPU = torch.cuda.is_available() and torch.cuda._backend_name() != "sim"
C = torch.complex128


def well_conditioned(*sizes, device="cpu", seed=3):
    """Well-conditioned complex matrices."""
    torch.manual_seed(seed)
    x = torch.complex(torch.randn(*sizes, dtype=torch.float64), torch.randn(*sizes, dtype=torch.float64))
    return (x + 3 * torch.eye(sizes[-2], sizes[-1], dtype=C)).to(device)


def definite(x):
    return x @ x.mH + torch.eye(x.shape[-1], dtype=C, device=x.device)


class Base(unittest.TestCase):
    def near(self, a, b, most=1e-9):
        self.assertEqual((a.shape, a.dtype), (b.shape, b.dtype))
        self.assertLess((a - b).abs().max().item() if a.numel() else 0, most)


class Decompositions(Base):
    def test_decompositions_reconstruct_matrices(self):
        for device in DEVICES:
            for a in (well_conditioned(4, 4, device=device), well_conditioned(2, 4, 3, device=device), well_conditioned(3, 4, device=device).conj()):
                q, r = L.qr(a)
                self.near(q @ r, a)
                self.near(q.mH @ q, torch.eye(q.shape[-1], dtype=C, device=device).expand(*q.shape[:-2], -1, -1))
                u, s, vh = L.svd(a, full_matrices=False)
                self.assertEqual(s.dtype, torch.float64)
                self.near(u * s.unsqueeze(-2) @ vh, a)
                p, lower, upper = L.lu(a)
                self.near(p @ lower @ upper, a)

    def test_hermitian_decompositions(self):
        for device in DEVICES:
            a = definite(well_conditioned(2, 3, 3, device=device))
            for upper in (False, True):
                factor = L.cholesky(a, upper=upper)
                self.near(factor.mH @ factor if upper else factor @ factor.mH, a)
                self.near(a @ torch.cholesky_inverse(factor, upper), torch.eye(3, dtype=C, device=device).expand(2, 3, 3))
            values, vectors = L.eigh(a)
            self.assertEqual(values.dtype, torch.float64)
            self.near(a @ vectors, vectors * values.unsqueeze(-2))
            self.near(L.eigvalsh(a), values)

    def test_ldl_symmetric_and_hermitian(self):
        for device in DEVICES:
            x, b = well_conditioned(2, 3, 3, device=device), well_conditioned(2, 3, 2, device=device)
            for hermitian, a in ((False, x + x.mT), (True, x + x.mH)):
                if hermitian and GPU and device == "cuda":
                    with self.assertRaisesRegex(RuntimeError, "ldl_factor: complex tensors with hermitian=True flag are not supported on CUDA"):
                        L.ldl_factor(a, hermitian=True)
                else:
                    factors = L.ldl_factor(a, hermitian=hermitian)
                    self.near(a @ L.ldl_solve(*factors, b, hermitian=hermitian), b, 1e-8)

    def test_ormqr(self):
        for device in DEVICES:
            a, b = well_conditioned(4, 3, device=device), well_conditioned(4, 2, device=device)
            factor, tau = torch.geqrf(a)
            q = L.qr(a, mode="complete").Q
            self.near(torch.ormqr(factor, tau, b), q @ b)
            self.near(torch.ormqr(factor, tau, b, transpose=True), q.mH @ b)
            self.near(L.householder_product(factor, tau), q[:, :3])

    def test_matmul_of_conjugate_and_strided_views(self):
        for device in DEVICES:
            a, b = well_conditioned(3, 4, device=device), well_conditioned(2, 4, 3, device=device)
            sums = lambda x, y: (x.unsqueeze(-1) * y.unsqueeze(-3)).sum(-2)
            self.near(a @ b[0], sums(a, b[0]))
            self.near(a.mH @ b[0].mT.conj(), sums(a.mH.resolve_conj(), b[0].mT.conj().resolve_conj()))
            self.near(a[:, ::2] @ b[:, 1::2], sums(a[:, ::2], b[:, 1::2]))
            self.near(a @ b[0, :, 0], sums(a, b[0, :, :1])[:, 0])
            self.near(torch.addmm(a[:, :1], a, b[1], beta=2, alpha=3), 2 * a[:, :1] + 3 * sums(a, b[1]))

    def test_batches_of_small_matrices(self):
        for device in DEVICES:
            a = well_conditioned(5, 4, 4, device=device)
            whole = definite(a)
            one = torch.eye(4, dtype=C, device=device).expand(5, 4, 4)
            self.near(a @ L.inv(a), one)
            self.near((lambda f: f @ f.mH)(L.cholesky(whole)), whole)
            self.near((lambda q, r: q @ r)(*L.qr(a)), a)
            self.near(a.mH @ L.lu_solve(*L.lu_factor(a), a, adjoint=True), a)
            self.near((lambda w, v: v * w.unsqueeze(-2) @ v.mH)(*L.eigh(whole)), whole)
            self.near((lambda u, s, vh: u * s.unsqueeze(-2) @ vh)(*L.svd(a)), a)


class Systems(Base):
    def test_solve_from_both_sides(self):
        for device in DEVICES:
            a, b = well_conditioned(2, 3, 3, device=device), well_conditioned(3, 4, device=device)
            self.near(a @ L.solve(a, b), b.expand(2, 3, 4))
            self.near(L.solve(a, b.mT, left=False) @ a, b.mT.expand(2, 4, 3))
            factor, pivots = L.lu_factor(a)
            self.near(a.mH @ L.lu_solve(factor, pivots, b, adjoint=True), b.expand(2, 3, 4))
            self.near(L.lu_solve(factor, pivots, b.mT, left=False, adjoint=True) @ a.mH, b.mT.expand(2, 4, 3))
            self.near(a.triu() @ L.solve_triangular(a, b, upper=True), b.expand(2, 3, 4))
            self.near(a @ L.inv(a), torch.eye(3, dtype=C, device=device).expand(2, 3, 3))

    def test_determinants(self):
        a = well_conditioned(2, 3, 3)
        sign, logs = L.slogdet(a)
        self.assertEqual((sign.dtype, logs.dtype), (C, torch.float64))
        self.near(sign * logs.exp(), L.det(a))
        self.near(torch.logdet(a).exp(), L.det(a))
        self.near(L.det(torch.tensor([[1j, 2], [3, 4j]], dtype=C)), torch.tensor(-10, dtype=C))

    def test_lstsq_drivers(self):
        for device in DEVICES:
            a, b, c = well_conditioned(5, 3, device=device), well_conditioned(5, 2, device=device), well_conditioned(2, 3, 1, device=device)
            normal = L.solve(a.mH @ a, a.mH @ b)
            for driver in ("gels", "gelsy", "gelsd", "gelss")[:1 if GPU and device == "cuda" else 4]:
                found = L.lstsq(a, b, driver=driver)
                self.near(found.solution, normal)
                self.assertEqual(found.singular_values.dtype, torch.float64)
                wide = L.lstsq(a.mH.expand(2, 3, 5), c, driver=driver).solution
                self.near(wide, a @ L.solve(a.mH @ a, c))
            self.near(found.residuals, (a @ normal - b).abs().square().sum(0))
            self.near(L.pinv(a) @ b, normal)
        if GPU:
            with self.assertRaisesRegex(RuntimeError, "lstsq: `driver` other than `gels` is not supported on CUDA"):
                L.lstsq(a, b, driver="gelsd")

    def test_norms_and_ranks(self):
        a = well_conditioned(3, 4)
        self.assertEqual(L.matrix_rank(a).item(), 3)
        self.assertEqual(L.matrix_rank(a[:, :1] @ a[:1]).item(), 1)
        self.near(L.cond(a), (lambda s: s[0] / s[-1])(L.svdvals(a)))
        self.near(L.matrix_norm(a, "nuc"), L.svdvals(a).sum())


class Eigenvalues(Base):
    def test_eig(self):
        for device in DEVICES:
            torch.manual_seed(2)
            real = torch.randn(2, 5, 5, dtype=torch.float64, device=device)
            for a in (real, well_conditioned(4, 4, device=device), torch.tensor([[0., -1.], [1., 0.]], dtype=torch.float64, device=device)):
                values, vectors = L.eig(a)
                self.near(a.to(C) @ vectors, vectors * values.unsqueeze(-2))
                self.near(vectors.abs().square().sum(-2), torch.ones(values.shape, dtype=torch.float64, device=device))
                self.near(values.sum(-1), a.to(C).diagonal(0, -2, -1).sum(-1))
                self.near(L.eigvals(a), values)

    def test_eig_of_float32_is_complex64(self):
        values, vectors = L.eig(torch.tensor([[0., -1.], [1., 0.]]))
        self.assertEqual((values.tolist(), vectors.dtype), ([1j, -1j], torch.complex64))
        self.assertEqual([t.shape for t in L.eig(torch.zeros(3, 0, 0))], [(3, 0), (3, 0, 0)])

    def test_errors(self):
        for text, a in (("torch.linalg.eig: input tensor should not contain infs or NaNs.", torch.tensor([[torch.inf]])),
                        ("linalg.eig: A must be batches of square matrices, but they are 2 by 3 matrices", torch.zeros(2, 3))):
            with self.assertRaises(RuntimeError) as caught:
                L.eig(a)
            self.assertEqual(str(caught.exception), text)
        with self.assertRaises(NotImplementedError) as caught:
            L.eig(torch.zeros(2, 2, dtype=torch.int64))
        self.assertEqual(str(caught.exception), "linalg.eig: Expected a floating point or complex tensor as input. Got Long")


class Gradients(Base):
    def check(self, function, *sizes, second=True):
        x = well_conditioned(*sizes).requires_grad_()
        self.assertTrue(torch.autograd.gradcheck(function, (x,)))
        if second:
            self.assertTrue(torch.autograd.gradgradcheck(function, (x,)))

    def test_solvers(self):
        b = well_conditioned(3, 2, seed=8)
        self.check(L.inv, 3, 3)
        self.check(lambda a: L.matrix_exp(a / 4), 3, 3)
        self.check(lambda a: L.solve(a, b), 3, 3)
        self.check(lambda a: L.solve(a, b.mT, left=False), 3, 3)
        self.check(lambda a: L.solve_triangular(a, b, upper=False), 3, 3)
        self.check(lambda a: L.lu(a)[1:], 3, 3)
        self.check(lambda a: L.lu_solve(*L.lu_factor(a), b, adjoint=True), 3, 3)

    def test_determinants(self):
        self.check(L.det, 3, 3)
        self.check(L.slogdet, 3, 3)
        self.check(torch.logdet, 3, 3)

    def test_decompositions(self):
        self.check(lambda a: L.cholesky(definite(a)), 3, 3)
        self.check(L.qr, 3, 3)
        self.check(L.qr, 3, 4)
        self.check(L.pinv, 4, 3)
        self.check(lambda a: L.householder_product(a, a[0] / 4), 4, 3)
        self.check(lambda a: torch.ormqr(a[:, :2], a[0, :2] / 4, a, transpose=True), 3, 3)

    def test_phase_invariant_functions(self):
        self.check(L.svdvals, 4, 3)
        self.check(lambda a: L.svd(a, full_matrices=False).U.abs(), 4, 3, second=False)
        self.check(lambda a: (lambda u, s, vh: u @ vh)(*L.svd(a, full_matrices=False)), 3, 4, second=False)
        self.check(lambda a: L.eigvalsh(definite(a)), 3, 3)
        self.check(lambda a: L.eigh(definite(a)).eigenvectors.abs(), 3, 3, second=False)
        self.check(L.eigvals, 3, 3)
        self.check(lambda a: L.eig(a).eigenvectors.abs(), 3, 3)

    def test_real_matrix_with_complex_eigenvalues(self):
        x = torch.tensor([[1., -2.], [3., .5]], dtype=torch.float64, requires_grad=True)
        self.assertTrue(torch.autograd.gradcheck(L.eigvals, (x,)))
        self.assertEqual(torch.autograd.grad(L.eigvals(x).abs().sum(), x)[0].dtype, torch.float64)

    def test_phase_dependent_functions_raise(self):
        text = "in the complex case are specified up to multiplication by e^{i phi}"
        for function in (lambda a: L.eig(a).eigenvectors, lambda a: L.eigh(a).eigenvectors, lambda a: L.svd(a).U):
            with self.assertRaisesRegex(RuntimeError, text.replace("^", r"\^")):
                (function(well_conditioned(3, 3).requires_grad_()).real * torch.arange(9.).reshape(3, 3)).sum().backward()
                function(well_conditioned(3, 3).requires_grad_()).imag.sum().backward()


if __name__ == "__main__":
    unittest.main()
