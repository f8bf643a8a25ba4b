"""The scenarios of ``policybridge bench``."""
