"""The task of a fit: rows whose columns and y have been encoded, and what was decided about them.

Estimators check what the user gives and state the task; it passes through the plan, the rules and
the recipe to the engine, and the result keeps what is needed to predict. Nothing is set in between.
"""

from dataclasses import dataclass
from typing import Any

from bayestree._utils.arrays import BoolArray
from bayestree.fitted.training_rows import Scaling, TrainingRows
from bayestree.fitted.tree import Mixture
from bayestree.fitting.plan import FitPlan
from bayestree.models.leaves import Leaf
from bayestree.tables import Encoding


@dataclass(frozen=True, eq=False)
class Task:
    """What a fit is given.

    Attributes
    ----------
    rows : TrainingRows
        Those of positive weight; None where rules and priors are looked at without rows.
    leaf : Leaf
        The family of the leaves, before its prior is calibrated.
    scaling : Scaling
        The columns in use, the units of y and the classes; the units of the features too, if the
        fit continues another one.
    encoding : Encoding
        How the columns of X became features.
    feature_names : tuple of str
        Empty for features without names.
    start : Mixture, optional
        The fit that is continued.
    plan : FitPlan, optional
        For fits in stages.
    detached : array of bool, shape (d,), optional
        Features of which values far from all others were moved near them.
    """

    rows: TrainingRows | Any
    leaf: Leaf
    scaling: Scaling
    encoding: Encoding
    feature_names: tuple[str, ...] = ()
    start: Mixture | None = None
    plan: FitPlan | Any = None
    detached: BoolArray | None = None

    @property
    def used(self) -> BoolArray:
        """Features that the fit may use, shape (d,)."""
        return self.scaling.used

    @property
    def n_used(self) -> int:
        """Number of these features."""
        return int(self.used.sum())
