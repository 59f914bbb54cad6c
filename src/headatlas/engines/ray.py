"""Workers as actors of a Ray cluster. Ray places them, carries messages and reports when one has died."""

import os
import platform
import socket
from concurrent.futures import Future
from ipaddress import ip_address
from typing import Any

from headatlas.engines.pool import MakeWorker, Result, Worker
from headatlas.errors import BadArgument, CannotDo, MissingExtra, one_line

INSTALL = "pip install 'headatlas[ray]'"
# the variable that decides whether Ray listens to other machines ("0": loopback alone)
CLUSTER_VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"

# Whether this process has started Ray on loopback. Ray reads CLUSTER_VARIABLE once, so such a process can never join a
# cluster of other machines later.
_started_on_loopback = False


class Cluster:
    """Backend whose workers are actors of a Ray cluster.

    Args:
        make: function that makes the worker.
        address: HOST:PORT of a running cluster, or 'auto' for the one this machine is part of; by default, Ray is
            started on this machine, on loopback.
        gpus: GPUs per worker, all on one machine (default: 1 if the cluster has any).
        cpus: CPUs per worker without a GPU.
        size: number of workers (default: the number that fits into the cluster).
    """

    def __init__(
        self,
        make: MakeWorker,
        address: str | None = None,
        gpus: int | None = None,
        cpus: int = 1,
        size: int | None = None,
    ) -> None:
        self.environment = {k: v for k, v in os.environ.items() if k.startswith("RAY_")}
        self.ray: Any = None
        try:
            self.ray = _connect(address)
            machines = [n["Resources"] for n in self.ray.nodes() if n["Alive"]]
            max_gpus = int(max((m.get("GPU", 0) for m in machines), default=0))
            if gpus is None:
                gpus = min(max_gpus, 1)
            if gpus > max_gpus:
                available = f"{max_gpus or 'no'} GPU{'s' * (max_gpus != 1)}"
                raise BadArgument(f"gpus-per-job is {gpus}, but the largest machine of the cluster has {available}")
            self.resources = {"num_gpus": gpus, "num_cpus": 1 if gpus else cpus}
            unit, n_units = ("GPU", gpus) if gpus else ("CPU", cpus)
            # a worker cannot span machines, so what is left over on each is lost
            max_workers = sum(int(m.get(unit, 0) // n_units) for m in machines)
            if not max_workers:
                raise CannotDo(f"a worker needs {n_units} {unit}s, but no machine of the cluster has {n_units}")
        except BaseException:
            self.close()
            raise
        self.local = False
        self.make = make
        self.size = min(max_workers, size or max_workers)
        self.gpus = gpus
        self.died: tuple[type[BaseException], ...] = (
            self.ray.exceptions.RayActorError,
            self.ray.exceptions.WorkerCrashedError,
            self.ray.exceptions.NodeDiedError,
            self.ray.exceptions.ObjectLostError,
            self.ray.exceptions.OutOfMemoryError,
        )

    def start(self) -> tuple[Any, "Future[Result]"]:
        worker = self.ray.remote(max_restarts=0, **self.resources)(_Actor).remote(self.gpus)
        return worker, worker.hello.remote().future()

    def prepare(self, worker: Any) -> "Future[Result]":
        future: Future[Result] = worker.prepare.remote(self.make).future()
        return future

    def send(self, worker: Any, call: str, arguments: tuple[Any, ...]) -> "Future[Result]":
        future: Future[Result] = worker.send.remote(call, arguments).future()
        return future

    def stop(self, worker: Any) -> None:
        self.ray.kill(worker)

    def close(self) -> None:
        """Leave the cluster. If Ray was started by this process, it ends."""
        if self.ray is not None:
            self.ray.shutdown()
        for name in [k for k in os.environ if k.startswith("RAY_")]:
            del os.environ[name]
        os.environ.update(self.environment)


class _Actor:
    """A worker in the process of a Ray actor."""

    def __init__(self, gpus: int) -> None:
        import ray

        if not gpus:
            # the machine's GPUs belong to other workers
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        self.worker = Worker(f"{platform.node()} ({ray.util.get_node_ip_address()})")

    def hello(self) -> Result:
        return self.worker.hello()

    def prepare(self, make: MakeWorker) -> Result:
        return self.worker.prepare(make)

    def send(self, call: str, arguments: tuple[Any, ...]) -> Result:
        return self.worker.send(call, arguments)


def _connect(address: str | None) -> Any:
    """Return the module ray, connected to a cluster."""
    global _started_on_loopback
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address is None:
        # before the import: Ray reads the variable when it is imported, and so do its workers
        os.environ[CLUSTER_VARIABLE] = "0"
    try:
        import ray
    except ImportError as e:
        raise MissingExtra(f"engine 'ray' needs the package ray: {INSTALL}") from e
    if ray.is_initialized():
        raise CannotDo("this process is already connected to a Ray cluster: call ray.shutdown() first")
    if address is None:
        if not ip_address(ray.util.get_node_ip_address()).is_loopback:
            raise CannotDo(
                "Ray was imported earlier in this process, and would listen to other machines: start a new process, set"
                f" {CLUSTER_VARIABLE}=0 before `import ray`, or give the address of a cluster"
            )
        _started_on_loopback = True
    elif address != "auto":
        _check_address(address)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address is None:
            ray.init(address="local", include_dashboard=False, **options)
        else:
            ray.init(address=address, **options)
    # Ray's connection errors have no common type
    except Exception as e:
        raise CannotDo(f"no Ray cluster at address {address or 'local'!r}: {one_line(e)}") from e
    return ray


def _check_address(address: str) -> None:
    """Check that the address answers. Ray itself would retry for minutes and then end this process."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise BadArgument(f"address is {address!r}, expected HOST:PORT of a Ray cluster's head, or 'auto'")
    try:
        peer = socket.create_connection((host, int(port)), timeout=5)
        is_remote = not ip_address(peer.getpeername()[0]).is_loopback
        peer.close()
    except (OSError, OverflowError) as e:
        raise CannotDo(f"no Ray cluster at address {address!r}: {one_line(e)}") from e
    if is_remote and _started_on_loopback:
        raise CannotDo("this process has started Ray for this machine only: join a cluster from a new process")
