"""What runs on the scheduler: imports only the standard library, dask, distributed and pure modules."""
