"""The measured figures of README and docs: `python -m policybridge_docs.results` writes results/*.json."""
