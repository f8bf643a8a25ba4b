"""What makes the server a good citizen among gRPC's tools: health, reflection, channelz, details of errors."""
