"""Trace the functions of pair metrics, and compile them together into one function of a tile.

A metric's function runs once on tensors without values, which record its operations; one that looks at a value, that
needs more of a class than one number, or whose operations compiled code does not do as torch does, cannot be traced.

Shapes: a tile has R rows and R columns; P metrics.
"""

import copy
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

from collapse.errors import PluginError
from collapse.numerics.returned import as_tile
from collapse.numerics.tiles import LEAVES_OUT_ZEROS, Pair
from collapse.plugin.guarding import Guest
from collapse.plugin.metrics import Over

OF_POINTS = ("sqnorms", "inverse_norms", "variances", "projections", "uncentred_inverse_norms")
OF_CLASSES = ("norms", "counts", "classes")
"""The values per class that a compiled function has, of :class:`Points` and of the statistics."""

_MAKES = {"_to_copy", "full", "full_like", "lift_fresh_copy", "ones_like", "scalar_tensor", "zeros_like"}
"""Operations of torch that are as good as elementwise, which their tags do not say."""

_VIEWS = {"alias", "detach", "expand", "unsqueeze"}
"""Views that move no value to another pair, as a transposed tile does."""

_OF_INTEGERS = {"abs", "add", "maximum", "minimum", "mul", "neg", "sub", "where"}
"""Elementwise operations that fail for no integers."""

_LONGEST = 500
"""Operations of a metric, each counted as often as its result is used: so often the compiler looks at it."""

_alone = threading.RLock()  # torch traces by changes to itself that all threads see


@dataclass(frozen=True)
class Traceable:
    """What is compiled of a metric.

    Attributes:
        function, over: As declared.
        logs: Whether the sum of the logarithms is needed.
        values: Whether the values are needed.
    """

    function: Callable[[Pair], Tensor]
    over: Over
    logs: bool
    values: bool


@dataclass(frozen=True)
class Tile:
    """The tiles that a function is compiled for: R classes a side, what :class:`Points` says of all classes, and the
    dtypes of the values per class."""

    classes: int
    dtype: torch.dtype
    short_means: bool
    kinds: tuple[torch.dtype, ...]


@dataclass(frozen=True)
class Compiled:
    """A function of a tile.

    Attributes:
        function: Returns the function; compiles it unless it was compiled before. It takes, for each column, the number
            of rows, from the first, that are paired with it (R,), a centre for the values of each metric (P,), the Gram
            product, ‖μ̄‖², and the values per class of the rows and of the columns. Returns a vector, then the values
            of each metric that needs them. The vector holds the least value of each field in ``least`` over the pairs,
            then of each metric the sums over the pairs of its centred values, of their squares and of its logarithms.
        least: Fields of squared distances that are used.
    """

    function: Callable[[], Callable[..., list[Tensor]]]
    least: tuple[str, ...]


def load() -> None:
    """Import torch's compiler, which takes seconds, and fails if its folder of what was compiled cannot be made."""
    import torch._dynamo  # noqa: F401  # for its effect


def compiled(metrics: tuple[Traceable, ...], tile: Tile) -> Compiled:
    """Trace metrics; they are compiled when the function is asked for, unless the same ones were before.

    Raises:
        Exception: A metric cannot be traced.
    """
    traced, least = trace(metrics, tile)
    # numbers stand in the code, tensors do not: a function with some is compiled anew
    tensors = any(node.op == "get_attr" for node in traced.graph.nodes)
    wanted = tuple((metric.logs, metric.values) for metric in metrics)
    graph = _Graph(traced.code, wanted, tile, id(traced) if tensors else 0, traced)
    return Compiled(cache(lambda: _compiled(graph)), least)


@dataclass(frozen=True)
class _Graph:
    """Traced metrics. They are traced for each sweep, because what they read may have changed."""

    code: str
    wanted: tuple[tuple[bool, bool], ...]
    tile: Tile
    of_tensors: int
    traced: GraphModule = field(compare=False)


@lru_cache(maxsize=16)
def _compiled(graph: _Graph) -> Callable[..., list[Tensor]]:
    """Compile by torch's compiler itself; torch.compile would compare each call with what it knows of the last."""
    from torch._inductor import compile as compile_
    from torch.fx.experimental.proxy_tensor import make_fx

    with _alone:
        gram, *others = _given(graph.tile)
        given: list[Any] = [gram.new_ones(graph.tile.classes), gram.new_zeros(len(graph.wanted)), gram, *others]
        module = make_fx(_sums(graph), tracing_mode="fake")(*given)
        # for any number of threads; in this one, because a process that was forked has no others
        return compile_(module, given, options={"cpp.dynamic_threads": True, "compile_threads": 1})


def _sums(graph: _Graph) -> Callable[..., list[Tensor]]:
    """Return the function that is compiled; see :class:`Compiled`.

    Each sum calls for values of its own: the compiler computes equal operations once, in one pass over the tile, but
    keeps values that are used twice in memory.
    """
    outputs: Any = graph.traced.graph.output_node().args[0]
    functions = [_only(graph.traced, index) for index in range(len(outputs))]
    metrics, fields = functions[: len(graph.wanted)], functions[len(graph.wanted) :]

    def function(rows_S: Tensor, around_P: Tensor, *given: Tensor) -> list[Tensor]:
        paired = torch.arange(graph.tile.classes, dtype=rows_S.dtype).unsqueeze(1) < rows_S

        def of_pairs(values: Tensor, otherwise: float = 0) -> Tensor:
            return values.where(paired, otherwise)

        numbers = [of_pairs(values_of(*given), math.inf).amin() for values_of in fields]
        for values_of, around, (logs, _) in zip(metrics, around_P, graph.wanted, strict=True):
            numbers += [of_pairs(values_of(*given) - around).sum(dtype=torch.float64)]
            numbers += [of_pairs(values_of(*given) - around).square().sum(dtype=torch.float64)]
            numbers += [of_pairs(values_of(*given).log()).sum(dtype=torch.float64) if logs else rows_S.new_zeros(())]
        kept = [values_of(*given) for values_of, (_, values) in zip(metrics, graph.wanted, strict=False) if values]
        return [torch.stack([each.double() for each in numbers]), *kept]

    return function


