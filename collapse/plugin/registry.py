"""The registry of metrics, statistics, analyses and figures by name."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapse.errors import CollapseError, PluginError, UsageError, near_names
from collapse.plugin.figures import Figure
from collapse.plugin.guarding import described
from collapse.plugin.metrics import Analysis, Measure, Metric

if TYPE_CHECKING:
    from collapse.plugin.statistic import Statistic


GIVEN = "given with -p or COLLAPSE_PLUGINS"
COLLECTED = ("counts", "means", "variances", "classifier", "validation", "n_params")
"""Needs that a store provides without plugin statistics."""

COLUMNS = frozenset(
    "model revision corpus store min_count classes dim samples origin validation chunk_length max_chunks "
    "max_validation_chunks dtype weights tokenizer corpus_id validation_id class_set layer step schema made_by "
    "versions excluded notes measurements standard_errors nulls".split()
)
"""Columns of a table and keys of a row, which no measurement may be called."""

VECTORS = ("counts", "variances")
"""Vectors of every store, which :func:`collapse.vectors` gives by these names: no measurement may be called so."""


@dataclass(frozen=True)
class Plugin:
    """A plugin: a module with a name, from a distribution or a file.

    Attributes:
        name: Name of its entry point (after ``distribution:`` if two share it), or the name that the user gave.
        origin: Distribution and version, or how the user gave it.
        hooks: Hooks that it implements.
        declares: What it declares: kinds, such as "metric".
        problem: Why it is not used, or only partly; None if it is used completely.
        remark: What its author should fix although it works.
    """

    name: str
    origin: str
    hooks: tuple[str, ...] = ()
    declares: tuple[str, ...] = ()
    problem: str | None = None
    remark: str | None = None


@dataclass
class Plugins:
    """What plugins offer, by name; and the plugins that are not usable, with the reason."""

    found: list[Plugin] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    metrics: list[Metric] = field(default_factory=list)
    statistics: dict[str, type["Statistic"]] = field(default_factory=dict)
    analyses: dict[str, Analysis] = field(default_factory=dict)
    figures: dict[str, Figure] = field(default_factory=dict)
    preparers: list[tuple[str, Callable[[Any], str | None]]] = field(default_factory=list)
    trainers: list[tuple[str, Callable[[Path], Mapping[str, Any] | None]]] = field(default_factory=list)
    tables: list[tuple[str, Callable[[], Mapping[str, Path]]]] = field(default_factory=list)
    namers: list[tuple[str, Callable[[str], Mapping[str, int | float | str] | None]]] = field(default_factory=list)
    origins: dict[tuple[str, str], str] = field(default_factory=dict)  # by kind and name
    makers: dict[str, str] = field(default_factory=dict)  # by plugin, as the next

    def maker(self, kind: type["Statistic"]) -> str:
        """Return the maker of a statistic, as stores record it.

        That is the distribution of its plugin, or the module or file that the user gave.
        """
        if self.statistics.get(kind.name) is not kind:
            return kind.__module__
        return self.makers.get(self.origins["statistic", kind.name], "")

    def made_by(self, kind: str, name: str) -> str:
        """Return the distribution and version of the plugin behind a name, or the file or module that the user gave.

        Args:
            kind: "metric", "statistic", "analysis" or "figure".
            name: Name of a measurement, statistic or analysis.
        """
        plugin = self.origins.get((kind, name), "")
        origin = next((each.origin for each in self.found if each.name == plugin), "")
        return self.makers.get(plugin, "") if origin == GIVEN else origin

    def blamed(self, kind: str, name: str) -> tuple[str, str]:
        """Return what an error message begins with, which plugin failed, and ends with, how to do without it.

        Both are empty for a name that no plugin registered; a plugin that the user gave needs no advice.
        """
        plugin = self.origins.get((kind, name))
        if plugin is None:
            return "", ""
        given = next((each.origin for each in self.found if each.name == plugin), GIVEN) == GIVEN
        return f"plugin {plugin}: ", "" if given else f" (-p no:{plugin} leaves it out)"

    def measurements(self) -> dict[str, tuple[Metric, Measure]]:
        """Return every measurement by name, sorted."""
        pairs = {measure.name: (metric, measure) for metric in self.metrics for measure in metric.measures}
        return dict(sorted(pairs.items()))

    def select(self, names: str | Iterable[str] | None) -> list[str]:
        """Expand names and prefixes to measurement names: ``gnc2`` or ``GNC2`` means every ``gnc2.…``; None means all.

        One text may hold several, with commas.

        Raises:
            UsageError: There is no name, or one is unknown; the message suggests similar names.
        """
        known = list(self.measurements())
        if names is None:
            return known
        if isinstance(names, str):
            names = [each.strip() for each in names.split(",") if each.strip()]
        names = list(names) if isinstance(names, Iterable) else [names]
        for name in names:
            if not isinstance(name, str):
                raise UsageError(f"metrics= must be names of metrics; there is a {type(name).__name__}: {name!r:.40}")
        if not names:
            raise UsageError(
                "no metric is named: give a name or a prefix, such as nc1 (see all with: collapse metrics)"
            )
        chosen: set[str] = set()
        for name in names:
            lower = name.lower()
            matching = [each for each in known if each == lower or each.startswith(f"{lower}.")]
            if not matching:
                prefixes = {each.split(".")[0] for each in known}
                raise UsageError(
                    f"no metric is called {name!r}; {near_names(name, {*known, *prefixes})} "
                    "(see all with: collapse metrics)"
                )
            chosen.update(matching)
        return [name for name in known if name in chosen]

    def headlines(self) -> list[str]:
        """Return the headline measurements of each property as declared, or its first measurement if it has none."""
        first: dict[str, str] = {}
        for name, (metric, _) in self.measurements().items():
            first.setdefault(metric.property_of(name), name)
        marked: dict[str, list[str]] = {}
        for of_metric, name in [(each, m.name) for each in self.metrics for m in each.measures if m.headline]:
            marked.setdefault(of_metric.property_of(name), []).append(name)
        return [name for property_name in first for name in marked.get(property_name, [first[property_name]])]

    def analysis(self, name: str) -> Analysis:
        """Return an analysis by name.

        Raises:
            UsageError: No plugin has it.
        """
        if name not in self.analyses:
            raise UsageError(f"no analysis is called {name!r}; {near_names(name, self.analyses)}")
        return self.analyses[name]

    def figure(self, name: str) -> Figure:
        """Return a figure by name.

        Raises:
            UsageError: No plugin has it.
        """
        if name not in self.figures:
            raise UsageError(f"no figure is called {name!r}; {near_names(name, self.figures)}")
        return self.figures[name]

    def prepare(self, model: Any, check: Callable[[str], None] | None = None) -> str | None:
        """Let the first plugin that supports a model make it faster; return the plugin's name for the result, or None.

        Args:
            model: The transformers model.
            check: Called with a plugin's name after the plugin has received the model.

        Raises:
            PluginError: A plugin failed, and may have changed the model only partly.
        """
        for plugin, preparer in self.preparers:
            try:
                name = preparer(model)
            except Exception as error:
                raise PluginError(
                    f"plugin {plugin}: collapse_prepare_model() raised {described(error)}; "
                    "continue without it: --no-fast-attention"
                ) from error
            if check is not None:
                check(plugin)
            if name is not None:
                return name
        return None

    def trained_on(self, folder: Path) -> dict[str, Any]:
        """Return the options that name the texts of a local model, of the first plugin that knows its folder, or {}.

        Raises:
            PluginError: A plugin failed.
            CollapseError: The texts or the model are not what they were.
        """
        for plugin, knows in self.trainers:
            try:
                found = knows(folder)
            except CollapseError:
                raise
            except Exception as error:
                raise PluginError(f"plugin {plugin}: collapse_trained_on() raised {described(error)}") from error
            if found is not None:
                return dict(found)
        return {}
