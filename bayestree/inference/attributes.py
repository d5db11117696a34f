"""What made a posterior, as attributes: inference, settings, versions and the model's card."""

import json
import platform
from dataclasses import fields, is_dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from bayestree._version import __version__
from bayestree.models.soft_tree import SoftTree

if TYPE_CHECKING:
    from bayestree.inference.posterior import Posterior

PACKAGES = ("arviz", "numpy", "pyro-ppl", "torch", "xarray")


def attributes_of(posterior: "Posterior") -> dict[str, Any]:
    """What made the draws, as strings and numbers that netCDF can hold."""
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
    """What is believed, with all its numbers, as plain values for JSON."""
    return {
        "split": _card(model.split),
        "priors": {
            "weight": _card(model.priors.weight) if model.split.weighted else None,
            "hyperplane": _card(model.priors.hyperplane),
        },
        "leaf": _card(model.leaf),
        "likelihood": model.likelihood,
        "steepness": float(model.steepness),
    }


def _card(part: Any) -> dict[str, Any]:
    """Name and numbers of a part; a part of a person's own may have none."""
    named = fields(part) if is_dataclass(part) else ()
    return {"name": type(part).__name__} | {f.name: getattr(part, f.name) for f in named}
