# SPDX-License-Identifier: Apache-2.0
"""torch.distributions.transforms: functions with inverses and log-determinants of Jacobians, the
building blocks of TransformedDistribution."""
import math

import phlox as torch
from phlox.nn.functional import logsigmoid, pad, softplus

from . import constraints
from .utils import sum_rightmost, tril_matrix_to_vec, vec_to_tril_matrix

__all__ = ["AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform",
           "CorrCholeskyTransform", "CumulativeDistributionTransform", "ExpTransform",
           "IndependentTransform", "LowerCholeskyTransform", "PositiveDefiniteTransform",
           "PowerTransform", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform",
           "SoftplusTransform", "StackTransform", "StickBreakingTransform", "TanhTransform",
           "Transform", "identity_transform"]


class Transform:
    """The abstract base class of transforms. Subclasses define `domain`, `codomain`, `bijective`,
    `_call`, `_inverse` and `log_abs_det_jacobian`. cache_size=1 caches the latest (x, y)."""
    bijective, domain, codomain = False, constraints.dependent, constraints.dependent
    event_dim = property(lambda self: self.domain.event_dim, doc="The number of dimensions of one value.")

    def __init__(self, cache_size=0):
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        self._cache_size, self._pair, self._inv = cache_size, (None, None), None

    @property
    def inv(self):
        """The inverse transform. Its inverse is this transform."""
        if self._inv is None:
            self._inv = _Inverse(self)
        return self._inv

    @property
    def sign(self):
        """1 for an increasing univariate transform, -1 for a decreasing one."""
        raise NotImplementedError

    def with_cache(self, cache_size=1):
        """Returns the transform with another cache size."""
        return self if self._cache_size == cache_size else self._resized(cache_size)

    def _resized(self, cache_size):
        new = type(self).__new__(type(self))
        vars(new).update(vars(self), _cache_size=cache_size, _pair=(None, None), _inv=None)
        return new

    def _keep(self, x, y):
        if self._cache_size:
            self._pair = x, y
        return x, y

    __call__ = lambda self, x: self._pair[1] if x is self._pair[0] else self._keep(x, self._call(x))[1]

    def _inv_call(self, y):
        return self._pair[0] if y is self._pair[1] else self._keep(self._inverse(y), y)[0]

    def _call(self, x):
        raise NotImplementedError

    _inverse = _call

    def log_abs_det_jacobian(self, x, y):
        """Returns log |det dy/dx|."""
        raise NotImplementedError

    def forward_shape(self, shape):
        """Returns the shape of the output for an input shape."""
        return shape

    def inverse_shape(self, shape):
        """Returns the shape of the input for an output shape."""
        return shape

    def __eq__(self, other):
        """Returns True for the same class with equal parameters."""
        mine, others = ({name: value for name, value in vars(one).items() if name[0] != "_"}
                        for one in (self, other))
        return type(self) is type(other) and all(
            bool(torch.as_tensor(value == others[name]).all()) for name, value in mine.items())

    __hash__ = object.__hash__
    __repr__ = lambda self: f"{type(self).__name__}()"


class _Inverse(Transform):
    def __init__(self, forward):
        super().__init__(forward._cache_size)
        self._inv = forward

    domain = property(lambda self: self._inv.codomain)
    codomain = property(lambda self: self._inv.domain)
    bijective = property(lambda self: self._inv.bijective)
    sign = property(lambda self: self._inv.sign)
    with_cache = lambda self, cache_size=1: self._inv.with_cache(cache_size).inv
    __eq__ = lambda self, other: isinstance(other, _Inverse) and self._inv == other._inv
    __hash__ = object.__hash__
    __repr__ = lambda self: f"_InverseTransform({self._inv!r})"
    __call__ = lambda self, x: self._inv._inv_call(x)
    _inv_call = lambda self, y: self._inv(y)
    log_abs_det_jacobian = lambda self, x, y: -self._inv.log_abs_det_jacobian(y, x)
    forward_shape = lambda self, shape: self._inv.inverse_shape(shape)
    inverse_shape = lambda self, shape: self._inv.forward_shape(shape)


# ---- univariate transforms

