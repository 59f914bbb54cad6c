"""Workers as actors of a Ray cluster. Ray places them, carries messages, and says when one has died."""

import os
import platform
import socket
from concurrent.futures import Future
from ipaddress import ip_address
from typing import Any

from headatlas.engines.pool import MakeWorker, Result, Worker
from headatlas.errors import BadArgument, CannotDo, MissingExtra, one_line

INSTALL = "pip install 'headatlas[ray]'"
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"

# Whether this process has started Ray for itself. Ray reads LOOPBACK once, so it then never sees other machines again.
_started_here = False


class Cluster:
    """address: of a running cluster, or 'auto' for the one this machine is part of; without one, Ray is started here,
    on loopback. gpus: of each worker, all on one machine; without a number, one if the cluster has any.
    cpus: of each worker without a GPU. size: how many workers; without a number, as many as there is room for.
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
            most = int(max((m.get("GPU", 0) for m in machines), default=0))
            if gpus is None:
                gpus = min(most, 1)
            if gpus > most:
                largest = f"{most or 'no'} GPU{'s' * (most != 1)}"
                raise BadArgument(f"gpus-per-job is {gpus}, but the largest machine of the cluster has {largest}")
            self.needs = {"num_gpus": gpus, "num_cpus": 1 if gpus else cpus}
            unit, each = ("GPU", gpus) if gpus else ("CPU", cpus)
            room = sum(int(m.get(unit, 0) // each) for m in machines)
            if not room:
                raise CannotDo(f"a worker needs {each} {unit}s, but no machine of the cluster has so many")
        except BaseException:
            self.close()
            raise
        self.local = False
        self.make, self.size, self.gpus = make, min(room, size or room), gpus
        self.died: tuple[type[BaseException], ...] = (
            self.ray.exceptions.RayActorError,
            self.ray.exceptions.WorkerCrashedError,
            self.ray.exceptions.NodeDiedError,
            self.ray.exceptions.ObjectLostError,
            self.ray.exceptions.OutOfMemoryError,
        )

    def start(self) -> tuple[Any, "Future[Result]"]:
        worker = self.ray.remote(max_restarts=0, **self.needs)(_Actor).remote(self.gpus)
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
        """Leave the cluster; one that was started here ends."""
        if self.ray is not None:
            self.ray.shutdown()
        for name in [k for k in os.environ if k.startswith("RAY_")]:
            del os.environ[name]
        os.environ.update(self.environment)


class _Actor:
    def __init__(self, gpus: int) -> None:
        import ray

        if not gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the machine's GPUs belong to other workers
        self.worker = Worker(f"{platform.node()} ({ray.util.get_node_ip_address()})")

    def hello(self) -> Result:
        return self.worker.hello()

    def prepare(self, make: MakeWorker) -> Result:
        return self.worker.prepare(make)

    def send(self, call: str, arguments: tuple[Any, ...]) -> Result:
        return self.worker.send(call, arguments)


def _connect(address: str | None) -> Any:
    """Ray, in a cluster."""
    global _started_here
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address is None:
        os.environ[LOOPBACK] = "0"  # Ray reads this when it is imported, and so do its workers
    try:
        import ray
    except ImportError as e:
        raise MissingExtra(f"engine 'ray' needs the package ray: {INSTALL}") from e
    if ray.is_initialized():
        raise CannotDo("this process is in a Ray cluster already: leave it first, with ray.shutdown()")
    if address is None:
        if not ip_address(ray.util.get_node_ip_address()).is_loopback:
            raise CannotDo(
                "Ray was imported here before, and would listen to other machines: start a new process, set"
                f" {LOOPBACK}=0 before `import ray`, or give the address of a cluster"
            )
        _started_here = True
    elif address != "auto":
        _check_address(address)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address is None:
            ray.init(address="local", include_dashboard=False, **options)
        else:
            ray.init(address=address, **options)
    except Exception as e:  # Ray's errors of connecting have no common type
        raise CannotDo(f"no Ray cluster at address {address or 'local'!r}: {one_line(e)}") from e
    return ray


def _check_address(address: str) -> None:
    """Check that the address answers: Ray itself would try for minutes, and then end this process."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise BadArgument(f"address is {address!r}, expected HOST:PORT of a Ray cluster's head, or 'auto'")
    try:
        peer = socket.create_connection((host, int(port)), timeout=5)
        far = not ip_address(peer.getpeername()[0]).is_loopback
        peer.close()
    except (OSError, OverflowError) as e:
        raise CannotDo(f"no Ray cluster at address {address!r}: {one_line(e)}") from e
    if far and _started_here:
        raise CannotDo("this process has started Ray on this machine alone: join a cluster from a new process")
