# SPDX-License-Identifier: Apache-2.0
"""torch.distributions.constraints: what parameters and values of distributions satisfy."""


class Constraint:
    """Says which values satisfy it. `event_dim`: how many dimensions at the end make one value."""
    is_discrete, event_dim = False, 0
    _bounds = ()

    def __init__(self, *bounds, **named):
        vars(self).update(zip(self._bounds, bounds), **named)

    def check(self, value):
        """A bool for each value: whether it satisfies the constraint."""
        raise NotImplementedError

    def __repr__(self):
        shown = ", ".join(f"{name}={getattr(self, name)}" for name in self._bounds)
        return f"{type(self).__name__.lstrip('_')}({shown})"


class _Dependent(Constraint):
    """Stands where the constraint depends on the object: it cannot be checked."""

    def check(self, value):
        raise ValueError("Cannot determine validity of dependent constraint")


class dependent_property(property, _Dependent):
    """A property that is a constraint of the object, and stands for one in the class."""

    def __init__(self, fn=None, *, is_discrete=False, event_dim=0):
        super().__init__(fn)
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def __call__(self, fn):
        return dependent_property(fn, is_discrete=self.is_discrete, event_dim=self.event_dim)


class independent(Constraint):
    """A constraint of which the last dimensions make one value."""

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

    def __repr__(self):
        return f"IndependentConstraint({self.base_constraint}, {self.count})"


def _kind(name, check, *bounds, is_discrete=False, event_dim=0):
    """A class of constraints with these bounds, of which `check` tells whether a value fits."""
    return type(name, (Constraint,), {
        "check": check, "_bounds": bounds, "is_discrete": is_discrete, "event_dim": event_dim,
        "__module__": __name__, "__doc__": f"Values that satisfy it: {name.lstrip('_')}."})


def _sums_to_one(x):
    return (x.sum(-1) - 1).abs() < 1e-6


def is_dependent(constraint):
    """Whether it depends on the object that has it."""
    return isinstance(constraint, _Dependent)


dependent = _Dependent()
boolean = _kind("_Boolean", lambda c, x: (x == 0) | (x == 1), is_discrete=True)()
integer_interval = _kind(
    "_IntegerInterval",
    lambda c, x: (x % 1 == 0) & (x >= c.lower_bound) & (x <= c.upper_bound),
    "lower_bound", "upper_bound", is_discrete=True)
_whole_from = _kind("_IntegerGreaterThan", lambda c, x: (x % 1 == 0) & (x >= c.lower_bound),
                    "lower_bound", is_discrete=True)
nonnegative_integer, positive_integer = _whole_from(0), _whole_from(1)
real = _kind("_Real", lambda c, x: x == x)()
real_vector = independent(real, 1)
greater_than = _kind("_GreaterThan", lambda c, x: x > c.lower_bound, "lower_bound")
greater_than_eq = _kind("_GreaterThanEq", lambda c, x: x >= c.lower_bound, "lower_bound")
less_than = _kind("_LessThan", lambda c, x: x < c.upper_bound, "upper_bound")
positive, nonnegative = greater_than(0.), greater_than_eq(0.)
interval = _kind("_Interval", lambda c, x: (x >= c.lower_bound) & (x <= c.upper_bound),
                 "lower_bound", "upper_bound")
half_open_interval = _kind("_HalfOpenInterval",
                           lambda c, x: (x >= c.lower_bound) & (x < c.upper_bound),
                           "lower_bound", "upper_bound")
unit_interval = interval(0., 1.)
simplex = _kind("_Simplex", lambda c, x: (x >= 0).all(-1) & _sums_to_one(x), event_dim=1)()
one_hot = _kind("_OneHot", lambda c, x: ((x == 0) | (x == 1)).all(-1) & (x.sum(-1) == 1),
                is_discrete=True, event_dim=1)()
