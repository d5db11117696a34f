"""Regressors of several outputs: one tree, whose leaves have a mean and a scale of each."""

import copy
from typing import Any, Self

import numpy as np
from sklearn.utils import Tags

from bayestree._utils.arrays import FloatArray
from bayestree._utils.parameters import ParameterError
from bayestree.estimators._counts import CountRegressor
from bayestree.estimators._mixture import Mixture
from bayestree.models import Gaussian, Outputs, SoftTree
from bayestree.models.leaves import Leaf

ALONE = "constant"  # the family of leaves that may have several outputs


class OutputsRegressor(CountRegressor, Mixture):
    """Adds y of shape (n, q) to a regressor; methods for one output are those of ``output``."""

    def output(self, number: int) -> Self:
        """The fitted regressor of one of several outputs, from 0, which has all methods.

        Its tree and its draws are those of this regressor, without the other outputs.

        Raises
        ------
        ValueError
            If there is no such output, or only one.
        """
        n_outputs = self.n_outputs_
        if n_outputs == 1:
            raise ValueError("the regressor has a single output: use it without output().")
        if number not in range(n_outputs):
            raise ValueError(f"number must be an output from 0 to {n_outputs - 1}, got {number!r}.")
        found = copy.copy(self)
        if self._modes:
            modes = [mode.output(number) for mode in self._modes]
            found._keep(modes, self._weights, self._medoid, None)
            return found
        found.posterior_ = self.posterior_.output(number)
        found.tree_ = self.tree_.output(number)
        found._units = self._units.output(number)
        return found

    @property
    def feature_importances_(self) -> FloatArray:
        """Importance of each column for the splits, shape (d,), the mean over the outputs."""
        if self.n_outputs_ == 1:
            return super().feature_importances_
        each = [self.output(number).feature_importances_ for number in range(self.n_outputs_)]
        return np.mean(each, axis=0)

    def _y_checks(self, y: Any) -> dict[str, bool]:
        shape = np.asarray(y).shape
        n_columns = shape[1] if len(shape) > 1 else 1
        several = n_columns > 1
        if several and self.leaf != ALONE:
            raise ValueError(
                f"y must have one column for leaf={self.leaf!r}, got {n_columns}: several "
                f"outputs need leaf={ALONE!r}, or a regressor for each."
            )
        return {"multi_output": True} if several else {}

    def _family_of(self, y: FloatArray) -> Leaf:
        return Outputs((Gaussian(),) * y.shape[1]) if y.ndim == 2 else super()._family_of(y)

    def _check_combination(self, model: SoftTree) -> None:
        super()._check_combination(model)
        if model.leaf.n_outputs == 1:
            return
        wrong = {
            "refine='tao'": self.refine == "tao",
            "mode_tree='distilled'": self.mode_tree == "distilled",
            f"inference={self.inference!r}": self._stages()[-1].samples_topology,
        }
        for name in (name for name, given in wrong.items() if given):
            raise ParameterError(
                f"y with several columns cannot be combined with {name}, which is for one output; "
                "fit a regressor for each column, or leave the parameter at its default."
            )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = self.leaf == ALONE
        return tags
