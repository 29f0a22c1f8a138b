# SPDX-License-Identifier: Apache-2.0
"""torch.distributions.transforms: inverses and determinants agree with the functions. Values, shapes, reprs and errors are compared with PyTorch's
if it is installed."""
import math
import unittest

import phlox
import peer
from peer import newest as torch

# Expressions that create transforms, each with input points.
LINE, MATRIX = [[-1.5, 0.2, 0.7], [0.1, 2.0, -0.3]], [[[0.5, 0.1], [0.3, -0.2]], [[1.0, 2.0], [3.0, 0.5]]]
POSITIVE = [[0.5, 0.2, 0.7], [0.1, 2.0, 1.3]]
CASES = {
    "ExpTransform()": LINE, "SigmoidTransform()": LINE, "SoftplusTransform()": LINE, "TanhTransform()": LINE,
    "ExpTransform().inv": POSITIVE, "PowerTransform(torch.tensor(1.5))": POSITIVE, "PowerTransform(torch.tensor(-1.0))": POSITIVE,
    "AffineTransform(1.0, -2.0)": LINE, "AffineTransform(torch.tensor([0.0, 1.0, 2.0]), torch.tensor([1.0, 2.0, -3.0]), event_dim=1)": LINE,
    "ComposeTransform([AffineTransform(0.5, 2.0), TanhTransform()])": LINE, "ComposeTransform([])": LINE,
    "ComposeTransform([SigmoidTransform(), AffineTransform(1.0, 2.0), ExpTransform()]).inv": [[5.0, 10.0, 15.0]],
    "IndependentTransform(ExpTransform(), 1)": LINE, "StickBreakingTransform()": LINE,
    "ComposeTransform([ExpTransform(), IndependentTransform(ExpTransform(), 1)])": LINE,
    "ReshapeTransform((3,), (3, 1))": LINE, "CumulativeDistributionTransform(Normal(0.0, 1.0))": LINE,
    "CatTransform([ExpTransform(), AffineTransform(0.0, 2.0)], -1, [1, 2])": LINE,
    "StackTransform([ExpTransform(), TanhTransform(), AffineTransform(0.0, 2.0)], -1)": LINE,
    "CatTransform([ExpTransform(), TanhTransform(), AffineTransform(0.0, 2.0)], -1, cache_size=1)": LINE,
    "CorrCholeskyTransform()": LINE,
}
WITHOUT_DETERMINANT = {"SoftmaxTransform()": LINE, "LowerCholeskyTransform()": MATRIX, "AbsTransform()": LINE, "PositiveDefiniteTransform()": MATRIX,
                       "PositiveDefiniteTransform().inv": [[[2.0, 0.5], [0.5, 1.0]]]}
CONSTRAINTS = """real positive nonnegative unit_interval simplex real_vector greater_than(2.0) less_than(-1.0) interval(-1.0,3.0)
half_open_interval(0.0,2.0) corr_cholesky positive_definite positive_semidefinite cat([positive,real],-1) independent(positive,1) lower_cholesky greater_than_eq(0.5) cat([positive,real]) stack([positive,real])
boolean""".split()


def make(library, text):
    there = {**vars(library.distributions.transforms), "torch": library, "Normal": library.distributions.Normal}
    return eval(text, there)


def float64_tensor(library, points):
    return library.tensor(points, dtype=library.float64)


