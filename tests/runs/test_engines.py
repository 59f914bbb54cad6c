"""An atlas made by workers: the same files, whoever dies meanwhile; and one clear line where it cannot be made."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
import torch

import headatlas as ha
from headatlas.engines.ray import Cluster
from headatlas.errors import BadArgument, CannotDo, MissingExtra
from headatlas.methods import get_method
from headatlas.methods.method import Part, Work
from headatlas.models.lm import LM
from headatlas.runs.execute import execute
from headatlas.runs.plan import Plan
from headatlas.runs.where import Where, absolute_path, start_workers
from headatlas.runs.worker import ModelWorker
from headatlas.tasks.prompts import load_tasks
from headatlas_bench import benchmark
from headatlas_bench.ground_truth import planted_folder, read_truth
from tests.bench.test_benchmark import with_truth
from tests.models.tiny import TINY, build, tokenizer
from tests.test_cli import headatlas

METHODS = ["salient", "pattern", "taylor", "gate", "ablate"]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    build(TINY[0]).float().save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def expected(model, tmp_path_factory) -> dict[str, bytes]:
    return files(run(model, tmp_path_factory.mktemp("local")))


def run(model, out, methods=METHODS, **options) -> ha.Atlas:
    """Figures are drawn here and not by workers, and take longest."""
    return ha.run(model, out, methods=methods, tests=False, draw=False, **options)


def files(atlas) -> dict[str, bytes]:
    return {name: (atlas.folder / f"{name}.nc").read_bytes() for name in atlas.complete}


@pytest.fixture(scope="module")
def machines():
    """A Ray cluster of three machines, which are all this one. The first has no CPUs to spare."""
    from ray.cluster_utils import Cluster as Machines

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = Machines(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    yield cluster
    cluster.shutdown()


def fails(model, *, done, progress) -> None:
    raise CannotDo("it never works")


def fills_memory(model, *, done, progress) -> None:
    raise torch.OutOfMemoryError("no room")


def planned(name: str, combine, *parts: Part) -> Plan:
    """Work that needs no model."""
    return Plan(name, Work(summary="", combine=combine, parts=parts), {"read_from": "", "fingerprint": ""})


def once(do):
    """A progress that does something when the first job has come back."""

    def progress(items, label):
        for i, item in enumerate(items):
            if i == 1 and "worker" in label:
                do()
            yield item

    return progress


def test_processes_make_the_same_files(model, expected, tmp_path) -> None:
    made = run(model, tmp_path, workers=2)
    assert files(made) == expected
    assert all(m["complete"] and m["seconds"] > 0 for m in made.info["methods"].values())
    again = run(model, tmp_path, workers=2)
    assert again.info["methods"] == made.info["methods"]


def test_parameters_alone_load_no_model(model, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("headatlas.runs.worker.load", lambda *a, **k: pytest.fail("loaded"))
    made = run(model, tmp_path / "a", ["salient"])
    assert made["salient"].attrs["read_from"] == "disk"
    monkeypatch.undo()
    assert files(run(model, tmp_path / "b", ["salient"], workers=1)) == files(made)


def test_a_worker_with_another_checkpoint_is_told_before_any_work(model) -> None:
    worker = ModelWorker(str(model), Where("cpu"))
    stamp = worker.plan([(get_method("salient"), {})]).possible["salient"].stamp

    def one(model, *, done, progress) -> int:
        return 1

    assert worker.do(one, {}, (), {}, stamp) == 1
    with pytest.raises(CannotDo, match="fingerprint is .* on this worker, but another in the plan"):
        worker.do(one, {}, (), {}, {**stamp, "fingerprint": "another"})


def test_a_job_for_which_memory_does_not_suffice_is_given_up_and_not_the_others(model, tmp_path) -> None:
    plans = {"large": planned("large", fills_memory), "failing": planned("failing", fails)}
    with start_workers(model, Where()) as pool:
        errors = {name: str(result.error) for name, result in execute(pool, plans, tmp_path)}
    assert errors == {"large": "out of memory: no room", "failing": "it never works"}


def test_names_and_paths_for_workers(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smollm2").mkdir()  # an atlas may be called like the default model
    (tmp_path / "blob").touch()
    (tmp_path / "m.gguf").symlink_to("blob")
    assert [absolute_path(p) for p in ("smollm2", "owner/name", "m.gguf")] == [
        "smollm2",
        "owner/name",
        str(tmp_path / "m.gguf"),
    ]


def test_a_benchmark_runs_model_by_model(tmp_path) -> None:
    truth = read_truth(planted_folder("one")).to_dict()
    (tmp_path / "model").mkdir()
    few = {"circuits": {"Retrieval": truth["circuits"]["Retrieval"]}, "background": truth["background"]}
    names = (
        ["random"],
        [with_truth(tmp_path / "model", few)],
    )  # each process measures its part
    here = benchmark(*names)
    elsewhere = benchmark(*names, workers=1, out=tmp_path / "out")
    for name in ("auroc", "average_precision", "auroc_mean"):
        assert elsewhere[name].equals(here[name])
    assert benchmark(*names, workers=1, out=tmp_path / "out").identical(elsewhere)
    with pytest.raises(BadArgument, match="atlas_model is an LM, but workers load the model themselves"):
        benchmark(*names, atlas_model=LM(build(TINY[0]), tokenizer(), "tiny"), workers=2)


@pytest.mark.slow
def test_a_cluster_whose_workers_and_machines_die_makes_the_same_files(model, expected, machines, tmp_path) -> None:
    killed = []

    def kill_a_worker() -> None:
        ours = psutil.Process().children(recursive=True)  # and not those of another run on this machine
        worker = next(p for p in ours if p.name().startswith("ray::_Actor"))
        killed.append(worker.pid)
        worker.kill()

    made = run(model, tmp_path / "a", engine="ray", address=machines.address, progress=once(kill_a_worker))
    assert killed
    assert files(made) == expected

    gone = machines.worker_nodes.copy().pop()
    options = {"engine": "ray", "address": machines.address}
    made = run(model, tmp_path / "b", progress=once(lambda: machines.remove_node(gone)), **options)
    assert gone not in machines.worker_nodes
    assert files(made) == expected
    machines.add_node(num_cpus=1)


@pytest.mark.slow
def test_a_driver_that_is_killed_goes_on_where_it_was(model, expected, tmp_path) -> None:
    options = f"methods={METHODS!r}, workers=1, tests=False, draw=False"
    code = f"import headatlas as ha; ha.run({str(model)!r}, {str(tmp_path)!r}, {options})"
    script = tmp_path / "driver.py"
    script.write_text(f"import torch; torch.set_num_threads(1)\n{code}\n")  # unguarded: workers do not run it again
    driver = subprocess.Popen([sys.executable, script], start_new_session=True)
    deadline = time.monotonic() + 120
    while not list((tmp_path / ".gate").glob("*pressed.npz")) and time.monotonic() < deadline:
        assert driver.poll() is None
        threading.Event().wait(0.05)
    [worker] = psutil.Process(driver.pid).children()[-1:]
    driver.kill()
    driver.wait()
    worker.wait(30)  # it does not outlive the driver
    complete = [p.stem for p in tmp_path.glob("*.nc")]
    finished = len(list((tmp_path / ".gate").glob("*pressed.npz")))
    assert finished
    labels = []

    def progress(items, label):
        labels.append(label)
        return items

    made = run(model, tmp_path, workers=1, progress=progress)
    assert files(made) == expected
    jobs = {"salient": 1, "pattern": 1, "taylor": 2 + 1, "gate": 2 + 1, "ablate": 2 + 1}
    left = sum(n for name, n in jobs.items() if name not in complete) - finished
    assert labels == [f"{left} jobs on 1 worker"]


class TestBadInput:
    def test_no_ray(self, model, tmp_path, monkeypatch) -> None:
        monkeypatch.setitem(sys.modules, "ray", None)
        with pytest.raises(MissingExtra, match=r"engine 'ray' needs the package ray: pip install 'headatlas\[ray\]'"):
            ha.run(model, tmp_path, engine="ray")

    def test_no_cluster_at_the_address(self, model, tmp_path) -> None:
        with pytest.raises(CannotDo, match="no Ray cluster at address '127.0.0.1:1': .*refused"):
            ha.run(model, tmp_path, engine="ray", address="127.0.0.1:1")

    @pytest.mark.parametrize("address", ["ray://here:1", "nowhere", "a:b"])
    def test_an_address_that_is_none(self, model, tmp_path, address) -> None:
        with pytest.raises(BadArgument, match=r"expected HOST:PORT of a Ray cluster's head, or 'auto'"):
            ha.run(model, tmp_path, engine="ray", address=address)

    def test_too_few_gpus(self, model, machines, tmp_path) -> None:
        with pytest.raises(BadArgument, match="gpus-per-job is 4, but the largest machine of the cluster has no GPUs"):
            ha.run(model, tmp_path, engine="ray", address=machines.address, gpus_per_job=4)
        with pytest.raises(BadArgument, match="gpus-per-job is 99, but this machine has"):
            ha.run(model, tmp_path, gpus_per_job=99)

    def test_workers_without_the_checkpoint(self, machines, tmp_path) -> None:
        with pytest.raises(CannotDo, match=r"^\S+ \([\d.]+\): model '/no/such': no such file or folder"):
            ha.run("/no/such", tmp_path, engine="ray", address=machines.address)

    def test_workers_of_another_version(self, model, tmp_path, monkeypatch) -> None:
        monkeypatch.setattr("headatlas.engines.pool.__version__", "0.0.1")  # here; workers are other processes
        with pytest.raises(
            CannotDo,
            match=f"^this machine runs HeadAtlas {ha.__version__}, but this process runs 0.0.1: install the same",
        ):
            ha.run(model, tmp_path, workers=1)

    def test_a_job_that_always_fails_is_told_once_with_its_name(self, model, tmp_path) -> None:
        plan = planned("failing", fails, Part(name="first", do=fails), Part(name="second", do=fails))
        with start_workers(model, Where(workers=1)) as pool:
            [(name, result)] = execute(pool, {"failing": plan}, tmp_path)
        assert (name, str(result.error)) == ("failing", "failing: first, on this machine: it never works")

    def test_what_cannot_be_planned_is_noted_and_the_rest_done(self, model, tmp_path) -> None:
        made = run(model, tmp_path, ["maps", "pattern"], workers=1)  # no built-in word is a single token of this model
        assert made.info["methods"]["maps"]["why"].startswith("relations: none of the 20 has 30 pairs left")
        assert list(made) == ["pattern"]

    def test_engines_and_what_goes_with_them(self, model, tmp_path) -> None:
        with pytest.raises(BadArgument, match="engine is 'slurm', expected one of local, ray"):
            ha.run(model, tmp_path, engine="slurm")
        with pytest.raises(BadArgument, match="an address needs engine 'ray'"):
            ha.run(model, tmp_path, address="auto")
        with pytest.raises(BadArgument, match="workers is 0, expected a whole number from 1"):
            ha.run(model, tmp_path, workers=0)
        with pytest.raises(BadArgument, match="model is an LM, but workers load it themselves"):
            ha.run(LM(build(TINY[0]), tokenizer(), "tiny"), tmp_path, workers=2)


def test_room_for_workers_is_counted_machine_by_machine(machines) -> None:
    crew = Cluster(make=None, address=machines.address, cpus=1)
    try:
        assert crew.size == 2
        with pytest.raises(CannotDo, match="this process is already connected to a Ray cluster"):
            Cluster(make=None, address=machines.address)
    finally:
        crew.close()
    with pytest.raises(CannotDo, match="a worker needs 3 CPUs, but no machine of the cluster has 3"):
        Cluster(make=None, address=machines.address, cpus=3)


def test_each_process_sees_its_own_gpus(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    assert start_workers("m", Where(gpus_per_job=4)).backend.free_gpus == ["0,1,2,3", "4,5,6,7"]
    assert start_workers("m", Where(workers=3)).backend.size == 3
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "8,9,10,11,12,13,14,15")
    assert start_workers("m", Where(gpus_per_job=4)).backend.free_gpus == ["8,9,10,11", "12,13,14,15"]
    assert start_workers("m", Where(gpus_per_job=8)).backend.local  # all of them for this process
    assert start_workers("m", Where(device="cpu")).backend.local
    with pytest.raises(BadArgument, match="workers is 3, but this machine has GPUs for 2 workers"):
        start_workers("m", Where(gpus_per_job=4, workers=3))


def test_on_the_command_line(model, tmp_path, capsys) -> None:
    command = ("run", model, "--out", tmp_path, "--methods", "taylor,pattern")
    code, _, err = headatlas(capsys, *command, "--engine", "ray", "--address", "127.0.0.1:1")
    assert code == 1
    assert err.strip().startswith("error: no Ray cluster at address")
    assert err.strip().count("\n") == 0
    code, out, _ = headatlas(capsys, *command, "--plan", "--workers", 3)
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()[2:4]] == [["pattern", "1"], ["taylor", "3"]]
    assert "with 3 workers" in out
    assert "memory per worker" in out
    assert not (tmp_path / "atlas.json").exists()


LISTENING = """
import sys
import psutil
import torch
import headatlas as ha

