"""Sequential Monte Carlo over trees."""
