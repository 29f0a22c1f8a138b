# SPDX-License-Identifier: Apache-2.0
"""Sparse tensors: construction, coalescing, products and gradients, compared with dense tensors; and errors."""
import unittest

import phlox as torch

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
AT, VALUES, SIZE = [[0, 1, 1, 0], [2, 0, 2, 2]], [3.0, 4.0, 5.0, 1.0], (2, 3)
WHOLE = [[0.0, 0.0, 4.0], [4.0, 0.0, 5.0]]
DENSE = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]


def coo(device="cpu", **options):
    return torch.sparse_coo_tensor(AT, VALUES, SIZE, device=device, **options)


def csr(device="cpu", **options):
    return torch.sparse_csr_tensor([0, 1, 3], [2, 0, 2], [4.0, 4.0, 5.0], SIZE, device=device, **options)


class Construction(unittest.TestCase):
    def test_coalesce_sums_duplicates(self):
        for device in DEVICES:
            self.assertEqual(coo(device).to_dense().tolist(), WHOLE)
            ordered = coo(device).coalesce()
            self.assertEqual((ordered.indices().tolist(), ordered.values().tolist()), ([[0, 1, 1], [2, 0, 2]], [4, 4, 5]))
            self.assertIs(ordered.coalesce(), ordered)

    def test_dense_round_trip(self):
        for device in DEVICES:
            x = torch.tensor([WHOLE, [[0.0] * 3] * 2], device=device)
            self.assertTrue(torch.equal(x.to_sparse().to_dense(), x))
            lines = x.to_sparse(2)
            self.assertEqual((lines._nnz(), lines.sparse_dim(), lines.dense_dim()), (2, 2, 1))
            self.assertTrue(torch.equal(lines.to_dense(), x))
            self.assertTrue(torch.equal(x[0].to_sparse_csr().to_dense(), x[0]))
            empty = torch.zeros(2, 0, device=device)
            self.assertEqual(empty.to_sparse().to_dense().shape, (2, 0))

    def test_csr(self):
        for device in DEVICES:
            rows = coo(device).to_sparse_csr()
            self.assertEqual((rows.crow_indices().tolist(), rows.col_indices().tolist(), rows.values().tolist()), ([0, 1, 3], [2, 0, 2], [4, 4, 5]))
            self.assertEqual(csr(device).to_dense().tolist(), WHOLE)
            self.assertEqual(csr(device).to_sparse().coalesce().indices().tolist(), [[0, 1, 1], [2, 0, 2]])
            gap = torch.zeros(4, 2, device=device)
            gap[2, 1] = 1
            self.assertEqual(gap.to_sparse_csr().crow_indices().tolist(), [0, 0, 0, 1, 1])

    def test_size_is_inferred(self):
        self.assertEqual(torch.sparse_coo_tensor(AT, VALUES).shape, (2, 3))
        self.assertEqual(torch.sparse_coo_tensor((4, 5)).to_dense().tolist(), torch.zeros(4, 5).tolist())
        self.assertEqual(coo(dtype=torch.float64).dtype, torch.float64)

    def test_repr_matches_pytorch(self):
        self.assertEqual(repr(coo()), "tensor(indices=tensor([[0, 1, 1, 0],\n                       [2, 0, 2, 2]]),\n       values=tensor([3., 4., 5., 1.]),\n"
                         "       size=(2, 3), nnz=4, layout=torch.sparse_coo)")
        self.assertEqual(repr(csr()), "tensor(crow_indices=tensor([0, 1, 3]),\n       col_indices=tensor([2, 0, 2]),\n"
                         "       values=tensor([4., 4., 5.]), size=(2, 3), nnz=3,\n       layout=torch.sparse_csr)")
        self.assertEqual(repr(torch.sparse_coo_tensor((2, 3))), "tensor(indices=tensor([], size=(2, 0)),\n       values=tensor([], size=(0,)),\n"
                         "       size=(2, 3), nnz=0, layout=torch.sparse_coo)")

    def test_construction_errors(self):
        for text, call in (("indices must be sparse_dim x nnz, but got: \\[2\\]", lambda: torch.sparse_coo_tensor([0, 1], [1.0, 2.0])),
                           ("nnz from indices: 4, nnz from values: 1", lambda: torch.sparse_coo_tensor(AT, [1.0])),
                           ("size is inconsistent with indices: for dim 1, size is 2 but found index 2", lambda: torch.sparse_coo_tensor(AT, VALUES, (2, 2))),
                           ("found negative index -1 for dim 0", lambda: torch.sparse_coo_tensor([[-1]], [1.0], (2,))),
                           ("len\\(size\\) = 1, sparse_dim = 2, dense_dim = 0", lambda: torch.sparse_coo_tensor(AT, VALUES, (2,))),
                           ("please call .coalesce\\(\\) first", lambda: coo().indices()),
                           ("coalesce expected sparse coordinate tensor layout but got SparseCsr", lambda: csr().coalesce()),
                           ("crow_indices.shape", lambda: torch.sparse_csr_tensor([0, 1], [0], [1.0], (2, 2))),
                           ("crow_indices must begin with 0", lambda: torch.sparse_csr_tensor([0, 2, 1], [0], [1.0], (2, 2))),
                           ("Expected dim 0 size 3, got 2", lambda: coo() @ torch.ones(2, 2)),
                           ("Use add\\(dense, sparse\\) instead", lambda: coo() + torch.ones(2, 3)),
                           ("expected sizes of 'self' and 'other' to match", lambda: coo() + coo().t())):
            with self.assertRaisesRegex(RuntimeError, text):
                call()
        with self.assertRaisesRegex(NotImplementedError, "Could not run 'aten::exp'"):
            torch.exp(coo())


