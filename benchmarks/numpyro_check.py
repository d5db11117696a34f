# ruff: noqa: PLC0415 - the two environments have different packages
"""The posterior of a small tree against an independent implementation in NumPyro.

NumPyro lives in an environment of its own, with jax and NumPy only; the two exchange one file:

    python benchmarks/numpyro_check.py sample iris check.npz
    python -m venv /tmp/numpyro && /tmp/numpyro/bin/pip install numpyro
    /tmp/numpyro/bin/python benchmarks/numpyro_check.py check check.npz

``sample`` fits the default classifier with NUTS (--draws transitions of warm-up, and as many after
it). ``check`` writes the model anew from its documentation (docs/concepts), compares log densities
and P(y | x) of the same draws, samples with NumPyro from the same start, and compares
means, standard deviations and effective draws.
"""

import argparse
import time

import numpy as np

GRID = 25  # rows at which predictions are compared


def sample(name: str, path: str, draws: int, seed: int) -> None:
    """Fit by bayestree and store data, model, draws and what follows from them."""
    from data import load_all
    from sklearn.datasets import load_breast_cancer

    from bayestree import ConvexPolytopeTreeClassifier
    from bayestree.inference import Nuts

    if name == "breast3":
        X, y = load_breast_cancer(return_X_y=True)
        X = X[:, [0, 1, 4]]
    else:
        X, y = load_all(name)
    start = time.process_time()
    chains = Nuts(n_warmup=draws, n_draws=draws // 4, thinning=4, drop_idle=True)
    clf = ConvexPolytopeTreeClassifier(inference=chains, random_state=seed).fit(X, y)
    seconds = time.process_time() - start
    posterior = clf.posterior_
    model = posterior.model
    data = clf.training_data(X, y)
    rows = data.X.numpy()
    where = rows[:: max(1, len(rows) // GRID)][:GRID]
    said = [
        posterior.leaf_probs(where, sites) @ model.leaf.expected_y(sites)
        for sites in posterior.each()
    ]
    np.savez(
        path,
        X=rows,
        y=data.y.numpy(),
        where=where,
        predictions=np.reshape(said, (posterior.n_chains, posterior.n_draws, GRID, -1)),
        lp=posterior.stats["lp"],
        n_steps=posterior.stats["n_steps"],
        seconds=seconds,
        turns=model.topology.turns,
        steepness=model.steepness,
        concentration=model.priors.weight.concentration,
        rate=model.priors.weight.rate,
        shape=model.priors.hyperplane.shape,
        shrinkage_shape=model.priors.hyperplane.shrinkage_shape,
        shrinkage_rate=model.priors.hyperplane.shrinkage_rate,
        leaf_concentration=model.leaf.concentration / model.leaf.n_classes,
        **{f"draw_{site}": values for site, values in posterior.draws.items()},
    )
    print(
        f"{name}: {model.topology.n_nodes} nodes x {model.split.n_experts} experts, "
        f"{seconds:.0f} CPU s"
    )


def check(path: str, draws: int, seed: int) -> None:
    """Compare with NumPyro."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from jax.scipy.special import logsumexp
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
    from numpyro.infer import MCMC, NUTS, init_to_value
    from numpyro.infer.util import log_density

    jax.config.update("jax_enable_x64", True)
    with np.load(path) as found:
        given = dict(found)
    turns = jnp.asarray(given["turns"], dtype=float)  # (2, V, L)
    X, y, where = (jnp.asarray(given[name]) for name in ("X", "y", "where"))
    n_nodes, n_experts, width = given["draw_hyperplane"].shape[2:]
    n_leaves, n_classes = given["draw_leaf_probs"].shape[2:]
    a, gamma = float(given["shape"]), float(given["steepness"])

    def leaf_log_probs(rows, r, plane, offset):
        votes = jax.nn.softplus(jnp.einsum("nd,vkd->nvk", rows, plane) + offset)
        score = (r * votes).sum(-1)
        odds = gamma * (score + jnp.log(-jnp.expm1(-score)))
        left, right = jax.nn.log_sigmoid(-odds), jax.nn.log_sigmoid(odds)
        return left @ turns[0] + right @ turns[1]

    def model(noncentred=False):
        with numpyro.plate("node", n_nodes, dim=-2), numpyro.plate("expert", n_experts, dim=-1):
            r = numpyro.sample("r", dist.Gamma(float(given["concentration"]) / n_experts,
                                               float(given["rate"])))  # fmt: skip
            b = numpyro.sample("b", dist.Gamma(float(given["shrinkage_shape"]),
                                               float(given["shrinkage_rate"])))  # fmt: skip
            unit = jnp.sqrt(b / a)
            scale = jnp.ones_like(b) if noncentred else unit
            law = dist.StudentT(2 * a, 0.0, scale[..., None].repeat(width, -1)).to_event(1)
            plane = numpyro.sample("plane", law)
            offset = numpyro.sample("offset", dist.StudentT(2 * a, 0.0, scale))
        if noncentred:
            plane, offset = plane * unit[..., None], offset * unit
        with numpyro.plate("leaf", n_leaves):
            alpha = float(given["leaf_concentration"]) * jnp.ones(n_classes)
            probs = numpyro.sample("probs", dist.Dirichlet(alpha))
        joint = leaf_log_probs(X, r, plane, offset) + jnp.log(probs)[:, y].T
        numpyro.factor("obs", logsumexp(joint, axis=-1).sum())
        where_probs = jnp.exp(leaf_log_probs(where, r, plane, offset))
        numpyro.deterministic("predictions", where_probs @ probs)

    def sites(chain, draw):
        one = {
            name[5:]: jnp.asarray(given[name][chain, draw]) for name in given if name[:5] == "draw_"
        }
        return {"r": jnp.exp(one["log_weight"]), "b": one["shrinkage"], "plane": one["hyperplane"],
                "offset": one["intercept"], "probs": one["leaf_probs"]}  # fmt: skip

    # the same draws: log joint densities (sites are r here, log r there) and predictions
    gaps, errors = [], []
    for draw in range(0, given["lp"].shape[1], 10):
        here = sites(0, draw)
        density, trace = log_density(model, (), {}, here)
        gaps.append(float(density) + float(jnp.log(here["r"]).sum()) - given["lp"][0, draw])
        errors.append(np.abs(trace["predictions"]["value"] - given["predictions"][0, draw]).max())
    print(f"log joint of the same draws differs by at most {np.abs(gaps).max():.1e}, "
          f"P(y|x) by {max(errors):.1e}")  # fmt: skip

    # its own sampler, non-centred, from the same start
    start = sites(0, 0)
    unit = jnp.sqrt(start["b"] / a)
    start |= {"plane": start["plane"] / unit[..., None], "offset": start["offset"] / unit}
    kernel = NUTS(model, init_strategy=init_to_value(values=start), target_accept_prob=0.9)
    mcmc = MCMC(kernel, num_warmup=draws, num_samples=draws, num_chains=4,
                chain_method="sequential", progress_bar=False)  # fmt: skip
    began = time.process_time()
    mcmc.run(jax.random.PRNGKey(seed), noncentred=True, extra_fields=("num_steps",))
    seconds = time.process_time() - began
    theirs = np.asarray(mcmc.get_samples(group_by_chain=True)["predictions"])
    steps = np.asarray(mcmc.get_extra_fields()["num_steps"]).mean()
    ours = given["predictions"]
    for who, values, cost, length in (
        ("bayestree", ours, float(given["seconds"]), given["n_steps"].mean()),
        ("numpyro", theirs, seconds, steps),
    ):
        varied = values.reshape(*values.shape[:2], -1)
        varied = varied[..., varied.std((0, 1)) > 1e-3]
        effective = effective_sample_size(varied)
        r_hat = split_gelman_rubin(varied)
        print(f"{who}: {cost:.0f} CPU s, {length:.0f} steps a transition; P(y|x): R-hat "
              f"{r_hat.max():.3f}, effective draws {effective.min():.0f} (least), "
              f"{np.median(effective):.0f} (median)")  # fmt: skip
    mean_gap = np.abs(ours.mean((0, 1)) - theirs.mean((0, 1)))
    spread = ours.std((0, 1)).mean() / theirs.std((0, 1)).mean()
    print(f"means of P(y|x) differ by {mean_gap.mean():.4f} on average, {mean_gap.max():.4f} at "
          f"most; ratio of the spreads {spread:.2f}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("verb", choices=("sample", "check"))
    parser.add_argument("names", nargs="+", help="data set and file for sample; file for check")
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.verb == "sample":
        sample(*options.names, options.draws, options.seed)
    else:
        check(*options.names, options.draws, options.seed)


if __name__ == "__main__":
    main()
