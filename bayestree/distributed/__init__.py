"""Fits to Parquet data sets whose rows are spread over several processes, of Dask workers."""
