"""Attacks on a gRPC port from one connection, on ours and on one that gRPC's own library serves: the measure."""
