"""Attributes of a posterior: inference method, settings, versions and the model."""

import json
import platform
from dataclasses import fields, is_dataclass
from importlib.metadata import version
from typing import Any

from bayestree._version import __version__
from bayestree.inference.draws import Draws
from bayestree.models.soft_tree import SoftTree

PACKAGES = ("arviz", "numpy", "pyro-ppl", "torch", "xarray")


def attributes_of(posterior: Draws) -> dict[str, Any]:
    """Provenance of the draws, as strings and numbers that netCDF can store."""
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
    """Parts of a model with all their numbers, as plain values for JSON."""
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
    }


def _card(part: Any) -> dict[str, Any]:
    """Name and numbers of a part; a user-defined part may have none."""
    named = fields(part) if is_dataclass(part) else ()
    return {"name": type(part).__name__} | {f.name: _plain(getattr(part, f.name)) for f in named}


def _plain(value: Any) -> Any:
    """A field of a part; parts of parts have cards of their own."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return _card(value) if is_dataclass(value) else value
