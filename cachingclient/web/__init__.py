"""What a scheduler serves of its cache: pages, routes, metrics and reports."""
