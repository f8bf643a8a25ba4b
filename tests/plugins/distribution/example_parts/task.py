"""A task for ``policybridge run``: LLVM's inlining, under another name."""

from dataclasses import replace

from policybridge_client.llvm.tasks import INLINE

INLINE_TOO = replace(INLINE, name="inline-too")
