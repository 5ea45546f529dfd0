"""Settings of the operator process: flags and OARLOCK_OPERATOR_* variables, read once at start and frozen.

Flags, environment and --help come from these fields, so that they cannot disagree. A setting exists only if somebody
needs to change it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from oarlock_operator.model.observed_nodes import GPU_RESOURCES

DEFAULT_TRAINER_IMAGE = "oarlock/trainer:0.1.0"


class Settings(BaseSettings):
    """The operator's settings."""

    model_config = SettingsConfigDict(
        env_prefix="OARLOCK_OPERATOR_",
        cli_prog_name="oarlock-operator",
        cli_kebab_case=True,
        cli_hide_none_type=True,
        cli_avoid_json=True,
        env_ignore_empty=True,
        frozen=True,
        extra="ignore",
    )

    kubeconfig: Path | None = Field(
        default=None,
        description="kubeconfig file, for running outside the cluster; default: the pod's own service account, "
        "else KUBECONFIG or ~/.kube/config",
    )
    namespaces: list[str] = Field(
        default=[], description="namespaces to work in; none named: all, which needs a ClusterRole"
    )
    trainer_image: str = Field(
        default=DEFAULT_TRAINER_IMAGE, description="image of pods whose job names none in spec.pod.image"
    )
    host: str = Field(default="0.0.0.0", description="address that /healthz, /readyz and /metrics listen on")  # noqa: S104 - the kubelet and Prometheus come from other hosts
    port: int = Field(default=8080, ge=0, le=65535, description="port of /healthz, /readyz and /metrics; 0: any free")
    workers: int = Field(default=24, ge=1, le=128, description="jobs reconciled at the same time")
    parallel_requests: int = Field(default=16, ge=1, le=256, description="pods created or deleted at the same time")
    resync_seconds: float = Field(
        default=300, ge=1, description="every job is looked at this often, whatever the watches saw"
    )
    progress_seconds: float = Field(
        default=10,
        ge=0.5,
        description="how often rank 0's /status is read and the job's progress written; all jobs together ten times a "
        "second at most, so from 100 jobs that train more seldom, at least every 300 seconds",
    )
    pod_access: Literal["auto", "direct", "proxy"] = Field(
        default="auto",
        description="how /status is reached: direct by pod address, proxy through the API server, "
        "auto: direct inside the cluster, proxy outside",
    )
    cordon_dry_run: bool = Field(default=False, description="only tell which nodes would be cordoned, and cordon none")
    cordon_gpu_resources: list[str] = Field(
        default=list(GPU_RESOURCES), description="resources that are GPUs: only nodes that have one are ever cordoned"
    )
    cordon_node_selector: str = Field(
        default="", description="label selector of the nodes that may be cordoned, such as pool=training; default: all"
    )
    cordon_images: list[str] = Field(
        default=[],
        description="beginnings of images whose word may cordon a node, besides trainer_image; with spec.custom only these",
    )
    cordon_max_nodes: int = Field(
        default=2, ge=0, description="nodes that may be cordoned within cordon_window_seconds; 0 with percent 0: none"
    )
    cordon_max_percent: float = Field(
        default=10, ge=0, le=50, description="the same as a share of the pool; the larger of the two counts"
    )
    cordon_namespace_max_nodes: int = Field(
        default=1, ge=0, description="of these, nodes for jobs of one namespace; 0 with percent 0: none"
    )
    cordon_namespace_max_percent: float = Field(
        default=2, ge=0, le=50, description="the same as a share of the pool; the larger of the two counts"
    )
    cordon_window_seconds: int = Field(default=3600, ge=60, description="window of the limits above")
    cordon_allow_below_gang: bool = Field(
        default=False, description="cordon even where fewer nodes are left than the job itself needs"
    )
    cluster_id: str = Field(
        default="",
        max_length=63,
        description="what tells this cluster from others that share an export with it; default: the uid of the namespace "
        "kube-system, with namespaces named that of the Lease's. Unknown: no job takes over what one of its name left",
    )
    key_file: Path | None = Field(
        default=None,
        description="file with what the keys of gangs are derived from, 32 characters or more drawn by chance; further "
        "lines: older ones, for pods that still run. Default: a Secret beside the Lease, LEASE_NAME-key, made once",
    )
    network_policies: bool = Field(
        default=False, description="make a NetworkPolicy for every job of several nodes whose pod.networkPolicy is Auto"
    )
    network_policy_from: list[dict[str, Any]] = Field(
        default=[], description="who may reach the status port of such jobs, as NetworkPolicy peers; none: everybody"
    )
    leader_election: bool = Field(default=True, description="hold a Lease while working")
    lease_namespace: str = Field(
        default="", description="namespace of the Lease; default: the operator's own, outside a cluster `default`"
    )
    lease_name: str = Field(default="oarlock-operator", description="name of the Lease")
    lease_seconds: float = Field(default=15, ge=2, description="a leader silent for this long is replaced")
    log_format: str = Field(default="json", pattern="^(json|console)$", description="json or console")
    log_level: str = Field(default="info", pattern="^(debug|info|warning|error)$", description="least level shown")
