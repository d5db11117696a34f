"""Fits that continue from the fitted tree (``warm_start``)."""

import re
from typing import Any

import numpy as np

from bayestree._utils.arrays import AnyArray, BoolArray
from bayestree.estimators._file_rows import checked
from bayestree.inference import Data, Posterior
from bayestree.inference.training import HARD, leaf_sums
from bayestree.models import SoftTree
from bayestree.tables import Encoding
from bayestree.tables.invalid import quote_columns

REMEDY = "set warm_start=False to fit a new tree"
KEPT_LEAF = f"warm_start=True keeps the single leaf of the fit before; {REMEDY}"
OTHER_FEATURES = re.compile(r"X has \d+ features|The feature names")  # scikit-learn's messages


class Continuation:
    """An estimator whose fit may continue from its last one."""

    warm_start: bool = False  # of estimators without this parameter
    classes_: AnyArray
    encoding_: Encoding
    posterior_: Posterior

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        takes = tags.input_tags
        takes.allow_nan = takes.string = takes.categorical = not self._in_place()
        return tags

    def _continues(self) -> bool:
        """Whether the next fit continues from the fitted tree."""
        return self.warm_start and hasattr(self, "tree_")

    def _in_parts(self) -> bool:
        """Whether the fit processes the rows in chunks, so that they may stay in a file."""
        return False

    def _in_place(self) -> bool:
        """Whether every column must keep its position in the fit, like the pixels of an image."""
        return False

    def _checked_fit(self, X: Any, y: Any, sample_weight: Any, **checks: Any) -> Any:
        """X and y of a fit (see ``checked``); one that continues needs the same features."""
        continues = self._continues()
        if continues and (names := self.encoding_.by_y):
            raise ValueError(
                f"warm_start=True cannot continue with the features of {quote_columns(names)}, "
                f"which are means of the y of the fit before: {REMEDY}."
            )
        try:
            return checked(
                self,
                X,
                in_parts=self._in_parts(),
                y=y,
                reset=not continues,
                sample_weight=sample_weight,
                **checks,
            )
        except ValueError as error:
            if continues and OTHER_FEATURES.match(str(error)):
                raise ValueError(
                    f"{str(error).rstrip().rstrip('.')}. warm_start=True needs the features of "
                    f"the fit before: give these, or {REMEDY}."
                ) from error
            raise

    def _check_same_classes(self, classes: AnyArray) -> None:
        """Refuse other classes than those of the fit that is continued."""
        if np.array_equal(classes, self.classes_):
            return
        old, new = self.classes_.tolist(), classes.tolist()
        added, missing = ([c for c in x if c not in z][:5] for x, z in ((new, old), (old, new)))
        changes = [f"has the new classes {added}"] * bool(added)
        changes += [f"lacks the classes {missing}"] * bool(missing)
        changes = changes or [f"has them in the order {new[:5]}"]
        raise ValueError(
            "warm_start=True needs the classes of the previous fit, but y "
            f"{' and '.join(changes)}: give rows of the same classes, or {REMEDY}."
        )

    def _check_same_split(self, model: SoftTree) -> None:
        """Refuse parameters that give the splits another form than that of the fitted ones."""
        fitted = self.posterior_.model.split
        dropped = self.posterior_.settings.get("drop_idle", False)  # by the fit itself
        if model.split != fitted and not dropped:
            raise ValueError(
                f"warm_start=True continues from {fitted!r} splits, but the parameters ask for "
                f"{model.split!r}: change n_experts or split back, or {REMEDY}."
            )


def fitted_start(posterior: Posterior, model: SoftTree, data: Data, used: BoolArray) -> Posterior:
    """The splits of a fit as the start of another, with leaves estimated from its rows.

    The result is what growth would give. ``used`` marks the columns of the posterior that ``data``
    has, if it does not have all of them.
    """
    sites = posterior.point_sites(data.X)
    splits = {name: sites[name] for name in model.split.parameters(sites)}
    if data.X.shape[1] < len(used):
        splits["hyperplane"] = splits["hyperplane"][..., np.flatnonzero(used)]
    fitted = posterior.model
    model = model.with_(topology=fitted.topology, split=fitted.split, steepness=fitted.steepness)
    sums = leaf_sums(model.with_(steepness=HARD), splits, data)
    model = model.with_(leaf=model.leaf.calibrate(sums))
    return Posterior.from_point(model, splits | model.leaf.estimate(sums), "grow")
