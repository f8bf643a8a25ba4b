"""What is measured beside each other: PolicyBridge, floors without a model, and other servers with the same one."""