torch.set_num_threads(1)

def progress(items, label):
    for i, item in enumerate(items):
        if i == 1 and "worker" in label:
            listen()
        yield item

def listen():
    import ray
    session = ray._private.worker._global_node.get_session_dir_path()
    # attributes that are read by name are None for a process that ends meanwhile
    servers = [p for p in psutil.process_iter(["cmdline"]) if session in " ".join(p.info["cmdline"] or [])]
    ours = {p.pid for server in servers for p in (server, *server.children(recursive=True))}
    print(session, *(c.laddr.ip for c in psutil.net_connections() if c.status == "LISTEN" and c.pid in ours))

options = {"engine": "ray", "workers": 1, "tests": False, "draw": False, "progress": progress}
made = ha.run(*sys.argv[1:], methods=["taylor", "ablate"], **options)
assert set(made.complete) == {"taylor", "ablate"}
"""


def test_a_cluster_started_here_listens_to_nobody_else_and_logs_no_texts(model, tmp_path) -> None:
    """In a separate process: this one has joined a cluster that others can reach."""
    command = [sys.executable, "-c", LISTENING, str(model), str(tmp_path)]
    session, *addresses = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert len(addresses) > 3
    assert {a.removeprefix("::ffff:") for a in addresses} <= {"127.0.0.1", "::1"}
    [task] = load_tasks(LM(build(TINY[0]), tokenizer(), "tiny"), ["syntax"])
    logged = "".join(p.read_text(errors="replace") for p in (Path(session) / "logs").rglob("*") if p.is_file())
    assert logged
    assert not [e.prompt for e in task.held_out if str(e.prompt) in logged]


def test_ray_that_would_listen_to_others_is_not_started(model, machines, tmp_path) -> None:
    with pytest.raises(CannotDo, match="Ray was imported earlier in this process, and would listen to other machines"):
        run(model, tmp_path, engine="ray")


class FarConnection:
    """A connection to another machine."""

    def getpeername(self) -> tuple[str, int]:
        return "192.0.2.7", 6379

    def close(self) -> None: ...


def test_a_new_process_joins_a_cluster_though_its_own_address_is_loopback(machines, monkeypatch) -> None:
    """Ray gives that address where the machine's name is one of loopback and no route leads out."""
    monkeypatch.setattr("ray.util.get_node_ip_address", lambda: "127.0.0.1")
    monkeypatch.setattr("headatlas.engines.ray.socket.create_connection", lambda *a, **k: FarConnection())
    cluster = Cluster(make=None, address=machines.address)
    cluster.close()
    assert cluster.size == 2


ALONE = """
import socket
from headatlas.engines.ray import Cluster
from headatlas.errors import CannotDo
from tests.runs.test_engines import FarConnection

Cluster(make=None).close()
socket.create_connection = lambda *a, **k: FarConnection()
try:
    Cluster(make=None, address="192.0.2.7:6379")
except CannotDo as e:
    print(e)
"""


def test_a_process_that_started_ray_for_itself_joins_no_other_machines() -> None:
    printed = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "this process has started Ray for this machine only: join a cluster from a new process"
