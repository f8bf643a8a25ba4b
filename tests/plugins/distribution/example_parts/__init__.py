"""One part of each kind, as another distribution adds them to PolicyBridge."""
