"""gRPC: the services that we offer, and two servers that speak it: one inside the loop, and gRPC's own library."""
