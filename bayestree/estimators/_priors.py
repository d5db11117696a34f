"""From the parameters of an estimator to its prior on hyperplanes."""

from collections.abc import Sequence
from typing import Literal

from bayestree.estimators._subsets import check_image
from bayestree.models import Flat, InverseGammaScale, Laplace, Spatial
from bayestree.models.priors import HyperplanePrior

Prior = Literal["inverse-gamma", "laplace", "flat", "spatial"]

INTERCEPT_SCALE = 10.0  # of Laplace: wide on standardised features, and the posterior is proper


def hyperplane_prior(
    prior: Prior,
    scales: InverseGammaScale,
    *,
    l1: float,
    spatial: float,
    image_shape: Sequence[int] | None,
    n_features: int,
) -> HyperplanePrior:
    """The prior that the parameters name.

    Parameters
    ----------
    prior : str
    scales : InverseGammaScale
        Where it is ``"inverse-gamma"``.
    l1, spatial : float
        Rate of ``"laplace"``, strength of ``"spatial"``.
    image_shape : (int, int), optional
    n_features : int

    Raises
    ------
    ValueError
        If ``"spatial"`` has no ``image_shape``, or one of another number of pixels.
    """
    if prior == "laplace":
        return Laplace(l1, INTERCEPT_SCALE)
    if prior == "spatial":
        if image_shape is None:
            raise ValueError(
                "prior='spatial' needs image_shape, the height and width of the image that the "
                "features are."
            )
        return Spatial(spatial, check_image(image_shape, n_features))
    return Flat() if prior == "flat" else scales
