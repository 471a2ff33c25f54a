"""Start, inspect, signal and end worker processes: for the demo, the tests and the benchmarks."""
