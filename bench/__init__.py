"""Measures chunkstore beside what a user would pick instead, on one workload; see docs/how-to/measure-speed.md."""
