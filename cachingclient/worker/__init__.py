"""What runs on workers: tasks get inputs of their own where they may change them."""
