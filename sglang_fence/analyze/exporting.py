"""From the tool's own file to SQLite, through the tool."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sglang_fence.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Generator

REPORT_SUFFIX = ".nsys-rep"


@contextmanager
def exported(path: Path) -> Generator[Path]:
    """Give the SQLite file of a capture; one that had to be made is removed afterwards.

    Raises:
        ConfigError: it has to be exported, and ``nsys`` isn't on the PATH or refuses.
    """
    if path.suffix != REPORT_SUFFIX:
        yield path
        return
    tool = shutil.which("nsys")
    if tool is None:
        msg = (
            f"{path} has to be exported, and nsys is not on the PATH: where it is installed, run "
            f"nsys export --type=sqlite --output={path.with_suffix('.sqlite').name} {path.name}, and give that file"
        )
        raise ConfigError(msg)
    # It can be several times as large as the report: TMPDIR says where it goes.
    with tempfile.TemporaryDirectory(prefix="sglang-fence-nsys-") as folder:
        made = Path(folder, "capture.sqlite")
        command = [tool, "export", "--type=sqlite", f"--output={made}", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - no shell; the tool is nsys
        if done.returncode != 0 or not made.is_file():
            said = (done.stderr.strip() or done.stdout.strip() or f"status {done.returncode}").splitlines()[-1]
            msg = f"nsys can't export {path} ({said}): is it whole, and as old as this nsys or older?"
            raise ConfigError(msg)
        yield made
