# SPDX-License-Identifier: Apache-2.0
"""phlox-run: each test runs it as a command, with a program that prints the environment of its ranks."""
import ast
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import phlox
from phlox.distributed import run

HERE = os.path.dirname(os.path.dirname(os.path.abspath(phlox.__file__)))
NAMES = ("RANK LOCAL_RANK GROUP_RANK ROLE_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_WORLD_SIZE "
         "ROLE_WORLD_SIZE MASTER_ADDR ROLE_NAME TORCHELASTIC_RESTART_COUNT TORCHELASTIC_RUN_ID")
# One write per rank, so that concurrent outputs do not interleave.
PRINT_ENVIRONMENT = f"""
import os, sys
sys.stdout.write(f"{{({{k: os.environ[k] for k in '''{NAMES}'''.split()}}, sys.argv[1:])}}\\n")
"""
SUMS = """
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(1) + dist.get_rank()
dist.all_reduce(x)
sys.stdout.write(f"{(dist.get_rank(), x.item(), dist.is_torchelastic_launched())}\\n")
dist.monitored_barrier(wait_all_ranks=True)
dist.destroy_process_group()
"""
# Trains with a checkpoint after each step; in the first round, rank 1 has the given fault.
TRAIN = """
import datetime, json, os, signal, socket, sys, time, torch, torch.distributed as dist
path, backend, fault = sys.argv[1:]
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if backend == "nccl" else torch.device("cpu")
if backend == "nccl": torch.cuda.set_device(device)
dist.init_process_group(backend, timeout=datetime.timedelta(seconds=4 if fault == "slow" else 300))
rank, first = dist.get_rank(), os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
torch.manual_seed(0)
model = torch.nn.Linear(3, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
losses = []
if os.path.exists(path):
    state = torch.load(path, map_location=device)
    model.load_state_dict(state["model"]), optimizer.load_state_dict(state["optimizer"])
    losses = state["losses"]
for step in range(len(losses), 6):
    torch.manual_seed(100 * step + rank)
    loss = (model(torch.randn(8, 3).to(device)) - torch.randn(8, 1).to(device)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    if first and rank == 1 and step == 3:
        if fault == "raise": raise ValueError("a bad batch")
        if fault == "slow": time.sleep(10)
        if fault == "size": dist.all_reduce(torch.ones(7, device=device))
        if fault == "order": dist.barrier()
        if fault == "cut":
            for fd in map(int, os.listdir("/proc/self/fd")):
                try: socket.socket(fileno=fd).shutdown(socket.SHUT_RDWR)
                except OSError: pass
        if fault == "within": dist.all_reduce(next(model.parameters()).grad, async_op=True)
        if fault.startswith("SIG") or fault == "within": os.kill(os.getpid(), getattr(signal, fault, signal.SIGKILL))
    for p in model.parameters():
        dist.all_reduce(p.grad, dist.ReduceOp.AVG)
    optimizer.step()
    dist.all_reduce(loss.detach_())
    losses.append(loss.item())
    if rank == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "losses": losses}, path + ".new")
        os.replace(path + ".new", path)
    dist.barrier()
if rank == 0: sys.stdout.write(json.dumps([os.environ["TORCHELASTIC_RESTART_COUNT"], losses]) + "\\n")
dist.destroy_process_group()
"""
# Two hosts: network namespaces joined by a veth pair, with a node's agent in each.
HOSTS = """
set -e
ip link set lo up
rm -f "$TMPDIR/there"
unshare -n sh -c 'echo here; exec sleep 600' >"$TMPDIR/there" &
there=$!
trap 'kill $there' EXIT
until [ -s "$TMPDIR/there" ]; do sleep 0.05; done
ip link add near type veth peer name far netns $there
ip addr add 10.77.0.1/24 dev near
ip link set near up
nsenter -t $there -n sh -c 'ip link set lo up; ip addr add 10.77.0.2/24 dev far; ip link set far up'
[ "$1" ] || exit 0
job="$1 --nnodes=2 --nproc-per-node=2 --master-addr=10.77.0.1 --master-port=29500 --rdzv-conf=join_timeout=60"
GLOO_SOCKET_IFNAME=far nsenter -t $there -n $job --node-rank=1 "$2" &
GLOO_SOCKET_IFNAME=near $job --node-rank=0 "$2"
wait $!
"""


