"""Messages about tables of TOML that name what there is."""

from typing import Any

import msgspec
import pytest

from policybridge_core.errors import PreconditionError
from policybridge_core.fields import cure_of
from policybridge_server.backends.contract import convert_settings
from policybridge_server.backends.tensors import TensorSettings
from policybridge_server.repository import HeadConfig, PolicyConfig
from policybridge_server.repository.toml import parse_toml

HEAD = ", ".join(HeadConfig.__struct_fields__)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[setings]",
            "unknown field `setings`; did you mean 'settings'? there are backend, description, ",
        ),
        ("[head]\nscore = 'logits'", f"`score` - at `$.head`; did you mean 'scores'? there are {HEAD}"),
        ("[head]\nscores = 'logit'", "'logit' - at `$.head.scores`; did you mean 'logits'? there are choice, logits, "),
        ("[kinds.a.hed]", "`hed` - at `$.kinds[...]`; did you mean 'head'? there are features, "),
        ("[kinds.a.head]\nmsk = 'x'", f"`msk` - at `$.kinds[...].head`; did you mean 'mask'? there are {HEAD}"),
        ("[rename]\ninput.1 = 'x'", "got `object` - at `$.rename[...]`; a name with a dot in it is written in quotes"),
        ("[aliases]\nv1.0 = 1", "got `object` - at `$.aliases[...]`; a name with a dot in it is written in quotes"),
        ("isolation = 'no'", "'no' - at `$.isolation`; there are process, thread"),
        ("inline = 'yes'", "Expected `bool | null`, got `str` - at `$.inline`"),
        ("head = 3", "Expected `object | null`, got `int` - at `$.head`"),
    ],
)
def test_an_unknown_key_or_value_of_a_policy_toml_is_refused_with_those_that_there_are(text: str, said: str) -> None:
    with pytest.raises(PreconditionError) as refused:
        parse_toml(f"backend = 'onnx'\n{text}\n".encode(), "policy.toml", PolicyConfig)
    assert said in str(refused.value)


def test_an_unknown_setting_of_a_backend_is_refused_with_those_that_there_are() -> None:
    config = PolicyConfig("onnx", settings={"pack": {"x": {"feature": []}}})
    with pytest.raises(
        PreconditionError, match=r"`\$\.pack\[\.\.\.\]`; did you mean 'features'\? there are features, type$"
    ):
        convert_settings(config, TensorSettings)


class Listed(msgspec.Struct, forbid_unknown_fields=True):
    """A list of tables, and one that may be missing."""

    rows: list[HeadConfig] = []
    more: tuple[HeadConfig, ...] | None = None


@pytest.mark.parametrize("given", [{"rows": [{"msk": ""}]}, {"more": [{"msk": ""}]}])
def test_tables_within_lists_are_found(given: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert(given, Listed)
    assert cure_of(refused.value, Listed) == f"; did you mean 'mask'? there are {HEAD}"