def _clamp_open(p):
    """Clamps probabilities to the open interval (0, 1)."""
    return p.clamp(torch.finfo(p.dtype).tiny, 1 - torch.finfo(p.dtype).eps)


def _univariate(name, doc, codomain, call, inverse, slope, **more):
    """Makes a class of parameterless univariate transforms. slope(x, y) is log |dy/dx|."""
    members = {"domain": constraints.real, "codomain": codomain, "bijective": True, "sign": 1,
               "_call": staticmethod(call), "_inverse": staticmethod(inverse),
               "log_abs_det_jacobian": staticmethod(slope), "__doc__": doc, "__module__": __name__}
    return type(name, (Transform,), {**members, **more})


def _no_jacobian(x, y):
    raise NotImplementedError


ExpTransform = _univariate("ExpTransform", "y = exp(x).", constraints.positive, torch.exp, torch.log,
                           lambda x, y: x)
AbsTransform = _univariate("AbsTransform", "y = |x|. The inverse returns the positive x.",
                           constraints.positive, torch.abs, lambda y: y, _no_jacobian, bijective=False,
                           sign=property(lambda self: _no_jacobian(None, None)))
SigmoidTransform = _univariate(
    "SigmoidTransform", "y = 1 / (1 + exp(-x)), and x = logit(y).", constraints.unit_interval,
    lambda x: _clamp_open(x.sigmoid()), lambda y: _clamp_open(y).log() - (-_clamp_open(y)).log1p(),
    lambda x, y: -softplus(-x) - softplus(x))
SoftplusTransform = _univariate(
    "SoftplusTransform", "y = log(1 + exp(x)).", constraints.positive, softplus,
    lambda y: (-y).expm1().neg().log() + y, lambda x, y: -softplus(-x))
TanhTransform = _univariate("TanhTransform", "y = tanh(x).", constraints.interval(-1.0, 1.0),
                            torch.tanh, torch.atanh,
                            lambda x, y: 2 * (math.log(2) - x - softplus(-2 * x)))


class PowerTransform(Transform):
    """y = x ** exponent, for positive x."""
    domain, codomain, bijective = constraints.positive, constraints.positive, True
    sign = property(lambda self: self.exponent.sign())

    def __init__(self, exponent, cache_size=0):
        super().__init__(cache_size)
        self.exponent = torch.as_tensor(exponent)

    _call = lambda self, x: x.pow(self.exponent)
    _inverse = lambda self, y: y.pow(1 / self.exponent)
    log_abs_det_jacobian = lambda self, x, y: (self.exponent * y / x).abs().log()
    forward_shape = lambda self, shape: torch.broadcast_shapes(shape, self.exponent.shape)
    inverse_shape = forward_shape