class Consistency(unittest.TestCase):
    def test_inverse(self):
        for text, points in {**CASES, "LowerCholeskyTransform()": MATRIX}.items():
            t, x = make(phlox, text), float64_tensor(phlox, points)
            self.assertTrue(phlox.allclose(t.inv(t(x)), x if "Lower" not in text else x.tril()), text)
            self.assertIs(t.inv.inv, t)
            self.assertTrue(t.codomain.check(t(x)).all(), text)
            self.assertEqual((t.forward_shape(x.shape), t.inverse_shape(t(x).shape)), (t(x).shape, x.shape), text)

    def test_log_det_matches_jacobian(self):
        for text, points in CASES.items():
            t = make(phlox, text)
            for point in float64_tensor(phlox, points):
                jacobian = phlox.autograd.functional.jacobian(lambda x: t(x).flatten(), point)
                if "Stick" in text:
                    jacobian = jacobian[:-1]
                if "Corr" in text:  # the strict lower triangle is free
                    jacobian = jacobian.view(3, 3, 3)[[1, 2, 2], [0, 0, 1]]
                slope = t.log_abs_det_jacobian(point, t(point))
                if "StackTransform" in text or "CatTransform" in text or not t.domain.event_dim:
                    wanted = jacobian.diagonal().abs().log()
                else:
                    wanted = phlox.tensor(math.log(abs(float(determinant(jacobian)))), dtype=phlox.float64)
                self.assertEqual(slope.shape, wanted.shape, text)
                self.assertTrue(phlox.allclose(slope, wanted, atol=1e-6), (text, slope, wanted))

    def test_cache(self):
        t = phlox.distributions.ExpTransform(cache_size=1)
        x = phlox.ones(2)
        y = t(x)
        self.assertTrue(t(x) is y and t.inv(y) is x)
        self.assertIsNot(phlox.distributions.ExpTransform()(x), y)
        self.assertEqual(t.with_cache(0)._cache_size, 0)
        with self.assertRaisesRegex(ValueError, "cache_size must be 0 or 1"):
            phlox.distributions.ExpTransform(cache_size=2)

    def test_equality(self):
        d = phlox.distributions
        self.assertEqual(d.AffineTransform(0.0, 1.0), d.AffineTransform(0.0, 1.0))
        self.assertNotEqual(d.AffineTransform(0.0, 1.0), d.AffineTransform(0.0, 2.0))
        self.assertNotEqual(d.ExpTransform(), d.TanhTransform())
        self.assertEqual(d.ExpTransform().inv, d.ExpTransform().inv)
        self.assertEqual(d.ComposeTransform([d.ExpTransform()]), d.ComposeTransform([d.ExpTransform()]))

    def test_register_user_constraint(self):
        d = phlox.distributions

        class Even(d.constraints.Constraint):
            pass

        d.biject_to.register(Even)(lambda constraint: "mine")
        self.assertEqual(d.biject_to(Even()), "mine")
        with self.assertRaisesRegex(TypeError, "Expected constraint to be either a Constraint subclass or instance"):
            d.biject_to.register(int)(len)

    def test_tanh_policy_training(self):
        # As in soft actor-critic: the action is tanh of a normal sample, with a differentiable density.
        d, loc = phlox.distributions, phlox.zeros(3, requires_grad=True)
        policy = d.Independent(d.TransformedDistribution(d.Normal(loc, 0.5), [d.TanhTransform(cache_size=1)]), 1)
        phlox.manual_seed(0)
        action = policy.rsample((100,))
        (policy.log_prob(action).mean() + (action - 0.5).pow(2).mean()).backward()
        self.assertTrue((loc.grad < 0).all())
        self.assertEqual((policy.batch_shape, policy.event_shape, action.shape), ((), (3,), (100, 3)))


def determinant(matrix):
    """The determinant, by elimination with partial pivoting."""
    rows, result = [list(row) for row in matrix.tolist()], 1.0
    for i in range(len(rows)):
        best = max(range(i, len(rows)), key=lambda k: abs(rows[k][i]))
        result *= rows[best][i] * (1 if best == i else -1)
        rows[i], rows[best] = rows[best], rows[i]
        for k in range(i + 1, len(rows)):
            factor = rows[k][i] / rows[i][i]
            rows[k] = [a - factor * b for a, b in zip(rows[k], rows[i])]
    return result


