"""What the server tells about itself: counters, metrics, traces and logs."""
