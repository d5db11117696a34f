import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.sparse.csgraph import laplacian
from sklearn.feature_extraction.image import grid_to_graph

from bayestree.models import FeatureCount, Laplace, Oblique, Priors, Spatial
from bayestree.models.priors import Moments
from bayestree.models.soft_tree import sample_prior
from tests.models.cases import make, rows, traced

PENALTIES: dict[str, Any] = {
    "laplace": Laplace(2.0),
    "laplace-proper": Laplace(2.0, intercept_scale=3.0),
    "spatial": Spatial(0.7, (2, 3)),
    "spatial-channels": Spatial(0.7, (1, 3, 2)),
    "count": FeatureCount(0.5, pair=1.3),
}
EXPECTED = [name for name in PENALTIES if name != "count"]


def double(value):
    return torch.tensor(value, dtype=torch.float64)


def model_of(prior, **others):
    model = make("complete", **others)
    return model.with_(priors=Priors(model.priors.weight, prior))


def coefficients(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("prior", PENALTIES.values(), ids=PENALTIES)
@pytest.mark.parametrize("split", [None, Oblique()], ids=["polytope", "oblique"])
def test_log_joint_is_what_the_pyro_model_sums_to(prior, split):
    model = model_of(prior, split=split)
    X, y, weights = rows(model, n_features=6, weighted=True)
    trace, sites = traced(model, X, y, weights)
    stated = float(trace.log_prob_sum())
    assert stated == pytest.approx(float(model.log_joint(sites, X, y, weights)), rel=1e-10)
    assert set(sites) >= {"hyperplane", "intercept"}


class TestLaplace:
    def test_density_is_that_of_scipy(self):
        sites = {"hyperplane": coefficients(3, 2, 4), "intercept": coefficients(3, 2, seed=1)}
        flat = float(Laplace(2.5).log_prob(sites))
        assert flat == pytest.approx(stats.laplace(scale=1 / 2.5).logpdf(sites["hyperplane"]).sum())
        proper = float(Laplace(2.5, intercept_scale=3.0).log_prob(sites))
        assert proper - flat == pytest.approx(stats.norm(scale=3).logpdf(sites["intercept"]).sum())

    def test_by_hand(self):
        """2 log(3 / 2) - 3 (1 + 2) for coefficients of 1 and -2; the intercept does not count."""
        sites = {"hyperplane": double([[[1.0, -2.0]]]), "intercept": double([[50.0]])}
        assert float(Laplace(3.0).log_prob(sites)) == pytest.approx(2 * math.log(1.5) - 9)

    def test_draws_need_a_scale_of_the_intercepts(self):
        with pytest.raises(ValueError, match="improper priors: Laplace; give"):
            sample_prior(model_of(Laplace(2.0)), 6, 10)
        draws = sample_prior(model_of(PENALTIES["laplace-proper"]), 6, 200, random_state=0)
        for site, law in {
            "hyperplane": stats.laplace(scale=0.5),
            "intercept": stats.norm(0, 3),
        }.items():
            p_value = stats.kstest(draws[site].numpy().ravel(), law.cdf).pvalue
            assert p_value > 2 * stats.norm.sf(4), site


class TestSpatial:
    def test_matrix_of_nine_pixels(self):
        """The Laplacian of a 3 x 3 grid, written out."""
        M = double(
            [
                [2, -1, 0, -1, 0, 0, 0, 0, 0],
                [-1, 3, -1, 0, -1, 0, 0, 0, 0],
                [0, -1, 2, 0, 0, -1, 0, 0, 0],
                [-1, 0, 0, 3, -1, 0, -1, 0, 0],
                [0, -1, 0, -1, 4, -1, 0, -1, 0],
                [0, 0, -1, 0, -1, 3, 0, 0, -1],
                [0, 0, 0, -1, 0, 0, 2, -1, 0],
                [0, 0, 0, 0, -1, 0, -1, 3, -1],
                [0, 0, 0, 0, 0, -1, 0, -1, 2],
            ]
        )
        prior = Spatial(0.3, (3, 3))
        for seed in range(3):
            beta = coefficients(9, seed=seed)
            sites = {"hyperplane": beta[None, None]}
            assert float(prior.log_prob(sites)) == pytest.approx(-0.3 * float(beta @ M @ beta))

    @pytest.mark.parametrize("shape", [(4, 5), (1, 7), (6, 1), (1, 1)])
    def test_is_the_laplacian_of_the_grid(self, shape):
        M = double(laplacian(grid_to_graph(*shape).astype(float)).toarray())
        M = M - torch.diag(M.sum(1))  # the graph of scikit-learn has loops
        beta = coefficients(3, 2, math.prod(shape))
        expected = torch.einsum("vki,ij,vkj->", beta, M, beta)
        assert float(Spatial(1.0, shape).roughness(beta)) == pytest.approx(float(expected))

    def test_channels_are_smoothed_each_by_itself(self):
        image = coefficients(3, 4, 2)
        one = Spatial(1.0, (3, 4, 2)).roughness(image.reshape(1, -1))
        each = [Spatial(1.0, (3, 4)).roughness(image[..., c].reshape(1, -1)) for c in range(2)]
        assert float(one) == pytest.approx(float(sum(each)))

    def test_constants_are_free(self):
        constant = {"hyperplane": torch.full((2, 1, 6), 7.0, dtype=torch.float64)}
        assert float(Spatial(9.0, (2, 3)).log_prob(constant)) == 0

    def test_a_shape_of_other_pixels_is_refused(self):
        with pytest.raises(ValueError, match=r"shape \(2, 3\), 6 pixels, but there are 8 features"):
            Spatial(1.0, (2, 3)).log_prob({"hyperplane": coefficients(1, 1, 8)})
        model = model_of(Spatial(1.0, (2, 3)))
        with pytest.raises(ValueError, match="there are 2 features"):
            model(*rows(model)[:2])

    @pytest.mark.parametrize("shape", [(3,), (1, 2, 3, 4), (0, 3), (2.5, 2)])
    def test_shapes_of_no_image_are_refused(self, shape):
        with pytest.raises(ValueError, match=r"shape must be \(height, width\)"):
            Spatial(1.0, shape)

    def test_lists_are_shapes_too(self):
        assert Spatial(1.0, [2, 3]) == Spatial(1.0, (2, 3))


class TestFeatureCount:
    @pytest.mark.parametrize(
        ("w", "phi"),
        [([0, 0, 0], 0), ([0, -4, 0], 1), ([0.1, 0, 2], 1.3), ([1, 2, 3], math.inf)],
    )
    def test_by_hand(self, w, phi):
        sites = {"hyperplane": double([[w]])}
        assert float(FeatureCount(0.5, pair=1.3).log_prob(sites)) == pytest.approx(-0.5 * phi)

    def test_sums_over_the_nodes(self):
        sites = {"hyperplane": double([[[0, 1.0]], [[2.0, 1.0]], [[0.0, 0.0]]])}
        assert float(FeatureCount(2.0, pair=1.5).log_prob(sites)) == -5


class TestExpectation:
    """Under normal factors, against the mean over draws of them."""

    @staticmethod
    def moments(covariance):
        mean, root = 0.5 * coefficients(2, 2, 7), 0.4 * coefficients(2, 2, 7, 8, seed=1)
        if covariance == "diagonal":
            return Moments(mean, root.square().sum(-1))
        return Moments(mean, root.square().sum(-1), root)

    @pytest.mark.parametrize("name", EXPECTED)
    @pytest.mark.parametrize("covariance", ["diagonal", "expert"])
    def test_is_the_mean_over_draws(self, name, covariance):
        prior, n = PENALTIES[name], 3_000
        moments = self.moments(covariance)
        noise = coefficients(n, 2, 2, 8, 1, seed=2)
        if moments.root is None:
            draws = moments.mean + moments.variance.sqrt() * noise[..., :7, 0]
        else:
            draws = moments.mean + (moments.root @ noise)[..., 0]
        values = np.array(
            [
                float(prior.log_prob({"hyperplane": draw[..., :-1], "intercept": draw[..., -1]}))
                for draw in draws
            ]
        )
        error = values.std() / math.sqrt(n)
        assert abs(values.mean() - float(prior.expected_log_prob(moments))) < 4 * error

    @pytest.mark.parametrize("name", EXPECTED)
    def test_a_certain_coefficient_has_the_density_itself(self, name):
        mean = coefficients(2, 2, 7)
        known = PENALTIES[name].expected_log_prob(Moments(mean, torch.full_like(mean, 1e-18)))
        sites = {"hyperplane": mean[..., :-1], "intercept": mean[..., -1]}
        assert float(known) == pytest.approx(float(PENALTIES[name].log_prob(sites)), rel=1e-6)

    def test_a_centred_coefficient_by_hand(self):
        """E|beta| is sqrt(2 / pi) for a standard normal."""
        moments = Moments(double([[[0.0, 9.0]]]), double([[[1.0, 4.0]]]))
        expected = math.log(1.5) - 3 * math.sqrt(2 / math.pi)
        assert float(Laplace(3.0).expected_log_prob(moments)) == pytest.approx(expected)


@pytest.mark.parametrize(
    "bad",
    [
        lambda: Laplace(0.0),
        lambda: Laplace(1.0, intercept_scale=-1.0),
        lambda: Spatial(math.nan, (2, 2)),
        lambda: FeatureCount(math.inf),
        lambda: FeatureCount(pair=0.0),
    ],
)
def test_numbers_that_are_not_positive_are_refused(bad):
    with pytest.raises(ValueError, match="must be positive and finite"):
        bad()
