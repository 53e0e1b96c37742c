"""What runs on the scheduler: imports nothing but dask, distributed and pure modules."""
