# SPDX-License-Identifier: Apache-2.0
"""torch.utils._pytree: flattens nested containers to a list of leaves, and rebuilds them."""
from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator

from phlox import _C, return_types

_C._name_missing(__name__)
NodeDef = namedtuple("NodeDef", "type flatten_fn unflatten_fn")
SUPPORTED_NODES: dict[type, NodeDef] = {}
Context = PyTree = Any
IsLeaf = Callable[[Any], bool]


def register_pytree_node(cls: type, flatten_fn: Callable[[Any], tuple[list[Any], Any]],
                         unflatten_fn: Callable[[Any, Any], Any], **options: Any) -> None:
    """Registers a container class. flatten_fn returns (children, context); unflatten_fn takes both."""
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn)


def _flatten_dict(d):
    return list(d.values()), list(d)


def _unflatten_dict(parts, keys):
    return dict(zip(keys, parts))


for _kind in (tuple, list, *(kind for kind in vars(return_types).values() if isinstance(kind, type))):
    register_pytree_node(_kind, lambda x: (list(x), None), lambda parts, _, kind=_kind: kind(parts))
register_pytree_node(dict, _flatten_dict, _unflatten_dict)
register_pytree_node(OrderedDict, _flatten_dict, lambda parts, keys: OrderedDict(zip(keys, parts)))
register_pytree_node(defaultdict, lambda d: (list(d.values()), [d.default_factory, list(d)]),
                     lambda parts, context: defaultdict(context[0], zip(context[1], parts)))
register_pytree_node(deque, lambda d: (list(d), d.maxlen), deque)
register_pytree_node(namedtuple, lambda x: (list(x), type(x)), lambda parts, kind: kind(*parts))


def is_namedtuple_instance(obj: Any) -> bool:
    """Returns True for an instance of a named tuple."""
    return isinstance(obj, tuple) and isinstance(getattr(type(obj), "_fields", None), tuple)


def _get_node_type(tree: Any) -> Any:
    """Returns the class under which a value is registered as a container."""
    return namedtuple if is_namedtuple_instance(tree) and type(tree) not in SUPPORTED_NODES else type(tree)


def _node_of(tree, is_leaf):
    if is_leaf is not None and is_leaf(tree):
        return None
    return SUPPORTED_NODES.get(_get_node_type(tree))


@dataclass(repr=False)
class TreeSpec:
    """The structure of a tree without its leaves. `type` None is a leaf."""

    type: Any
    context: Any
    children_specs: list[TreeSpec]
    num_leaves: int = field(init=False)
    num_nodes: int = field(init=False)
    num_children: int = field(init=False)

    def __post_init__(self) -> None:
        self.num_children = len(self.children_specs)
        self.num_nodes = 1 + sum(spec.num_nodes for spec in self.children_specs)
        self.num_leaves = 1 if self.type is None else sum(spec.num_leaves for spec in self.children_specs)

    def __repr__(self, indent: int = 0) -> str:
        if self.type is None:
            return "*"
        parts = (",\n" + " " * (indent + 2)).join(
            spec.__repr__(indent + 2) for spec in self.children_specs)
        return f"TreeSpec({self.type.__name__}, {self.context}, [{parts}])"

    def is_leaf(self) -> bool:
        """Returns True for the spec of a leaf."""
        return self.type is None

    def unflatten(self, leaves: Any) -> Any:
        """Rebuilds the tree with the given leaves."""
        leaves = list(leaves)
        if len(leaves) != self.num_leaves:
            raise ValueError(f"treespec.unflatten(leaves): `leaves` has length {len(leaves)} but the "
                             f"spec refers to a pytree that holds {self.num_leaves} items ({self}).")
        return self._build(iter(leaves))

    def _build(self, leaves):
        if self.type is None:
            return next(leaves)
        parts = [spec._build(leaves) for spec in self.children_specs]
        return SUPPORTED_NODES[self.type].unflatten_fn(parts, self.context)


class LeafSpec(TreeSpec):
    """The spec of a leaf."""

    def __init__(self) -> None:
        super().__init__(None, None, [])


def _flatten(tree, leaves, is_leaf):
    node = _node_of(tree, is_leaf)
    if node is None:
        leaves.append(tree)
        return LeafSpec()
    parts, context = node.flatten_fn(tree)
    return TreeSpec(node.type, context, [_flatten(part, leaves, is_leaf) for part in parts])


