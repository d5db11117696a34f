"""The No-U-Turn sampler for soft trees."""
