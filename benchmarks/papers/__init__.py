"""What ``python -m benchmarks`` is made of: tables, methods, measurements and their rendering."""
