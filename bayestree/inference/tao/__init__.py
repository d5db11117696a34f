"""TAO: the tree alternating optimisation of deterministic trees."""
