"""How a soft tree is fitted: grown, refined by MAP, given a posterior by SVI."""

from bayestree.inference.data import Data, Units
from bayestree.inference.em import em
from bayestree.inference.grow import grow
from bayestree.inference.growing import GrowthLimits
from bayestree.inference.harden import harden
from bayestree.inference.map import map  # noqa: A004 - the name of the method
from bayestree.inference.nuts import nuts
from bayestree.inference.posterior import Posterior
from bayestree.inference.single_leaf import single_leaf
from bayestree.inference.svi import svi
from bayestree.inference.tao import tao
from bayestree.inference.training import calibrated, recalibrated

__all__ = [
    "Data",
    "GrowthLimits",
    "Posterior",
    "Units",
    "calibrated",
    "em",
    "grow",
    "harden",
    "map",
    "nuts",
    "recalibrated",
    "single_leaf",
    "svi",
    "tao",
]
