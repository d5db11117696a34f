"""The report: one HTML page without external resources."""
