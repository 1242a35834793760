"""The credentials that a pod finds in its own file system, tried on the real API server."""

import base64
from pathlib import Path

import pytest
import yaml

from overspill_kube import library
from overspill_kube.client import connect
from overspill_kube.errors import KubeError, KubeUnavailable
from overspill_kube.resources import NAMESPACES
from overspill_kube.settings import KubeSettings
from tests.cluster.controlplane.start import control_plane

pytestmark = pytest.mark.timeout(180)  # each starts a control plane


@pytest.mark.cluster
async def test_a_pods_own_token_is_used_and_read_again_when_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    async with control_plane(controllers=False) as plane:
        monkeypatch.delenv("KUBECONFIG", raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", plane.url.rsplit(":", 1)[1])
        inside = library.config.incluster_config
        monkeypatch.setattr(inside, "SERVICE_TOKEN_FILENAME", str(token))
        monkeypatch.setattr(inside, "SERVICE_CERT_FILENAME", str(plane.ca_file))
        token.write_text("expired\n")
        async with connect(KubeSettings()) as client:
            token.write_text(plane.token + "\n")
            assert await client.get(NAMESPACES, "kube-system") is not None
        token.write_text("wrong\n")
        async with connect(KubeSettings()) as client:
            with pytest.raises(KubeError) as caught:
                await client.get(NAMESPACES, "kube-system")
            assert caught.value.status == 401


@pytest.mark.cluster
async def test_the_certificate_authority_in_the_kubeconfig_is_trusted_and_no_other(tmp_path: Path) -> None:
    async with control_plane(controllers=False) as plane:
        config = yaml.safe_load(plane.kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        cluster.pop("certificate-authority", None)
        cluster["certificate-authority-data"] = base64.b64encode(plane.ca_file.read_bytes()).decode()
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        async with connect(KubeSettings(kubeconfig=str(path))) as client:
            assert await client.get(NAMESPACES, "kube-system") is not None
        del cluster["certificate-authority-data"]
        path.write_text(yaml.safe_dump(config))
        async with connect(KubeSettings(kubeconfig=str(path))) as client:
            with pytest.raises(KubeUnavailable, match="certificate"):
                await client.get(NAMESPACES, "kube-system")
