# SPDX-License-Identifier: Apache-2.0
"""torch.distributions: densities integrate to one and agree with means, distribution functions and samples. Values, KL divergences, reprs and errors
are compared with PyTorch's if it is installed."""
import itertools
import math
import unittest
import warnings

import phlox
import peer
from peer import newest as torch

HERE = phlox.distributions
# For each family: arguments that broadcast to a batch.
CASES = {
    "Bernoulli": [dict(probs=[0.2, 0.5, 0.7]), dict(logits=[-1.0, 0.0, 2.0])],
    "Categorical": [dict(probs=[[0.2, 0.3, 0.5], [4.0, 1.0, 1.0]]), dict(logits=[[0.0, 1.0, -2.0]])],
    "OneHotCategorical": [dict(probs=[[0.2, 0.3, 0.5], [4.0, 1.0, 1.0]]), dict(logits=[[0.0, 1.0, -2.0]])],
    "OneHotCategoricalStraightThrough": [dict(probs=[[0.2, 0.7, 0.1], [0.5, 0.4, 0.1]])],
    "Uniform": [dict(low=[0.0, -1.0, 2.0], high=[1.0, 0.5, 3.0]), dict(low=0, high=2.0)],
    "Exponential": [dict(rate=[0.5, 1.0, 4.0]), dict(rate=2.0)],
    "Laplace": [dict(loc=[0.0, -1.0, 2.0], scale=[1.0, 0.5, 3.0]), dict(loc=1, scale=2.0)],
    "Gamma": [dict(concentration=[1.5, 3.0, 30.0], rate=[1.0, 0.5, 3.0]), dict(concentration=2.0, rate=1.5)],
    "Beta": [dict(concentration1=[1.5, 3.0], concentration0=[2.0, 5.0]), dict(concentration1=2.0, concentration0=2.5)],
    "Dirichlet": [dict(concentration=[[1.5, 3.0, 0.7], [2.0, 5.0, 1.0]]), dict(concentration=[2.0, 2.0, 2.0])],
    "Poisson": [dict(rate=[0.5, 2.0, 9.0]), dict(rate=4.0)],
    "Normal": [dict(loc=[0.0, -1.0, 2.0], scale=[1.0, 0.5, 3.0]), dict(loc=1, scale=2.0)],
    "Chi2": [dict(df=[2.5, 6.0])],
    "StudentT": [dict(df=[9.0, 12.0], loc=[0.0, -1.0], scale=[1.0, 2.0]), dict(df=30.0)],
    "Geometric": [dict(probs=[0.3, 0.6]), dict(logits=[0.0, 1.0])],
    "Binomial": [dict(total_count=5, probs=[0.3, 0.6]), dict(total_count=3, logits=[0.0, 1.0])],
    "NegativeBinomial": [dict(total_count=4, probs=[0.3, 0.6]), dict(total_count=[2.0, 5.0], logits=[0.0, -1.0])],
    "LogNormal": [dict(loc=[0.0, -1.0], scale=[0.2, 0.3])],
    "HalfNormal": [dict(scale=[1.0, 3.0])],
    "Gumbel": [dict(loc=[0.0, -1.0], scale=[1.0, 0.5])],
    "ContinuousBernoulli": [dict(probs=[0.2, 0.4995, 0.5004, 0.9]), dict(logits=[-1.0, 0.0, 2.0])],
    "GeneralizedPareto": [dict(loc=[0.0, 1.0, 2.0], scale=[1.0, 0.5, 3.0], concentration=[-0.3, -0.2, -0.5])],
    "Kumaraswamy": [dict(concentration1=[1.5, 3.0], concentration0=[2.0, 5.0])],
    "Weibull": [dict(scale=[1.0, 0.5], concentration=[1.5, 4.0])],
}
# Families without a mean, or with tails beyond any grid; only compared with PyTorch.
WIDE = {
    "Cauchy": [dict(loc=[0.0, 1.0], scale=[1.0, 0.5])],
    "HalfCauchy": [dict(scale=[1.0, 0.5])],
    "RelaxedBernoulli": [dict(temperature=[0.5], probs=[0.2, 0.7])],
    "RelaxedOneHotCategorical": [dict(temperature=[0.7], probs=[[0.2, 0.3, 0.5]])],
    "FisherSnedecor": [dict(df1=[1.0, 5.0, 6.0], df2=[2.0, 3.0, 9.0])],
    "InverseGamma": [dict(concentration=[0.5, 1.5, 3.0], rate=[1.0, 0.5, 2.0])],
    "Pareto": [dict(scale=[1.0, 0.5, 2.0], alpha=[0.8, 1.5, 3.0])],
    "LogisticNormal": [dict(loc=[0.0, 1.0], scale=[1.0, 0.5]), dict(loc=0, scale=2.0)],
    "VonMises": [dict(loc=[0.0, 1.0, -2.0], concentration=[1.0, 0.5, 30.0])],
    "Multinomial": [dict(total_count=4, probs=[[0.2, 0.3, 0.5], [4.0, 1.0, 1.0]]), dict(total_count=1, logits=[0.0, 1.0, -2.0])],
    "MultivariateNormal": [dict(loc=[[0.0, 1.0], [2.0, 3.0]], covariance_matrix=[[2.0, 0.5], [0.5, 1.0]]),
                           dict(loc=[0.0, 1.0], precision_matrix=[[[2.0, 0.5], [0.5, 1.0]], [[1.0, 0.0], [0.0, 3.0]]]),
                           dict(loc=[1.0, -1.0], scale_tril=[[2.0, 0.0], [-0.5, 1.0]])],
    "LowRankMultivariateNormal": [dict(loc=[0.0, 1.0], cov_factor=[[1.0], [0.5]], cov_diag=[1.0, 2.0]),
                                  dict(loc=[[0.0, 1.0], [2.0, 0.0]], cov_factor=[[1.0, 0.5, 0.0], [0.5, 2.0, 1.0]], cov_diag=[0.5, 2.0])],
    "Wishart": [dict(df=[3.0, 5.0], covariance_matrix=[[2.0, 0.5], [0.5, 1.0]]), dict(df=4.0, scale_tril=[[2.0, 0.0], [-0.5, 1.0]]),
                dict(df=3, precision_matrix=[[2.0, 0.5], [0.5, 1.0]])],
    "LKJCholesky": [dict(dim=3, concentration=[0.5, 1.0, 4.0]), dict(dim=2)],
}
PROPERTIES = "mean variance stddev mode batch_shape event_shape param_shape has_rsample has_enumerate_support support arg_constraints".split()