class AffineTransform(Transform):
    """y = loc + scale * x. event_dim is the number of rightmost dimensions of one value."""
    bijective = True
    domain = codomain = property(lambda self: constraints.independent(constraints.real, self._event_dim)
                                 if self._event_dim else constraints.real)
    event_dim = property(lambda self: self._event_dim, doc="The number of dimensions of one value.")

    def __init__(self, loc, scale, event_dim=0, cache_size=0):
        super().__init__(cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    @property
    def sign(self):
        scale = self.scale
        return scale.sign() if isinstance(scale, torch.Tensor) else (scale > 0) - (scale < 0)

    _call = lambda self, x: self.loc + self.scale * x
    _inverse = lambda self, y: (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x, y):
        factor = torch.as_tensor(self.scale, dtype=x.dtype, device=x.device).abs().log()
        return sum_rightmost(factor.expand(torch.broadcast_shapes(x.shape, factor.shape)), self.event_dim)

    def forward_shape(self, shape):
        return torch.broadcast_shapes(shape, getattr(self.loc, "shape", ()), getattr(self.scale, "shape", ()))

    inverse_shape = forward_shape


# ---- vector transforms

class SoftmaxTransform(Transform):
    """y = softmax(x). The inverse is log(y), up to a constant."""
    domain, codomain = constraints.real_vector, constraints.simplex

    _call = lambda self, x: x.softmax(-1)
    _inverse = lambda self, y: y.log()


class StickBreakingTransform(Transform):
    """Stick breaking: maps n real numbers to n + 1 probabilities; each takes a share of the remaining
    stick."""
    domain, codomain, bijective = constraints.real_vector, constraints.simplex, True

    def _shift(self, x):
        left = torch.arange(x.shape[-1], 0, -1, dtype=x.dtype, device=x.device)
        return x - left.log()

    def _call(self, x):
        z = _clamp_open(self._shift(x).sigmoid())
        return pad(z, [0, 1], value=1) * pad((1 - z).cumprod(-1), [1, 0], value=1)

    def _inverse(self, y):
        left = torch.clamp(1 - y[..., :-1].cumsum(-1), min=torch.finfo(y.dtype).tiny)
        x = y[..., :-1].log() - left.log()
        return x - (self._shift(x) - x)

    def log_abs_det_jacobian(self, x, y):
        x = self._shift(x)
        return (logsigmoid(x) - x + y[..., :-1].log()).sum(-1)

    forward_shape = lambda self, shape: shape[:-1] + (shape[-1] + 1,)
    inverse_shape = lambda self, shape: shape[:-1] + (shape[-1] - 1,)


# ---- matrix transforms

class LowerCholeskyTransform(Transform):
    """Maps matrices to lower triangular ones with a positive diagonal: exp is applied to the diagonal."""
    domain, codomain = constraints.independent(constraints.real, 2), constraints.lower_cholesky

    _call = lambda self, x: x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    _inverse = lambda self, y: y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(Transform):
    """Maps matrices to positive-definite ones: L L^T with L from LowerCholeskyTransform."""
    domain, codomain = LowerCholeskyTransform.domain, constraints.positive_definite

    def _call(self, x):
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    _inverse = lambda self, y: LowerCholeskyTransform().inv(torch.linalg.cholesky(y))


class CorrCholeskyTransform(Transform):
    """Maps vectors to Cholesky factors of correlation matrices. Each row is a stick-breaking of tanh(x)
    with unit Euclidean norm."""
    domain, codomain, bijective = constraints.real_vector, constraints.corr_cholesky, True

    def _call(self, x):
        bound = 1 - torch.finfo(x.dtype).eps
        r = vec_to_tril_matrix(x.tanh().clamp(-bound, bound), -1)
        left = (1 - r ** 2).sqrt().cumprod(-1)
        return (r + torch.eye(r.shape[-1]).to(r)) * pad(left[..., :-1], [1, 0], value=1)

    def _inverse(self, y):
        left = pad((1 - (y * y).cumsum(-1))[..., :-1], [1, 0], value=1)
        t = tril_matrix_to_vec(y, -1) / tril_matrix_to_vec(left, -1).sqrt()
        return (t.log1p() - (-t).log1p()) / 2

    def log_abs_det_jacobian(self, x, y, intermediates=None):
        left = tril_matrix_to_vec(1 - (y * y).cumsum(-1), -2)
        return left.log().sum(-1) / 2 - 2 * (x + softplus(-2 * x) - math.log(2)).sum(-1)

    def forward_shape(self, shape):
        if len(shape) < 1:
            raise ValueError("Too few dimensions on input")
        n = round((0.25 + 2 * shape[-1]) ** 0.5 + 0.5)
        if n * (n - 1) // 2 != shape[-1]:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return shape[:-1] + (n, n)

    def inverse_shape(self, shape):
        if len(shape) < 2:
            raise ValueError("Too few dimensions on input")
        if shape[-2] != shape[-1]:
            raise ValueError("Input is not square")
        return shape[:-2] + (shape[-1] * (shape[-1] - 1) // 2,)


class ReshapeTransform(Transform):
    """Reshapes the event dimensions."""
    bijective = True
    domain = property(lambda self: constraints.independent(constraints.real, len(self.in_shape)))
    codomain = property(lambda self: constraints.independent(constraints.real, len(self.out_shape)))

    def __init__(self, in_shape, out_shape, cache_size=0):
        self.in_shape, self.out_shape = torch.Size(in_shape), torch.Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise ValueError("in_shape, out_shape have different numbers of elements")
        super().__init__(cache_size)

    @staticmethod
    def _changed(shape, before, after):
        cut = len(shape) - len(before)
        if cut < 0:
            raise ValueError("Too few dimensions on input")
        if torch.Size(shape[cut:]) != before:
            raise ValueError(f"Shape mismatch: expected {shape[cut:]} but got {before}")
        return shape[:cut] + after

    forward_shape = lambda self, shape: self._changed(shape, self.in_shape, self.out_shape)
    inverse_shape = lambda self, shape: self._changed(shape, self.out_shape, self.in_shape)
    _call = lambda self, x: x.reshape(x.shape[:x.dim() - len(self.in_shape)] + self.out_shape)
    _inverse = lambda self, y: y.reshape(y.shape[:y.dim() - len(self.out_shape)] + self.in_shape)
    log_abs_det_jacobian = lambda self, x, y: x.new_zeros(x.shape[:x.dim() - len(self.in_shape)])


# ---- transforms composed of others

class CumulativeDistributionTransform(Transform):
    """The cdf of a distribution. Maps its samples to uniform ones."""
    bijective, codomain, sign = True, constraints.unit_interval, 1
    domain = property(lambda self: self.distribution.support)

    def __init__(self, distribution, cache_size=0):
        super().__init__(cache_size)
        self.distribution = distribution

    _call = lambda self, x: self.distribution.cdf(x)
    _inverse = lambda self, y: self.distribution.icdf(y)
    log_abs_det_jacobian = lambda self, x, y: self.distribution.log_prob(x)


class CatTransform(Transform):
    """Applies a transform to each of consecutive slices along a dimension. `lengths` are their sizes, 1 by
    default."""
    bijective = property(lambda self: all(part.bijective for part in self.transforms))
    event_dim = property(lambda self: max(part.event_dim for part in self.transforms))
    length = property(lambda self: sum(self.lengths), doc="The size of the dimension.")
    domain = property(lambda self: self._constraints("domain"))
    codomain = property(lambda self: self._constraints("codomain"))

    def __init__(self, tseq, dim=0, lengths=None, cache_size=0):
        super().__init__(cache_size)
        self.transforms, self.dim = list(tseq), dim
        if not all(isinstance(part, Transform) for part in self.transforms):
            raise AssertionError("All elements of tseq must be Transform instances")
        if cache_size:
            self.transforms = [part.with_cache(cache_size) for part in self.transforms]
        count = len(self.transforms)
        self.lengths = [1] * count if lengths is None else list(lengths)
        if len(self.lengths) != count:
            raise AssertionError(f"lengths ({len(self.lengths)}) must match transforms ({count})")

    def _constraints(self, which):
        return constraints.cat([getattr(part, which) for part in self.transforms], self.dim, self.lengths)

    _resized = lambda self, cache_size: CatTransform(self.transforms, self.dim, self.lengths, cache_size)

    _size = lambda self: (self.length, f"length {self.length}")

    _split = lambda self, value: value.split(self.lengths, self.dim)

    def _pieces(self, value, name, what):
        if not -value.dim() <= self.dim < value.dim():
            raise AssertionError(f"dim {self.dim} out of range for {what} with {value.dim()} dimensions")
        wanted, shown = self._size()
        if value.size(self.dim) != wanted:
            raise AssertionError(f"{name}.size({self.dim}) = {value.size(self.dim)} must equal {shown}")
        return self._split(value)

    _join = lambda self, values: torch.cat(values, self.dim)

    def _call(self, x):
        return self._join([f(a) for f, a in zip(self.transforms, self._pieces(x, "x", "tensor"))])

    def _inverse(self, y):
        return self._join([f.inv(a) for f, a in zip(self.transforms, self._pieces(y, "y", "tensor"))])

    def _jacobians(self, x, y):
        pieces = zip(self.transforms, self._pieces(x, "x", "x"), self._pieces(y, "y", "y"))
        return [(part, part.log_abs_det_jacobian(a, b)) for part, a, b in pieces]

    def log_abs_det_jacobian(self, x, y):
        event = self.event_dim
        slopes = [sum_rightmost(slope, event - part.event_dim) for part, slope in self._jacobians(x, y)]
        dim = self.dim - x.dim() * (self.dim >= 0) + event
        return torch.cat(slopes, dim) if dim < 0 else sum(slopes)


class StackTransform(CatTransform):
    """Applies a transform to each slice of size 1 along a dimension."""
    __init__ = lambda self, tseq, dim=0, cache_size=0: CatTransform.__init__(
        self, tseq, dim, cache_size=cache_size)
    event_dim = Transform.event_dim

    def _constraints(self, which):
        return constraints.stack([getattr(part, which) for part in self.transforms], self.dim)

    _resized = lambda self, cache_size: StackTransform(self.transforms, self.dim, cache_size)

    _size = lambda self: (len(self.transforms), f"len(transforms) {len(self.transforms)}")

    _split = lambda self, value: value.unbind(self.dim)

    _join = lambda self, values: torch.stack(values, self.dim)

    log_abs_det_jacobian = lambda self, x, y: self._join([slope for _, slope in self._jacobians(x, y)])


class IndependentTransform(Transform):
    """Reinterprets the rightmost batch dimensions of a transform as event dimensions."""
    bijective = property(lambda self: self.base_transform.bijective)
    sign = property(lambda self: self.base_transform.sign)
    domain = property(lambda self: constraints.independent(self.base_transform.domain, self._count))
    codomain = property(lambda self: constraints.independent(self.base_transform.codomain, self._count))

    def __init__(self, base_transform, reinterpreted_batch_ndims, cache_size=0):
        super().__init__(cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = self._count = reinterpreted_batch_ndims

    _call = lambda self, x: self.base_transform(x)
    _inverse = lambda self, y: self.base_transform.inv(y)

    log_abs_det_jacobian = lambda self, x, y: sum_rightmost(
        self.base_transform.log_abs_det_jacobian(x, y), self._count)
    forward_shape = lambda self, shape: self.base_transform.forward_shape(shape)
    inverse_shape = lambda self, shape: self.base_transform.inverse_shape(shape)
    __repr__ = lambda self: f"IndependentTransform({self.base_transform!r}, {self._count})"


class ComposeTransform(Transform):
    """Applies transforms in sequence."""
    bijective = property(lambda self: all(part.bijective for part in self.parts))
    sign = property(lambda self: math.prod(part.sign for part in self.parts))

    def __init__(self, parts, cache_size=0):
        super().__init__(cache_size)
        self.parts = [part.with_cache(cache_size) for part in parts]

    _resized = lambda self, cache_size: ComposeTransform(self.parts, cache_size)

    def _constraint(self, parts, first, last):
        """Returns the constraint at the first part's side, with the event dimensions of the whole chain."""
        if not parts:
            return constraints.real
        most = getattr(parts[-1], last).event_dim
        for part in reversed(parts):
            before, after = getattr(part, first).event_dim, getattr(part, last).event_dim
            most = max(before, most + before - after)
        end = getattr(parts[0], first)
        extra = most - end.event_dim
        return constraints.independent(end, extra) if extra else end

    domain = property(lambda self: self._constraint(self.parts, "domain", "codomain"))
    codomain = property(lambda self: self._constraint(self.parts[::-1], "codomain", "domain"))

    def __call__(self, x):
        for part in self.parts:
            x = part(x)
        return x

    def _inv_call(self, y):
        for part in reversed(self.parts):
            y = part.inv(y)
        return y

    def log_abs_det_jacobian(self, x, y):
        event = self.domain.event_dim
        total = sum_rightmost(torch.zeros_like(x), event)
        for part in self.parts:
            result = part(x)
            total = total + sum_rightmost(part.log_abs_det_jacobian(x, result), event - part.domain.event_dim)
            event, x = event + part.codomain.event_dim - part.domain.event_dim, result
        return total

    def forward_shape(self, shape):
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape):
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape


    __repr__ = lambda self: "ComposeTransform(\n    " + ",\n    ".join(map(repr, self.parts)) + "\n)"


identity_transform = ComposeTransform([])
