# SPDX-License-Identifier: Apache-2.0
"""torch.distributions.constraint_registry: transforms from unconstrained space to the set of a
constraint."""
from . import constraints, transforms
from .transforms import (AffineTransform, CatTransform, ComposeTransform, CorrCholeskyTransform,
    ExpTransform, LowerCholeskyTransform, PositiveDefiniteTransform, SigmoidTransform, StackTransform)


class ConstraintRegistry:
    """A registry of transforms by constraint. Call it with a constraint to get its transform."""

    def __init__(self):
        self._registry = {}

    def register(self, constraint, factory=None):
        """Registers a factory for a Constraint subclass, or the class of an instance. Without
        `factory`, returns a decorator."""
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        kind = constraint if isinstance(constraint, type) else type(constraint)
        if not issubclass(kind, constraints.Constraint):
            raise TypeError("Expected constraint to be either a Constraint subclass or instance, "
                            f"but got {constraint}")
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint):
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")
        return factory(constraint)


biject_to, transform_to = ConstraintRegistry(), ConstraintRegistry()


def _lower_bounded(constraint):
    return ComposeTransform([ExpTransform(), AffineTransform(constraint.lower_bound, 1)])


def _bounded(constraint):
    low, high = constraint.lower_bound, constraint.upper_bound
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and (low, high) == (0, 1):
        return SigmoidTransform()
    return ComposeTransform([SigmoidTransform(), AffineTransform(low, high - low)])


for _to in biject_to, transform_to:
    _to.register(constraints.real, lambda constraint: transforms.identity_transform)
    _to.register(constraints.independent, lambda constraint, to=_to: transforms.IndependentTransform(
        to(constraint.base_constraint), constraint.reinterpreted_batch_ndims))
    _to.register(constraints.greater_than, lambda constraint: ExpTransform()
                 if constraint is constraints.positive else _lower_bounded(constraint))
    _to.register(constraints.greater_than_eq, lambda constraint: ExpTransform()
                 if constraint is constraints.nonnegative else _lower_bounded(constraint))
    _to.register(constraints.less_than, lambda constraint: ComposeTransform(
        [ExpTransform(), AffineTransform(constraint.upper_bound, -1)]))
    _to.register(constraints.corr_cholesky, lambda constraint: CorrCholeskyTransform())
    _to.register(constraints.cat, lambda constraint, to=_to: CatTransform(
        map(to, constraint.cseq), constraint.dim, constraint.lengths))
    _to.register(constraints.stack, lambda constraint, to=_to: StackTransform(
        map(to, constraint.cseq), constraint.dim))
    _to.register(constraints.interval, _bounded)
    _to.register(constraints.half_open_interval, _bounded)
biject_to.register(constraints.simplex, lambda constraint: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda constraint: transforms.SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda constraint: LowerCholeskyTransform())
for _kind in constraints.positive_definite, constraints.positive_semidefinite:
    transform_to.register(_kind, lambda constraint: PositiveDefiniteTransform())
