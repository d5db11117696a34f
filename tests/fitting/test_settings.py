"""Settings of methods in files and in parameters of earlier versions."""

import pytest

from bayestree import ConvexPolytopeTreeClassifier, EndToEndTreeClassifier
from bayestree._utils.parameters import ParameterError
from bayestree.fitting.settings import SETTINGS, with_methods, with_settings
from bayestree.inference import Growth, Map, Mcmc, Nuts, Smc, Svi, Vi

USUAL = {name: one.default for name, one in SETTINGS.items()}


@pytest.mark.parametrize("inference", ["auto", "vi", "nuts", Vi(n_steps=3)])
def test_defaults_change_nothing(inference):
    assert with_settings(inference, USUAL) == inference


@pytest.mark.parametrize(
    ("inference", "given", "expected"),
    [
        ("svi", {"epochs": 3}, Svi(epochs=3)),
        ("svi", {"growth_rate": 0.1}, (Growth(learning_rate=0.1), Svi())),
        ("map", {"epochs": 3}, Map(epochs=3, steepness=None)),
        ("vi", {"kl_weight": 0.5}, Vi(kl_weight=0.5)),
        ("grow", {"growth_rate": 0.1}, Growth(learning_rate=0.1)),
        (
            "nuts",
            {"epochs": 3, "n_chains": 2},
            (Svi(epochs=3), Nuts(n_chains=2, n_draws=250, thinning=4, drop_idle=True)),
        ),
        ("mcmc", {"n_warmup": 9}, Mcmc(n_warmup=9, n_draws=250, thinning=6, drop_idle=True)),
        ("smc", {"n_chains": 2}, Smc(n_chains=2, max_experts=4)),
        ("svi", {"steepness": 3.0, "n_draws": 7}, Svi(steepness=3.0, n_draws=7)),
        ("map", {"steepness": 3.0, "n_draws": 7}, Map(steepness=3.0)),
        ("grow", {"steepness": 3.0, "n_draws": 7}, "grow"),
        (
            "nuts",
            {"steepness": 3.0, "n_draws": 7},
            (Svi(steepness=3.0), Nuts(n_draws=7, thinning=4, drop_idle=True)),
        ),
        ("mcmc", {"n_draws": 7}, Mcmc(n_draws=7, thinning=6, drop_idle=True)),
        (Vi(n_steps=3), {"steepness": 3.0, "n_draws": 7}, Vi(steepness=3.0, n_steps=3, n_draws=7)),
        (Nuts(n_chains=2), {"steepness": 3.0}, (Svi(steepness=3.0), Nuts(n_chains=2))),
    ],
    ids=str,
)
def test_settings_go_to_their_stages(inference, given, expected):
    assert with_settings(inference, USUAL | given) == expected


@pytest.mark.parametrize(
    ("inference", "given", "message"),
    [
        ("auto", {"epochs": 3}, r"epochs=3 is for inference 'svi' or 'nuts' or 'map', and 'auto'"),
        ("auto", {"epochs": 3, "n_chains": 2}, r"n_chains=2 are for inference 'nuts', and"),
        ("vi", {"epochs": 3}, "epochs would be ignored: inference='vi' has no such setting"),
        (Svi(), {"epochs": 3}, r"epochs=3 would be ignored: inference=Svi\(\) has its own"),
        ("auto", {"n_draws": 3}, "n_draws=3 is for inference 'vi' or 'svi' or 'nuts' or 'mcmc' or"),
        (Svi(n_draws=4), {"n_draws": 3}, r"n_draws=3 contradicts Svi\(n_draws=4\)"),
    ],
)
def test_settings_that_the_method_does_not_have(inference, given, message):
    with pytest.raises(ParameterError, match=message):
        with_settings(inference, USUAL | given)


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ({"epochs": 3}, r"write inference=Svi\(epochs=3\)"),
        ({"epochs": 3, "inference": "map"}, r"write inference=Map\(epochs=3, steepness=None\)"),
        ({"kl_weight": 0.5, "inference": "vi"}, r"write inference=Vi\(kl_weight=0.5\)"),
        ({"n_chains": 3, "inference": "svi"}, "give inference or prior an object"),
        ({"kl_weight": 0.5}, r"write inference=Vi\(kl_weight=0.5\)"),
        ({"kl_weight": 1.0}, "leave it out"),
        ({"n_chains": 3}, r"write inference=Nuts\(n_chains=3"),
        ({"epochs": 3, "inference": "unknown"}, "give inference or prior an object"),
        ({"scale_shape": 2.0}, r"write prior=InverseGammaScale\(shape=2.0, shrinkage_shape=0.1, "),
        ({"scale_shape": 0.5}, "leave it out"),
        ({"prior_width": 10}, r"shrinkage_rate=0.1, width=10\), with bayestree.inf"),
        (
            {"scale_groups": [["a"]]},
            r"write prior=GroupedScale\(.*, groups=\(\('a',\),\)\)",
        ),
        (
            {"l1": 3.0, "prior": "laplace"},
            r"write prior=Laplace\(rate=3.0, intercept_scale=10.0\)",
        ),
        ({"l1": 3.0}, "give inference or prior an object"),
        (
            {"spatial": 3.0, "prior": "spatial", "image_shape": (2, 3)},
            r"write prior=Spatial\(strength=3.0, shape=\(2, 3\)\)",
        ),
        (
            {"concentration": 0.3, "epochs": 3},
            r"weight_prior=GammaProcess\(concentration=0.3\), inference=Svi\(epochs=3\), "
            "with bayestree.inference and bayestree.models",
        ),
        ({"steepness": 3.0}, r"write inference=Vi\(steepness=3.0\)"),
        (
            {"n_draws": 3, "inference": "nuts"},
            r"write inference=Nuts\(n_draws=3, thinning=4, drop_idle=True\)",
        ),
        ({"kl_schedule": "linear"}, r"kl_schedule was removed after version 0\.2\.0; remove it"),
    ],
)
def test_python_names_the_new_place(given, remedy):
    with pytest.raises(TypeError, match=remedy):
        ConvexPolytopeTreeClassifier(**given)
    own = {n: given[n] for n in ("inference", "prior", "image_shape") if n in given}
    estimator = ConvexPolytopeTreeClassifier(**own)
    settings = {name: value for name, value in given.items() if name not in own}
    with pytest.raises(ValueError, match=remedy):
        estimator.set_params(**settings)
    assert EndToEndTreeClassifier(epochs=3).epochs == 3  # a parameter of its own


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"inference": "auto"}, "auto"),
        ({"inference": "auto", "epochs": 3}, "auto"),
        ({"inference": "auto", "kl_weight": 0.5}, Vi(kl_weight=0.5)),
        ({"inference": "vi", "n_chains": 2}, "vi"),
        ({"inference": Svi(epochs=2), "epochs": 3}, Svi(epochs=2)),
    ],
)
def test_parameters_of_version_0_2(given, expected):
    found = with_methods(USUAL | {"max_depth": 2} | given, "vi")
    assert found == {"max_depth": 2, "inference": expected}


@pytest.mark.parametrize(
    ("fitted", "expected"),
    [
        ("svi", Svi(epochs=3)),
        ("conjugate", Svi(epochs=3)),  # of a single leaf
    ],
)
def test_auto_was_what_has_fitted_the_tree(fitted, expected):
    found = with_methods(USUAL | {"inference": "auto", "epochs": 3}, fitted)
    assert found == {"inference": expected}
