"""What every side of PolicyBridge shares and needs first: errors, the words of a session, digests, plug-in tables."""