def _only(traced: GraphModule, output: int) -> GraphModule:
    """Return a function with one of several outputs."""
    graph = copy.deepcopy(traced.graph)
    outputs: Any = graph.output_node().args[0]
    graph.output_node().args = (outputs[output],)
    graph.eliminate_dead_code()
    return GraphModule(traced, graph)


def trace(metrics: tuple[Traceable, ...], tile: Tile) -> tuple[GraphModule, tuple[str, ...]]:
    """Trace metrics without compiling them; raises as :func:`compiled`.

    Returns:
        A function of the Gram product, ‖μ̄‖², and the values per class of the rows and of the columns. It returns the
        values of each metric, then the squared distances that are used. Second, the fields of these.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    least: list[str] = []

    def function(gram: Tensor, global_sqnorm: Tensor, *values: Tensor) -> list[Tensor]:
        pair = _Traced(gram, global_sqnorm, tile, values)
        found = [_values(metric, pair) for metric in metrics]
        least[:] = pair.sqdists
        return [*found, *pair.sqdists.values()]

    with _alone:
        traced = make_fx(function, tracing_mode="fake")(*_given(tile))
    traced.graph.eliminate_dead_code()
    length: dict[Node, int] = {}
    for node in traced.graph.nodes:
        if node.op == "output":
            break
        if node.op == "call_function":
            _check(node, tile.dtype)
        length[node] = 1 + sum(length[each] for each in _operands(node))
        if length[node] > _LONGEST:
            raise PluginError(f"it has more than {_LONGEST} operations, each counted as often as it is used")
    return traced, tuple(least)


def _check(node: Node, dtype: torch.dtype) -> None:
    """Refuse an operation whose numbers may be others where it is compiled, or that may end the process."""
    operation, value = node.target, node.meta["val"]
    if not (isinstance(operation, torch._ops.OpOverload) and isinstance(value, Tensor) and _is_elementwise(node)):
        raise PluginError(f"it calls {operation}, which is not elementwise")
    if value.is_floating_point() and value.ndim and torch.finfo(value.dtype).eps > torch.finfo(dtype).eps:
        raise PluginError(f"it computes in {value.dtype}, which compiled code rounds otherwise")
    name = operation.overloadpacket.__name__
    is_integer = not (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool)
    if is_integer and torch.Tag.pointwise in operation.tags and name not in _OF_INTEGERS:
        raise PluginError(f"it calls {operation} of integers, which may fail")


def _operands(node: Node) -> list[Node]:
    return [each for each in tree_leaves((node.args, node.kwargs)) if isinstance(each, Node)]


def _is_elementwise(node: Node) -> bool:
    """Whether an operation gives each number of one or two others, and the compiler's is that of torch."""
    operation: Any = node.target
    if torch.Tag.pointwise in operation.tags:
        return node.kwargs.get("rounding_mode") is None  # the compiler rounds down a quotient that is rounded already
    return operation.overloadpacket.__name__ in _MAKES | _VIEWS


def _given(tile: Tile) -> list[Tensor]:
    """Return what traced metrics are given, for the tracer; each tensor its own, because one would be one input."""
    gram = torch.ones(tile.classes, tile.classes, dtype=tile.dtype)
    return [gram, gram.new_ones(()), *(torch.ones(tile.classes, dtype=kind) for kind in tile.kinds * 2)]


def _values(metric: Traceable, pair: "_Traced") -> Tensor:
    with Guest():
        returned = metric.function(pair)
        values = as_tile(returned, pair.gram)
    if returned.is_floating_point() and returned.dtype != pair.gram.dtype:
        raise PluginError(f"it returns {returned.dtype}, whose rounding compiled code leaves out")
    if written := pair.written():
        raise PluginError(f"it wrote to {written[0]}")
    if metric.over in LEAVES_OUT_ZEROS:
        getattr(pair, LEAVES_OUT_ZEROS[metric.over])  # for its least value
    return values


class _Traced(Pair):
    """A tile that is traced: it has the values per class of its rows and columns, and keeps squared distances."""

    def __init__(self, gram: Tensor, global_sqnorm: Tensor, tile: Tile, values: tuple[Tensor, ...]) -> None:
        points: Any = SimpleNamespace(global_sqnorm=global_sqnorm, short_means=tile.short_means, rounding=0.0)
        super().__init__(points, slice(0, 0), slice(1, 1), gram)
        del self._rows, self._columns  # what reads them cannot be traced
        names, half = (*OF_POINTS, *OF_CLASSES), len(values) // 2
        self._of_rows = dict(zip(names, values[:half], strict=True))
        self._of_columns = dict(zip(names, values[half:], strict=True))
        self.sqdists: dict[str, Tensor] = {}

    @property
    def runs(self) -> tuple[slice, slice]:
        """Refused: the function is compiled for tiles of all classes."""
        raise PluginError("it reads which classes the tile is of")

    def rows(self, name: str) -> Tensor:
        """Return a value per class of the rows."""
        return self._of_rows[name]

    def columns(self, name: str) -> Tensor:
        """Return a value per class of the columns."""
        return self._of_columns[name]

    def _of(self, name: str) -> tuple[Tensor, Tensor]:
        return self._of_rows[name], self._of_columns[name]

    def _correct(self, name: str, sqdist: Tensor) -> float:
        self.sqdists[name] = sqdist
        return math.inf
