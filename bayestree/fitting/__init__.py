"""How a fit is decided: its plan, from the parameters and what is known of the rows."""
