"""Start processes of workers, look at them, signal them and end them: for the demo, the tests and the benchmarks."""
