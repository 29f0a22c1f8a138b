# SPDX-License-Identifier: Apache-2.0
"""Scaling of training on several simulated devices: `python3 bench/devices.py [number of devices]`.

Runs the same steps on each device: in sequence, interleaved from one thread, and from one thread per device. The goal of the last two
is at most 1.1 times the first: devices share the processors and should not delay each other.
"""
import os, sys, threading, time

COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 4
os.environ.update(PHLOX_BACKENDS="sim", PHLOX_SIM_DEVICES=str(COUNT))
import run

sys.path.insert(0, os.path.join(run.ROOT, "python"))
torch = run.bind("phlox")
import nets

GOAL, STEPS, TURNS = 1.1, 12, 5


def make(device, kind):
    torch.manual_seed(0)
    net = getattr(nets, kind)().to(device)
    x = torch.rand(128, 784) if kind == "mlp" else torch.rand(64, 1, 28, 28)
    y = torch.randint(0, 10, (len(x),))
    x, y, optimizer = x.to(device), y.to(device), torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def steps(count):
        for _ in range(count):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
    return steps


def wait():
    for device in range(COUNT): torch.cuda.synchronize(device)


def in_order(devices):
    for steps in devices: steps(STEPS), wait()


def by_turns(devices):
    for _ in range(STEPS):
        for steps in devices: steps(1)
    wait()


def by_threads(devices):
    threads = [threading.Thread(target=steps, args=(STEPS,)) for steps in devices]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    wait()


def seconds(way, devices):
    begin = time.perf_counter()
    way(devices)
    return time.perf_counter() - begin


if __name__ == "__main__":
    print(f"{os.cpu_count()} cores, {COUNT} devices, {STEPS} steps on each")
    for kind in "mlp", "cnn":
        devices = [make(torch.device("cuda", i), kind) for i in range(COUNT)]
        minimum = {}
        for way in [in_order, by_turns, by_threads] * TURNS:
            minimum[way] = min(seconds(way, devices), minimum.get(way, float("inf")))
        for way, elapsed in minimum.items():
            ratio = elapsed / minimum[in_order]
            print(f"{kind}, {way.__name__.replace('_', ' '):12}{elapsed * 1e3:8.0f} ms{ratio:7.2f}{'' if ratio <= GOAL else '  more than ' + str(GOAL)}")
