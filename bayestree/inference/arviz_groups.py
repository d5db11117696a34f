"""A posterior as ArviZ groups with named dimensions, coordinates and attributes."""

import json
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from bayestree._utils import arviz_compat
from bayestree._utils.progress import steps_of
from bayestree._version import __version__
from bayestree.inference import pointwise
from bayestree.inference.data import UNUSED, Data, Units
from bayestree.inference.posterior import Arrays, Posterior
from bayestree.models.soft_tree import SoftTree, improper_priors, sample_prior, site_names
from bayestree.topology import Topology

PACKAGES = ("arviz", "numpy", "pyro-ppl", "torch", "xarray")
DRAWS = ("chain", "draw")
#: Dimensions of recorded quantities other than (chain, draw).
STATS: dict[str, tuple[str, ...]] = {
    "elbo": ("step",),
    "log_joint": ("step",),
    "final_elbo": (),
    "elbo_gain": (),
    "elbo_gain_error": (),
    "unseen_gain": (),
    "unseen_gain_error": (),
    "n_rows": (),
    "epochs": (),
    "more_epochs": (),
    "n_steps": (),
    "n_facets": ("node",),  # of the search for facets, in files of former versions
    "coefficient_balance": ("node",),
    "coefficient_balance_error": ("node",),
    "log_evidence": ("chain",),
    "rows": (),
    "changes": ("chain", "temperature", "move"),
}


@dataclass(frozen=True, eq=False)
class Labels:
    """Coordinates by dimension; rows are numbered by default."""

    topology: Topology
    features: Sequence[str]
    classes: Sequence[str]
    rows: NDArray[np.int64] | None = None

    @classmethod
    def of(
        cls,
        posterior: Posterior,
        feature_names: Sequence[str] = (),
        class_names: Sequence[str] = (),
        rows: NDArray[np.int64] | None = None,
    ) -> "Labels":
        """Return the labels of a posterior's draws; by default ``x0``, ... and ``0``, ...."""
        if "hyperplane" not in posterior.draws:
            raise TypeError(
                "The dimensions of draws are experts and features, which the splits of this "
                f"posterior do not have: {posterior.model.split!r}; use posterior.draws."
            )
        n_features = posterior.draws["hyperplane"].shape[-1]
        n_classes = posterior.model.leaf.n_classes
        _check_length("feature_names", feature_names, n_features)
        _check_length("class_names", class_names, n_classes)
        return cls(
            posterior.model.topology,
            feature_names or [f"x{j}" for j in range(n_features)],
            class_names or [str(number) for number in range(n_classes)],
            rows,
        )

    def dataset(self, variables: Mapping[str, Any]) -> xr.Dataset:
        """Create a dataset of variables with the coordinates of their dimensions."""
        found = xr.Dataset(dict(variables))
        return found.assign_coords(
            {dim: (dim, self._labels(str(dim), length)) for dim, length in found.sizes.items()}
        )

    def _labels(self, dim: str, length: int) -> NDArray[Any]:
        named: dict[str, Sequence[str]] = {
            "node": self.topology.node_labels,
            "leaf": self.topology.leaf_labels,
            "side": ("left", "right"),
            "feature": self.features,
            "class": self.classes,
        }
        if dim in named:
            return np.array(named[dim], dtype=np.str_)
        return np.arange(length) if dim != "row" or self.rows is None else self.rows


def _check_length(name: str, names: Sequence[str], length: int) -> None:
    if len(names) not in (0, length):
        raise ValueError(
            f"{name} must have {length} entries, as many as the draws, got {len(names)}."
        )


def attributes_of(posterior: Posterior) -> dict[str, Any]:
    """Describe where the draws come from, in strings and numbers that netCDF can store."""
    model = posterior.model
    versions = {"python": platform.python_version(), "bayestree": __version__}
    versions |= {name: version(name) for name in PACKAGES}
    return {
        "inference_library": "bayestree",
        "inference_library_version": __version__,
        "inference": posterior.inference,
        "settings": json.dumps(dict(posterior.settings), default=str),
        "split": type(model.split).__name__,
        "steepness": float(model.steepness),
        "model": json.dumps(model_card(model)),
        "versions": json.dumps(versions),
        "scale": "draws are on standardised features (and y, for regression): see constant_data",
    }


