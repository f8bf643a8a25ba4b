# Debian's source packages for the scripts beside this one, which set $work, the folder that has them.

fetch() { # PACKAGE: unpack its source into $work/PACKAGE
  [ -d "$work/$1" ] || .venv/bin/python - "$1" "$work" <<'PYTHON'
import subprocess
import sys
from pathlib import Path

from policybridge_train.corpus.debian.apt import Apt

package, work = sys.argv[1], Path(sys.argv[2])
source = Apt.prepare(work / "apt").download(package, work)
subprocess.run(["dpkg-source", "-x", source.name, package], cwd=work, check=True, stdout=subprocess.DEVNULL)
PYTHON
}
