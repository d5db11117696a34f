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
    """What a fit is given."""

    #: Those of positive weight; None where rules and priors are looked at without rows.
    rows: TrainingRows | Any
    leaf: Leaf  # the family of the leaves, before its prior is calibrated
    #: The columns in use, the units of y and the classes; the units of the features too, if the fit
    #: continues another one.
    scaling: Scaling
    encoding: Encoding  # how the columns of X became features
    feature_names: tuple[str, ...] = ()  # empty for features without names
    start: Mixture | None = None  # the fit that is continued
    plan: FitPlan | Any = None  # for fits in stages
    #: Features of which values far from all others were moved near them, (d,).
    detached: BoolArray | None = None

    @property
    def used(self) -> BoolArray:
        """Features that the fit may use, shape (d,)."""
        return self.scaling.used

    @property
    def n_used(self) -> int:
        """Number of these features."""
        return int(self.used.sum())
