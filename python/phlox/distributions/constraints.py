# SPDX-License-Identifier: Apache-2.0
"""torch.distributions.constraints: constraints on parameters and values of distributions."""
import phlox as torch


class Constraint:
    """The base class of constraints. `event_dim` is the number of rightmost dimensions of one value."""
    is_discrete, event_dim = False, 0
    _bounds = ()

    def __init__(self, *bounds, **named):
        vars(self).update(zip(self._bounds, bounds), **named)

    def check(self, value):
        """Returns a bool tensor: True for each value satisfying the constraint."""
        raise NotImplementedError

    def __repr__(self):
        shown = ", ".join(f"{name}={getattr(self, name)}" for name in self._bounds)
        return f"{type(self).__name__.lstrip('_')}({shown})"


class _Dependent(Constraint):
    """A placeholder for a constraint that depends on the instance. It cannot be checked."""

    def check(self, value):
        raise ValueError("Cannot determine validity of dependent constraint")


class dependent_property(property, _Dependent):
    """A property returning a constraint that depends on the instance. On the class it is a placeholder."""

    def __init__(self, fn=None, *, is_discrete=False, event_dim=0):
        super().__init__(fn)
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def __call__(self, fn):
        return dependent_property(fn, is_discrete=self.is_discrete, event_dim=self.event_dim)


class independent(Constraint):
    """A constraint whose rightmost batch dimensions are reinterpreted as part of a value."""

    def __init__(self, base_constraint, reinterpreted_batch_ndims):
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = self.count = reinterpreted_batch_ndims
        self.is_discrete = base_constraint.is_discrete
        self.event_dim = base_constraint.event_dim + reinterpreted_batch_ndims

    def check(self, value):
        valid = self.base_constraint.check(value)
        if valid.dim() < self.count:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        return valid.flatten(-self.count).all(-1) if self.count else valid

    __repr__ = lambda self: f"IndependentConstraint({self.base_constraint}, {self.count})"


class MixtureSameFamilyConstraint(Constraint):
    """The support of a MixtureSameFamily, given the components' constraint."""

    def __init__(self, base_constraint):
        if not isinstance(base_constraint, Constraint):
            raise AssertionError("base_constraint must be a Constraint, got "
                                 f"{type(base_constraint).__name__}")
        self.base_constraint = base_constraint
        self.is_discrete, self.event_dim = base_constraint.is_discrete, base_constraint.event_dim

    def check(self, value):
        valid = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        return valid.flatten(value.dim() - self.event_dim).all(-1)

    __repr__ = lambda self: f"MixtureSameFamilyConstraint({self.base_constraint!r})"


class cat(Constraint):
    """Constraints on consecutive slices along a dimension. `lengths` are their sizes, 1 by default."""
    is_discrete = property(lambda self: any(part.is_discrete for part in self.cseq))
    event_dim = property(lambda self: max(part.event_dim for part in self.cseq))
    __repr__ = lambda self: f"{type(self).__name__.capitalize()}()"

    def __init__(self, cseq, dim=0, lengths=None):
        self.cseq, self.dim = list(cseq), dim
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if not all(isinstance(part, Constraint) for part in self.cseq):
            raise AssertionError("All elements of cseq must be Constraint instances")
        if len(self.lengths) != len(self.cseq):
            raise AssertionError(f"lengths ({len(self.lengths)}) must match cseq ({len(self.cseq)})")

    def _checks(self, value, pieces):
        if not -value.dim() <= self.dim < value.dim():
            raise AssertionError(f"dim {self.dim} out of range for value with {value.dim()} dimensions")
        return [part.check(piece) for part, piece in zip(self.cseq, pieces())]

    def check(self, value):
        pieces = lambda: value.narrow(self.dim, 0, sum(self.lengths)).split(self.lengths, self.dim)
        return torch.cat(self._checks(value, pieces), self.dim)


class stack(cat):
    """Constraints on the slices of size 1 along a dimension."""
    __init__ = lambda self, cseq, dim=0: cat.__init__(self, cseq, dim)
    event_dim = property(lambda self: cat.event_dim.fget(self) + (self.dim + cat.event_dim.fget(self) < 0))

    def check(self, value):
        return torch.stack(self._checks(value, lambda: value.unbind(self.dim)), self.dim)


