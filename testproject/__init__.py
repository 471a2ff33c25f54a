"""The Django project that tests, demo and benchmarks run in. It is not part of the package."""
