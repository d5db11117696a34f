"""Inference for soft trees: growth, refinement (MAP), posteriors (VI, SVI, NUTS, MCMC, SMC)."""

import importlib
from typing import Any

from bayestree.inference.data import Data, Units
from bayestree.inference.em import Em, em
from bayestree.inference.growth.grow import Growth, grow
from bayestree.inference.growth.harden import harden
from bayestree.inference.growth.single_leaf import single_leaf
from bayestree.inference.map import Map, map  # noqa: A004 - the name of the method
from bayestree.inference.posterior import Posterior
from bayestree.inference.samplers.mcmc.method import Mcmc, mcmc
from bayestree.inference.samplers.nuts import Nuts, nuts
from bayestree.inference.samplers.smc.method import Smc, smc
from bayestree.inference.stage import GrowthLimits, Stage
from bayestree.inference.training import calibrated, fits_worse_than_tree, recalibrated
from bayestree.inference.variational.svi import Svi, svi
from bayestree.inference.variational.vi import Vi, vi

__all__ = [
    "Data",
    "Em",
    "Growth",
    "GrowthLimits",
    "Map",
    "Mcmc",
    "Nuts",
    "Posterior",
    "Smc",
    "Stage",
    "Svi",
    "Tao",
    "Units",
    "Vi",
    "calibrated",
    "em",
    "fits_worse_than_tree",
    "grow",
    "harden",
    "map",
    "mcmc",
    "nuts",
    "recalibrated",
    "single_leaf",
    "smc",
    "svi",
    "tao",
    "vi",
]


def __getattr__(name: str) -> Any:
    if name in ("Tao", "tao"):  # of a tree from the literature, which builds on this package
        return importlib.import_module("bayestree.estimators.registry").method(name)
    raise AttributeError(f"module 'bayestree.inference' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
