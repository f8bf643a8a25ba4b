"""gRPC over HTTP/2 inside the loop's turns: a message costs a few microseconds, with grpcio's asyncio 150."""