def tree_flatten(tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Any], TreeSpec]:
    """Returns the leaves in order, and the spec of the tree."""
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves, is_leaf)


def tree_unflatten(leaves: Any, treespec: TreeSpec) -> Any:
    """Rebuilds a tree from leaves and a spec."""
    return treespec.unflatten(leaves)


def tree_leaves(tree: Any, is_leaf: IsLeaf | None = None) -> list[Any]:
    """Returns the leaves."""
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: IsLeaf | None = None) -> TreeSpec:
    """Returns the spec."""
    return tree_flatten(tree, is_leaf)[1]


def _flatten_to(spec, tree):
    """Returns the subtrees at the spec's leaves. Raises if the structures differ."""
    if spec.type is None:
        return [tree]
    node = _node_of(tree, None)
    parts, context = node.flatten_fn(tree) if node else ([], None)
    same = node and node.type is spec.type and len(parts) == spec.num_children
    if same and spec.type in (dict, OrderedDict) and context != spec.context:
        same = set(context) == set(spec.context)
        parts = [tree[key] for key in spec.context] if same else parts
    if not same:
        raise ValueError(f"Node type mismatch; expected {spec.type} of {spec.num_children}, but got "
                         f"{type(tree)} of {len(parts)}.")
    return [leaf for child, part in zip(spec.children_specs, parts) for leaf in _flatten_to(child, part)]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf | None = None) -> Any:
    """Applies a function to each leaf, and to the subtrees of `rests` at its position. Returns a tree."""
    leaves, spec = tree_flatten(tree, is_leaf)
    return spec.unflatten(map(func, leaves, *(_flatten_to(spec, rest) for rest in rests)))


def _predicate(kinds):
    return kinds if callable(kinds) and not isinstance(kinds, type) else lambda x: isinstance(x, kinds)


def map_only(kinds: Any, /) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Returns a decorator: the function applies only to values of these types, or satisfying a predicate.
    Other values are returned unchanged."""
    wanted = _predicate(kinds)
    return lambda func: lambda x: func(x) if wanted(x) else x


def tree_map_only(kinds: Any, /, func: Callable[[Any], Any], tree: Any, is_leaf: IsLeaf | None = None) -> Any:
    """tree_map for leaves of these types. Other leaves are kept."""
    return tree_map(map_only(kinds)(func), tree, is_leaf=is_leaf)


def tree_all(pred: IsLeaf, tree: Any, is_leaf: IsLeaf | None = None) -> bool:
    """Returns True if all leaves satisfy the predicate."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: IsLeaf, tree: Any, is_leaf: IsLeaf | None = None) -> bool:
    """Returns True if any leaf satisfies the predicate."""
    return any(map(pred, tree_leaves(tree, is_leaf)))


def tree_all_only(kinds: Any, /, pred: IsLeaf, tree: Any, is_leaf: IsLeaf | None = None) -> bool:
    """Returns True if all leaves of these types satisfy the predicate."""
    return all(map(pred, filter(_predicate(kinds), tree_leaves(tree, is_leaf))))


def tree_any_only(kinds: Any, /, pred: IsLeaf, tree: Any, is_leaf: IsLeaf | None = None) -> bool:
    """Returns True if any leaf of these types satisfies the predicate."""
    return any(map(pred, filter(_predicate(kinds), tree_leaves(tree, is_leaf))))


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf | None = None) -> Any:
    """Calls a function as tree_map does, and returns the tree itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_only_(kinds: Any, /, func: Callable[[Any], Any], tree: Any, is_leaf: IsLeaf | None = None) -> Any:
    """tree_map_ for leaves of these types."""
    return tree_map_(map_only(kinds)(func), tree, is_leaf=is_leaf)


def tree_iter(tree: Any, is_leaf: IsLeaf | None = None) -> Iterator[Any]:
    """Iterates over the leaves."""
    node = _node_of(tree, is_leaf)
    for part in node.flatten_fn(tree)[0] if node else ():
        yield from tree_iter(part, is_leaf)
    if node is None:
        yield tree


def tree_is_leaf(tree: Any, is_leaf: IsLeaf | None = None) -> bool:
    """Returns True if the tree is a leaf."""
    return _node_of(tree, is_leaf) is None


_register_pytree_node = register_pytree_node
