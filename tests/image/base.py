"""The image that ours is built on: the Dockerfile's own where a registry can be reached, a Debian made here otherwise.

`OVERSPILL_TEST_BASE_IMAGE` names another one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.contract.tilt.dockerfile import instructions
from tests.image.engine import EngineError, docker, has_image

PULL_S: Final = 180.0
BOOTSTRAP_S: Final = 600.0
CERTIFICATES: Final = Path("etc/ssl/certs/ca-certificates.crt")
PACKAGES: Final = "python3,python3-venv,ca-certificates"


def base_image() -> dict[str, str]:
    """The build arguments that choose a base and let pip fetch from within it. Raises EngineError when none can be had."""
    mirror = {name: os.environ[name] for name in ("PIP_INDEX_URL",) if os.environ.get(name)}
    if named := os.environ.get("OVERSPILL_TEST_BASE_IMAGE"):
        return {"BASE_IMAGE": named, **mirror}
    default = instructions()[0].rest.removeprefix("BASE_IMAGE=")
    if has_image(default):
        return {"BASE_IMAGE": default, **mirror}
    try:
        docker("pull", default, seconds=PULL_S)
    except EngineError:
        return {"BASE_IMAGE": _debian(), "PIP_CERT": f"/{CERTIFICATES}", **mirror}
    return {"BASE_IMAGE": default, **mirror}


def _debian() -> str:
    """A small Debian with Python, from the mirror that this machine's apt uses, imported as an image once."""
    site, suite = _apt_source()
    image = f"overspill-test-base:{suite}"
    if has_image(image):
        return image
    if shutil.which("debootstrap") is None:
        raise EngineError("no registry can be reached and there is no debootstrap: install it, or load a base image")
    with tempfile.TemporaryDirectory(prefix="overspill-base-") as folder:
        tree = Path(folder) / "tree"
        command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", suite, str(tree), site]
        done = subprocess.run(command, capture_output=True, text=True, timeout=BOOTSTRAP_S, check=False)
        if done.returncode != 0:
            raise EngineError(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        # This machine may trust a proxy of its own.
        shutil.copyfile(Path("/") / CERTIFICATES, tree / CERTIFICATES)
        archive = Path(folder) / "tree.tar"
        subprocess.run(["tar", "-C", str(tree), "-cf", str(archive), "."], check=True)
        docker("import", str(archive), image, seconds=BOOTSTRAP_S)
    return image


def _apt_source() -> tuple[str, str]:
    """Address and suite of the first Debian archive that apt knows."""
    done = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE) $(RELEASE)", "Created-By: Packages"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = done.stdout.split("\n")
    if done.returncode != 0 or len(lines[0].split()) != 2:
        raise EngineError("no registry can be reached and apt knows no archive: load a base image")
    site, suite = lines[0].split()
    return site, suite
