"""The count of the product's lines."""

import subprocess
from pathlib import Path

from tests.measures.product_lines import by_feature, lines_of, package_of


def test_code_is_counted_and_tests_docs_and_stubs_are_not(tmp_path: Path) -> None:
    files = {
        "core/a b.py": "one\ntwo\n",
        "clients/cpp/src/x.h": "one\n",
        "clients/cpp/launcher/x.cpp": "no end",
        "clients/cpp/grpc/tests/x.cpp": "1\n",
        "clients/cpp/fuzzing/x.cpp": "1\n",
        "tests/test_a.py": "1\n",
        "docs/a.py": "1\n",
        "proto/a_pb2.py": "1\n",
        "proto/a_pb2_grpc.py": "1\n",
        "README.md": "1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    commit = ["-c", "user.name=a", "-c", "user.email=a", "commit", "-qm", "a"]
    for words in (["init", "-q"], ["add", "."], commit):
        subprocess.run(["git", "-C", tmp_path, *words], check=True)
    lines = lines_of(tmp_path, "HEAD")
    assert lines == {"clients/cpp/launcher/x.cpp": 0, "clients/cpp/src/x.h": 1, "core/a b.py": 2}
    assert {package_of(path) for path in lines} == {"clients/cpp", "core"}
    assert by_feature(lines, {"headers": ["*.h"], "all": ["clients/*", "core/*"]}) == {"headers": 1, "all": 3}