def model_card(model: SoftTree) -> dict[str, Any]:
    """Describe the parts of a model with all their numbers, as plain values for JSON."""
    return {
        "split": _card(model.split),
        "priors": {
            "weight": _card(model.priors.weight) if model.split.weighted else None,
            "hyperplane": _card(model.priors.hyperplane),
        },
        "leaf": _card(model.leaf),
        "likelihood": model.likelihood,
        "steepness": float(model.steepness),
        **({"monotone": list(model.monotone)} if any(model.monotone) else {}),
        **({"groups": [list(own) for own in model.groups]} if model.groups else {}),
    }


def _card(part: Any) -> dict[str, Any]:
    """Name and numbers of a part; a user-defined part may have none."""
    named = fields(part) if is_dataclass(part) else ()
    return {"name": type(part).__name__} | {f.name: _plain(getattr(part, f.name)) for f in named}


def _plain(value: Any) -> Any:
    """Return a field of a part as a plain value; parts of parts have cards."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return _card(value) if is_dataclass(value) else value


@dataclass(frozen=True, eq=False)
class Conversion:
    """A posterior with the arguments of ``Posterior.to_arviz``, which documents them."""

    posterior: Posterior
    labels: Labels
    data: Data | None = None
    units: Units | None = None
    n_prior: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n_prior < 1:
            raise ValueError(f"n_prior must be 1 or more, got {self.n_prior}.")
        if self.data is not None and self.data.X.shape[1] != self.n_features:
            raise ValueError(
                f"data must have {self.n_features} features, as many as the draws, got "
                f"{self.data.X.shape[1]}."
            )

    @property
    def model(self) -> SoftTree:
        """The model of the sites that were drawn."""
        return self.posterior.model_of_draws

    @property
    def n_features(self) -> int:
        return int(self.posterior.draws["hyperplane"].shape[-1])

    def prior_predictive(self) -> xr.Dataset:
        """Draw y for each row and draw of the prior."""
        draws = self.prior_draws
        each = (
            {n: torch.as_tensor(v[0, i]) for n, v in draws.items()} for i in range(self.n_prior)
        )
        return self.predictive(draws, each)

    def log_likelihood(self) -> xr.Dataset:
        """Compute the weighted log-density of each row of y in its units."""
        data = self._rows
        each = steps_of(self.posterior.each(), "log-likelihood of draws")
        terms = pointwise.log_likelihood(self.model, each, data)
        terms -= data.weights.numpy(force=True) * np.log(self._units.y_scale).sum()
        return self._observations(self.posterior.draws, terms)

    def log_prior(self) -> xr.Dataset:
        """Log prior density of each draw, for hyperplanes, weights and leaves."""
        model = self.model.with_(leaf=self.model.leaf.among(self._used.numpy()))
        found = [
            {name: float(value) for name, value in model.log_priors(sites).items()}
            for sites in self._each_in_use
        ]
        return self.labels.dataset(
            {name: (DRAWS, self._by_draw([one[name] for one in found])) for name in found[0]}
        )

    def observed_data(self) -> xr.Dataset:
        """Return the observed y in its units, or as class numbers."""
        y = self.model.leaf.target(self._rows.y).numpy(force=True)
        return self.labels.dataset({"obs": (("row", "output")[: y.ndim], self._in_units(y))})

    def constant_data(self) -> xr.Dataset:
        """Return topology and units; with rows, also X in the units of the data."""
        units = self._units
        variables: dict[str, Any] = {
            "children": (("node", "side"), self.posterior.model.topology.children),
            "center": ("feature", units.center),
            "scale": ("feature", units.scale),
        }
        if not self.model.leaf.n_classes:
            of_y = ("output",)[: np.ndim(units.y_scale)]
            variables |= {"y_center": (of_y, units.y_center), "y_scale": (of_y, units.y_scale)}
        if self.data is not None:
            X = self.data.X.numpy(force=True) * units.scale + units.center
            variables["X"] = (("row", "feature"), X)
            variables["sample_weight"] = ("row", self.data.weights.numpy(force=True))
        return self.labels.dataset(variables)

    def sample_stats(self) -> xr.Dataset:
        """Return recorded quantities, and ``lp``, the log joint density of each draw.

        ArviZ's ``plot_parallel`` and ``plot_energy`` need ``diverging`` and ``energy``. Independent
        draws from a guide have no diverging trajectories, and without momentum energy is -``lp``.
        """
        posterior = self.posterior
        stats = dict(posterior.stats)
        shape = (posterior.n_chains, posterior.n_draws)
        independent = bool({"elbo", "log_q"} & stats.keys()) and shape != (1, 1)
        if independent:
            stats["diverging"] = np.zeros(shape, dtype=np.bool_)
        if "lp" not in stats and "log_p" in stats:
            stats["lp"] = stats["log_p"]
        elif "lp" not in stats and self.data is not None and not self._missing_sites:
            data = self.data._replace(X=self.data.X[:, self._used])
            model = self.model.among(self._used.numpy())
            terms = pointwise.log_joint(model, [*self._each_in_use], data)
            stats["lp"] = self._by_draw(terms)
            if "log_q" in stats:
                stats["log_p"] = stats["lp"]
        if independent and "lp" in stats:
            stats["energy"] = -np.asarray(stats["lp"])
        return self.stats(stats)

    @cached_property
    def prior_draws(self) -> dict[str, NDArray[Any]]:
        """One chain of draws by site."""
        drawn = sample_prior(self.model, self.n_features, self.n_prior, random_state=self.seed)
        return {name: value.numpy()[None] for name, value in drawn.items()}

    @cached_property
    def _missing_sites(self) -> list[str]:
        """Sites that the density needs but the draws lack."""
        return sorted(site_names(self.model, self.n_features) - set(self.posterior.draws))

    @property
    def _rows(self) -> Data:
        assert self.data is not None
        return self.data

    @property
    def _units(self) -> Units:
        d = self.n_features
        return self.units or Units(np.zeros(d), np.ones(d))

    @cached_property
    def _used(self) -> Tensor:
        """Whether the densities of the draws include each column, shape (d,)."""
        used = torch.as_tensor(self._units.scale < UNUSED)
        # the spatial prior is defined on whole images
        return used | self.model.priors.hyperplane.couples_features

    @property
    def _each_in_use(self) -> Iterator[dict[str, Tensor]]:
        """Every draw without the columns that the fit did not use."""
        for sites in self.posterior.each():
            yield {
                name: value[..., self._used]
                if self.model.dimensions.get(name, ())[-1:] == ("feature",)
                else value
                for name, value in sites.items()
            }

    def _in_units(self, y: NDArray[Any]) -> NDArray[Any]:
        return self._units.decode(y) if np.issubdtype(y.dtype, np.floating) else y

    def _by_draw(self, values: ArrayLike) -> NDArray[np.float64]:
        return np.reshape(values, (self.posterior.n_chains, self.posterior.n_draws))

    def predictive(self, draws: Arrays, each: Iterable[Mapping[str, Any]]) -> xr.Dataset:
        """Draw y for each row and each draw of the parameters."""
        X, known = self._rows.X.numpy(force=True), self.model.leaf.known(self._rows.y)
        draws_of_y = steps_of(each, "predictive draws")
        values = pointwise.sample_y(self.model, draws_of_y, X, self.seed, known)
        return self._observations(draws, self._in_units(values))

    def _observations(self, draws: Arrays, values: NDArray[Any]) -> xr.Dataset:
        """Return ``obs`` (draws, n) or (draws, n, q) as [chain, draw, row(, output)]."""
        found = values.reshape(*draws["intercept"].shape[:2], *values.shape[1:])
        names = (*DRAWS, "row", "output")[: found.ndim]
        return self.labels.dataset({"obs": (names, found)})

    def sites(self, draws: Arrays) -> xr.Dataset:
        """Return the draws of all sites, and of the weights on their original scale."""
        every = dict(draws)
        if "log_weight" in every:
            every["weight"] = np.exp(every["log_weight"])
        dimensions = self.model.dimensions
        return self.labels.dataset(
            {name: ((*DRAWS, *dimensions[name]), value) for name, value in every.items()}
        )

    def stats(self, stats: Arrays) -> xr.Dataset:
        """Return recorded quantities by draw, or by step."""
        variables: dict[str, Any] = {}
        for name, value in stats.items():
            by_draw = np.ndim(value) == len(DRAWS)
            if name != "log_likelihood":  # which ArviZ would take for terms of single rows
                steps = STATS.get(name, (f"{name}_step",))
                variables[name] = (DRAWS if by_draw else steps, value)
        return self.labels.dataset(variables)


Builder = Callable[[Conversion], xr.Dataset]

#: Every group, in the order of the container.
GROUPS: dict[str, Builder] = {
    "posterior": lambda self: self.sites(self.posterior.draws),
    "sample_stats": Conversion.sample_stats,
    "log_likelihood": Conversion.log_likelihood,
    "log_prior": Conversion.log_prior,
    "posterior_predictive": lambda self: self.predictive(
        self.posterior.draws, self.posterior.each()
    ),
    "prior": lambda self: self.sites(self.prior_draws),
    "prior_predictive": Conversion.prior_predictive,
    "observed_data": Conversion.observed_data,
    "constant_data": Conversion.constant_data,
    "warmup_posterior": lambda self: self.sites(self.posterior.warmup_draws),
    "warmup_sample_stats": lambda self: self.stats(self.posterior.warmup_stats),
}
NEED_LIKELIHOOD = {"log_likelihood", "posterior_predictive", "prior_predictive"}
NEED_ROWS = NEED_LIKELIHOOD | {"observed_data"}


def available(posterior: Posterior, data: Data | None) -> list[str]:
    """Name the groups that can be created, with the rows of ``data`` if given."""
    conversion = Conversion(posterior, Labels.of(posterior), data)
    return [name for name in GROUPS if _obstacle(conversion, name) is None]


def to_arviz(
    conversion: Conversion, groups: Iterable[str] | None, attributes: Mapping[str, Any]
) -> Any:
    """Build the groups in ArviZ's container; by default all that can be created."""
    _check_attributes(attributes)
    reasons = {name: _obstacle(conversion, name) for name in GROUPS}
    if groups is None:
        wanted = [name for name, reason in reasons.items() if reason is None]
    else:
        wanted = [groups] if isinstance(groups, str) else list(groups)
        for name in wanted:
            if name not in GROUPS:
                raise ValueError(f"groups must be among {[*GROUPS]}, got {name!r}.")
            if reasons[name] is not None:
                raise ValueError(f"group {name!r} cannot be created: {reasons[name]}.")
    described = attributes_of(conversion.posterior) | dict(attributes)
    built = {name: GROUPS[name](conversion) for name in GROUPS if name in wanted}
    return arviz_compat.container(
        {name: dataset.assign_attrs(described) for name, dataset in built.items()}, described
    )


def _obstacle(conversion: Conversion, name: str) -> str | None:
    """Say why a group cannot be created; None if it can."""
    posterior, model = conversion.posterior, conversion.model
    if name in NEED_ROWS and conversion.data is None:
        return "it needs the rows; pass X and y"
    if name in NEED_LIKELIHOOD and model.likelihood.plug_in:
        return f"likelihood {model.likelihood!r} is an objective without a distribution of y"
    improper = improper_priors(model)
    if name in ("prior", "prior_predictive") and improper:
        return f"improper priors cannot be sampled ({', '.join(improper)})"
    if name == "log_prior" and conversion._missing_sites:
        return f"the draws lack {', '.join(conversion._missing_sites)}"
    recorded = {
        "sample_stats": posterior.stats or (conversion.data and not conversion._missing_sites),
        "warmup_posterior": posterior.warmup_draws,
        "warmup_sample_stats": posterior.warmup_stats,
    }
    return "nothing was recorded" if name in recorded and not recorded[name] else None


def _check_attributes(attributes: Mapping[str, Any]) -> None:
    for name, value in attributes.items():
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise TypeError(
                "attributes must be strings or numbers, because netCDF holds no others; "
                f"{name} is {value!r}."
            )