class Computation(unittest.TestCase):
    def test_matmul_matches_dense(self):
        for device in DEVICES:
            whole, dense = torch.tensor(WHOLE, device=device), torch.tensor(DENSE, device=device)
            for made in coo(device), csr(device):
                for got in made @ dense, torch.mm(made, dense), torch.sparse.mm(made, dense), torch.spmm(made, dense):
                    self.assertTrue(torch.equal(got, whole @ dense))
                self.assertTrue(torch.equal(made @ dense[:, 0], whole @ dense[:, 0]))
                self.assertTrue(torch.equal(dense.t() @ made.t(), (whole @ dense).t()))
                self.assertTrue(torch.equal(torch.sparse.mm(made, made.t()).to_dense(), whole @ whole.t()))
                self.assertTrue(torch.equal(torch.sparse.addmm(torch.ones(2, 2, device=device), made, dense, beta=2, alpha=3), 2 + 3 * (whole @ dense)))

    def test_arithmetic_matches_dense(self):
        for device in DEVICES:
            whole, other = torch.tensor(WHOLE, device=device), torch.tensor([[1.0, 0.0, 2.0], [0.0, 7.0, 3.0]], device=device)
            for made in coo(device), csr(device):
                for got, want in ((made * 2, whole * 2), (2 * made, whole * 2), (made / 4, whole / 4), (-made, -whole), (made + other.to_sparse(), whole + other),
                                  (made - other.to_sparse(), whole - other), (made * other.to_sparse(), whole * other), (made * other, whole * other),
                                  (torch.relu(-made), torch.relu(-whole)), (made.square(), whole.square()), (made.double(), whole.double())):
                    self.assertTrue(torch.equal(got.to_dense(), want))
                    self.assertEqual(got.layout, made.layout)
                self.assertTrue(torch.equal(other + made, other + whole))
                self.assertEqual(torch.sparse.sum(made).item(), whole.sum().item())
                self.assertEqual(torch.sparse.sum(made, 0).to_dense().tolist(), whole.sum(0).tolist())

    def test_gradients(self):
        for device in DEVICES:
            for made in coo(device, requires_grad=True), csr(device, requires_grad=True):
                dense = torch.tensor(DENSE, device=device, requires_grad=True)
                (torch.sparse.mm(made, dense) * torch.tensor([[1.0, 0.0], [0.0, 2.0]], device=device)).sum().backward()
                self.assertEqual(dense.grad.tolist(), [[0, 8], [0, 0], [4, 10]])
                self.assertEqual(made.grad.layout, made.layout)
                self.assertEqual(made.grad.to_sparse()._values().tolist(), [5, 4, 12, 5][:made._nnz()])
            values = torch.tensor(VALUES, dtype=torch.float64, device=device, requires_grad=True)
            dense = torch.tensor(DENSE, dtype=torch.float64, device=device, requires_grad=True)
            self.assertTrue(torch.autograd.gradcheck(lambda v, d: torch.sparse_coo_tensor(AT, v, SIZE, device=device).coalesce() @ d, (values, dense)))
            self.assertTrue(torch.autograd.gradcheck(lambda d: d.to_sparse().to_dense() * 2, dense))
            product = lambda v: torch.sparse.mm(torch.sparse_coo_tensor(AT, v, SIZE, device=device), dense.detach().to_sparse()).to_dense()
            self.assertTrue(torch.autograd.gradcheck(product, values))

    def test_softmax_matches_dense_with_minus_infinity(self):
        at, size = torch.tensor([[0, 0, 2, 2, 2, 3], [1, 3, 0, 1, 3, 2]]), (4, 5, 2)
        for device in DEVICES:
            kept = torch.sparse_coo_tensor(at, torch.ones(6, 2), size, device=device).to_dense() > 0
            for sparse, dense in (torch.sparse.softmax, torch.softmax), (torch.sparse.log_softmax, torch.log_softmax):
                for dim in -3, 0, 1, 2:
                    values = torch.linspace(-3, 4, 12, dtype=torch.float64, device=device).reshape(6, 2).requires_grad_()
                    made = torch.sparse_coo_tensor(at, values, size, device=device).coalesce()
                    have, wanted = sparse(made, dim), dense(torch.where(kept, made.to_dense(), -torch.inf), dim)
                    self.assertTrue(torch.allclose(have.values(), wanted[tuple(at)]))
                    along = torch.arange(12.0, dtype=torch.float64, device=device).reshape(6, 2)
                    first, = torch.autograd.grad(have.values(), values, along, retain_graph=True)
                    self.assertTrue(torch.allclose(first, torch.autograd.grad(wanted[tuple(at)], values, along)[0]))
            line = lambda v: torch.sparse.softmax(torch.sparse_coo_tensor(AT, v, SIZE, device=device), 1).values()
            values = torch.tensor(VALUES, dtype=torch.float64, device=device, requires_grad=True)
            self.assertTrue(torch.autograd.gradcheck(line, values) and torch.autograd.gradgradcheck(line, values))

    def test_softmax_edge_cases_and_errors(self):
        for f in torch.sparse.softmax, torch.sparse.log_softmax:
            self.assertEqual(f(torch.sparse_coo_tensor((2, 3)), 1).values().shape, (0,))
            self.assertEqual(f(coo(), 1, dtype=torch.float64).dtype, torch.float64)
            for call, kind, text in ((lambda: f(coo(), 2), IndexError, r"Dimension out of range \(expected to be in range of \[-2, 1\], but got 2\)"),
                                     (lambda: f(coo(dtype=torch.int64), 1), NotImplementedError, f"\"{f.__name__}\" not implemented for 'Long'"),
                                     (lambda: f(csr(), 1), NotImplementedError, "Could not run 'aten::_sparse_.*'SparseCsrCPU' backend"),
                                     (lambda: f(torch.ones(3), 0), NotImplementedError, "Could not run 'aten::_sparse_.*'CPU' backend")):
                self.assertRaisesRegex(kind, text, call)

    def test_given_values_are_unchanged(self):
        values = torch.tensor(VALUES)
        torch.sparse_coo_tensor(AT, values, SIZE).requires_grad_()
        self.assertFalse(values.requires_grad)

    def test_graph_network_training(self):
        edges = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 3], [1, 2, 0, 4, 5, 3, 2, 5]])
        graph = torch.sparse_coo_tensor(edges, torch.ones(8), (6, 6))
        graph = (graph + graph.t()).coalesce()
        graph = graph * (1 / graph.to_dense().sum(1, keepdim=True)).expand(6, 6)
        torch.manual_seed(0)
        first, last, target = torch.nn.Linear(6, 8), torch.nn.Linear(8, 2), torch.tensor([0, 0, 0, 1, 1, 1])
        optimizer = torch.optim.Adam([*first.parameters(), *last.parameters()], lr=0.05)
        for _ in range(40):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(graph @ last(torch.relu(graph @ first(torch.eye(6)))), target)
            loss.backward()
            optimizer.step()
        self.assertLess(loss.item(), 0.05)


if __name__ == "__main__":
    unittest.main()
