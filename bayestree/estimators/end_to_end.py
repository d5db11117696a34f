"""End-to-end trees with the face of scikit-learn."""

from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from bayestree import inference
from bayestree._utils.progress import Verbose
from bayestree._utils.seed import RandomState, draw_seed
from bayestree.estimators._base import DTYPES, BaseTree
from bayestree.estimators._bayesian import BayesianTree
from bayestree.estimators._classifier import TreeClassifier
from bayestree.estimators._file_rows import FileRows
from bayestree.estimators._priors import INTERCEPT_SCALE
from bayestree.estimators._subsets import CONSTRAINTS as SUBSETS
from bayestree.estimators._subsets import MaxFeatures, check_image, subset_rule
from bayestree.estimators._units import UnitRule
from bayestree.inference import Data, Posterior
from bayestree.inference.splitters.end_to_end import EndToEndSplitter
from bayestree.inference.splitters.feature_subsets import RandomFeatures, RandomPatch
from bayestree.models import Laplace, Network, Oblique, SoftTree, Spatial, named
from bayestree.models.leaves import Leaf
from bayestree.models.priors import HyperplanePrior
from bayestree.models.splits import StumpSplit


class EndToEndTreeClassifier(TreeClassifier, BayesianTree):
    """Oblique decision tree, grown and then trained as a whole by EM.

    Hehn, Kooij and Hamprecht, "End-to-End Learning of Decision Trees and Forests" (IJCV, 2020).
    Splits are soft while they are fitted: a row goes right with probability sigmoid(gamma f(x)).
    EM climbs the log-likelihood (eq. 4) of each stump and then of the whole tree, while the
    steepness gamma rises, so that the tree ends nearly deterministic. Predictions are those of
    the deterministic tree.

    Parameters
    ----------
    max_depth : int, default=8
        Most splits on a path from the root to a leaf.
    max_leaves : int, optional
        Most leaves.
    order : {"level", "best"}, default="level"
        Grow level by level, and drop the splits of least gain until there are ``max_leaves``; or
        always split the leaf that gains most.
    split : {"oblique"} or Network, default="oblique"
        f(x): linear, or a torch module for each node.
    epochs : int, default=60
        E-steps of each stump. A stump of few rows takes one step of Adam in each. Where features
        are many, a few epochs here and more ``refine_epochs`` generalise better. The paper takes
        20 or more, with a ``learning_rate`` of 0.001 and a ``steepness_step`` of 0.1.
    refine_epochs : int, optional
        E-steps of the whole tree, by default as many; 0 leaves the tree as it was grown.
    steepness : float, default=1.0
        gamma of the first epoch.
    steepness_step : float, default=0.03
        Added to gamma after each epoch; the whole tree goes on where its stumps ended.
    batch_size : int, default=1000
        Rows of a step of Adam.
    learning_rate : float, default=0.01
        Of Adam. The starting hyperplanes have norm 1. Lower it for a set of many rows, whose
        epochs have many steps.
    attempts : int, default=5
        Starts of a stump that sends all rows one way, before its node is left a leaf.
    min_rows : float, default=2
        Least weight of rows in a node that is split.
    min_leaf : int, default=1
        Least number of rows on each side of a split.
    min_gain : float, default=3.0
        Least gain of a split in nats of log-likelihood.
    l1 : float, default=0.0
        Rate of a Laplace prior on the coefficients, in nats: sparser splits, which generalise
        better where rows are few or features many. The paper has none.
    spatial : float, default=0.0
        Strength lambda of the smoothness of each split's coefficients as an image (eq. 15).
    image_shape : (int, int), optional
        Height and width of the image that the features are, row by row; for ``spatial`` and
        ``patch_size``.
    max_features : {"sqrt"}, int or float, optional
        Features that each split may use, drawn at random for it: the square root of their number,
        so many, or such a share of all.
    patch_size : (int, int), optional
        Instead, each split uses a patch of the image of this height and width, at a random place.
    inference : {"em", "svi"}, default="em"
        ``"svi"`` gives, from the tree of EM, a variational posterior of splits and leaves at the
        last steepness: a Bayesian oblique tree.
    n_draws : int, default=50
        Draws of ``"svi"``.
    scaling : {"variance", "standard", "common"}, default="variance"
        Units of the features inside: mean 0 and variance 1, as the paper has it; the same but no
        less than a sixth of the range; one unit for all.
    prediction : {"auto", "tree", "posterior"}, default="auto"
        ``"tree"`` is the deterministic tree, ``"posterior"`` the soft one (eq. 2), averaged over
        the draws; ``"auto"`` is the latter where there is more than one draw.
    smoothing : float, default=1.0
        Rows that the Dirichlet prior of each leaf is worth, spread over the classes as the
        training rows are; with 0 a leaf predicts the shares of its own rows.
    class_weight : dict or "balanced", optional
        Factors of the row weights by class.
    dtype : {"float32", "float64"}, default="float64"
        float32 is twice as fast on wide data.
    device : str, default="cpu"
        Where the inference runs, as torch names it.
    random_state : int, RandomState, optional
    verbose : bool or "auto", default="auto"
        Show progress on a terminal or in a notebook: at once, not at all, or (``"auto"``) where the
        fit takes more than a second and is not one of several in parallel.

    Attributes
    ----------
    tree_ : Tree
        The deterministic tree, in the units of the data.
    posterior_ : Posterior
        Its soft form; ``stats["log_likelihood"]`` by epoch of the whole tree.
    classes_ : array, shape (C,)

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import EndToEndTreeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = EndToEndTreeClassifier(max_depth=3, learning_rate=0.05, random_state=0).fit(X, y)
    >>> bool(clf.score(X, y) > 0.9)
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "max_depth": [Interval(Integral, 0, None, closed="left")],
        "max_leaves": [Interval(Integral, 1, None, closed="left"), None],
        "order": [StrOptions({"level", "best"})],
        "split": [StrOptions({"oblique"}), Network],
        "epochs": [Interval(Integral, 1, None, closed="left")],
        "refine_epochs": [Interval(Integral, 0, None, closed="left"), None],
        "steepness": [Interval(Real, 0, None, closed="neither")],
        "steepness_step": [Interval(Real, 0, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "attempts": [Interval(Integral, 1, None, closed="left")],
        "min_rows": [Interval(Real, 0, None, closed="left")],
        "min_leaf": [Interval(Integral, 1, None, closed="left")],
        "min_gain": [Interval(Real, 0, None, closed="left")],
        "l1": [Interval(Real, 0, None, closed="left")],
        "spatial": [Interval(Real, 0, None, closed="left")],
        **SUBSETS,
        "inference": [StrOptions({"em", "svi"})],
        "n_draws": [Interval(Integral, 1, None, closed="left")],
        "scaling": [StrOptions({"variance", "standard", "common"})],
        "prediction": [StrOptions({"auto", "tree", "posterior"})],
        "smoothing": [Interval(Real, 0, None, closed="left")],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "dtype": [StrOptions(set(DTYPES))],
        "device": [str],
        "random_state": ["random_state"],
        "verbose": ["boolean", StrOptions({"auto"})],
    }
    validation_fraction = 0.0

    def __init__(
        self,
        *,
        max_depth: int = 8,
        max_leaves: int | None = None,
        order: Literal["level", "best"] = "level",
        split: str | Network = "oblique",
        epochs: int = 60,
        refine_epochs: int | None = None,
        steepness: float = 1.0,
        steepness_step: float = 0.03,
        batch_size: int = 1000,
        learning_rate: float = 0.01,
        attempts: int = 5,
        min_rows: float = 2,
        min_leaf: int = 1,
        min_gain: float = 3.0,
        l1: float = 0.0,
        spatial: float = 0.0,
        image_shape: tuple[int, int] | None = None,
        max_features: MaxFeatures = None,
        patch_size: tuple[int, int] | None = None,
        inference: Literal["em", "svi"] = "em",
        n_draws: int = 50,
        scaling: UnitRule = "variance",
        prediction: str = "auto",
        smoothing: float = 1.0,
        class_weight: Any = None,
        dtype: str = "float64",
        device: str = "cpu",
        random_state: RandomState = None,
        verbose: Verbose = "auto",
    ) -> None:
        self.max_depth = max_depth
        self.max_leaves = max_leaves
        self.order = order
        self.split = split
        self.epochs = epochs
        self.refine_epochs = refine_epochs
        self.steepness = steepness
        self.steepness_step = steepness_step
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.attempts = attempts
        self.min_rows = min_rows
        self.min_leaf = min_leaf
        self.min_gain = min_gain
        self.l1 = l1
        self.spatial = spatial
        self.image_shape = image_shape
        self.max_features = max_features
        self.patch_size = patch_size
        self.inference = inference
        self.n_draws = n_draws
        self.scaling = scaling
        self.prediction = prediction
        self.smoothing = smoothing
        self.class_weight = class_weight
        self.dtype = dtype
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _check_combination(self) -> None:
        super()._check_combination()
        linear = {
            "l1": 0.0,
            "spatial": 0.0,
            "max_features": None,
            "patch_size": None,
            "inference": "em",
        }
        given = {name: getattr(self, name) for name in linear}
        if self.split != "oblique" and given != linear:
            raise ValueError(
                "l1, spatial, max_features, patch_size and inference='svi' need split='oblique', "
                "for a network has no coefficients of features; got "
                f"{given} with {self.split!r}."
            )
        if self._subsets() is not None and self.inference == "svi":
            raise ValueError(
                "max_features and patch_size keep coefficients at 0, which draws never are: use "
                "inference='em', or all features."
            )
        if self.l1 and self.spatial:
            raise ValueError(
                f"l1 and spatial are two priors of the same coefficients, got {self.l1} and "
                f"{self.spatial}: leave one at 0."
            )
        if self.spatial and self.image_shape is None:
            raise ValueError(
                f"spatial={self.spatial} needs image_shape, the height and width of the image "
                "that the features are."
            )
        if self.image_shape is not None:
            check_image(self.image_shape, self.n_features_in_)

    def _subsets(self) -> RandomFeatures | RandomPatch | None:
        """Which features each split may use."""
        n_features = self.n_features_in_ if self._in_place() else int(self._used.sum())
        return subset_rule(n_features, self.max_features, self.image_shape, self.patch_size)

    def _model(self, leaf: Leaf) -> SoftTree:
        prior: HyperplanePrior | None = None
        if self.l1:
            prior = Laplace(self.l1, INTERCEPT_SCALE)
        elif self.spatial and self.image_shape is not None:
            height, width = self.image_shape
            prior = Spatial(self.spatial, (height, width))
        return named.end_to_end(leaf, prior=prior, split=self._split())

    def _split(self) -> StumpSplit:
        return Oblique() if isinstance(self.split, str) else self.split

    def _in_parts(self) -> bool:
        return True

    def _in_place(self) -> bool:
        return self.image_shape is not None or isinstance(self.split, Network)

    def _weighs_evidence(self) -> bool:
        return self.inference == "svi"

    def _unit_rule(self) -> UnitRule:
        return self.scaling

    def _work(self, n_rows: int, n_features: int) -> int:
        return min(n_rows, self.batch_size) * n_features

    def _infer(self, model: SoftTree, data: Data) -> Posterior:
        """Grow, train the whole tree, and sample its posterior where ``inference`` says so."""
        seeds = check_random_state(draw_seed(self.random_state))
        common: dict[str, Any] = {"random_state": seeds, "progress": bool(self.verbose)}
        steps: dict[str, Any] = {
            "steepness_step": self.steepness_step,
            "batch_size": self.batch_size,
            "learning_rate": self.learning_rate,
        }
        subsets = self._subsets()
        splitter = EndToEndSplitter(
            self._split(),
            model.leaf,
            model.priors,
            epochs=self.epochs,
            steepness=self.steepness,
            attempts=self.attempts,
            min_leaf=self.min_leaf,
            features=subsets,
            **steps,
        )
        found = inference.grow(
            model, data, splitter=splitter, limits=self._limits(), order=self.order, **common
        )
        reached = self.steepness + self.epochs * self.steepness_step
        found = replace(found, model=found.model.with_(steepness=reached))
        epochs = self.epochs if self.refine_epochs is None else self.refine_epochs
        if found.model.topology.n_nodes == 0:
            return self._of_leaf(found, data, seeds)
        if epochs:
            found = inference.em(
                found.model,
                data,
                init=found,
                epochs=epochs,
                steepness=reached,
                keep_zeros=subsets is not None,
                **steps,
                **common,
            )
        if self.inference == "em":
            return found
        return inference.svi(found.model, data, init=found, n_draws=self.n_draws, **common)

    def _of_leaf(self, found: Posterior, data: Data, seeds: np.random.RandomState) -> Posterior:
        """The posterior of a tree that did not split."""
        if self.inference == "em":
            return found
        return inference.single_leaf(found, data, n_draws=self.n_draws, random_state=seeds)

    def _read_off(
        self,
        X: NDArray[np.float64] | FileRows,
        y: NDArray[Any],
        weights: NDArray[np.float64],
        data: Data,
        class_names: tuple[str, ...],
    ) -> None:
        # Polytopes and their diagnostics are of linear splits.
        base = BayesianTree if self.split == "oblique" else BaseTree
        base._read_off(self, X, y, weights, data, class_names)