def make(library, name, arguments, **options):
    dtype = library.float32 if name == "GeneralizedPareto" else library.float64  # PyTorch's supports float32 only
    parts = {key: library.tensor(value, dtype=dtype) if isinstance(value, list) else value for key, value in arguments.items()}
    return getattr(library.distributions, name)(**parts, **options)


def cases():
    return [(name, arguments) for name, rows in CASES.items() for arguments in rows]


def all_cases():
    return cases() + [(name, arguments) for name, rows in WIDE.items() for arguments in rows]


def grid(d):
    """Points of evaluation along a new first dimension, and the weight of each in an integral."""
    if d.has_enumerate_support:
        values = d.enumerate_support()
        return values, 1.0
    if d.support.is_discrete:
        return phlox.arange(60, dtype=phlox.float64).view((-1,) + (1,) * len(d.batch_shape)).expand(60, *d.batch_shape), 1.0
    mean, wide = d.mean, 12 * d.stddev
    steps = (phlox.arange(20000, dtype=phlox.float64) - 9999.5).view((-1,) + (1,) * len(d.batch_shape)) / 10000
    values = mean + wide * steps
    inside = d.support.check(values)
    return phlox.where(inside, values, mean), inside * wide / 10000



class Consistency(unittest.TestCase):
    def each(self, events=True):
        """Yields the distributions; with events=False only those of scalars."""
        for name, arguments in cases():
            d = make(phlox, name, arguments)
            if events or not d.event_shape:
                yield d

    def test_densities_integrate_to_one_and_give_mean_and_entropy(self):
        for d in self.each(events=False):
            values, measure = grid(d)
            weights = d.log_prob(values).exp() * measure
            self.assertTrue(phlox.allclose(weights.sum(0), phlox.ones(()).to(weights), atol=2e-3), d)
            if type(d).entropy not in (HERE.Distribution.entropy, HERE.ExponentialFamily.entropy):
                entropy = -(weights * d.log_prob(values)).nan_to_num().sum(0)
                self.assertTrue(phlox.allclose(entropy, d.entropy().to(weights), rtol=2e-3, atol=5e-3), d)
            if not d.mean.isnan().any():
                mean = (weights * values).sum(0)
                self.assertTrue(phlox.allclose(mean, d.mean.to(mean), rtol=2e-3, atol=2e-3))
                self.assertTrue(phlox.allclose((weights * (values - mean) ** 2).sum(0), d.variance.to(mean), rtol=5e-3, atol=1e-3))

    def test_sample_moments(self):
        for d in self.each(events=False):
            phlox.manual_seed(7)
            draws = d.sample((20000,))
            self.assertEqual(draws.shape, (20000, *d.batch_shape, *d.event_shape))
            self.assertFalse(draws.requires_grad)
            values, measure = grid(d)
            weights = d.log_prob(values).exp() * measure
            for power in 1, 2:
                wanted, square = (weights * values ** power).sum(0), (weights * values ** (2 * power)).sum(0)
                error = ((square - wanted ** 2) / 20000).sqrt()
                self.assertTrue(((draws.double() ** power).mean(0) - wanted).abs().le(5 * error + 1e-9).all(), power)

    def test_kl_is_mean_log_ratio(self):
        all_kinds = [make(phlox, name, arguments, validate_args=False) for name, arguments in cases()]
        for p, q in itertools.product(all_kinds, all_kinds):
            if any(1 != i != j != 1 for i, j in zip(reversed(p.batch_shape), reversed(q.batch_shape))):
                continue
            with self.subTest(p=p, q=q):
                try:
                    found = HERE.kl_divergence(p, q)
                except NotImplementedError:
                    continue
                wide, near = p.expand(phlox.broadcast_shapes(p.batch_shape, q.batch_shape)), 5e-3
                if p.event_shape and not p.has_enumerate_support:  # vectors on a simplex
                    phlox.manual_seed(1)
                    values, near = wide.sample((20000,)), 4e-2
                    wanted = (p.log_prob(values) - q.log_prob(values)).mean(0)
                else:
                    values, measure = grid(wide)
                    logs = p.log_prob(values)
                    wanted = (logs.exp() * (logs - q.log_prob(values)) * measure).sum(0)
                    inside = q.support.check(values + 0 * wanted).all(0) if not p.event_shape else wanted == wanted
                    wanted = phlox.where(inside, wanted, math.inf)
                self.assertTrue(phlox.allclose(found.to(wanted), wanted, rtol=near, atol=near), (found, wanted))

    def test_kl_of_independent_sums_over_events(self):
        p, q = (HERE.Normal(phlox.arange(6.0).view(2, 3) * scale, 1.0) for scale in (1, 2))
        found = HERE.kl_divergence(HERE.Independent(p, 1), HERE.Independent(q, 1))
        self.assertTrue(phlox.allclose(found, HERE.kl_divergence(p, q).sum(-1)))
        self.assertEqual(HERE.kl_divergence(HERE.Independent(p, 0), HERE.Independent(q, 0)).shape, (2, 3))
        with self.assertRaises(NotImplementedError):
            HERE.kl_divergence(HERE.Independent(p, 1), HERE.Independent(q, 2))

    def test_batched_wishart_kl(self):
        p, q = (HERE.Wishart(phlox.tensor(df), phlox.eye(2) * scale) for df, scale in (([3.0, 5.0], 1.0), ([4.0, 2.5], 2.0)))
        each = [HERE.kl_divergence(HERE.Wishart(a, phlox.eye(2)), HERE.Wishart(b, phlox.eye(2) * 2)) for a, b in ((3.0, 4.0), (5.0, 2.5))]
        self.assertTrue(phlox.allclose(HERE.kl_divergence(p, q), phlox.stack(each)))

    def test_nonsingular_wishart_samples_without_warning(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            draws = HERE.Wishart(phlox.tensor([4.0, 6.0]), phlox.eye(3)).sample((500,))
        self.assertTrue(HERE.constraints.positive_definite.check(draws).all())

    def test_ambiguous_kl_warns(self):
        class Near(HERE.Normal):
            pass

        HERE.register_kl(Near, HERE.Normal)(lambda p, q: "left")
        HERE.register_kl(HERE.Normal, Near)(lambda p, q: "right")
        with self.assertWarnsRegex(RuntimeWarning, r"Ambiguous kl_divergence\(Near, Near\). Please register_kl\(Near, Near\)"):
            self.assertEqual(HERE.kl_divergence(Near(0.0, 1.0), Near(0.0, 1.0)), "left")

    def test_exponential_family_entropy_and_kl(self):
        class Mine(HERE.ExponentialFamily):
            arg_constraints, _mean_carrier_measure = {}, 0
            _natural_params = property(lambda self: (-self.rate,))

            def __init__(self, rate):
                self.rate = rate
                super().__init__(rate.shape)

            _log_normalizer = lambda self, x: -(-x).log()

        rates = phlox.tensor([0.5, 2.0]), phlox.tensor([1.0, 3.0])
        mine, theirs = ([kind(rate) for rate in rates] for kind in (Mine, HERE.Exponential))
        self.assertTrue(phlox.allclose(mine[0].entropy(), theirs[0].entropy()))
        self.assertTrue(phlox.allclose(HERE.kl_divergence(*mine), HERE.kl_divergence(*theirs)))

    def test_one_hot_categorical(self):
        probs = phlox.tensor([[0.2, 0.3, 0.5], [0.0, 1.0, 0.0]], requires_grad=True)
        d = HERE.OneHotCategoricalStraightThrough(probs)
        self.assertEqual((d.batch_shape, d.event_shape, d.param_shape), ((2,), (3,), (2, 3)))
        self.assertEqual(d.mode.tolist(), [[0, 0, 1], [0, 1, 0]])
        self.assertEqual(d.enumerate_support()[:, 0].tolist(), phlox.eye(3).tolist())
        self.assertEqual(d.enumerate_support(expand=False).shape, (3, 1, 3))
        (d.rsample((4,)) * phlox.tensor([1.0, 2.0, 3.0])).sum().backward()
        self.assertGreater(probs.grad[0].abs().sum(), 0)
        for value in ([1.0, 1.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 0.0]):
            with self.assertRaisesRegex(ValueError, r"to be within the support \(OneHot\(\)\)"):
                d.log_prob(phlox.tensor(value))

    def test_register_kl(self):
        class Mine(HERE.Normal):
            pass

        with self.assertRaisesRegex(NotImplementedError, r"No KL\(p \|\| q\) is implemented for p type Normal and q type Cauchy"):
            HERE.kl_divergence(HERE.Normal(0.0, 1.0), HERE.Cauchy(0.0, 1.0))
        self.assertEqual(HERE.kl_divergence(Mine(0.0, 1.0), Mine(0.0, 1.0)).item(), 0)
        HERE.register_kl(Mine, HERE.Normal)(lambda p, q: "mine")
        self.assertEqual(HERE.kl_divergence(Mine(0.0, 1.0), HERE.Normal(0.0, 1.0)), "mine")
        with self.assertRaisesRegex(TypeError, "Expected type_q to be a Distribution subclass but got"):
            HERE.register_kl(Mine, int)

    def test_rsample_gradients(self):
        loc, scale = (phlox.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
        draws = HERE.Normal(loc, scale).rsample((5,))
        draws.sum().backward()
        self.assertTrue(phlox.allclose(loc.grad, phlox.full((2,), 5.0)))
        self.assertTrue(phlox.allclose(scale.grad, ((draws - loc) / scale).sum(0).detach()))

    def test_lazy_parameters_keep_gradients(self):
        for d, value in ((HERE.Categorical, phlox.tensor(1)), (HERE.Bernoulli, phlox.tensor([1.0, 0.0]))):
            logits = phlox.tensor([0.5, 1.5], requires_grad=True)
            one = d(logits=logits)
            one.sample()
            (one.entropy().sum() + one.log_prob(value).sum()).backward()
            self.assertGreater(logits.grad.abs().min(), 1e-3)

    def test_independent(self):
        base = HERE.Normal(phlox.zeros(4, 3, 2), phlox.ones(2))
        d = HERE.Independent(base, 2)
        value = d.rsample((5,))
        self.assertEqual((d.batch_shape, d.event_shape, value.shape, d.has_rsample), ((4,), (3, 2), (5, 4, 3, 2), True))
        self.assertTrue(phlox.allclose(d.log_prob(value), base.log_prob(value).sum((-2, -1))))
        self.assertTrue(phlox.allclose(d.entropy(), base.entropy().sum((-2, -1))))
        self.assertEqual(d.expand((6, 4)).sample().shape, (6, 4, 3, 2))
        with self.assertRaisesRegex(ValueError, r"Expected reinterpreted_batch_ndims <= len\(base_distribution.batch_shape\), actual 4 vs 3"):
            HERE.Independent(base, 4)

    def test_reparameterized_gradients_match_mean(self):
        phlox.manual_seed(2)
        a, b = (phlox.tensor(v, dtype=phlox.float64, requires_grad=True) for v in (2.0, 3.0))
        for d in HERE.Gamma(a, b), HERE.Beta(a, b):
            wanted = phlox.autograd.grad(d.mean, [a, b])
            found = phlox.autograd.grad(d.rsample((20000,)).mean(), [a, b])
            for one, other in zip(found, wanted):
                self.assertLess((one - other).abs().item(), 0.01, d)

    def test_expand_keeps_values_and_class(self):
        for d in [make(phlox, *case) for case in all_cases()]:
            wide = d.expand((2, *d.batch_shape))
            self.assertIs(type(wide), type(d))
            self.assertEqual(wide.batch_shape, (2, *d.batch_shape))
            self.assertEqual(wide.sample((4,)).shape, (4, 2, *d.batch_shape, *d.event_shape))
            value = d.sample()
            self.assertTrue(phlox.allclose(wide.log_prob(value)[1], d.log_prob(value)), d)
            for name in "mean", "variance":
                try:
                    figures = getattr(d, name)
                except NotImplementedError:
                    continue
                self.assertTrue(phlox.allclose(getattr(wide, name)[1], figures, equal_nan=True), (d, name))

    def test_expand_of_subclass_with_own_init_raises(self):
        class Mine(HERE.Normal):
            def __init__(self):
                super().__init__(0.0, 1.0)

        with self.assertRaisesRegex(NotImplementedError, "Subclass Mine of Normal that defines a custom __init__ method must also"):
            Mine().expand((2,))

    def test_default_validate_args(self):
        try:
            HERE.Distribution.set_default_validate_args(False)
            self.assertEqual(HERE.Normal(0.0, -1.0).scale.item(), -1)
        finally:
            HERE.Distribution.set_default_validate_args(True)
        with self.assertRaises(ValueError):
            HERE.Normal(0.0, -1.0)
        self.assertEqual(HERE.Normal(0.0, -1.0, validate_args=False).scale.item(), -1)

    def test_numbers_take_dtype_and_device_of_tensors(self):
        for device in ["cpu"] + ["cuda"] * (phlox.cuda.device_count() > 0):
            d = HERE.Normal(phlox.zeros(2, dtype=phlox.float64, device=device), 1)
            self.assertEqual((d.scale.dtype, d.scale.device, d.sample().device), (phlox.float64, d.loc.device, d.loc.device))
            choice = HERE.Categorical(phlox.ones(2, 3, device=device))
            self.assertEqual(choice.log_prob(choice.sample((4,))).shape, (4, 2))


    def test_devices_match_cpu(self):
        if not phlox.cuda.device_count():
            self.skipTest("requires a device")
        for name, arguments in all_cases():
            if not any(isinstance(value, list) for value in arguments.values()):
                continue  # plain numbers create CPU tensors
            here, there = (make(phlox, name, {key: phlox.tensor(value, dtype=phlox.float64, device=device) if isinstance(value, list) else value
                                              for key, value in arguments.items()}) for device in ("cpu", "cuda"))
            value = here.sample((3,))
            found = there.log_prob(value.to("cuda"))
            drawn = there.sample((3,))
            self.assertEqual((found.device.type, drawn.device.type, drawn.shape), ("cuda", "cuda", value.shape), name)
            self.assertTrue(phlox.allclose(found.cpu(), here.log_prob(value)), name)
            try:
                self.assertTrue(phlox.allclose(HERE.kl_divergence(there, there).cpu(), HERE.kl_divergence(here, here), atol=1e-9), name)
            except NotImplementedError:
                pass


# Errors, warnings and reprs.
TEXTS = """Categorical()|Categorical(torch.tensor(1.))|Categorical(logits=torch.tensor(1.))|Categorical(torch.tensor([-1.,.5]))|
Categorical(torch.tensor([1.,.5])).log_prob(torch.tensor(2))|Categorical(torch.tensor([1.,.5])).log_prob(2)|
Categorical(torch.ones(3,4)).log_prob(torch.zeros(2))|Normal(0,-1)|Normal('a',-1)|Normal(0,1).log_prob(torch.tensor(float('nan')))|
Normal(0,1)|Normal(torch.zeros(2),1)|Bernoulli(torch.zeros(1))|Bernoulli()|Bernoulli(0.5, 0.5)|Bernoulli(2.)|
Bernoulli(.5).log_prob(torch.tensor(.5))|Distribution(validate_args=False).support|Distribution().mean|Normal(0,1).enumerate_support()|
Categorical(torch.ones(3)).rsample()|Categorical(torch.ones(3)).mean|Distribution.set_default_validate_args(3)|
Normal(0,1).expand([2]).expand([3,3])|Normal(torch.zeros(2),1).expand([3,2])|Categorical(torch.ones(3)).enumerate_support(expand=False)|
Normal.arg_constraints|Categorical(torch.ones(3)).support|Bernoulli.arg_constraints|[Normal(0., 1.).perplexity()]|
kl_divergence(Categorical(torch.tensor([0.,1.])), Categorical(torch.tensor([1.,0.])))|
OneHotCategorical(torch.ones(3)).log_prob(torch.ones(3))|OneHotCategorical()|OneHotCategorical(torch.tensor(1.))|Exponential(-1.)|
Poisson(2.).cdf(torch.tensor(.5))|OneHotCategorical(torch.ones(3)).cdf(torch.tensor(1.))|LogNormal(0.,1.).cdf(torch.tensor([0.,1.]))|
Weibull(1.,2.).cdf(torch.tensor([0.,-1.]))|InverseGamma(1.,2.).cdf(torch.tensor(0.))|
Exponential(1.).log_prob(torch.tensor(-1.))|Laplace(0., 0.)|Laplace(0., 2.).icdf(torch.tensor(.25))|Exponential(2.).icdf(torch.tensor(.25))|
OneHotCategorical(torch.ones(2,3)).expand([4,2])|OneHotCategorical(torch.ones(3)).rsample()|
kl_divergence(Independent(Normal(torch.zeros(2),1),1), Independent(Normal(torch.zeros(2,2),1),2))|
kl_divergence(Categorical(torch.tensor([0.,1.])), Categorical(torch.tensor([0.,1.])))|
MultivariateNormal(torch.tensor(1.),torch.eye(2))|MultivariateNormal(torch.ones(2))|MultivariateNormal(torch.ones(2),torch.eye(2),torch.eye(2))|
MultivariateNormal(torch.ones(2),torch.ones(2))|MultivariateNormal(torch.ones(2),scale_tril=torch.ones(2))|
MultivariateNormal(torch.ones(2),precision_matrix=torch.ones(2))|MultivariateNormal(torch.ones(2),torch.ones(2,2))|
MultivariateNormal(torch.ones(2),scale_tril=torch.ones(2,2))|MultivariateNormal(torch.ones(2),torch.eye(2)).log_prob(torch.ones(3))|
MultivariateNormal(torch.ones(2),torch.eye(2)).expand([4])|MultivariateNormal(torch.ones(2),torch.eye(2)).expand([4]).covariance_matrix.shape|
MultivariateNormal(torch.ones(2),torch.tensor([[2.,.5],[.5,1.]])).precision_matrix|
MultivariateNormal(torch.ones(2),precision_matrix=torch.tensor([[2.,.5],[.5,1.]])).scale_tril|
MultivariateNormal(torch.ones(2),scale_tril=torch.tensor([[2.,0.],[.5,1.]])).covariance_matrix|
kl_divergence(MultivariateNormal(torch.ones(2),torch.eye(2)),MultivariateNormal(torch.ones(3),torch.eye(3)))|
kl_divergence(MultivariateNormal(torch.ones(2),torch.eye(2)),LowRankMultivariateNormal(torch.ones(3),torch.ones(3,1),torch.ones(3)))|
kl_divergence(LowRankMultivariateNormal(torch.ones(2),torch.ones(2,1),torch.ones(2)),LowRankMultivariateNormal(torch.ones(3),torch.ones(3,1),torch.ones(3)))|
LowRankMultivariateNormal(torch.tensor(1.),torch.ones(2,1),torch.ones(2))|LowRankMultivariateNormal(torch.ones(2),torch.ones(2),torch.ones(2))|
LowRankMultivariateNormal(torch.ones(2),torch.ones(3,1),torch.ones(2))|LowRankMultivariateNormal(torch.ones(2),torch.ones(2,1),torch.ones(3))|
LowRankMultivariateNormal(torch.ones(3,2),torch.ones(4,2,1),torch.ones(2))|LowRankMultivariateNormal(torch.ones(2),torch.ones(2,1),-torch.ones(2))|
[getattr(LowRankMultivariateNormal(torch.ones(2),torch.ones(2,1),torch.ones(2)),n) for n in 'covariance_matrix precision_matrix scale_tril'.split()]|
Wishart(3.)|Wishart(3.,torch.eye(2),torch.eye(2))|Wishart(3.,torch.ones(2))|Wishart(1.,torch.eye(2))|Wishart(3.,torch.eye(2))|
Wishart(torch.tensor([1.,3.]),torch.eye(2))|Wishart(3.,torch.eye(2)).log_prob(-torch.eye(2))|Wishart(3.,torch.eye(2)).arg_constraints|
kl_divergence(Wishart(3.,torch.eye(2)),Wishart(4.,2*torch.eye(2)))|kl_divergence(Normal(0.,1.),Bernoulli(.5))|
LKJCholesky(1)|LKJCholesky(3).log_prob(torch.ones(3,3))|LKJCholesky(3)|LKJCholesky(3).rsample()|Multinomial(torch.tensor(3),torch.ones(2))|
Multinomial(3,torch.ones(2))|Multinomial(3,torch.ones(2)).log_prob(torch.tensor([3.,1.]))|Multinomial(3,torch.tensor([0.,1.])).log_prob(torch.tensor([0.,3.]))|
Multinomial(3,torch.ones(2)).support|Multinomial()|VonMises(0.,0.)|VonMises(0.,1.)|VonMises(0.,1.).rsample()|ContinuousBernoulli()|
ContinuousBernoulli(2.)|ContinuousBernoulli(2.,validate_args=True)|ContinuousBernoulli(.2).log_prob(torch.tensor(2.))|
ContinuousBernoulli(torch.tensor([.2,.5])).cdf(torch.tensor([[.3],[1.]]))|ContinuousBernoulli(torch.tensor([.2,.5])).icdf(torch.tensor([[.3],[1.]]))|
GeneralizedPareto(0.,1.,.5)|GeneralizedPareto(0.,1.,0.).log_prob(torch.tensor([.5,2.]))|GeneralizedPareto(0.,1.,.5).log_survival_function(torch.tensor([.5,2.]))|
GeneralizedPareto(0.,1.,-.5).log_prob(torch.tensor(3.))|GeneralizedPareto(0.,1.,torch.tensor([-1.,.5,2.])).variance|
GeneralizedPareto(0.,1.,torch.tensor([-1.,.0,2.])).icdf(torch.tensor(.3))|Pareto(1.,-1.)|Pareto(1.,2.)|Pareto(1.,2.).log_prob(torch.tensor(.5))|
Pareto(1.,2.).support|Weibull(1.,2.)|Weibull(1.,2.).concentration_reciprocal|Kumaraswamy(1.,2.)|InverseGamma(1.,2.)|FisherSnedecor(1.,2.)|
LogisticNormal(0.,1.)|LogisticNormal(torch.zeros(3),1.).event_shape|HalfCauchy(1.).mean|isinstance(HalfCauchy(1.),HalfNormal)|
kl_divergence(HalfCauchy(1.),HalfCauchy(2.))|kl_divergence(HalfCauchy(1.),HalfNormal(2.))|kl_divergence(HalfNormal(1.),HalfNormal(2.))|
kl_divergence(Binomial(3,torch.tensor(.5)),Binomial(4,torch.tensor(.5)))|kl_divergence(Binomial(4,torch.tensor(.5)),Binomial(3,torch.tensor(.5)))|
kl_divergence(Bernoulli(torch.tensor([0.,1.,.5])),Bernoulli(torch.tensor([1.,1.,0.])))|kl_divergence(LogNormal(0.,1.),LogNormal(1.,2.))|
kl_divergence(TransformedDistribution(Normal(0.,1.),ExpTransform()),TransformedDistribution(Normal(0.,1.),TanhTransform()))|
kl_divergence(RelaxedBernoulli(torch.tensor(.5),.5),RelaxedBernoulli(torch.tensor(.5),.5))|
Independent(Bernoulli(torch.tensor([.2,.3])),1).has_enumerate_support|Independent(Bernoulli(torch.tensor([.2,.3])),1).enumerate_support()|
Independent(Bernoulli(torch.tensor([.2,.3])),0).enumerate_support()|Independent(Normal(torch.zeros(2),1.),0).support|
MixtureSameFamily(Categorical(torch.ones(2)),Exponential(torch.ones(2))).support|
MixtureSameFamily(Categorical(torch.ones(2)),Exponential(torch.ones(2))).log_prob(torch.tensor(-1.))|
Poisson(3.).entropy()|isinstance(Chi2(1.),ExponentialFamily)|isinstance(Categorical(torch.ones(2)),ExponentialFamily)""".replace("\n", "").split("|")


def outcome(library, expression):
    space = {"torch": library, **vars(library.distributions)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return repr(eval(expression, space))
        except Exception as error:
            return f"{type(error).__name__}: {error}"


@unittest.skipIf(torch is None, peer.NOT_NEWEST)
class ComparedWithPyTorch(unittest.TestCase):
    def same(self, ours, theirs, what):
        if isinstance(theirs, torch.Tensor):
            self.assertEqual(str(ours.dtype).partition(".")[2], str(theirs.dtype).partition(".")[2], what)
            theirs, ours = theirs.detach(), ours.detach()
            theirs, ours = (t.reshape(-1).tolist() + list(t.shape) for t in (theirs, ours))
            self.assertEqual(len(ours), len(theirs), what)
            for a, b in zip(ours, theirs):
                self.assertTrue(a == b or math.isnan(a) and math.isnan(b) or math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6), (what, a, b))
        else:
            self.assertEqual(repr(ours), repr(theirs), what)

    def both(self, what, ours, theirs):
        found = []
        for of, call in (phlox, ours), (torch, theirs):
            try:
                found.append(call())
            except (NotImplementedError, AttributeError) as error:
                found.append(type(error).__name__)
        self.same(found[0], found[1], what)

    def test_properties_and_reprs(self):
        for name, arguments in all_cases():
            ours, theirs = make(phlox, name, arguments), make(torch, name, arguments)
            self.assertEqual(repr(ours), repr(theirs)) if name != "Beta" else None  # PyTorch's omits its parameters
            for key in PROPERTIES if name != "Geometric" else set(PROPERTIES) - {"param_shape"}:  # missing in PyTorch
                self.both((name, arguments, key), lambda: getattr(ours, key), lambda: getattr(theirs, key))
            self.both((name, arguments, "entropy"), ours.entropy, theirs.entropy)

    def test_log_prob_cdf_and_gradients(self):
        for name, arguments in all_cases():
            torch.manual_seed(1)
            theirs = make(torch, name, arguments)
            value = theirs._bartlett_sampling((50,)) if name == "Wishart" else theirs.sample((50,))
            mine = phlox.tensor(value.tolist(), dtype=getattr(phlox, str(value.dtype)[6:]))
            ours = make(phlox, name, arguments)
            for key in "log_prob", "cdf":
                self.both((name, arguments, key), lambda: getattr(ours, key)(mine), lambda: getattr(theirs, key)(value))

    def test_kl_divergence(self):
        for (name, a), (other, b) in itertools.product(all_cases(), all_cases()):
            one, two = make(phlox, name, a), make(phlox, other, b)
            if any(1 != i != j != 1 for i, j in zip(reversed(one.batch_shape), reversed(two.batch_shape))):
                continue
            if {name, other} == {"Uniform", "ContinuousBernoulli"} or name == other == "Wishart" and one.batch_shape + two.batch_shape:
                continue  # PyTorch's result is inf although the divergence is finite, or is summed over the batch
            self.both((name, a, other, b), lambda: phlox.distributions.kl_divergence(one, two),
                      lambda: torch.distributions.kl_divergence(make(torch, name, a), make(torch, other, b)))

    def test_kl_gradients(self):
        for (name, a), (other, b) in itertools.product(all_cases(), all_cases()):
            if (name, other) == ("Wishart", "Wishart") or "GeneralizedPareto" in (name, other) or \
                    not any(isinstance(value, list) for value in (*a.values(), *b.values())):
                continue
            found = []
            for library in phlox, torch:
                sides = [{key: library.tensor(value, dtype=library.float64, requires_grad=True) if isinstance(value, list) else value
                          for key, value in side.items()} for side in (a, b)]
                try:
                    kl = library.distributions.kl_divergence(*(getattr(library.distributions, kind)(**side) for kind, side in zip((name, other), sides)))
                except (NotImplementedError, RuntimeError):  # no rule, or batches that do not broadcast
                    break
                leaves = [value for side in sides for value in side.values() if isinstance(value, library.Tensor)]
                if not kl.isfinite().all() or not kl.requires_grad:
                    break
                found.append(library.autograd.grad(kl.sum(), leaves, allow_unused=True))
            for ours, theirs in zip(*found) if len(found) == 2 else ():
                if ours is not None or theirs is not None:  # None and a zero gradient are equivalent
                    shape = list((ours if theirs is None else theirs).shape)
                    self.same(phlox.zeros(shape).double() if ours is None else ours, torch.zeros(shape).double() if theirs is None else theirs,
                              (name, a, other, b))

    def test_samples_of_same_seed(self):
        for name, arguments in all_cases():
            draws = []
            for library in phlox, torch:
                library.manual_seed(3)
                d = make(library, name, arguments)
                # PyTorch misclassifies nonsingular matrices as singular, warns and draws again.
                draws.append(d._bartlett_sampling((40,)) if library is torch and name == "Wishart" else d.sample((40,)))
            self.same(*draws, (name, arguments))

    def test_gradients_of_samples_and_densities_of_same_seed(self):
        of_gammas = set("Gamma Beta Dirichlet Chi2 StudentT FisherSnedecor InverseGamma Wishart".split())  # PyTorch's series are exact to four digits
        for name, arguments in all_cases():
            given = [key for key, value in arguments.items() if isinstance(value, list)]
            if not given or not make(phlox, name, arguments).has_rsample or name in of_gammas:
                continue
            found = []
            for library in phlox, torch:
                dtype = library.float32 if name == "GeneralizedPareto" else library.float64
                leaves = {key: library.tensor(arguments[key], dtype=dtype, requires_grad=True) for key in given}
                d = getattr(library.distributions, name)(**{**arguments, **leaves})
                library.manual_seed(5)
                draws = d.rsample((4,))
                weights = library.arange(1, draws.numel() + 1, dtype=dtype).reshape(draws.shape)
                total = (draws * weights).sum() + d.log_prob(draws.detach()).sum()
                found.append(library.autograd.grad(total, [leaves[key] for key in given]))
            for ours, theirs in zip(*found):
                self.same(ours, theirs, name)

    def test_mixtures(self):
        for parts, shares in ("Normal(t([-1., 0.5]), t([1., 2.]))", "t([0.3, 0.7])"), ("Normal(t([[-1., 0.5], [0., 3.]]), 1.)", "torch.ones(2, 2)"), \
                ("Independent(Normal(torch.zeros(2, 3), t([[1.], [2.]])), 1)", "torch.ones(2)"):
            found = []
            for library in phlox, torch:
                there = {"torch": library, "t": library.tensor, **vars(library.distributions)}
                d = eval(f"MixtureSameFamily(Categorical({shares}), {parts})", there)
                library.manual_seed(2)
                value = d.sample((5,))
                wide = d.expand((4, *d.batch_shape))
                cdf = d.cdf(value) if not d.event_shape else value
                found.append((value, d.log_prob(value), cdf, d.mean, d.variance, wide.log_prob(value.unsqueeze(1) if d.batch_shape else value.reshape(5, 1, *d.event_shape))))
            for ours, theirs in zip(*found):
                self.same(ours, theirs, parts)
        for wrong in "Normal(0., 1.), Normal(t([0.]), 1.)", "Categorical(torch.ones(3)), Normal(torch.zeros(2), 1.)", "Categorical(torch.ones(2)), 3", \
                "Categorical(torch.ones(3, 2)), Normal(torch.zeros(2, 2), 1.)":
            texts = [outcome(library, f"MixtureSameFamily({wrong.replace('t([', 'torch.tensor([')})") for library in (phlox, torch)]
            self.assertEqual(*texts)

    def test_public_names(self):
        self.assertEqual(sorted(phlox.distributions.__all__), sorted(torch.distributions.__all__))

    def test_errors_and_reprs(self):
        for expression in TEXTS:
            with self.subTest(expression): self.assertEqual(outcome(phlox, expression).replace("phlox.", "torch."), outcome(torch, expression), expression)


if __name__ == "__main__":
    unittest.main()
