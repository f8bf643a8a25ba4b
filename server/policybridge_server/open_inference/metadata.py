"""Metadata of the server and its policies, in the protocol's form."""

from collections.abc import Iterator
from typing import Any, Final, NoReturn

from policybridge.inference import inference_service_pb2 as pb
from policybridge_core.errors import (
    NotFoundError,
    PolicyBridgeError,
    PolicyFailedError,
    PreconditionError,
    UnsupportedError,
)
from policybridge_core.text import without_paths
from policybridge_core.version import version
from policybridge_serdes import PolicyReference, TensorSpec
from policybridge_server.engine.loaded import LoadedVersion
from policybridge_server.engine.opener import SessionOpener
from policybridge_server.open_inference.datatypes import config_type_of, datatype_of
from policybridge_server.open_inference.inputs import MOST, model_inputs
from policybridge_server.open_inference.request import reference_to
from policybridge_server.open_inference.statistics import VersionStates
from policybridge_server.repository import StoredPolicy

SERVER_NAME: Final = "policybridge"
EXTENSIONS: Final = ("model_configuration", "model_repository", "parameters", "sequence", "statistics")


class Metadata:
    """Answers all requests but inference. For the loop thread.

    Args:
        opener: opens the engine's sessions.
        states: the sources of statistics.

    """

    def __init__(self, opener: SessionOpener, states: VersionStates) -> None:
        self._opener = opener
        self._states = states

    def server(self) -> pb.ServerMetadataResponse:
        """Describe this server."""
        return pb.ServerMetadataResponse(name=SERVER_NAME, version=version(), extensions=EXTENSIONS)

    def is_ready(self) -> bool:
        """Whether new sessions are taken, of at least one policy."""
        try:
            self._opener.check_ready()
        except PolicyBridgeError:
            return False
        return True

    async def model_ready(self, name: str, number: str) -> pb.ModelReadyResponse:
        """Say whether the version would answer; it is loaded for that."""
        try:
            loaded = await self._opener.version(reference_to(name, number))
        except PolicyBridgeError:
            return pb.ModelReadyResponse(ready=False)
        return pb.ModelReadyResponse(ready=self.is_ready() and not loaded.trouble)

    async def model(self, name: str, number: str) -> pb.ModelMetadataResponse:
        """Give a model's inputs and outputs.

        Raises:
            NotFoundError: there is no such policy or version.
            PreconditionError: it cannot be loaded.

        """
        loaded, policy = await self._found(name, number)
        inputs, advice = model_inputs(loaded) or {}, loaded.signature.advice
        return pb.ModelMetadataResponse(
            name=policy.name,
            versions=[str(each) for each in sorted(policy.versions)],
            platform=loaded.stored.config.backend,
            inputs=[_tensor(each.spec) for each in inputs.values()],
            outputs=[_tensor(advice)] if advice else [],
        )

    async def _found(self, name: str, number: str) -> tuple[LoadedVersion, StoredPolicy]:
        loaded = await self._opener.version(reference_to(name, number))
        return loaded, self._opener.engine.repository.policy(loaded.stored.policy.name)

    async def config(self, name: str, number: str) -> pb.ModelConfigResponse:
        """Give a model's configuration.

        Raises:
            NotFoundError: there is no such policy or version.
            PreconditionError: it cannot be loaded.

        """
        loaded, policy = await self._found(name, number)
        stored, inputs = loaded.stored, model_inputs(loaded)
        advice = loaded.signature.advice
        specific = pb.ModelVersionPolicy.Specific(versions=sorted(policy.versions))
        config = pb.ModelConfig(
            name=policy.name,
            platform=stored.config.backend,
            backend=stored.config.backend,
            version_policy=pb.ModelVersionPolicy(specific=specific),
            max_batch_size=0 if inputs is None else MOST,
            input=[pb.ModelInput(**_described(each.spec), optional=each.optional) for each in (inputs or {}).values()],
            output=[pb.ModelOutput(**_described(advice))] if advice else [],
            dynamic_batching=pb.ModelDynamicBatching(),
            parameters={
                "description": pb.ModelParameter(string_value=stored.config.description),
                "digest": pb.ModelParameter(string_value=stored.policy.digest),
            },
        )
        return pb.ModelConfigResponse(config=config)

    def statistics(self, name: str, number: str) -> pb.ModelStatisticsResponse:
        """Give the statistics of the versions that are loaded; no name is all.

        Raises:
            NotFoundError: there is no such policy or version.

        """
        repository = self._opener.engine.repository
        if not name:
            names = sorted(repository.policies())
            return pb.ModelStatisticsResponse(
                model_stats=[
                    each for policy_name in names for each in self._policy_statistics(repository.policy(policy_name))
                ]
            )
        policy = repository.policy(name)
        if not number:
            return pb.ModelStatisticsResponse(model_stats=list(self._policy_statistics(policy)))
        stored = policy.resolve(reference_to(name, number))
        statistics = [each for each in self._policy_statistics(policy) if each.version == str(stored.policy.version)]
        return pb.ModelStatisticsResponse(model_stats=statistics)

    def _policy_statistics(self, policy: StoredPolicy) -> Iterator[pb.ModelStatistics]:
        for _, stored in sorted(policy.versions.items()):
            loaded = self._opener.engine.versions.get(stored.policy)
            if loaded is not None:
                yield self._states.of(loaded).statistics.to_pb(stored.policy)

    def index(self, *, ready: bool) -> pb.RepositoryIndexResponse:
        """List all versions of all policies; only servable ones if ``ready``."""
        repository = self._opener.engine.repository
        listed = [each for name in sorted(repository.policies()) for each in self._indexed(repository.policy(name))]
        return pb.RepositoryIndexResponse(models=[each for each in listed if not ready or each.state == "READY"])

    def _indexed(self, policy: StoredPolicy) -> Iterator[pb.RepositoryIndexResponse.ModelIndex]:
        if isinstance(policy.config, PreconditionError):
            yield _unavailable(policy.name, "", policy.config)
        reasons: dict[int, PolicyBridgeError | str] = {**policy.refused}
        for number, stored in policy.versions.items():
            loaded = self._opener.engine.versions.get(stored.policy)
            reasons[number] = "it is loaded on its first request" if loaded is None else ""
            if loaded is not None and loaded.trouble:
                reasons[number] = PolicyFailedError(loaded.trouble)
        for number, reason in sorted(reasons.items()):
            if isinstance(reason, str):
                yield pb.RepositoryIndexResponse.ModelIndex(
                    name=policy.name, version=str(number), state="READY", reason=reason
                )
            else:
                yield _unavailable(policy.name, str(number), reason)

    async def load(self, request: pb.RepositoryModelLoadRequest) -> pb.RepositoryModelLoadResponse:
        """Make sure that the newest version is loaded.

        Raises:
            NotFoundError: there is no such policy.
            PreconditionError: it cannot be loaded.
            UnsupportedError: the request has a configuration or files.

        """
        if request.parameters:
            given = ", ".join(sorted(request.parameters))
            raise UnsupportedError(
                f"a version's files and configuration ({given}) cannot be sent by this call: "
                "publish them by `policybridge policies publish`"
            )
        await self._opener.version(PolicyReference(request.model_name))
        return pb.RepositoryModelLoadResponse()

    def unload(self, request: pb.RepositoryModelUnloadRequest) -> NoReturn:
        """Refuse.

        Raises:
            NotFoundError: there is no such policy.
            UnsupportedError: the policy exists, but cannot be unloaded.

        """
        policy = self._opener.engine.repository.find(request.model_name)
        if policy is None:
            raise NotFoundError(f"no policy {request.model_name!r}")
        raise UnsupportedError(
            f"{request.model_name!r} stays: running compilers may be on it, and a version is unloaded by itself when "
            "neither an alias nor a session needs it; `policybridge policies retire` takes a version away"
        )


def _unavailable(name: str, number: str, reason: PolicyBridgeError) -> pb.RepositoryIndexResponse.ModelIndex:
    text = without_paths(str(reason))
    return pb.RepositoryIndexResponse.ModelIndex(name=name, version=number, state="UNAVAILABLE", reason=text)


def _tensor(spec: TensorSpec) -> pb.ModelMetadataResponse.TensorMetadata:
    return pb.ModelMetadataResponse.TensorMetadata(
        name=spec.name, datatype=datatype_of(spec.type), shape=(-1, *spec.shape)
    )


def _described(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "data_type": config_type_of(spec.type), "dims": spec.shape}
