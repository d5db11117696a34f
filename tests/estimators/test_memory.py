"""Numbers that ask for more memory than there is: refused before a fit starts."""

import numpy as np
import pytest

from bayestree import ConvexPolytopeTreeClassifier, ConvexPolytopeTreeRegressor
from bayestree.inference import Map, Mcmc, Smc, Svi, Vi, memory_mapped
from bayestree.tables import InputError

X = np.random.default_rng(0).normal(size=(40, 2))
Y = (X[:, 0] > 0).astype(int)
MANY = 2 * 10**9


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"n_experts": MANY, "inference": "map"}, "n_experts=2000000000"),
        ({"inference": Vi(n_draws=MANY)}, "n_draws=2000000000"),
        ({"inference": Svi(n_draws=MANY)}, "n_draws=2000000000"),
        ({"inference": Mcmc(n_chains=MANY)}, "n_chains=2000000000"),
        ({"n_modes": MANY, "inference": "map"}, "n_modes=2000000000"),
        ({"inference": Smc(n_particles=MANY)}, "n_particles=2000000000"),
    ],
)
def test_refused(settings, said, monkeypatch):
    monkeypatch.setattr(memory_mapped, "free_memory", lambda: 2.0**36)
    with pytest.raises(InputError, match=rf"^{said} needs [\d.,]+ GiB .* 64\.0 are free"):
        ConvexPolytopeTreeClassifier(**settings).fit(X, Y)


def test_forced(monkeypatch):
    tree = ConvexPolytopeTreeRegressor(inference=Map(epochs=2), max_depth=1)
    monkeypatch.setattr(memory_mapped, "free_memory", lambda: 0.0)
    with pytest.raises(InputError, match="BAYESTREE_FORCE_MEMORY"):
        tree.fit(X, X[:, 0])
    monkeypatch.setenv("BAYESTREE_FORCE_MEMORY", "1")
    tree.fit(X, X[:, 0])


def test_free_memory():
    assert memory_mapped.free_memory() > 2**20


def test_a_diverged_fit_names_its_learning_rate():
    tree = ConvexPolytopeTreeClassifier(
        inference=Svi(epochs=2, learning_rate=1e308), max_depth=1, random_state=0
    )
    with pytest.raises(ValueError, match=r"diverged: reduce learning_rate=1e\+308"):
        tree.fit(X, Y)