TEXTS = """ExpTransform()|ExpTransform().inv|ComposeTransform([ExpTransform(),TanhTransform()])|IndependentTransform(ExpTransform(),1)|
AffineTransform(0,1)|AffineTransform(0.,-1.).sign|ComposeTransform([AffineTransform(0.,-1.),ExpTransform()]).sign|AbsTransform().sign|
ExpTransform().domain|ExpTransform().codomain|TanhTransform().codomain|StickBreakingTransform().codomain|AbsTransform().bijective|
AffineTransform(0,1,event_dim=1).domain|ComposeTransform([StickBreakingTransform(),StickBreakingTransform().inv]).domain|
StickBreakingTransform().forward_shape(torch.Size([2,3]))|ComposeTransform([]).domain|ExpTransform(cache_size=3)|
ReshapeTransform((2,3),(5,))|ReshapeTransform((2,3),(3,2)).forward_shape((3,))|ReshapeTransform((2,3),(3,2)).forward_shape((7,3,2))|
ReshapeTransform((2,3),(6,)).inverse_shape(torch.Size([4,6]))|ReshapeTransform((2,3),(6,)).inverse_shape(torch.Size([5]))|
ReshapeTransform((2,3),(6,)).domain|ReshapeTransform((2,3),(6,)).codomain|CorrCholeskyTransform().forward_shape((4,))|
CorrCholeskyTransform().forward_shape(())|CorrCholeskyTransform().inverse_shape((4,3))|CorrCholeskyTransform().inverse_shape((4,))|
CorrCholeskyTransform().forward_shape((2,6))|CorrCholeskyTransform().inverse_shape((2,4,4))|CatTransform([3])|StackTransform([3])|
CatTransform([ExpTransform()],0,[1,2])|CatTransform([ExpTransform()],3)(torch.ones(2))|CatTransform([ExpTransform()],0,[1])(torch.ones(2))|
CatTransform([ExpTransform()],0,[1]).inv(torch.ones(2))|CatTransform([ExpTransform(),StickBreakingTransform()],0).event_dim|
CatTransform([ExpTransform(),AbsTransform()],0).bijective|CatTransform([ExpTransform()],0,[3]).length|
StackTransform([ExpTransform()],1)(torch.ones(2))|StackTransform([ExpTransform()],0)(torch.ones(2))|
StackTransform([ExpTransform()],0).log_abs_det_jacobian(torch.ones(2),torch.ones(1))|CatTransform([ExpTransform()],0).domain|
StackTransform([ExpTransform(),TanhTransform()],0).codomain|StackTransform([ExpTransform(),TanhTransform()],0).codomain.event_dim|
CumulativeDistributionTransform(Exponential(1.)).domain|CumulativeDistributionTransform(Exponential(1.)).sign|
LowerCholeskyTransform()==LowerCholeskyTransform()|PositiveDefiniteTransform()==LowerCholeskyTransform()|LowerCholeskyTransform().domain|
PositiveDefiniteTransform().codomain|CorrCholeskyTransform().codomain""".replace("\n", "").split("|")
DISTRIBUTIONS = """TransformedDistribution(Normal(0.,1.),ExpTransform())|TransformedDistribution(Normal(0.,1.),3)|
TransformedDistribution(Normal(0.,1.),[3])|TransformedDistribution(Normal(0.,1.),StickBreakingTransform())|
TransformedDistribution(Normal(torch.zeros(3),1.),StickBreakingTransform()).event_shape|
TransformedDistribution(Normal(torch.zeros(2,3),1.),StickBreakingTransform()).expand([5,2]).batch_shape|
TransformedDistribution(Normal(0.,1.),AffineTransform(torch.zeros(4),1.)).batch_shape|
TransformedDistribution(Normal(0.,1.),[]).support|TransformedDistribution(Normal(0.,1.),ExpTransform()).support|
TransformedDistribution(Normal(0.,1.),ExpTransform()).mean|TransformedDistribution(Normal(0.,1.),ExpTransform()).log_prob(torch.tensor(-1.))|
TransformedDistribution(Normal(0.,1.),ExpTransform()).cdf(torch.tensor(2.))|
TransformedDistribution(Normal(0.,1.),AffineTransform(1.,-2.)).cdf(torch.tensor(2.))|
TransformedDistribution(Normal(0.,1.),AffineTransform(1.,-2.)).icdf(torch.tensor(.2))|
TransformedDistribution(Normal(torch.zeros(3),1.),StickBreakingTransform()).log_prob(torch.tensor([.1,.2,.3,.4]))""".replace("\n", "").split("|")


