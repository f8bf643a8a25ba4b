"""Telemetry of the server: counters, metrics, traces and logs."""