def hosts(*args, **how):
    return subprocess.run(["unshare", "-Urn", "sh", "-c", HOSTS, "sh", *args], capture_output=True, text=True, timeout=300, **how)


def command(args, program, folder, runner="phlox.distributed.run"):
    path = os.path.join(folder, "program.py")
    with open(path, "w") as file:
        file.write(program)
    return [sys.executable, "-m", *runner.split(), *args, path]


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().split()[2] != "Z"
    except OSError:
        return False


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Launch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.environment = {**os.environ, "PYTHONPATH": HERE, "TMPDIR": self.folder}

    def run_job(self, args, program, *more, code=0, **how):
        done = subprocess.run([*command(args.split(), program, self.folder, **how), *more], capture_output=True,
                              text=True, env=self.environment, timeout=300)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def output_of(self, *args, **how):
        return sorted(map(ast.literal_eval, self.run_job(*args, **how).stdout.splitlines()), key=str)

    def test_rank_environment(self):
        (first, args), (second, _) = self.output_of("--standalone --nproc_per_node=2 --role part --rdzv-id=job", PRINT_ENVIRONMENT, "-x", "${local_rank}")
        self.assertEqual(args, ["-x", "0"])
        self.assertEqual((first["RANK"], second["RANK"], second["LOCAL_RANK"], second["ROLE_RANK"]), ("0", "1", "1", "1"))
        self.assertEqual([second[n] for n in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE")], ["2", "2", "1", "2"])
        self.assertEqual((first["ROLE_NAME"], first["TORCHELASTIC_RESTART_COUNT"], first["TORCHELASTIC_RUN_ID"]), ("part", "0", "job"))
        self.assertEqual(os.listdir(self.folder), ["program.py"])

    def test_options_from_environment(self):
        self.environment["PET_NPROC_PER_NODE"] = "2"
        self.assertEqual(len(self.output_of("", PRINT_ENVIRONMENT)), 2)

    @unittest.skipUnless(phlox.distributed.is_available(), "the gloo backend is not built")
    def test_rendezvous_by_environment(self):
        for runner in ("phlox.distributed.run", "phlox -m torch.distributed.run"):
            self.assertEqual(self.output_of("--nproc-per-node 2", SUMS, runner=runner), [(0, 3.0, True), (1, 3.0, True)])

    @unittest.skipUnless(phlox.distributed.is_available(), "the gloo backend is not built")
    def test_two_nodes(self):
        for how in ("--rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:{0}", "--master-port={0} --node-rank={1}"):
            port, agents = free_port(), []
            for node in range(2):
                args = f"--nnodes=2 --rdzv-conf=join_timeout=60 --nproc-per-node={node + 1} {how.format(port, node)}".split()
                agents.append(subprocess.Popen(command(args, SUMS, self.folder), stdout=subprocess.PIPE, env=self.environment, text=True))
            lines = [line for agent in agents for line in agent.communicate(timeout=300)[0].splitlines()]
            self.assertEqual(sorted(map(ast.literal_eval, lines)), [(r, 6.0, True) for r in range(3)])
            self.assertEqual([agent.returncode for agent in agents], [0, 0])

    def test_failing_node_ends_the_other(self):
        port, agents = free_port(), []
        program = "import os, sys, time\nif os.environ['GROUP_RANK'] == '1': sys.exit(5)\ntime.sleep(600)"
        for node in range(2):
            args = f"--nnodes=2 --rdzv-conf=join_timeout=60 --node-rank={node} --master-port={port}".split()
            agents.append(subprocess.Popen(command(args, program, self.folder), stderr=subprocess.PIPE, env=self.environment, text=True))
        output_of = [agent.communicate(timeout=300)[1] for agent in agents]
        self.assertEqual([agent.returncode for agent in agents], [1, 1])
        self.assertIn("ranks of node 1 failed; those of node 0 were ended", output_of[0])
        self.assertIn("exitcode  : 5", output_of[1])

    def test_failure_report_has_rank_and_traceback(self):
        program = ("import os, time\nfrom torch.distributed.elastic.multiprocessing.errors import record\n@record\ndef main():\n"
                   "    if os.environ['RANK'] == '1': raise KeyError('lost \"it\" \\u00e9')\n    time.sleep(600)\nmain()")
        output_of = self.run_job("--nproc-per-node 3", program, code=1).stderr
        report = output_of[output_of.index("====="):]
        for part in ("program.py FAILED", "rank      : 1 (local_rank: 1)", "exitcode  : 1", "in main", "KeyError: 'lost \"it\" \u00e9'", "<NO_OTHER_FAILURES>"):
            self.assertIn(part, report)

    def test_failure_report_has_any_characters(self):
        program = ("from torch.distributed.elastic.multiprocessing.errors import record\n@record\ndef main():\n"
                   "    raise ValueError('x' * 10 ** 5 + chr(0x1f600) + '\\u00e9\\0\\ud800\\x01 <script>')\nmain()")
        report = self.run_job("", program, code=1).stderr.rpartition("traceback :")[2]
        self.assertIn("x\U0001f600\u00e9\u2400\ufffd\x01 <script>\n", report)

    def test_signals_are_reported(self):
        output_of = self.run_job("", "import os; os.kill(os.getpid(), 9)", code=1).stderr
        self.assertIn("exitcode  : -9", output_of)
        self.assertIn("Signal 9 (SIGKILL) received by PID", output_of)

    def test_max_restarts(self):
        program = ("import os, sys, time\nn = os.environ['TORCHELASTIC_RESTART_COUNT']\nif n < '2':\n"
                   "    if os.environ['RANK'] == '0': sys.exit(3)\n    time.sleep(600)\nsys.stdout.write(f'({os.environ[\"RANK\"]}, {n!r})\\n')")
        self.assertEqual(self.output_of("--nproc-per-node=2 --max-restarts=2", program), [(0, "2"), (1, "2")])
        self.run_job("--nproc-per-node=2 --max-restarts=1", program, code=1)

    @unittest.skipUnless(phlox.distributed.is_available(), "the gloo backend is not built")
    def test_restart_from_checkpoint_has_same_losses(self):
        self.environment.update(PHLOX_HEARTBEAT_TIMEOUT="3000", PHLOX_BACKENDS="sim", PHLOX_SIM_DEVICES="3")
        args, every = "--nproc-per-node=3 --max-restarts=1 --shutdown-timeout=5", ("raise", "SIGKILL", "SIGSTOP", "within", "slow", "size", "order", "cut")
        some = every if os.environ.get("LONG") else None
        ends = {(backend, fault): ast.literal_eval(self.run_job(args, TRAIN, os.path.join(self.folder, backend + fault), backend, fault).stdout)
                for backend, faults in (("gloo", ("", *(some or every[:3]))), ("nccl", ("", *(some or ("SIGKILL", "within"))))) for fault in faults}
        losses = ends["gloo", ""][1]
        self.assertEqual(len(losses), 6)
        for (backend, fault), end in ends.items():
            self.assertEqual(end, ["1" if fault else "0", losses], (backend, fault))

    @unittest.skipUnless(phlox.distributed.is_available(), "the gloo backend is not built")
    def test_two_hosts(self):
        try:
            if hosts("", env=self.environment).returncode:
                self.skipTest("network namespaces are not permitted, or ip is not installed")
        except FileNotFoundError:
            self.skipTest("unshare is not installed")
        *job, path = command([], SUMS, self.folder)
        done = hosts(" ".join(job), path, env=self.environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(sorted(map(ast.literal_eval, done.stdout.splitlines())), [(r, 10.0, True) for r in range(4)])

    def test_interrupt_ends_ranks_and_their_children(self):
        program = ("import os, subprocess, sys, time\nchild = subprocess.Popen(['sleep', '600'])\n"
                   "sys.stdout.write(f'{os.getpid()} {child.pid}\\n')\ntime.sleep(600)")
        args = "--nproc-per-node=2 --shutdown-timeout=5".split()
        agent = subprocess.Popen(command(args, program, self.folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment, text=True)
        pids = [int(pid) for _ in range(2) for pid in agent.stdout.readline().split()]
        agent.send_signal(signal.SIGINT)
        output_of = agent.communicate(timeout=300)[1]
        self.assertEqual(agent.returncode, 1)
        self.assertIn("ended by signal 2 (SIGINT)", output_of)
        self.assertFalse(any(map(is_running, pids)))

    def test_killed_agent_ends_ranks_and_their_children(self):
        program = ("import os, signal, subprocess, sys, time\nif os.environ['RANK'] == '1': signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                   "child = subprocess.Popen(['sleep', '600'])\nsys.stdout.write(f'{os.getpid()} {child.pid}\\n')\n"
                   "if os.environ['RANK'] == '2': os.kill(os.getpid(), signal.SIGSTOP)\ntime.sleep(600)")
        args = "--nproc-per-node=3 --shutdown-timeout=1".split()
        agent = subprocess.Popen(command(args, program, self.folder), stdout=subprocess.PIPE, env=self.environment, text=True)
        pids = [int(pid) for _ in range(3) for pid in agent.stdout.readline().split()]
        agent.kill()
        agent.wait()
        # The pipe reaches end of file once its writers (ranks, their children and the watchdogs) have exited.
        self.assertEqual(agent.stdout.read(), "")
        agent.stdout.close()
        for _ in range(600):
            if not any(map(is_running, pids)): break
            time.sleep(0.1)
        self.assertFalse(any(map(is_running, pids)))

    def test_log_dir_tee_and_redirects(self):
        program = "import os, sys\nprint('out', os.environ['RANK'])\nprint('err', file=sys.stderr)"
        logs = os.path.join(self.folder, "logs")
        done = self.run_job(f"--nproc-per-node=2 --log-dir={logs} --tee=0:1,1:3 --redirects=0:2", program)
        self.assertEqual(sorted(done.stdout.splitlines()), ["[default0]:out 0", "[default1]:out 1"])
        self.assertEqual(done.stderr.splitlines(), ["[default1]:err"])
        job, = os.listdir(logs)
        for rank in range(2):
            for name, text in (("stdout", f"out {rank}\n"), ("stderr", "err\n")):
                with open(os.path.join(logs, job, "attempt_0", str(rank), name + ".log")) as file:
                    self.assertEqual(file.read(), text)
        done = self.run_job("--nproc-per-node=2 --local-ranks-filter=1", program)
        self.assertEqual(done.stdout, "out 1\n")

    def test_launch_passes_local_rank_and_no_python(self):
        self.assertIn(["--local-rank=1", "a"], [args for _, args in self.output_of("--nproc-per-node=2", PRINT_ENVIRONMENT, "a", runner="phlox.distributed.launch")])
        done = subprocess.run([sys.executable, "-m", "phlox.distributed.run", "--no-python", "sh", "-c", "echo $RANK"], capture_output=True,
                              env=self.environment, text=True, timeout=300)
        self.assertEqual(done.stdout, "0\n")

    def test_argument_errors(self):
        for args, text in (("--nope", "unrecognized arguments: --nope"), ("--nnodes=1:2", "MIN:MAX"), ("--nproc-per-node=x", "Unsupported nproc_per_node value: x"),
                           ("--run-path", "option --run-path is not implemented in Phlox"), ("--start-method=fork", "--start-method fork is not implemented"),
                           ("--rdzv-backend=etcd", "--rdzv-backend etcd is not implemented"), ("--tee=4", "RANK:NUMBER,..., got '4'"), ("--max-restarts=-1", "got '-1'"),
                           ("--no-python -m", "Don't use both"), ("--signals-to-handle=SIGKILL", "SIGKILL")):
            self.assertIn(text, self.run_job(args, PRINT_ENVIRONMENT, code=2).stderr)

    def test_bad_values_are_usage_errors_of_one_line(self):
        numbers = "nnodes nproc-per-node node-rank max-restarts monitor-interval shutdown-timeout redirects tee local-ranks-filter master-port"
        words = "rdzv-backend rdzv-conf signals-to-handle start-method event-log-handler"
        for option in f"{numbers} {words}".split():
            for value in ("-1", "nan", "inf", "text", "1e400", "0x1", "\udcff", *(["9" * 20] if option != "local-ranks-filter" else [])):
                with self.subTest(option, value=value), self.assertRaises((ValueError, NotImplementedError)) as caught:
                    run.main([f"--{option}={value}", "--no-python", "true"])
                self.assertNotIn("\n", str(caught.exception))
        done = self.run_job("--shutdown-timeout=-1", PRINT_ENVIRONMENT, code=2)
        self.assertEqual(done.stderr, "phlox-run: error: argument --shutdown-timeout: invalid float value: '-1'\n")

    def start(self, *args):
        done = subprocess.run([os.fsencode(sys.executable), b"-m", b"phlox.distributed.run", *map(os.fsencode, args)], capture_output=True,
                              env=self.environment, cwd=self.folder, timeout=300)
        return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")

    def test_programs_that_cannot_start_are_one_line(self):
        os.mkdir(os.path.join(self.folder, "folder"))
        open(os.path.join(self.folder, "plain"), "w").close()
        for args, text in ((["--no-python", "missing"], "phlox-run: cannot start missing: No such file or directory"),
                           (["--no-python", "./folder"], "phlox-run: cannot start ./folder: Permission denied"),
                           (["--no-python", "./plain"], "phlox-run: cannot start ./plain: Permission denied"),
                           (["--no-python", b"miss\xff"], "phlox-run: cannot start miss\\xff: No such file or directory"),
                           (["--log-dir=plain", "missing.py"], "phlox-run: cannot make a folder for logs in plain")):
            self.assertEqual(self.start(*args), (1, "", text + "\n"))
        for args, text in ((["missing.py"], "can't open file 'missing.py': [Errno 2] No such file or directory"),
                           (["folder"], "can't open file 'folder': [Errno 21] Is a directory"), (["-m", "no_such"], "No module named no_such")):
            code, _, errors = self.start(*args)
            self.assertEqual((code, errors.splitlines()[0]), (1, f"{sys.executable}: {text}"))
            self.assertNotIn("Traceback", errors)

    def test_arguments_and_variables_keep_bytes_that_are_not_utf8(self):
        with open(os.path.join(os.fsencode(self.folder), b"caf\xe9.py"), "w") as file:
            file.write("import os, sys\nprint(os.fsencode(sys.argv[1]), os.environb[b'ROLE_NAME'], os.environb[b'OTHER'])")
        self.environment = {**os.environb, **{os.fsencode(k): os.fsencode(v) for k, v in self.environment.items()}, b"OTHER": b"\xfe"}
        self.assertEqual(self.start(b"--role=\xff", b"caf\xe9.py", b"\xfd"), (0, "b'\\xfd' b'\\xff' b'\\xfe'\n", ""))

    def test_shutdown_timeout_is_the_time_from_sigterm_to_sigkill(self):
        program = "import signal, sys, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nsys.stdout.write('ready\\n')\ntime.sleep(600)"
        for options in ([], ["--tee=3"]):
            with subprocess.Popen(command(["--shutdown-timeout=2", *options], program, self.folder), stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, env=self.environment, text=True) as agent:
                self.assertIn("ready", agent.stdout.readline())
                begin = time.monotonic()
                agent.send_signal(signal.SIGTERM)
                self.assertEqual(agent.wait(300), 1)
                spent = time.monotonic() - begin
            self.assertTrue(1.9 < spent < 3.5, spent)

    def test_join_timeout_is_the_time_given(self):
        begin = time.monotonic()
        code, _, errors = self.start("--nnodes=2", "--node-rank=1", "--rdzv-conf=join_timeout=1", f"--master-port={free_port()}", "x.py")
        self.assertEqual((code, errors.count("\n")), (1, 1))
        self.assertRegex(errors, "timed out after (9[0-9][0-9]|1000)ms")
        self.assertLess(time.monotonic() - begin, 30)


if __name__ == "__main__":
    unittest.main()
