module umbel/benchmarks

go 1.22
