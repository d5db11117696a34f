"""How a fit is decided, checked and carried out: plan, rules, engine, deterministic tree."""