def outcome(library, text):
    try:
        return repr(eval(text, {"torch": library, **vars(library.distributions)}))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@unittest.skipIf(torch is None, peer.NOT_NEWEST)
class ComparedWithPyTorch(unittest.TestCase):
    def same(self, ours, theirs, what):
        self.assertEqual(tuple(ours.shape), tuple(theirs.shape), what)
        for a, b in zip(ours.reshape(-1).tolist(), theirs.reshape(-1).tolist()):
            self.assertTrue(a == b or math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9), (what, a, b))

    def test_values_and_determinants(self):
        for text, points in {**CASES, **WITHOUT_DETERMINANT}.items():
            results = []
            for library in phlox, torch:
                t, x = make(library, text), float64_tensor(library, points)
                results.append((t(x), t.log_abs_det_jacobian(x, t(x)) if text not in WITHOUT_DETERMINANT else x))
            for ours, theirs in zip(*results):
                self.same(ours, theirs, text)

    def test_constraint_registries(self):
        for name in CONSTRAINTS:
            for to in "biject_to", "transform_to":
                found = []
                for library in phlox, torch:
                    constraint = eval(name, vars(library.distributions.constraints))
                    try:
                        found.append(getattr(library.distributions, to)(constraint)(float64_tensor(library, LINE if name == "corr_cholesky" else MATRIX)))
                    except NotImplementedError as error:
                        found.append(str(error))
                if isinstance(found[1], str):
                    self.assertEqual(*found)
                else:
                    self.same(*found, (to, name))

    def test_constraint_checks(self):
        matrices = [[[2.0, 0.0], [0.5, 1.0]], [[2.0, 0.5], [0.5, 1.0]], [[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.0], [0.6, 0.8]],
                    [[0.0, 0.0], [0.0, 0.0]], [[-1.0, 0.0], [0.0, 1.0]]]
        for name in """lower_triangular lower_cholesky corr_cholesky square symmetric positive_semidefinite positive_definite
                multinomial(3) cat([positive,real],-1) cat([simplex,real_vector],0,[2,4]) stack([positive,real],-1) stack([real]*6)
                MixtureSameFamilyConstraint(positive) MixtureSameFamilyConstraint(simplex) simplex boolean""".split():
            found = []
            for library in phlox, torch:
                constraint = eval(name, vars(library.distributions.constraints))
                found.append((constraint.check(float64_tensor(library, matrices)).tolist(), repr(constraint), constraint.event_dim, constraint.is_discrete))
            self.assertEqual(*found, name)
        wide = phlox.distributions.constraints
        for kind in wide.square, wide.symmetric, wide.positive_definite, wide.positive_semidefinite:
            self.assertEqual(kind.check(phlox.ones(4, 2, 3)).tolist(), [False] * 4)

    def test_triangular_vector_functions(self):
        for text in """vec_to_tril_matrix(torch.arange(6.))|vec_to_tril_matrix(torch.arange(6.).view(2,3),-1)|vec_to_tril_matrix(torch.arange(5.))|
vec_to_tril_matrix(torch.arange(8.),1)|tril_matrix_to_vec(torch.arange(9.).view(3,3))|tril_matrix_to_vec(torch.arange(18.).view(2,3,3),-1)|
tril_matrix_to_vec(torch.arange(9.).view(3,3),1)|tril_matrix_to_vec(torch.ones(3,3),3)|euler_constant""".replace("\n", "").split("|"):
            found = []
            for library in phlox, torch:
                try:
                    found.append(repr(eval(text, {**vars(library.distributions.utils), "torch": library})))
                except ValueError as error:
                    found.append(str(error))
            self.assertEqual(*found, text)

    def test_errors_and_reprs(self):
        for text in TEXTS + DISTRIBUTIONS:
            self.assertEqual(outcome(phlox, text).replace("phlox.", "torch."), outcome(torch, text), text)


if __name__ == "__main__":
    unittest.main()