def _class(name, check, *bounds, **more):
    """Makes a constraint class with these bounds. check(self, value) returns a bool tensor."""
    return type(name, (Constraint,), {
        "check": check, "_bounds": bounds, "__module__": __name__,
        "__doc__": f"A constraint: {name.lstrip('_')}.", **more})


def _sums_to_one(x):
    return (x.sum(-1) - 1).abs() < 1e-6


def _lower(c, x):
    return (x.tril() == x).flatten(-2).all(-1)


def _cholesky(c, x):
    return _lower(c, x) & (x.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


def _unit_rows(c, x):
    near = torch.finfo(x.dtype).eps * x.size(-1) * 10
    return _cholesky(c, x) & ((x.detach().norm(dim=-1) - 1).abs() <= near).all(-1)


def _square(c, x):
    return torch.full(x.shape[:-2], x.shape[-2] == x.shape[-1], device=x.device)


def _symmetric(also):
    """Returns a check for symmetric matrices that also satisfy `also`."""
    def check(c, x):
        fits = _square(c, x)
        if fits.all():
            fits = torch.isclose(x, x.mT, atol=1e-6).all(-2).all(-1)
        return also(x) if fits.all() else fits

    return check


def is_dependent(constraint):
    """Returns True if the constraint depends on the instance."""
    return isinstance(constraint, _Dependent)


dependent = _Dependent()
boolean = _class("_Boolean", lambda c, x: (x == 0) | (x == 1), is_discrete=True)()
integer_interval = _class(
    "_IntegerInterval",
    lambda c, x: (x % 1 == 0) & (x >= c.lower_bound) & (x <= c.upper_bound),
    "lower_bound", "upper_bound", is_discrete=True)
_integer_from = _class("_IntegerGreaterThan", lambda c, x: (x % 1 == 0) & (x >= c.lower_bound),
                    "lower_bound", is_discrete=True)
nonnegative_integer, positive_integer = _integer_from(0), _integer_from(1)
real = _class("_Real", lambda c, x: x == x)()
real_vector = independent(real, 1)
greater_than = _class("_GreaterThan", lambda c, x: x > c.lower_bound, "lower_bound")
greater_than_eq = _class("_GreaterThanEq", lambda c, x: x >= c.lower_bound, "lower_bound")
less_than = _class("_LessThan", lambda c, x: x < c.upper_bound, "upper_bound")
positive, nonnegative = greater_than(0.), greater_than_eq(0.)
interval = _class("_Interval", lambda c, x: (x >= c.lower_bound) & (x <= c.upper_bound),
                 "lower_bound", "upper_bound")
half_open_interval = _class("_HalfOpenInterval",
                           lambda c, x: (x >= c.lower_bound) & (x < c.upper_bound),
                           "lower_bound", "upper_bound")
unit_interval = interval(0., 1.)
simplex = _class("_Simplex", lambda c, x: (x >= 0).all(-1) & _sums_to_one(x), event_dim=1)()
one_hot = _class("_OneHot", lambda c, x: ((x == 0) | (x == 1)).all(-1) & (x.sum(-1) == 1),
                is_discrete=True, event_dim=1)()
multinomial = _class("_Multinomial", lambda c, x: (x >= 0).all(-1) & (x.sum(-1) <= c.upper_bound),
                    "upper_bound", is_discrete=True, event_dim=1,
                    __repr__=lambda c: "Multinomial()")
lower_triangular = _class("_LowerTriangular", _lower, event_dim=2)()
lower_cholesky = _class("_LowerCholesky", _cholesky, event_dim=2)()
corr_cholesky = _class("_CorrCholesky", _unit_rows, event_dim=2)()
square = _class("_Square", _square, event_dim=2)()
symmetric = _class("_Symmetric", _symmetric(lambda x: _square(None, x)), event_dim=2)()
positive_semidefinite = _class("_PositiveSemidefinite", _symmetric(
    lambda x: torch.linalg.eigvalsh(x).ge(0).all(-1)), event_dim=2)()
positive_definite = _class("_PositiveDefinite", _symmetric(
    lambda x: torch.linalg.cholesky_ex(x).info.eq(0)), event_dim=2)()
