"""What ``policybridge bench`` can measure, each a module with ``run``."""
