"""The forms of a version that clients are offered."""

import logging
from importlib import import_module
from typing import Final

from policybridge_core.errors import PolicyBridgeError
from policybridge_server.engine.forms import NO_FORMS, FormFile, Forms
from policybridge_server.repository import StoredVersion

_LOG = logging.getLogger(__name__)


_BACKEND: Final = "onnx"


def may_have_forms(stored: StoredVersion) -> bool:
    """Whether a version's models may have forms: those of other backends have none."""
    return stored.config.backend == _BACKEND


def forms_of_version(stored: StoredVersion) -> Forms:
    """Make the forms of a version's models; those that have none are left out, and the log says why. Blocks."""
    if not may_have_forms(stored):
        # Without the import: a server of policies in Python need not load ONNX Runtime for clients that may decide.
        _LOG.info("clients of %s ask for each decision: %s has no portable form", stored, stored.config.backend)
        return NO_FORMS
    try:
        # Heavy, and only for clients that want forms.
        making = import_module("policybridge_server.forms.making")
    except ImportError as error:
        _LOG.info("no portable forms are made: %s", error)
        return NO_FORMS
    by_kind: dict[str, FormFile] = {}
    for kind, each in stored.by_kind.items():
        try:
            by_kind[kind] = FormFile.of(making.form_of(each).data)
        except PolicyBridgeError as error:
            _LOG.info("its clients ask for each decision: %s", error)
    return Forms(by_kind)
