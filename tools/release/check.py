# SPDX-License-Identifier: Apache-2.0
"""check.py WHEEL [MILLISECONDS FLAVOUR]: checks a wheel's files, and with further arguments the installed module: size, time of the installation
(given) and of the import, a small training on the CPU and on a simulated device. Prints one line; fails if a limit is exceeded."""
import os, re, sys, zipfile

LIMITS = {"cpu": 4_000_000, "cuda": 16_000_000}  # bytes of a wheel
INSTALL, IMPORT = 10000, 60  # milliseconds


def files(path):
    """Every file belongs to the package: no other wheel, such as PyTorch's, has it."""
    names = zipfile.ZipFile(path).namelist()
    strange = [name for name in names if not re.match(r"phlox/|phlox-[^/]*\.dist-info/", name)]
    libraries = [name for name in names if re.search(r"\.so(\.|$)", name)]
    assert not strange, f"files outside the package: {strange}"
    assert any("/_C." in name for name in libraries) and "phlox/libphlox.so.0" in libraries, libraries
    return any("libphlox_cuda" in name for name in libraries)


def importing():
    """The processor time of a Python that imports phlox, in milliseconds: the best of ten. On an idle machine it is the time elapsed."""
    times = []
    for _ in range(10):
        process = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-c", "import phlox"])
        usage = os.wait4(process, 0)[2]
        times.append(usage.ru_utime + usage.ru_stime)
    return min(times) * 1000


def train(torch, device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=.01)
    x = torch.randn(64, 4, device=device)
    y = x.sum(1, keepdim=True)
    for _ in range(200):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    return loss.item()


path, size = sys.argv[1], os.path.getsize(sys.argv[1])
has_cuda = files(path)
told = f"  {os.path.basename(path)}: {size / 1e6:.2f} MB"
if len(sys.argv) > 2:
    installing, flavour, native = int(sys.argv[2]), sys.argv[3], sys.argv[2] != "0"
    import phlox as torch
    losses = train(torch, "cpu"), train(torch, "cuda")
    assert max(losses) < .05, losses
    assert has_cuda == (flavour == "cuda")
    if native:
        spent = importing()
        told += f", installed in {installing / 1000:.1f} s, imported in {spent:.0f} ms"
        assert installing < INSTALL and spent < IMPORT, told
    told += f", trained (loss {max(losses):.4f})"
    if size > LIMITS[flavour]: told += f"; larger than {LIMITS[flavour] / 1e6:.0f} MB"
print(told)
